"""Connections on which nothing is consumed: for questions and for producers."""

from fastwire.kafka.fetch import FetchLimits
from fastwire.kafka.response import Fetched
from fastwire.kafka.scan import CorruptBatch
from fastwire.kafka.slot import SlotTable
from fastwire.wire.pool import Pool

from ..linkbook import QuietBook
from .cluster import Cluster, Purpose
from .link import Link
from .settings import ClientSettings

__all__ = ["QuietCluster"]

MEMORY = 1 << 20  # nothing is consumed


class QuietCluster(Cluster, QuietBook[tuple[Purpose, str, int], Link]):
    """A cluster that looks after its connections itself, as long as it is used as a context."""

    def __init__(self, settings: ClientSettings) -> None:
        super().__init__(settings, SlotTable(), Pool(MEMORY), self, FetchLimits())

    def on_fetched(self, link: Link, fetched: Fetched) -> None: ...
    def on_corrupt(self, batch: CorruptBatch) -> None: ...
