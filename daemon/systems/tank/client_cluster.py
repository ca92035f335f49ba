"""Cluster connections without a source, for requests and for producers."""

from fastwire.tank.reading.slot import SlotTable
from fastwire.wire.pool import Pool

from ..links.brokerbook import BrokerKey
from ..links.linkbook import TimedLinkBook
from .cluster import Cluster
from .link import Link
from .settings import ClientSettings

__all__ = ["ClientCluster"]

MEMORY = 1 << 20  # no messages are read


class ClientCluster(Cluster, TimedLinkBook[BrokerKey, Link]):
    """A cluster that ticks its own connections while it is used as an async context manager."""

    def __init__(self, settings: ClientSettings) -> None:
        super().__init__(settings, SlotTable(), Pool(MEMORY), self)
