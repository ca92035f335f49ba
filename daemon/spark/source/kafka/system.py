"""Kafka for Spark."""

from collections.abc import Callable

from ..options import Options
from ..system import System
from .cluster import RangeCluster, fetch_limits, settings_of
from .driver import KafkaBroker
from .rangereader import KafkaRangeReader

__all__ = ["SYSTEM"]


def _cluster(options: Options) -> Callable[[], RangeCluster]:
    settings, limits = settings_of(options), fetch_limits(options)
    return lambda: RangeCluster(settings, limits)


SYSTEM = System(_cluster, KafkaBroker, KafkaRangeReader)
