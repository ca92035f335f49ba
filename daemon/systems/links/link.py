"""The common base of broker connections of all systems.

A state machine implements the protocol; the link owns its socket, passes its chunks on, and completes pending requests.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal, TypeVar

from fastwire.columns.chunk import Chunk
from fastwire.connection import ChunkConnection, ChunkReady
from fastwire.errors import FastwireError, ProtocolError
from fastwire.grammar import Grammar

from ...config.brokers.secured import Secured
from ...net.endpoint import LinkLost, WrongProtocol
from ...net.tls import ClientTls
from ...net.transport import Transport, open_transport
from ...runtime.clock import CLOCK
from .wrongport import foreign, unheard

CONTROL_BUFFER_BYTES = 64 << 10  # of a connection that fetches no records

A = TypeVar("A")
E = TypeVar("E")


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSettings:
    """Settings of every connection of a client, and of the records that come by it; a system adds its own."""

    tls: ClientTls | None = None
    server_name: str = ""
    """The name that the broker's certificate must carry; "" for its host."""
    columns: frozenset[str] | None = None
    """The columns to build, None for all."""
    on_corrupt: Literal["dead_letter", "stop"] = "dead_letter"
    """Reaction to records that cannot be decoded."""
    connect_timeout_s: float = 10.0


def tls_fields(own: Secured) -> dict[str, Any]:
    """Return the fields of ``LinkSettings`` about TLS. Raises ConfigError for unusable files."""
    return {"tls": ClientTls(own.tls) if own.url.tls else None, "server_name": own.tls.server_name or ""}


def scan_options(settings: LinkSettings, fetch_bytes: int | None) -> dict[str, Any]:
    """Return the options of a connection's scanner. ``fetch_bytes``: its buffer, None if it fetches no records."""
    return {
        "columns": settings.columns,
        "on_corrupt": settings.on_corrupt,
        "buffer_bytes": fetch_bytes or CONTROL_BUFFER_BYTES,
        "clock": CLOCK if fetch_bytes else None,
    }


C = TypeVar("C", bound=ChunkConnection[Any, Any])


class BrokerLink(ABC, Generic[C, E, A]):
    """A connection ``C`` with events ``E`` and responses ``A``.

    The future ``lost`` is done when the connection is closed by either side. Messages name the link by ``str``;
    ``server`` is the name and version that the broker reports, "" if it reports none. ``on_grown`` is called after a
    read for which the receive buffer has grown.
    """

    grammar: ClassVar[Grammar]
    """The grammar of the system."""

    def __init__(self, connection: C, on_chunk: Callable[[Chunk], None]) -> None:
        self.server = ""
        self.was_idle = False
        """True of a connection that has ended without a request in flight, and on which no records were expected."""
        self.connection = connection
        self.transport: Transport[Any] = Transport(
            connection, on_events=self._take_in, on_lost=self._on_lost, after_read=self._after_read
        )
        self.on_grown: Callable[[], object] | None = None
        self._growths = 0
        self._loop = asyncio.get_running_loop()
        self.lost: asyncio.Future[None] = self._loop.create_future()
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._waiting: dict[int, asyncio.Future[A]] = {}
        self._asking = False  # a flush of requests is scheduled for the end of this turn
        self._login: asyncio.Task[None] | None = None  # a repeated login on the connection in use
        self._on_chunk = on_chunk
        self._peer = 0, False  # the port of the socket's peer, and whether it is reached by TLS
        self._timed = (0, 0, 0, 0)  # the scanner's times at the last ``take_times``

    @abstractmethod
    def __str__(self) -> str: ...

    @abstractmethod
    async def open(self) -> None:
        """Connect and log in. Raises UnreachableError, LinkLost, or the broker's refusal."""

    def _take_in(self, events: Sequence[E]) -> None:
        # Whatever handles another event may pass the open chunk on, whose records come behind all of these.
        for event in events:
            if isinstance(event, ChunkReady):
                self._on_chunk(event.chunk)
        self._on_events(events)

    @abstractmethod
    def _on_events(self, events: Sequence[E]) -> None:
        """Handle all events but ``ChunkReady`` and ``More``."""

    @abstractmethod
    def _left(self, text: str, reason: Exception | None) -> None:
        """Notify the users of this link; the requests in flight have failed already."""

    @property
    def carries(self) -> bool:
        """True while records, or receipts for records, are expected on this connection."""
        return False

    def status(self) -> dict[str, Any]:
        """Return this system's own fields for the link's entry on the status page."""
        return {}

    def _after_read(self) -> None:
        if self.on_grown is not None and (growths := self.connection.scanner.growths) != self._growths:
            self._growths = growths
            self.on_grown()

    # --- opening

    async def _connect(
        self, host: str, port: int, settings: LinkSettings, hello: Callable[[], object], *, plain: bool = False
    ) -> None:
        """Connect, send ``hello`` and wait for the handshake. Raises UnreachableError, LinkLost, or the refusal.

        A ``plain`` connection has no TLS, whatever the settings say.
        """
        tls = None if plain or settings.tls is None else settings.tls.context()
        self._peer = port, tls is not None
        try:
            await open_transport(
                self.transport,
                host,
                port,
                tls=tls,
                server_name=settings.server_name,
                timeout_s=settings.connect_timeout_s,
            )
        except BaseException:
            self.transport.forget()
            raise
        if not self.transport.open:
            raise LinkLost(f"connection to {self}: closed at once: {unheard(self.grammar, *self._peer)}")
        hello()
        self.transport.flush()
        try:
            await asyncio.shield(self._ready)
        except asyncio.CancelledError:
            self.abort("given up")
            raise

    def _let_in(self) -> None:
        if not self._ready.done():
            self._ready.set_result(None)

    def _log_in_again(self, login: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if self._login is None or self._login.done():
            self._login = self._loop.create_task(login())

    @property
    def ready(self) -> bool:
        """True while the connection is open and the handshake complete."""
        return self.connection.ready and self.transport.open

    # --- requests

    def _need(self) -> None:
        if not self.ready:
            raise LinkLost(f"connection to {self} is closed")

    def _expect(self, request_id: int) -> "asyncio.Future[A]":
        """Send the queued requests; the future returns the response to this one, or raises LinkLost."""
        future: asyncio.Future[A] = self._loop.create_future()
        self._waiting[request_id] = future
        self._flush_soon()
        return future

    def _flush_soon(self) -> None:
        """Send the queued requests at the end of this turn of the loop."""
        if not self._asking:
            # Responses arrive many at a time, and so do the requests that follow: one system call per turn.
            self._asking = True
            self._loop.call_soon(self._send_questions)

    def _send_questions(self) -> None:
        self._asking = False
        self.transport.flush()

    async def _answer(self, request_id: int) -> A:
        future = self._expect(request_id)
        try:
            return await future
        finally:
            self._waiting.pop(request_id, None)
            del future  # it holds its exception, which holds this frame, which holds the receive buffer

    def _answered(self, request_id: int, answer: A) -> None:
        future = self._waiting.pop(request_id, None)
        if future is not None and not future.done():
            future.set_result(answer)

    def _refused(self, request_id: int, error: Exception) -> None:
        future = self._waiting.pop(request_id, None)
        if future is not None and not future.done():
            future.set_exception(error)

    def flush(self) -> None:
        """Send the queued requests."""
        self.transport.flush()

    # --- the timer, and the open chunk

    def tick(self, now: float, chunk_age_s: float) -> None:
        """Run the machine's timers, and pass the open chunk on when it is ``chunk_age_s`` seconds old."""
        self.transport.tick()
        since = self.connection.open_since
        if since is not None and now - since >= chunk_age_s:
            self.hand_on()

    def hand_on(self) -> None:
        """Pass the open chunk on, full or not."""
        chunk = self.connection.take_chunk()
        if chunk is not None:
            self._on_chunk(chunk)

    def take_times(self) -> tuple[int, ...]:
        """Return the nanoseconds by stage since the last call, in the order of the scanner's ``times``."""
        before, self._timed = self._timed, self.connection.scanner.times()
        return tuple(now - then for now, then in zip(self._timed, before, strict=True))

    def drop_chunk(self) -> None:
        """Drop the rows of the open chunk."""
        self.connection.drop_chunk()

    # --- the end

    def close(self) -> None:
        """Close the socket after sending what is queued."""
        self.transport.close()
        if not self.transport.open and not self.lost.done():
            self._gone("closed")

    def abort(self, reason: str) -> None:
        """Close the socket at once."""
        self.transport.abort(LinkLost(reason))

    @staticmethod
    def why(reason: Exception | None) -> str:
        """Return the metrics' word (``ReconnectReason``) for the reason that has ended a connection."""
        if reason is None or isinstance(reason, OSError):
            return "lost"
        if isinstance(reason, ProtocolError | WrongProtocol):
            return "protocol_error"
        return "silent" if isinstance(reason, LinkLost) else "other"

    def _on_lost(self, reason: Exception | None) -> None:
        # Received records are valid, whatever happened to the connection afterwards.
        self.hand_on()
        text = "closed by the broker" if reason is None else str(reason)
        if not self.connection.heard:
            text, reason = self._of_stranger(text, reason)
        self._gone(text, reason)

    def _of_stranger(self, text: str, reason: Exception | None) -> tuple[str, Exception | None]:
        """Return the text and the reason for the loss of a peer that has said nothing valid: is it a broker at all?"""
        if isinstance(reason, FastwireError) and not isinstance(reason, LinkLost | ProtocolError):
            return text, reason
        if not self.transport.bytes_read:
            return f"{text}: {unheard(self.grammar, *self._peer)}", reason
        text = foreign(self.grammar, self._peer[0], self.connection.greeting, text)
        return text, WrongProtocol(text)

    def _gone(self, text: str, reason: Exception | None = None) -> None:
        self.was_idle = not self._waiting and not self.carries
        self.connection.close()
        if self._login is not None:
            self._login.cancel()
        lost: FastwireError = LinkLost(f"connection to {self}: {text}")
        if isinstance(reason, FastwireError) and not isinstance(reason, LinkLost):
            lost = reason
        if not self._ready.done():
            self._ready.set_exception(lost)
            self._ready.exception()  # there may be no caller left that retrieves it
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(LinkLost(f"connection to {self}: {text}"))
        self._left(text, reason)
        if not self.lost.done():
            self.lost.set_result(None)
