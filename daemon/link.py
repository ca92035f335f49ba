"""One connection to a broker, driven: what the links of all systems do alike.

The machine says what bytes mean; a link has its socket, hands its chunks on, and answers those who wait.
"""

import asyncio
import ssl
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Generic, Protocol, TypeVar

from fastwire.columns.chunk import Chunk
from fastwire.errors import FastwireError, ProtocolError

from .endpoint import LinkLost, Machine
from .transport import Transport, open_transport

__all__ = ["BrokerLink", "LinkMachine", "Reach"]

A = TypeVar("A")
E = TypeVar("E")
E_co = TypeVar("E_co", covariant=True)


class Timed(Protocol):
    """A scanner, as far as its times are concerned."""

    def times(self) -> tuple[int, int, int, int]: ...


class LinkMachine(Machine[E_co], Protocol[E_co]):
    """A connection's state machine, with a scanner behind it that fills chunks."""

    open_since: float | None
    """When the open chunk got its first entry."""

    @property
    def scanner(self) -> Timed: ...
    @property
    def ready(self) -> bool:
        """Whether requests can be made."""

    def take_chunk(self) -> Chunk | None: ...
    def drop_chunk(self) -> None: ...


class Reach(Protocol):
    """What a client's settings say of every connection."""

    @property
    def server_name(self) -> str: ...
    @property
    def connect_timeout_s(self) -> float: ...


C = TypeVar("C", bound=LinkMachine[Any])


class BrokerLink(ABC, Generic[C, E, A]):
    """A connection ``C`` with events ``E``; an answer to a request is an ``A``.

    ``lost`` is done when the connection is gone, whoever ended it. Messages name the link by ``str``; ``server`` is
    what the broker calls itself, where it does.
    """

    def __init__(
        self, connection: C, on_chunk: Callable[[Chunk], None], after_read: Callable[[], None] | None = None
    ) -> None:
        self.server = ""
        self.connection = connection
        self.transport: Transport[E] = Transport(
            connection, on_events=self._on_events, on_lost=self._on_lost, after_read=after_read
        )
        self._loop = asyncio.get_running_loop()
        self.lost: asyncio.Future[None] = self._loop.create_future()
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._waiting: dict[int, asyncio.Future[A]] = {}
        self._asking = False  # questions go out at the end of the turn
        self._login: asyncio.Task[None] | None = None  # one more, while the connection is in use
        self._on_chunk = on_chunk
        self._timed = (0, 0, 0, 0)  # what was taken of the scanner's times

    @abstractmethod
    def __str__(self) -> str: ...

    @abstractmethod
    async def open(self) -> None:
        """Connect and be let in."""

    @abstractmethod
    def _on_events(self, events: Sequence[E]) -> None: ...

    @abstractmethod
    def _left(self, text: str, reason: Exception | None) -> None:
        """The connection is gone, and whoever waited for an answer knows it: tell all others."""

    def status(self) -> dict[str, Any]:
        """What the status page shows of this system's links alone."""
        return {}

    # --- opening

    async def _connect(
        self, host: str, port: int, tls: ssl.SSLContext | None, reach: Reach, hello: Callable[[], object]
    ) -> None:
        """Connect, say ``hello`` and wait to be let in; raises UnreachableError, LinkLost, or why we are not."""
        try:
            await open_transport(
                self.transport, host, port, tls=tls, server_name=reach.server_name, timeout_s=reach.connect_timeout_s
            )
        except BaseException:
            self.transport.forget()
            raise
        if not self.transport.open:
            raise LinkLost(f"connection to {self}: closed at once")
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
        return self.connection.ready and self.transport.open

    # --- requests

    def _need(self) -> None:
        if not self.ready:
            raise LinkLost(f"connection to {self} is closed")

    def _expect(self, request_id: int) -> "asyncio.Future[A]":
        """Send what is queued; the answer to this request, or LinkLost, comes into the future."""
        future: asyncio.Future[A] = self._loop.create_future()
        self._waiting[request_id] = future
        if not self._asking:
            # Answers come many at a time, and so do the questions that follow: one system call for those of a turn.
            self._asking = True
            self._loop.call_soon(self._send_questions)
        return future

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
        """Send what is queued."""
        self.transport.flush()

    # --- the clock, and the open chunk

    def tick(self, now: float, chunk_age_s: float) -> None:
        """Keep time: what the machine has to do by then, and the open chunk when it is ``chunk_age_s`` old."""
        self.transport.tick()
        since = self.connection.open_since
        if since is not None and now - since >= chunk_age_s:
            self.hand_on()

    def hand_on(self) -> None:
        """Hand the open chunk on, full or not."""
        chunk = self.connection.take_chunk()
        if chunk is not None:
            self._on_chunk(chunk)

    def take_times(self) -> tuple[int, ...]:
        """Nanoseconds by stage since this was asked last, as the scanner's ``times``."""
        before, self._timed = self._timed, self.connection.scanner.times()
        return tuple(now - then for now, then in zip(self._timed, before, strict=True))

    def drop_chunk(self) -> None:
        """Forget what the open chunk holds."""
        self.connection.drop_chunk()

    # --- the end

    def close(self) -> None:
        """Close the socket in order."""
        self.transport.close()
        if not self.transport.open and not self.lost.done():
            self._gone("closed")

    def abort(self, reason: str) -> None:
        """Close the socket at once."""
        self.transport.abort(LinkLost(reason))

    @staticmethod
    def why(reason: Exception | None) -> str:
        """What has ended a connection, as one of the words of the metrics."""
        if reason is None or isinstance(reason, OSError):
            return "lost"
        if isinstance(reason, ProtocolError):
            return "protocol_error"
        return "silent" if isinstance(reason, LinkLost) else "other"

    def _on_lost(self, reason: Exception | None) -> None:
        # What was received is sound, whatever happened to the connection afterwards.
        self.hand_on()
        self._gone("closed by the broker" if reason is None else str(reason), reason)

    def _gone(self, text: str, reason: Exception | None = None) -> None:
        self.connection.close()
        if self._login is not None:
            self._login.cancel()
        lost = reason if isinstance(reason, FastwireError) else LinkLost(f"connection to {self}: {text}")
        if not self._ready.done():
            self._ready.set_exception(lost)
            self._ready.exception()  # nobody may be waiting any more
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(LinkLost(f"connection to {self}: {text}"))
        self._left(text, reason)
        if not self.lost.done():
            self.lost.set_result(None)
