"""TANK for Spark."""

from collections.abc import Callable

from fastwire.tank.protocol.fetch import FetchLimits

from ..offsetrangereader import fetch_bytes
from ..options import Options
from ..system import System
from .cluster import RangeCluster, settings_of
from .driver import TankBroker
from .rangereader import TankRangeReader

__all__ = ["SYSTEM"]


def _cluster(options: Options) -> Callable[[], RangeCluster]:
    settings, most = settings_of(options), fetch_bytes(options)
    limits = FetchLimits(answer_bytes=most, partition_bytes=most, max_wait_ms=0)
    return lambda: RangeCluster(settings, limits)


SYSTEM = System(_cluster, TankBroker, TankRangeReader)
