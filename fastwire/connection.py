"""What connections of all systems have in common: a scanner behind them, bytes to be sent, time that may stand still.

Each is a state machine: bytes in, events out; intentions in, bytes out. Time is an argument, in seconds of any clock
that never steps back. Whoever drives one

* hands socket bytes over by ``get_buffer`` and ``receive``, and deals with the events in the order given,
* empties ``take_outbound`` into the socket after every call,
* calls ``tick`` now and then, and
* closes the socket when an error comes out, or an event that says so.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from fastwire.columns.chunk import Chunk
from fastwire.columns.scan import CHUNK_FULL, NEED_BYTES, OUTPUT_CAP

__all__ = ["ChunkConnection", "ChunkReady", "Lost", "More", "Scanning"]

CONNECT_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class ChunkReady:
    """A chunk is full; its records come before whatever the next events say."""

    chunk: Chunk


@dataclass(frozen=True, slots=True)
class More:
    """There is more in the buffer: call ``receive(0, now)`` soon, and read nothing until then.

    Enough came out of it for one turn, or an event has to be dealt with first.
    """


@dataclass(frozen=True, slots=True)
class Lost:
    """The peer is dead, silent or too slow: close the socket."""

    reason: str


_MORE = More()


class Scanning(Protocol):
    """What a connection needs of ``columns.scan.ChunkScanner``."""

    def get_buffer(self, sizehint: int, /) -> memoryview: ...
    def received(self, nbytes: int, /) -> None: ...
    def rest(self) -> None: ...
    def resume(self) -> None: ...
    def times(self) -> tuple[int, int, int, int]: ...
    def scan(self) -> int: ...
    def take_chunk(self) -> Chunk | None: ...
    def drop_chunk(self) -> None: ...
    @property
    def has_open(self) -> bool: ...


S = TypeVar("S", bound=Scanning)
E = TypeVar("E")


class ChunkConnection(ABC, Generic[S, E]):
    """One connection; a system's own adds what it says and understands."""

    def __init__(self, scanner: S) -> None:
        self.scanner = scanner
        self.get_buffer = scanner.get_buffer
        self.more = False  # the last ``receive`` ended with ``More``
        self.open_since: float | None = None  # when the open chunk got its first records
        self._out: list[bytes] = []
        self._received_at = 0.0
        self._connect_deadline = 0.0
        self._suspended_at: float | None = None

    # --- bytes in

    def receive(self, nbytes: int, now: float) -> Sequence[E | ChunkReady | More]:
        """``nbytes`` were written to the buffer; return what they mean, in wire order.

        Raises ProtocolError (the peer broke the framing or the rules) or another FastwireError: close the socket.
        """
        scanner = self.scanner
        if nbytes:
            scanner.received(nbytes)
            self._received_at = now
        else:
            scanner.resume()
        self.more = False
        stop = scanner.scan()
        events: list[E | ChunkReady | More] | None = None
        while stop != NEED_BYTES:
            if events is None:
                events = []
            if stop == CHUNK_FULL:
                self._hand_on(events)
            elif stop == OUTPUT_CAP or self._stopped(stop, now, events):
                self.more = True
                events.append(_MORE)
                break
            stop = scanner.scan()
        if self.open_since is None and scanner.has_open:
            self.open_since = now
        return () if events is None else events

    @abstractmethod
    def _stopped(self, stop: int, now: float, events: list[E | ChunkReady | More]) -> bool:
        """Deal with a reason of the system's own; true if scanning has to wait until somebody has dealt with it."""

    def take_chunk(self) -> Chunk | None:
        """Give out the open chunk before it is full, because it is old or the connection ends."""
        self.open_since = None
        return self.scanner.take_chunk()

    def drop_chunk(self) -> None:
        """Forget what the open chunk holds."""
        self.open_since = None
        self.scanner.drop_chunk()

    def _hand_on(self, events: list[E | ChunkReady | More]) -> None:
        chunk = self.take_chunk()
        if chunk is not None:
            events.append(ChunkReady(chunk))

    # --- bytes out

    def take_outbound(self) -> list[bytes]:
        """Everything to be written to the socket, in order."""
        out, self._out = self._out, []
        return out

    @property
    def has_outbound(self) -> bool:
        return bool(self._out)

    # --- time

    def suspend(self, now: float) -> None:
        """Nothing is read from here on: what the peer says goes unheard, so its silence proves nothing."""
        if self._suspended_at is None:
            self._suspended_at = now

    def resume(self, now: float) -> None:
        """Reading goes on; deadlines move by as long as it rested."""
        if self._suspended_at is None:
            return
        rested = now - self._suspended_at
        self._suspended_at = None
        self._connect_deadline += rested
        self._postpone(rested, now)

    @abstractmethod
    def _postpone(self, rested: float, now: float) -> None:
        """Move the deadlines of all requests by ``rested`` seconds."""

    def close(self) -> None:
        """The socket is closed or about to be: nothing more goes in or out, no request will be answered."""
        self._out.clear()
