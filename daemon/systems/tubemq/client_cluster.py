"""Cluster connections without a source, for producers."""

from fastwire.tubemq.reading.fetched import CorruptMessage, Fetched
from fastwire.tubemq.reading.slot import SlotTable
from fastwire.wire.pool import Pool

from ..links.brokerbook import BrokerKey
from ..links.linkbook import TimedLinkBook
from .cluster import Cluster
from .link import Link, RefusedError
from .settings import ClientSettings

__all__ = ["ClientCluster"]

MEMORY = 1 << 20  # no messages are read


class ClientCluster(Cluster, TimedLinkBook[BrokerKey, Link]):
    """A cluster that ticks its own connections while it is used as an async context manager."""

    def __init__(self, settings: ClientSettings) -> None:
        super().__init__(settings, SlotTable(), Pool(MEMORY), self)

    def on_fetched(self, link: Link, fetched: Fetched) -> None:
        """Do nothing: no messages are fetched."""

    def on_fetch_refused(self, link: Link, index: int, session: int, error: RefusedError) -> None:
        """Do nothing: no messages are fetched."""

    def on_corrupt(self, message: CorruptMessage) -> None:
        """Do nothing: no messages are fetched."""
