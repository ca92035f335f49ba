"""TANK for Spark."""

from collections.abc import Callable

from ..offsetrangereader import fetch_bytes
from ..options import Options
from ..system import System
from .cluster import RangeCluster, settings_of
from .driver import TankBroker
from .rangereader import TankRangeReader

__all__ = ["SYSTEM"]


def _cluster(options: Options) -> Callable[[], RangeCluster]:
    settings, most = settings_of(options), fetch_bytes(options)
    return lambda: RangeCluster(settings, most)


SYSTEM = System(_cluster, TankBroker, TankRangeReader)
