"""Pulsar for Spark."""

from collections.abc import Callable

from ..options import Options
from ..system import System
from .cluster import RangeCluster, settings_of
from .driver import PulsarBroker
from .reading import PulsarRangeReader

__all__ = ["SYSTEM"]


def _cluster(options: Options) -> Callable[[], RangeCluster]:
    settings = settings_of(options)
    return lambda: RangeCluster(settings)


SYSTEM = System(_cluster, PulsarBroker, PulsarRangeReader)
