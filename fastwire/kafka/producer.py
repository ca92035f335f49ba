"""The idempotent producer of one partition as a state machine: batches, sequences, answers (kafka 14).

What it takes goes out in order, and once, whatever happens to connections and leaders: a batch without an answer is
sent again under its sequence, by which the broker knows it. Time is an argument, in seconds of any clock.
"""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from fastwire.errors import FastwireError
from fastwire.kafka.error import RETRY, BrokerError, Code
from fastwire.kafka.message import Body
from fastwire.kafka.payload import MAX_SEQUENCE, Compression, Record, encode_batch

__all__ = ["BatchLimits", "NotConfirmed", "Outcome", "Producer", "ProducerSettings", "Sending", "weight"]

MOST_IN_FLIGHT = 5  # for so many batches a broker knows what it has seen before
RETRY_S = 0.1
FORGOTTEN_S = 60.0  # of rest, after which nobody is sure to know us still; a broker's own default is a day

# The broker knows nothing of what came before this batch, so it has not stored it either.
_LOST_TRACK = frozenset({Code.OUT_OF_ORDER_SEQUENCE_NUMBER, Code.INVALID_PRODUCER_EPOCH, Code.UNKNOWN_PRODUCER_ID})
_TOO_LARGE = frozenset({Code.MESSAGE_TOO_LARGE, Code.RECORD_LIST_TOO_LARGE})
_AGAIN = RETRY | {Code.CORRUPT_MESSAGE}  # it was sound when it left


class NotConfirmed(FastwireError):  # noqa: N818 - what has happened: the records may be stored all the same
    """No answer came in time; whether the records are stored is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits:
    """A batch is closed by whichever limit is reached first; bytes are those before compression."""

    records: int = 10_000
    bytes: int = 512 << 10
    delay_s: float = 0.005

    def __post_init__(self) -> None:
        if self.records < 1 or self.bytes < 1 or self.delay_s < 0:
            raise ValueError("a batch needs room for one record, and no negative time")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings:
    """What a producer has to be told."""

    compression: Compression = Compression.NONE
    batching: BatchLimits = field(default_factory=BatchLimits)
    send_timeout_s: float | None = 120.0  # from the call of ``send``; None: as long as it takes


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of the records behind ``tickets``: stored from ``offset`` on, or not, because of ``error``.

    The offset is -1 where the broker recognised the batch, and no longer knew where it is.
    """

    tickets: Sequence[object]
    size: int  # bytes of the batch
    offset: int = -1
    error: FastwireError | None = None


@dataclass(slots=True, eq=False)
class _Batch:
    since: float
    records: list[Record] = field(default_factory=list)
    tickets: list[object] = field(default_factory=list)
    weight: int = 0
    sequence: int = -1
    data: bytes = b""  # empty: to be encoded


@dataclass(frozen=True, slots=True)
class Sending:
    """A batch on its way; hand it back with its answer."""

    data: bytes
    batch: _Batch

    def request(self, topic: str, partition: int, timeout_ms: int) -> Body:
        """The body of a Produce request that every replica in sync has to confirm."""
        partitions = [{"index": partition, "records": self.data}]
        return {
            "acks": -1,
            "timeout_ms": timeout_ms,
            "topic_data": [{"name": topic, "partition_data": partitions}],
        }


def weight(record: Record) -> int:
    """About how many bytes a record takes before compression."""
    size = 24 + len(record.value or b"") + len(record.key or b"")
    for name, value in record.headers:
        size += len(name) + len(value or b"") + 8
    return size


class Producer:
    """Numbers batches and keeps them until they are confirmed. ``take_outcomes`` says what became of them.

    ``take`` gives what may be sent now; every ``Sending`` comes back by ``answered`` or ``unanswered``. While
    ``needs_identity`` nothing is sent: ask the cluster for a producer id and call ``identify``. One that starts over
    gets an id of its own, so that the other partitions go on undisturbed.
    """

    def __init__(self, settings: ProducerSettings) -> None:
        self.weight = 0  # bytes, before compression, of all that has no outcome yet
        self.batches = 0  # closed so far
        self.failure: FastwireError | None = None
        self._settings = settings
        self._open: _Batch | None = None
        self._pending: deque[_Batch] = deque()  # those in flight stand first
        self._outcomes: list[Outcome] = []
        self._producer_id = -1
        self._epoch = -1
        self._next_sequence = 0
        self._in_flight = 0
        self._holding = False  # nothing is sent until all that is in flight has come back
        self._known_at = -math.inf  # when the leader has last shown that it knows our sequences
        self._start_over = True  # under another id, with sequences from 0
        self._again_at = 0.0

    # --- records in

    @property
    def idle(self) -> bool:
        """Whether everything has its outcome."""
        return self._open is None and not self._pending

    def send(self, record: Record, ticket: object, now: float) -> None:
        """Take a record; ``ticket`` comes back with its outcome. Raises what the producer has failed of."""
        if self.failure is not None:
            raise self.failure
        limits = self._settings.batching
        size = weight(record)
        if self._open is not None and self._open.weight + size > limits.bytes:
            self.flush()
        if self._open is None:
            self._open = _Batch(now)
        self._open.records.append(record)
        self._open.tickets.append(ticket)
        self._open.weight += size
        self.weight += size
        if len(self._open.records) >= limits.records or self._open.weight >= limits.bytes:
            self.flush()

    def flush(self) -> None:
        """Close the open batch."""
        if self._open is not None:
            self._pending.append(self._open)
            self._open = None
            self.batches += 1

    # --- batches out

    @property
    def needs_identity(self) -> bool:
        """Whether a producer id is to be asked for, now."""
        return self._start_over and not self._in_flight and bool(self._pending)

    def identify(self, producer_id: int, epoch: int) -> None:
        """Number what waits from 0 on, under this id."""
        self._producer_id, self._epoch = producer_id, epoch
        self._start_over = False
        self._next_sequence = 0
        for batch in self._pending:
            batch.sequence = -1
            batch.data = b""

    def take(self, now: float) -> Sending | None:
        """The next batch that may be sent, if any."""
        if self._holding and not self._in_flight:
            self._holding = False
        if self._holding or self._start_over or now < self._again_at or self._in_flight >= self._most_in_flight(now):
            return None
        if self._in_flight == len(self._pending):
            return None
        batch = self._pending[self._in_flight]
        if not batch.data:
            self._encode(batch)
        self._in_flight += 1
        return Sending(batch.data, batch)

    def _most_in_flight(self, now: float) -> int:
        """A leader that knows nothing of an id takes any sequence for its first one (seen with 4.1), so a second batch
        would be stored before a first that was refused. One goes alone until the leader knows us.
        """
        return MOST_IN_FLIGHT if now < self._known_at + FORGOTTEN_S else 1

    def _encode(self, batch: _Batch) -> None:
        if batch.sequence < 0:
            batch.sequence = self._next_sequence
            self._next_sequence = self._next_sequence + len(batch.records) & MAX_SEQUENCE
        batch.data = encode_batch(
            batch.records,
            compression=self._settings.compression,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=batch.sequence,
        )

    # --- answers in

    def answered(self, sending: Sending, code: int, offset: int, now: float, said: str | None = None) -> None:
        """The broker has answered for a batch: an error code, and where it is stored."""
        if self.failure is not None:
            return
        batch = sending.batch
        first = self._pending[0] is batch
        self._in_flight -= 1
        if code in (Code.NONE, Code.DUPLICATE_SEQUENCE_NUMBER):
            if not self._holding:
                self._known_at = now
            self._end(batch, offset=offset if code == Code.NONE else -1)
        elif code in _LOST_TRACK:
            if first:
                self._start_over = True
            self._hold(now)  # else what comes before has not arrived either
        elif code in _AGAIN:
            self._hold(now, RETRY_S)
        elif code in _TOO_LARGE and len(batch.records) > 1:
            self._halve(batch)
            self._hold(now)
        else:
            self._end(batch, error=BrokerError(code, "the broker has not stored the records", said))
            self._leave_gap(now)

    def unanswered(self, now: float) -> None:
        """The connection is gone, and with it the answer: the batch may be stored, and is sent again."""
        if self.failure is None:
            self._in_flight -= 1
            self._hold(now)

    def _hold(self, now: float, wait_s: float = 0.0) -> None:
        self._holding = True
        self._known_at = -math.inf
        self._again_at = max(self._again_at, now + wait_s)

    def _leave_gap(self, now: float) -> None:
        """A sequence will never come, so what follows needs other ones."""
        self._start_over = True
        self._hold(now)

    def _halve(self, batch: _Batch) -> None:
        """The halves share the sequences that the whole one had."""
        middle = len(batch.records) // 2
        halves = []
        for part in (slice(middle), slice(middle, None)):
            half = _Batch(batch.since, batch.records[part], batch.tickets[part])
            half.weight = sum(weight(record) for record in half.records)
            half.sequence = batch.sequence + (part.start or 0) & MAX_SEQUENCE
            halves.append(half)
        at = self._pending.index(batch)
        self._pending.remove(batch)
        for half in reversed(halves):
            self._pending.insert(at, half)

    # --- outcomes

    def take_outcomes(self) -> list[Outcome]:
        """What has been decided since the last call, in that order."""
        found, self._outcomes = self._outcomes, []
        return found

    def _end(self, batch: _Batch, *, offset: int = -1, error: FastwireError | None = None) -> None:
        self._pending.remove(batch)
        self.weight -= batch.weight
        self._outcomes.append(Outcome(batch.tickets, len(batch.data), offset, error))

    def fail(self, error: FastwireError) -> None:
        """Nothing more will be sent: everything that is not confirmed has ``error`` for its outcome."""
        self.failure = self.failure or error
        self.flush()
        for batch in tuple(self._pending):
            self._end(batch, error=error)
        self._in_flight = 0

    # --- time

    @property
    def deadline(self) -> float | None:
        """When ``tick`` or ``take`` has something to do, if nothing happens before."""
        times = [self._open.since + self._settings.batching.delay_s] if self._open is not None else []
        if self._pending:
            if self._again_at:
                times.append(self._again_at)
            if self._settings.send_timeout_s is not None and not self._in_flight:
                times.append(self._pending[0].since + self._settings.send_timeout_s)
        return min(times) if times else None

    def tick(self, now: float) -> None:
        """Close the batch that has waited long enough, and give up what has waited too long."""
        if self._open is not None and now >= self._open.since + self._settings.batching.delay_s:
            self.flush()
        if now >= self._again_at:
            self._again_at = 0.0
        patience = self._settings.send_timeout_s
        if patience is None or self._in_flight:
            return
        error = NotConfirmed(f"not confirmed within {patience or 0:g} s")
        while self._pending and now >= self._pending[0].since + patience:
            self._end(self._pending[0], error=error)
            if self._start_over or self._next_sequence == 0:
                continue
            # What was sent behind it may be stored, too, and the broker would not know it under other sequences.
            for batch in [one for one in self._pending if one.sequence >= 0]:
                self._end(batch, error=error)
            self._leave_gap(now)
