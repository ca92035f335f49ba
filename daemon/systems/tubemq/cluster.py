"""Connections to one TubeMQ cluster: to the active Master, and to Brokers."""

from collections.abc import Iterable

from fastwire.tubemq.format.text import Broker
from fastwire.tubemq.reading.slot import SlotTable
from fastwire.wire.pool import Pool

from ..links.brokerbook import Address, BrokerBook, BrokerKey, Purpose
from ..links.linkbook import CLIENT_MEMORY, TimedLinkBook
from .link import Link, LinkOwner, RefusedError
from .settings import ClientSettings


class Cluster(BrokerBook[Link]):
    """Holds one connection to the Master in use, and one to each Broker.

    A Broker handles the requests of one connection in their order (spec: tubemq 6). Registrations, GETs and COMMITs
    rely on that order, so they share the connection.
    """

    def __init__(self, settings: ClientSettings, slots: SlotTable, pool: Pool, owner: LinkOwner) -> None:
        super().__init__(settings.url.addresses)
        self._settings = settings
        self._slots = slots
        self._pool = pool
        self._owner = owner

    def _make(self, key: BrokerKey) -> Link:
        purpose, host, port = key
        fetches = purpose == "fetch"
        return Link((host, port), self._settings, self._slots, self._pool, self._owner, fetches=fetches)

    def _answers(self, purpose: Purpose, link: Link) -> bool:
        return purpose == "ask"

    def _known(self) -> Iterable[Address]:
        return ()

    async def master(self) -> Link:
        """Return a connection to the Master in use. Raises the last error if no Master can be reached."""
        return await self.any()

    def leave_master(self, link: Link) -> None:
        """Use the next Master of the URL: this one is a stand-by, or has not answered."""
        self._turn += 1
        self.forget(link)
        link.close()

    async def broker(self, broker: Broker) -> Link:
        """Return the connection to a Broker."""
        return await self.link("fetch", broker.host, broker.port)


class ClientCluster(Cluster, TimedLinkBook[BrokerKey, Link]):
    """A cluster without a source, for producers: an async context manager that ticks its connections."""

    def __init__(self, settings: ClientSettings) -> None:
        super().__init__(settings, SlotTable(), Pool(CLIENT_MEMORY), self)

    def on_fetch_refused(self, link: Link, index: int, session: int, error: RefusedError) -> None:
        """Do nothing: no messages are fetched."""
