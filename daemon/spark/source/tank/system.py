"""TANK for Spark."""

from dataclasses import replace

from ....systems.tank.config import TankConnection
from ....systems.tank.source import DRIVER, TankSettings
from ..offsetrangereader import OffsetRangeReader, fetch_bytes
from ..offsetranges import FETCH_WAIT_MS, offset_ranges, range_settings
from ..options import Options
from ..rows import Rows
from ..system import System
from .dialect import DIALECT
from .driver import TankBroker


def _settings(options: Options) -> TankSettings:
    own, most = TankConnection.of(options.connection), fetch_bytes(options)
    settings: TankSettings = range_settings(DRIVER, own, Rows.built(DIALECT, options.columns))
    limits = replace(settings.limits, answer_bytes=most, partition_bytes=most, max_wait_ms=FETCH_WAIT_MS)
    return replace(settings, client_id=own.client_id or options.prefix, limits=limits)


SYSTEM = System(lambda options: offset_ranges(DRIVER, _settings(options)), TankBroker, OffsetRangeReader)
