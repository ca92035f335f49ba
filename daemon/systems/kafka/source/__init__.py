"""The driver for Apache Kafka."""

from .settings import KafkaSettings, settings_from
from .source import KafkaSource

__all__ = ["KafkaSettings", "KafkaSource", "settings_from"]
