"""Connection to one Master or Broker: runs the protocol on a socket and passes events to the source."""

import asyncio
from collections.abc import Sequence
from typing import Protocol, TypeVar

from google.protobuf.message import Message

from fastwire.columns.chunk import Chunk
from fastwire.errors import FastwireError
from fastwire.tubemq.format.error import Refused
from fastwire.tubemq.format.frame import Answer, Method
from fastwire.tubemq.grammar import GRAMMAR
from fastwire.tubemq.protocol.connection import Connection
from fastwire.tubemq.protocol.event import ChunkReady, CorruptFound, Event, FetchDone, FetchRefused, Lost, Reply
from fastwire.tubemq.reading.fetched import CorruptMessage, Fetched, Planned
from fastwire.tubemq.reading.scan import Scanner
from fastwire.tubemq.reading.slot import SlotTable
from fastwire.wire.pool import Pool

from ..links.brokerbook import Address
from ..links.link import BrokerLink, scan_options
from .settings import ClientSettings

__all__ = ["Link", "LinkOwner", "RefusedError"]

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


class LinkOwner(Protocol):
    """Receiver of the events of its links: the source."""

    def on_chunk(self, chunk: Chunk) -> None:
        """Take a chunk of messages."""

    def on_fetched(self, link: "Link", fetched: Fetched) -> None:
        """Take the end of a GET response."""

    def on_fetch_refused(self, link: "Link", index: int, session: int, error: RefusedError) -> None:
        """Handle a GET that the broker answered with an exception."""

    def on_corrupt(self, message: CorruptMessage) -> None:
        """Handle a message that cannot be decoded; its slot is detached."""

    def on_connected(self, link: "Link") -> None:
        """Note that the connection is ready for requests."""

    def on_lost(self, link: "Link", reason: Exception | None) -> None:
        """Note that the connection is closed; ``reason`` is None if this side closed it."""


class _Machine(Connection):
    """A connection without a handshake: it is ready while it is open."""

    @property
    def ready(self) -> bool:
        """See ``LinkMachine``."""
        return not self.closed


class Link(BrokerLink[_Machine, Event, Answer]):
    """A connection to one server, which answers in the order of the requests."""

    grammar = GRAMMAR

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
        self.address = address
        self.fetches = fetches
        self._settings = settings
        self._owner = owner
        self._planned: dict[int, Planned] = {}
        scanner = Scanner(slots, pool, **scan_options(settings, FETCH_BUFFER_BYTES if fetches else None))
        super().__init__(_Machine(scanner, request_timeout_s=settings.request_timeout_s), owner.on_chunk)

    @property
    def carries(self) -> bool:
        """See ``BrokerLink.carries``."""
        return self.fetches

    def __str__(self) -> str:
        host, port = self.address
        return f"{host}:{port}"

    async def open(self) -> None:
        """Connect. Raises UnreachableError or LinkLost."""
        tls = None if self._settings.tls is None else self._settings.tls.context()
        await self._connect(*self.address, tls, self._settings, self._let_in)
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

    def _on_events(self, events: Sequence[Event]) -> None:
        for event in events:
            match event:
                case ChunkReady(chunk):
                    self._owner.on_chunk(chunk)
                case FetchDone(fetched):
                    self._planned.pop(fetched.serial, None)
                    self._owner.on_fetched(self, fetched)
                case Reply(serial, answer):
                    self._answered(serial, answer)
                case FetchRefused(serial, body):
                    planned = self._planned.pop(serial)
                    assert isinstance(body, Refused)
                    error = RefusedError(body, str(self))
                    self._owner.on_fetch_refused(self, planned.index, planned.session, error)
                case CorruptFound(message):
                    self._owner.on_corrupt(message)
                case Lost(reason):
                    self.abort(reason)
                case _:
                    pass  # the transport sees to More

    def _left(self, text: str, reason: Exception | None) -> None:
        self._planned.clear()
        self._owner.on_lost(self, reason)
