"""Base of the broker connections of all systems: receive, outbound bytes, suspension and deadlines.

A connection is a state machine: bytes in, events out; requests in, bytes out. Time is an argument, in seconds of any
clock that never steps back. The driver of a connection

* writes socket bytes to ``get_buffer``, calls ``receive``, and handles the events in the order given, ``ChunkReady``
  before all others if their handling may take the open chunk,
* writes ``take_outbound`` to the socket after every call,
* calls ``tick`` periodically, and
* closes the socket after an error, or after an event that says so.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from fastwire.columns.chunk import Chunk
from fastwire.columns.scan import CHUNK_FULL, NEED_BYTES, OUTPUT_CAP, ChunkScanner
from fastwire.errors import FastwireError

CONNECT_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class ChunkReady:
    """A full chunk. Its records precede everything that later events report."""

    chunk: Chunk


@dataclass(frozen=True, slots=True)
class More:
    """Buffered bytes remain: the driver calls ``receive(0, now)`` soon, and reads nothing from the socket until then.

    Either the output of one turn is large enough, or the preceding event must be handled first.
    """


@dataclass(frozen=True, slots=True)
class Lost:
    """The peer is gone, silent or too slow: the driver closes the socket."""

    reason: str


_MORE = More()


S = TypeVar("S", bound=ChunkScanner)
E = TypeVar("E")


class ChunkConnection(ABC, Generic[S, E]):
    """Base of a connection to a broker; a system's subclass adds its requests and events."""

    def __init__(self, scanner: S) -> None:
        self.scanner = scanner
        self.get_buffer = scanner.get_buffer
        self.more = False  # the last ``receive`` ended with ``More``
        self.open_since: float | None = None  # time of the first records in the open chunk
        self.heard = False  # the peer has sent something that is valid in this protocol
        self.greeting = b""  # its first bytes, 8 at most, until then
        self._out: list[bytes] = []
        self._received_at = 0.0
        self._connect_deadline = 0.0
        self._suspended_at: float | None = None
        self._broken: FastwireError | None = None  # found behind what the last ``receive`` has returned

    # --- bytes in

    def receive(self, nbytes: int, now: float) -> Sequence[E | ChunkReady | More]:
        """Process ``nbytes`` bytes that were written to the buffer; return the resulting events in wire order.

        Raises ProtocolError (the peer broke the framing or the rules) or another FastwireError: close the socket. What
        came before it is returned first, with ``More``.
        """
        if self._broken is not None:
            raise self._take_broken()
        scanner = self.scanner
        if nbytes:
            scanner.received(nbytes)
            self._received_at = now
        else:
            scanner.resume()
        self.more = False
        if not self.heard:
            self.greeting = scanner.peek()
        events: list[E | ChunkReady | More] = []
        try:
            self.more = self._scan(now, events)
        except FastwireError as exc:
            if not events:
                raise
            self._broken = exc.with_traceback(None)
            self.more = True
        if self.more:
            events.append(_MORE)
        if self.open_since is None and scanner.has_open:
            self.open_since = now
        return events or ()

    def _take_broken(self) -> FastwireError:
        # Neither a frame nor this connection refers to it then: each would be a cycle with the receive buffer in it.
        broken, self._broken = self._broken, None
        assert broken is not None
        self.more = False
        return broken

    def _scan(self, now: float, events: list[E | ChunkReady | More]) -> bool:
        """Decode the buffered bytes; return True if some are left for another turn."""
        scanner = self.scanner
        while (stop := scanner.scan()) != NEED_BYTES:
            if stop == CHUNK_FULL:
                self._hand_on(events)
            elif stop == OUTPUT_CAP or self._found(now, events):
                self.heard = True
                return True
            self.heard = True
        return False

    @abstractmethod
    def _found(self, now: float, events: list[E | ChunkReady | More]) -> bool:
        """Take what the scanner has found; return True if the caller must handle it before the next scan."""

    def take_chunk(self) -> Chunk | None:
        """Close the open chunk and return it, full or not; None if it is empty."""
        self.open_since = None
        return self.scanner.take_chunk()

    def drop_chunk(self) -> None:
        """Discard the open chunk."""
        self.open_since = None
        self.scanner.drop_chunk()

    def _hand_on(self, events: list[E | ChunkReady | More]) -> None:
        chunk = self.take_chunk()
        if chunk is not None:
            events.append(ChunkReady(chunk))

    # --- bytes out

    def take_outbound(self) -> list[bytes]:
        """Return all bytes to be written to the socket, in order, and remove them from the queue."""
        out, self._out = self._out, []
        return out

    @property
    def has_outbound(self) -> bool:
        """True if bytes are queued for the socket."""
        return bool(self._out)

    # --- time

    def suspend(self, now: float) -> None:
        """Stop reading. The peer's silence does not count until ``resume``."""
        if self._suspended_at is None:
            self._suspended_at = now

    def resume(self, now: float) -> None:
        """Continue reading. All deadlines move by the duration of the suspension."""
        if self._suspended_at is None:
            return
        rested = now - self._suspended_at
        self._suspended_at = None
        self._connect_deadline += rested
        self._postpone(rested, now)

    @property
    @abstractmethod
    def ready(self) -> bool:
        """True once the handshake is complete, until the connection is closed."""

    @property
    @abstractmethod
    def awaiting(self) -> bool:
        """True if a response is pending; requests for records do not count."""

    @abstractmethod
    def tick(self, now: float) -> Sequence[E | ChunkReady | More]:
        """Handle the deadlines that have passed; return the resulting events."""

    @abstractmethod
    def _postpone(self, rested: float, now: float) -> None:
        """Move the deadlines of all requests by ``rested`` seconds."""

    def close(self) -> None:
        """Discard queued output: the socket is closed or about to be, and no pending request will be answered."""
        self._out.clear()
