"""The driver for TubeMQ."""

from ...reading.clusterreader import Driver
from .settings import TubeMQSettings, reader_settings, settings_from
from .tubemqsource import TubeMQSource

__all__ = ["DRIVER", "TubeMQSettings", "TubeMQSource", "reader_settings", "settings_from"]

DRIVER = Driver(TubeMQSource, settings_from, reader_settings)
