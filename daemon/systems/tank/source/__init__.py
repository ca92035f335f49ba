"""The driver for TANK."""

from .settings import TankSettings, reader_settings, settings_from
from .tanksource import TankSource

__all__ = ["TankSettings", "TankSource", "reader_settings", "settings_from"]
