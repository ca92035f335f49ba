"""Cluster connections without consumers, for requests and for producers."""

from fastwire.pulsar.names.topic import Address
from fastwire.pulsar.reading.slot import SlotTable
from fastwire.wire.pool import Pool

from ..links.linkbook import TimedLinkBook
from .cluster import Cluster
from .link import Link
from .settings import ClientSettings

__all__ = ["ClientCluster"]

MEMORY = 1 << 20  # no records are read


class ClientCluster(Cluster, TimedLinkBook[tuple[Address, Address], Link]):
    """A cluster that ticks its own connections while it is used as an async context manager."""

    def __init__(self, settings: ClientSettings) -> None:
        super().__init__(settings, SlotTable(), Pool(MEMORY), self)

    def after_read(self, link: Link) -> None:
        """Do nothing: no records are read."""
