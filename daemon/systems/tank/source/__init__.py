"""The driver for TANK."""

from ...reading.clusterreader import Driver
from .settings import TankSettings, reader_settings, settings_from
from .tanksource import TankSource

__all__ = ["DRIVER", "TankSettings", "TankSource", "reader_settings", "settings_from"]

DRIVER = Driver(TankSource, settings_from, reader_settings)
