"""The driver for Apache Kafka."""

from .kafkasource import KafkaSource
from .settings import KafkaSettings, reader_settings, settings_from

__all__ = ["KafkaSettings", "KafkaSource", "reader_settings", "settings_from"]
