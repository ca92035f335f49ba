"""Connections on which nothing is consumed: for questions and for producers."""

from fastwire.pulsar.slot import SlotTable
from fastwire.pulsar.topic import Address
from fastwire.wire.pool import Pool

from ..linkbook import QuietBook
from .cluster import Cluster
from .link import Link
from .settings import ClientSettings

__all__ = ["QuietCluster"]

MEMORY = 1 << 20  # nothing is consumed


class QuietCluster(Cluster, QuietBook[tuple[Address, Address], Link]):
    """A cluster that looks after its connections itself, as long as it is used as a context."""

    def __init__(self, settings: ClientSettings) -> None:
        super().__init__(settings, SlotTable(), Pool(MEMORY), self)

    def after_read(self, link: Link) -> None: ...
