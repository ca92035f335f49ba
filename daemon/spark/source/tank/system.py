"""TANK for Spark."""

from collections.abc import Callable

from ..options import Options
from ..system import System
from .cluster import RangeCluster, settings_of
from .driver import TankBroker
from .reading import TankRangeReader

__all__ = ["SYSTEM"]


def _cluster(options: Options) -> Callable[[], RangeCluster]:
    settings, fetch_bytes = settings_of(options), options.fetch_bytes
    return lambda: RangeCluster(settings, fetch_bytes)


SYSTEM = System(_cluster, TankBroker, TankRangeReader)
