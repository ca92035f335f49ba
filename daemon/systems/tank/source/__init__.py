"""The driver for TANK."""

from .settings import TankSettings, reader_settings, settings_from
from .source import TankSource

__all__ = ["TankSettings", "TankSource", "reader_settings", "settings_from"]
