"""Connection to one TANK broker: runs the protocol on a socket and passes events to the source."""

import asyncio
from typing import TypeVar

from fastwire.tank.grammar import GRAMMAR
from fastwire.tank.protocol.connection import Connection, Question, Request
from fastwire.tank.protocol.event import Answer, Event
from fastwire.tank.protocol.fetch import Fetcher, FetchLimits
from fastwire.tank.reading.response import Fetched
from fastwire.tank.reading.scan import CorruptBundle, Scanner
from fastwire.tank.reading.slot import SlotTable
from fastwire.wire.pool import Pool

from ..links.brokerbook import Address
from ..links.fetchlink import FetchLink, FetchOwner
from ..links.link import scan_options
from .settings import ClientSettings

FETCH_BUFFER_BYTES = 256 << 10  # answers are decoded while they come: a buffer that stays in the cache

T = TypeVar("T")


LinkOwner = FetchOwner[Fetched, CorruptBundle]
"""Receiver of the events of its links: the source."""


class Link(FetchLink[Connection, Event, Answer, Fetcher]):
    """A connection to one broker. Answers come in any order, so a request that waits delays no other one."""

    grammar = GRAMMAR

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
        scanner = Scanner(slots, pool, **scan_options(settings, FETCH_BUFFER_BYTES if limits else None))
        connection = Connection(scanner, request_timeout_s=settings.request_timeout_s)
        super().__init__(address, connection, Fetcher(slots, limits or FetchLimits(), settings.client_id), owner)

    async def open(self) -> None:
        """Connect, and wait for the broker's ping. Raises UnreachableError, LinkLost, or ProtocolError."""

        def hello() -> None:
            self._on_events(self.connection.connect(self._loop.time()))

        await self._connect(*self.address, self._settings, hello)

    def begin(self, request: Request) -> "asyncio.Future[Answer]":
        """Make a request; its answer comes into the future, or LinkLost. Raises LinkLost.

        The connection is closed if there is no answer within ``request_timeout_s``.
        """
        self._need()
        return self._expect(self.connection.request(request, self._loop.time()))

    async def ask(self, question: Question[T]) -> T:
        """Make a request and wait for its answer, as ``begin``. Raises LinkLost."""
        self._need()
        answer = await self._answer(self.connection.request(question, self._loop.time()))
        assert isinstance(answer, question.answer)
        return answer
