"""The driver for Apache Pulsar."""

from .settings import PulsarSettings, settings_from
from .source import PulsarSource

__all__ = ["PulsarSettings", "PulsarSource", "settings_from"]
