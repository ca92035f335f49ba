"""Connection to one Master or Broker: runs the protocol on a socket and passes events to the source."""

import asyncio
from typing import Protocol, TypeVar

from google.protobuf.message import Message

from fastwire.errors import FastwireError
from fastwire.tubemq.format.error import Refused
from fastwire.tubemq.format.frame import Answer, Method
from fastwire.tubemq.grammar import GRAMMAR
from fastwire.tubemq.protocol.connection import Connection
from fastwire.tubemq.protocol.event import Event, FetchRefused
from fastwire.tubemq.reading.fetched import CorruptMessage, Fetched, Planned
from fastwire.tubemq.reading.scan import Scanner
from fastwire.tubemq.reading.slot import SlotTable
from fastwire.wire.pool import Pool

from ..links.brokerbook import Address
from ..links.fetchlink import FetchOwner, OwnedLink
from ..links.link import scan_options
from .settings import ClientSettings

FETCH_BUFFER_BYTES = 1 << 20  # a frame is complete in it before its messages are decoded

WRONG_PORT = (
    "the server is no Master: the url names those, whose port is 8715 as shipped, or 8716 with TLS; Brokers have 8123"
)

M = TypeVar("M", bound=Message)


class RefusedError(FastwireError):
    """A server answered a request with an exception. ``refused`` is that answer."""

    def __init__(self, refused: Refused, server: str) -> None:
        self.refused = refused
        advice = f" ({WRONG_PORT})" if refused.text.startswith("No service") else ""
        super().__init__(f"{server}: {refused.exception}: {refused.text}{advice}")


class LinkOwner(FetchOwner[Fetched, CorruptMessage], Protocol):
    """Receiver of the events of its links: the source."""

    def on_fetch_refused(self, link: "Link", index: int, session: int, error: RefusedError) -> None:
        """Handle a GET that the broker answered with an exception."""


class Link(OwnedLink[Connection, Event, Answer]):
    """A connection to one server, which answers in the order of the requests."""

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
        fetches: bool,
    ) -> None:
        self.fetches = fetches
        self._settings = settings
        self._planned: dict[int, Planned] = {}
        scanner = Scanner(slots, pool, **scan_options(settings, FETCH_BUFFER_BYTES if fetches else None))
        super().__init__(address, Connection(scanner, request_timeout_s=settings.request_timeout_s), owner)

    @property
    def carries(self) -> bool:
        """See ``BrokerLink.carries``."""
        return self.fetches

    async def open(self) -> None:
        """Connect. Raises UnreachableError or LinkLost."""
        await self._connect(*self.address, self._settings, self._let_in)
        self._owner.on_connected(self)

    def begin(self, method: Method, body: Message) -> "asyncio.Future[Answer]":
        """Make a request; its answer comes into the future, or LinkLost. Raises LinkLost."""
        self._need()
        return self._expect(self.connection.request(method, body, self._loop.time()))

    async def ask(self, method: Method, body: Message, kind: type[M]) -> M:
        """Make a request and return its answer. Raises LinkLost, or RefusedError for an exception of the server."""
        self._need()
        answer = await self._answer(self.connection.request(method, body, self._loop.time()))
        if isinstance(answer, Refused):
            raise RefusedError(answer, str(self))
        assert isinstance(answer, kind)
        return answer

    def get(self, body: Message, planned: Planned) -> None:
        """Request messages; ``on_fetched`` or ``on_fetch_refused`` follows. Raises LinkLost."""
        self._need()
        self._planned[self.connection.get(body, planned, self._loop.time())] = planned
        self._flush_soon()

    # --- calls of the transport

    def _on_event(self, event: Event) -> None:
        match event:
            case FetchRefused(serial, body):
                planned = self._planned.pop(serial)
                assert isinstance(body, Refused)
                error = RefusedError(body, str(self))
                self._owner.on_fetch_refused(self, planned.index, planned.session, error)

    def _fetched(self, fetched: Fetched) -> None:
        self._planned.pop(fetched.serial, None)
        super()._fetched(fetched)

    def _left(self, text: str, reason: Exception | None) -> None:
        self._planned.clear()
        super()._left(text, reason)
