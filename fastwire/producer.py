"""Base of producers: batches of one partition by count, bytes and delay, their order, deadlines and outcomes.

A producer is a state machine. Records go in by ``send``, batches come out by the ``take`` of a system's subclass, which
also handles the answers. Time is an argument, in seconds of any clock that never steps back.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from fastwire.columns.block import Block
from fastwire.columns.routes import Routes
from fastwire.errors import FastwireError

RETRY_S = 0.1  # before a batch is sent again that the broker has refused for the moment

K = TypeVar("K")
R = TypeVar("R")


class NotConfirmed(FastwireError):  # noqa: N818 - what has happened: the records may be stored all the same
    """The broker sent no response before the timeout; whether the records are stored is unknown."""


class TransactionLost(FastwireError):  # noqa: N818 - what has happened to the transaction
    """The transaction is not, or not known to be, committed and cannot be continued: begin another one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits:
    """Limits of a batch. The first limit that is reached closes it; bytes count before compression."""

    records: int = 10_000
    bytes: int = 512 << 10
    delay_s: float = 0.005

    def __post_init__(self) -> None:
        if self.records < 1 or self.bytes < 1 or self.delay_s < 0:
            raise ValueError("a batch needs records and bytes of at least 1, and a delay that is not negative")


class Settings(Protocol):
    """The settings of a producer that concern its batches."""

    @property
    def batching(self) -> BatchLimits:
        """The limits of a batch."""

    @property
    def send_timeout_s(self) -> float | None:
        """Seconds from the call of ``send`` after which a record fails; None: no timeout."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of the records of a batch: stored from ``offset`` on, or failed with ``error``.

    The offset is -1 if the broker has not said it. Rows have no tickets. ``refused`` are the origins of rows (see
    ``Rows``) that the broker stores never, while it may store all others.
    """

    tickets: Sequence[object]
    records: int
    size: int  # bytes of the batch
    offset: int = -1
    error: FastwireError | None = None
    refused: Sequence[int] = ()


@dataclass(slots=True, eq=False)
class Batch(Generic[R]):
    """Records in the order of ``send``, with their tickets, or rows; ``since`` is the time of the first one."""

    since: float
    records: list[R] | Block = field(default_factory=list)
    tickets: list[object] = field(default_factory=list)
    weight: int = 0
    data: bytes = b""  # empty until it is encoded


B = TypeVar("B", bound=Batch[Any])


def numbered(records: object) -> Sequence[int]:
    """Return the origins of the rows of a batch; () for records, or rows that are not numbered."""
    numbers = records.origin_numbers if isinstance(records, Block) else []
    return numbers if all(number >= 0 for number in numbers) else ()


class BatchedProducer(ABC, Generic[R, B]):
    """Collects records ``R`` into batches ``B`` and keeps them until they are confirmed or have failed."""

    def __init__(self, settings: Settings) -> None:
        self.weight = 0  # bytes, before compression, of all records without an outcome
        self.batches = 0  # closed so far
        self.failure: FastwireError | None = None
        self.trouble = (
            ""  # why batches wait, as the broker or the driver has said; for the errors of those that time out
        )
        self._limits = settings.batching
        self._patience_s = settings.send_timeout_s
        self._open: B | None = None
        self._pending: deque[B] = deque()  # those in flight come first
        self._outcomes: list[Outcome] = []
        self._in_flight = 0
        self._again_at = 0.0

    @abstractmethod
    def _begin(self, now: float) -> B:
        """Return a new batch."""

    @abstractmethod
    def _weigh(self, record: R) -> int:
        """Return the approximate size of a record before compression, in bytes."""

    @abstractmethod
    def _block(self) -> Block:
        """Return a block for the rows of a new batch."""

    def _expired(self, error: NotConfirmed, now: float) -> None:
        """Handle the end of the first batch by its timeout."""

    # --- records in

    @property
    def idle(self) -> bool:
        """True if every record has its outcome."""
        return self._open is None and not self._pending

    def send(self, record: R, ticket: object, now: float) -> None:
        """Queue a record; its outcome carries ``ticket``. Raises the error that has ended the producer."""
        if self.failure is not None:
            raise self.failure.with_traceback(None)  # it would grow with each raise
        limits = self._limits
        size = self._weigh(record)
        batch = self._open
        if batch is not None and (isinstance(batch.records, Block) or batch.weight + size > limits.bytes):
            self.flush()
            batch = None
        if batch is None:
            batch = self._open = self._begin(now)
        assert isinstance(batch.records, list)
        batch.records.append(record)
        batch.tickets.append(ticket)
        batch.weight += size
        self.weight += size
        if len(batch.records) >= limits.records or batch.weight >= limits.bytes:
            self.flush()

    def send_rows(self, routes: Routes, first: int, stop: int, now: float) -> None:
        """Queue a share of ``routes``, see ``Routes.step``. Raises the error that has ended the producer."""
        if self.failure is not None:
            raise self.failure.with_traceback(None)  # it would grow with each raise
        limits = self._limits
        while first < stop:
            if self._open is not None and not isinstance(self._open.records, Block):
                self.flush()
            if self._open is None:
                self._open = self._begin(now)
                self._open.records = self._block()
            batch = self._open
            assert isinstance(batch.records, Block)
            first = batch.records.add(routes, first, stop, limits.records, limits.bytes)
            self.weight += batch.records.weight - batch.weight
            batch.weight = batch.records.weight
            if first < stop or len(batch.records) >= limits.records or batch.weight >= limits.bytes:
                self.flush()

    @property
    def room(self) -> tuple[int, int]:
        """Records and bytes that complete the open batch."""
        batch, limits = self._open, self._limits
        if batch is None:
            return limits.records, limits.bytes
        return limits.records - len(batch.records), limits.bytes - batch.weight

    def flush(self) -> None:
        """Close the open batch."""
        if self._open is not None:
            self._pending.append(self._open)
            self._open = None
            self.batches += 1

    # --- outcomes

    def take_outcomes(self) -> list[Outcome]:
        """Return the outcomes since the last call, in order."""
        found, self._outcomes = self._outcomes, []
        return found

    def _end(self, batch: B, *, offset: int = -1, error: FastwireError | None = None, refused: bool = False) -> None:
        """Report the outcome of a batch. With ``refused`` the broker stores these records never."""
        if error is None:
            self.trouble = ""
        self._pending.remove(batch)
        self.weight -= batch.weight
        numbers = numbered(batch.records) if refused else ()
        self._outcomes.append(Outcome(batch.tickets, len(batch.records), len(batch.data), offset, error, numbers))

    def fail(self, error: FastwireError) -> None:
        """End the producer: all unconfirmed records fail with ``error``."""
        self.failure = self.failure or error
        self.flush()
        for batch in tuple(self._pending):
            self._end(batch, error=error)
        self._in_flight = 0

    # --- time

    @property
    def deadline(self) -> float | None:
        """Time at which ``tick`` or ``take`` is due, if nothing else happens before; None if there is no such time."""
        times = [self._open.since + self._limits.delay_s] if self._open is not None else []
        if self._pending:
            if self._again_at:
                times.append(self._again_at)
            if self._patience_s is not None and not self._in_flight:
                times.append(self._pending[0].since + self._patience_s)
        return min(times) if times else None

    def tick(self, now: float) -> None:
        """Close the batch that is due, and fail batches whose send timeout has passed."""
        if self._open is not None and now >= self._open.since + self._limits.delay_s:
            self.flush()
        if now >= self._again_at:
            self._again_at = 0.0
        patience = self._patience_s
        if patience is None or self._in_flight:
            return
        error = NotConfirmed(f"not confirmed within {patience:g} s{self.trouble and f': {self.trouble}'}")
        while self._pending and now >= self._pending[0].since + patience:
            self._end(self._pending[0], error=error)
            self._expired(error, now)


class KeyPartitioner(ABC, Generic[K]):
    """Chooses among ``partitions``: by key, or for records without a key the ``current`` partition.

    The producer calls ``turn`` when a batch of the current partition is closed: a change with each record would split
    batches.
    """

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions  # may grow; keys move then, as with all clients
        self.current = 0

    @abstractmethod
    def of_key(self, key: K) -> int:
        """Return the partition of ``key``."""

    def turn(self) -> None:
        """Advance to the next partition."""
        self.current = (self.current + 1) % self.partitions
