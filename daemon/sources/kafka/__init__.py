"""The driver for Apache Kafka."""

from .settings import KafkaSettings
from .source import KafkaSource

__all__ = ["KafkaSettings", "KafkaSource"]
