"""State machine of the idempotent producer of one partition: batches, sequences, responses (spec: kafka 14).

Batches are stored in order and once, across reconnects and changes of the leader: a batch without a response is sent
again under its sequence number, by which the broker recognises it. Time is an argument, in seconds of any clock.
"""

import math
from dataclasses import dataclass, field

from fastwire.columns.block import Block
from fastwire.errors import ProtocolError
from fastwire.kafka.format.error import RETRY, BrokerError, Code
from fastwire.kafka.format.message import Body
from fastwire.kafka.producing.outgoing import RecordBlock
from fastwire.kafka.producing.payload import (
    MAX_SEQUENCE,
    TRANSACTIONAL,
    Compression,
    Record,
    encode_batch,
    encode_block_batch,
)
from fastwire.producer import RETRY_S, Batch, BatchedProducer, BatchLimits, NotConfirmed, TransactionLost

MOST_IN_FLIGHT = 5  # a broker recognises duplicates of so many batches
FORGOTTEN_S = 60.0  # idle time after which the leader may have forgotten the producer id; brokers' default is a day

# The broker has no state of earlier batches, so it has not stored this one either.
_LOST_TRACK = frozenset({Code.OUT_OF_ORDER_SEQUENCE_NUMBER, Code.INVALID_PRODUCER_EPOCH, Code.UNKNOWN_PRODUCER_ID})
# One record is the reason, or the size of the batch: the others may be stored without it (spec: kafka 14.1).
_REFUSED = frozenset({Code.MESSAGE_TOO_LARGE, Code.RECORD_LIST_TOO_LARGE, Code.INVALID_RECORD, Code.INVALID_TIMESTAMP})
# In a transaction nothing is sent under another id.
_OF_TRANSACTION = _LOST_TRACK | {
    Code.INVALID_TXN_STATE,
    Code.INVALID_PRODUCER_ID_MAPPING,
    Code.TRANSACTION_ABORTABLE,
}
_AGAIN = RETRY | {Code.CORRUPT_MESSAGE}  # the batch was intact when it was sent


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings:
    """Settings of a producer."""

    compression: Compression = Compression.NONE
    batching: BatchLimits = field(default_factory=BatchLimits)
    send_timeout_s: float | None = 120.0  # from the call of ``send``; None: no timeout


@dataclass(slots=True, eq=False)
class _Batch(Batch[Record]):
    sequence: int = -1


@dataclass(frozen=True, slots=True)
class Sending:
    """A batch in flight; pass it back with its response."""

    data: bytes
    batch: _Batch
    transaction: str = ""

    def request(self, topic: str, partition: int, timeout_ms: int) -> Body:
        """Return the body of a Produce request with acks of all in-sync replicas."""
        partitions = [{"index": partition, "records": self.data}]
        return {
            "transactional_id": self.transaction or None,
            "acks": -1,
            "timeout_ms": timeout_ms,
            "topic_data": [{"name": topic, "partition_data": partitions}],
        }

    @staticmethod
    def answer(body: Body, topic: str, partition: int) -> Body:
        """Return the batch's part of a Produce response. Raises ProtocolError if it is missing."""
        for about in body["responses"]:
            if about["name"] == topic:
                for one in about["partition_responses"]:
                    if one["index"] == partition:
                        found: Body = one
                        return found
        raise ProtocolError("Produce", detail=f"the answer says nothing of {topic} partition {partition}")


def weight(record: Record) -> int:
    """Return the approximate size of a record before compression, in bytes."""
    size = 24 + len(record.value or b"") + len(record.key or b"")
    for name, value in record.headers:
        size += len(name) + len(value or b"") + 8
    return size


class Producer(BatchedProducer[Record, _Batch]):
    """Numbers batches and keeps them until they are confirmed. ``take_outcomes`` returns the results.

    ``take`` returns the next batch to send; every ``Sending`` comes back by ``answered`` or ``unanswered``. While
    ``needs_identity`` is true nothing is sent: request a producer id and call ``identify``. A producer that starts over
    gets an id of its own, so that other partitions are not affected. A ``fenceable`` one fails when its epoch is old:
    another one of its name has fenced it. The batches of one with a transactional id, ``transaction``, are part of its
    transaction; it fails where another one would start over, because a transaction has all of its records or none.
    """

    def __init__(self, settings: ProducerSettings, *, fenceable: bool = False, transaction: str = "") -> None:
        super().__init__(settings)
        self._fenceable = fenceable or bool(transaction)
        self._transaction = transaction
        self._gapped = False  # a batch was refused for good, and those behind it are numbered anew
        self._compression = settings.compression
        self._producer_id = -1
        self._epoch = -1
        self._next_sequence = 0
        self._holding = False  # nothing is sent until all batches in flight have come back
        self._known_at = -math.inf  # time when the leader last confirmed a sequence
        self._start_over = True  # with a new id, and sequences from 0

    def _begin(self, now: float) -> _Batch:
        return _Batch(now)

    def _weigh(self, record: Record) -> int:
        return weight(record)

    def _block(self) -> Block:
        return RecordBlock()

    # --- batches out

    @property
    def needs_identity(self) -> bool:
        """True if a producer id is needed now."""
        return self._start_over and not self._in_flight and bool(self._pending)

    @property
    def identity(self) -> tuple[int, int]:
        """Producer id and epoch; -1 and -1 before ``identify``."""
        return self._producer_id, self._epoch

    @property
    def waits(self) -> bool:
        """True if there are closed batches."""
        return bool(self._pending)

    def identify(self, producer_id: int, epoch: int) -> None:
        """Set the producer id; the unsent batches are numbered from 0."""
        self._producer_id, self._epoch = producer_id, epoch
        self._start_over = False
        self._next_sequence = 0
        for batch in self._pending:
            batch.sequence = -1
            batch.data = b""

    def take(self, now: float) -> Sending | None:
        """Return the next batch that may be sent now, if any."""
        if self._holding and not self._in_flight:
            self._holding = self._gapped = False
        if self._holding or self._start_over or now < self._again_at or self._in_flight >= self._most_in_flight(now):
            return None
        if self._in_flight == len(self._pending):
            return None
        batch = self._pending[self._in_flight]
        if not batch.data:
            self._encode(batch)
        self._in_flight += 1
        return Sending(batch.data, batch, self._transaction)

    def _most_in_flight(self, now: float) -> int:
        """Return how many batches may be in flight: one, until the leader has confirmed a sequence of this id.

        A leader that does not know an id accepts any sequence as its first (seen with 4.1). A second batch would be
        stored before a refused first one.
        """
        return MOST_IN_FLIGHT if now < self._known_at + FORGOTTEN_S else 1

    def _encode(self, batch: _Batch) -> None:
        if batch.sequence < 0:
            batch.sequence = self._next_sequence
            self._next_sequence = self._next_sequence + len(batch.records) & MAX_SEQUENCE
        records = batch.records
        if isinstance(records, RecordBlock):
            batch.data = encode_block_batch(
                records.encoded(),
                len(records),
                base_timestamp=records.base_timestamp,
                max_timestamp=records.max_timestamp,
                compression=self._compression,
                producer_id=self._producer_id,
                producer_epoch=self._epoch,
                base_sequence=batch.sequence,
                attributes=TRANSACTIONAL if self._transaction else 0,
            )
            return
        assert isinstance(records, list)
        batch.data = encode_batch(
            records,
            compression=self._compression,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=batch.sequence,
            transactional=bool(self._transaction),
        )

    # --- answers in

    def answered(self, sending: Sending, code: int, offset: int, now: float, said: str | None = None) -> None:
        """Handle a response: an error code, and the offset of the batch."""
        if self.failure is not None:
            return
        batch = sending.batch
        first = self._pending[0] is batch
        self._in_flight -= 1
        if code in (Code.NONE, Code.DUPLICATE_SEQUENCE_NUMBER):
            if not self._holding:
                self._known_at = now
            self._end(batch, offset=offset if code == Code.NONE else -1)
        elif self._fenceable and code in (Code.INVALID_PRODUCER_EPOCH, Code.PRODUCER_FENCED):
            fenced = BrokerError(code, "another process has fenced this producer", said)
            self.fail(TransactionLost(str(fenced)) if self._transaction else fenced)
        elif self._transaction and code in _OF_TRANSACTION and not self._gapped:
            self.fail(TransactionLost(str(BrokerError(code, "the transaction is lost", said))))
        elif code in _LOST_TRACK:
            self.trouble = str(BrokerError(code, "the broker has lost track of the producer", said))
            if first and not self._transaction:
                self._start_over = True
            self._hold(now)  # an earlier batch has not arrived either
        elif code in _AGAIN:
            self.trouble = str(BrokerError(code, "the broker has not stored the records", said))
            self._hold(now, RETRY_S)
        elif code in _REFUSED and len(batch.records) > 1:
            self._halve(batch)
            self._hold(now)
        else:
            error = BrokerError(code, "the broker has not stored the records", said)
            refused = code in _REFUSED
            if self._transaction and not refused:
                self.fail(error)
            elif self._transaction:
                self._close_gap(batch, error, now)
            else:
                self._end(batch, error=error, refused=refused)
                self._leave_gap(now)

    def unanswered(self, now: float) -> None:
        """Handle a lost connection: the batch may be stored, and is sent again."""
        if self.failure is None:
            self._in_flight -= 1
            self._hold(now)

    def _hold(self, now: float, wait_s: float = 0.0) -> None:
        self._holding = True
        self._known_at = -math.inf
        self._again_at = max(self._again_at, now + wait_s)

    def _leave_gap(self, now: float) -> None:
        """Start over after a batch that will never be stored, because later sequences depend on it."""
        self._start_over = True
        self._hold(now)

    def _close_gap(self, batch: _Batch, error: BrokerError, now: float) -> None:
        """Give its sequence to the batch behind one that is refused: none of those behind it can be stored."""
        behind = list(self._pending)[self._pending.index(batch) + 1 :]
        for one in behind:
            one.sequence, one.data = -1, b""
        self._next_sequence = batch.sequence
        self._gapped = True
        self._end(batch, error=error, refused=True)
        self._hold(now)

    def _halve(self, batch: _Batch) -> None:
        """Split a batch; the halves share its range of sequences."""
        records = batch.records
        middle = len(records) // 2
        halves = []
        if isinstance(records, Block):
            halves = [_Batch(batch.since, block, weight=block.weight) for block in records.halves()]
        else:
            for part in (slice(middle), slice(middle, None)):
                size = sum(weight(record) for record in records[part])
                halves.append(_Batch(batch.since, records[part], batch.tickets[part], size))
        for half, first in zip(halves, (0, middle), strict=True):
            half.sequence = batch.sequence + first & MAX_SEQUENCE
        at = self._pending.index(batch)
        self._pending.remove(batch)
        for half in reversed(halves):
            self._pending.insert(at, half)

    def _expired(self, error: NotConfirmed, now: float) -> None:
        if self._transaction:
            self.fail(error)
        if self._start_over or self._next_sequence == 0 or self.failure is not None:
            return
        # Later batches may be stored, too, and the broker would not recognise them under other sequences.
        for batch in [one for one in self._pending if one.sequence >= 0]:
            self._end(batch, error=error)
        self._leave_gap(now)
