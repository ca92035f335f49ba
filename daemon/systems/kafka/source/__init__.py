"""The driver for Apache Kafka."""

from .settings import KafkaSettings, reader_settings, settings_from
from .source import KafkaSource

__all__ = ["KafkaSettings", "KafkaSource", "reader_settings", "settings_from"]
