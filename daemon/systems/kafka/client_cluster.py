"""Cluster connections without consumers, for requests and for producers."""

from fastwire.kafka.protocol.fetch import FetchLimits
from fastwire.kafka.reading.slot import SlotTable
from fastwire.wire.pool import Pool

from ..links.brokerbook import BrokerKey
from ..links.linkbook import TimedLinkBook
from .cluster import Cluster
from .link import Link
from .settings import ClientSettings

__all__ = ["ClientCluster"]

MEMORY = 1 << 20  # no records are read


class ClientCluster(Cluster, TimedLinkBook[BrokerKey, Link]):
    """A cluster that ticks its own connections while it is used as an async context manager."""

    def __init__(self, settings: ClientSettings) -> None:
        super().__init__(settings, SlotTable(), Pool(MEMORY), self, FetchLimits())

    def on_throttled(self, link: Link, seconds: float) -> None:
        """Do nothing: requests wait for the end of a throttle in the connection."""
