"""Connection to one Kafka broker: runs the protocol on a socket and passes events to the source."""

import asyncio
from typing import Any, Protocol

from fastwire import __version__
from fastwire.errors import FastwireError
from fastwire.kafka.format.message import Body
from fastwire.kafka.grammar import GRAMMAR
from fastwire.kafka.protocol.connection import Connection
from fastwire.kafka.protocol.event import Event, LoginWanted, Throttled
from fastwire.kafka.protocol.fetch import Fetcher, FetchLimits
from fastwire.kafka.protocol.sasl import Mechanism, SaslError
from fastwire.kafka.reading.evidence import CorruptBatch
from fastwire.kafka.reading.response import Fetched
from fastwire.kafka.reading.scan import Scanner
from fastwire.kafka.reading.slot import SlotTable
from fastwire.wire.pool import Pool

from ...net.endpoint import LinkLost
from ..links.brokerbook import Address
from ..links.fetchlink import FetchLink, FetchOwner
from ..links.link import scan_options
from .settings import ClientSettings

Answer = asyncio.Future[Body]

FETCH_BUFFER_BYTES = 1 << 20


class LoginLost(LinkLost):
    """The broker has closed the connection instead of an answer to the login."""


class LinkOwner(FetchOwner[Fetched, CorruptBatch], Protocol):
    """Receiver of the events of its links: the source."""

    def on_throttled(self, link: "Link", seconds: float) -> None:
        """Note that the broker throttles this connection for ``seconds``."""


class Link(FetchLink[Connection, Event, Body, Fetcher]):
    """A connection to one broker. ``fetcher`` has the partitions that are read by this connection, if there are any."""

    grammar = GRAMMAR

    _owner: LinkOwner

    def __init__(
        self,
        address: Address,
        settings: ClientSettings,
        slots: SlotTable,
        pool: Pool,
        owner: LinkOwner,
        *,
        limits: FetchLimits | None = None,
    ) -> None:
        self._settings = settings
        self._exchange: Mechanism | None = None  # of the last login
        scanner = Scanner(slots, pool, **scan_options(settings, FETCH_BUFFER_BYTES if limits else None))
        connection = Connection(
            scanner,
            client_id=settings.client_id,
            software_version=__version__,
            request_timeout_s=settings.request_timeout_s,
        )
        super().__init__(address, connection, Fetcher(slots, limits or FetchLimits()), owner)

    def status(self) -> dict[str, Any]:
        """Return the fields of the status page that only links of Kafka have."""
        return {**super().status(), "throttled_s": round(self.throttled_s, 1)}

    @property
    def throttled_s(self) -> float:
        """Seconds for which the broker continues to throttle this connection, 0.0 if it does not throttle."""
        return self.connection.throttled_s(self._loop.time())

    async def open(self) -> None:
        """Connect, ask for versions, log in.

        Raises UnreachableError, AuthError, SaslError, UnsupportedError, LinkLost, or ProtocolError.
        """
        settings = self._settings
        mechanism = self._exchange = None if settings.login is None else await settings.login.begin()
        try:
            await self._connect(*self.address, settings, lambda: self.connection.connect(self._loop.time(), mechanism))
        except LinkLost as exc:
            if not self.connection.unheard:
                raise
            raise LoginLost(f"{exc} during the login: so do brokers before 1.0 refuse user and password") from None

    def begin(self, key: int, body: Body, *, most: int | None = None) -> Answer:
        """Make a request; its answer comes into the future, or LinkLost. Raises UnsupportedError or LinkLost."""
        self._need()
        return self._expect(self.connection.request(key, body, self._loop.time(), most=most))

    async def ask(self, key: int, body: Body, *, most: int | None = None, timeout_s: float | None = None) -> Body:
        """Make a request and wait for its answer. Raises UnsupportedError or LinkLost."""
        self._need()
        return await self._answer(self.connection.request(key, body, self._loop.time(), most=most, timeout_s=timeout_s))

    # --- calls of the transport

    def _on_event(self, event: Event) -> None:
        match event:
            case Throttled(seconds):
                self._owner.on_throttled(self, seconds)
            case LoginWanted():
                self._log_in_again(self._log_in)

    async def _log_in(self) -> None:
        login, before = self._settings.login, self._exchange
        if login is None or before is None:
            return
        login.forget(before)  # it may be good for a little longer, but not for another login of its full length
        try:
            self._exchange = await login.begin()
        except FastwireError as exc:
            self.transport.abort(exc)
            return
        if self.ready:
            self.connection.log_in(self._exchange, self._loop.time())
            self.transport.flush()

    def _left(self, text: str, reason: Exception | None) -> None:
        if isinstance(reason, SaslError) and self._settings.login is not None and self._exchange is not None:
            self._settings.login.forget(self._exchange)
        super()._left(text, reason)
