"""The driver for TubeMQ."""

from .settings import TubeMQSettings, reader_settings, settings_from
from .tubemqsource import TubeMQSource

__all__ = ["TubeMQSettings", "TubeMQSource", "reader_settings", "settings_from"]
