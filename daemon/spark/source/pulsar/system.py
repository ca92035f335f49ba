"""Pulsar for Spark."""

from collections.abc import Callable

from ..options import Options
from ..system import System
from .cluster import RangeCluster, settings_of
from .driver import PulsarBroker
from .rangereader import PulsarRangeReader

WINDOW = 10_000


def _cluster(options: Options) -> Callable[[], RangeCluster]:
    settings, window = settings_of(options), options.own.get("receiverQueueSize", WINDOW)
    return lambda: RangeCluster(settings, window)


SYSTEM = System(_cluster, PulsarBroker, PulsarRangeReader)
