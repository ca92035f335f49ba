"""The driver for Apache Pulsar."""

from .pulsarsource import PulsarSource
from .settings import PulsarSettings, settings_from

__all__ = ["PulsarSettings", "PulsarSource", "settings_from"]
