"""The driver for Apache Kafka."""

from ...reading.clusterreader import Driver
from .kafkasource import KafkaSource
from .settings import KafkaSettings, reader_settings, settings_from

__all__ = ["DRIVER", "KafkaSettings", "KafkaSource", "reader_settings", "settings_from"]

DRIVER = Driver(KafkaSource, settings_from, reader_settings)
