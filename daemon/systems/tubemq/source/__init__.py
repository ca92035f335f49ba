"""The driver for TubeMQ."""

from .settings import TubeMQSettings, reader_settings, settings_from
from .source import TubeMQSource

__all__ = ["TubeMQSettings", "TubeMQSource", "reader_settings", "settings_from"]
