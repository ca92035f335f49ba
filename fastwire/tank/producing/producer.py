"""State machine of the producer of one partition: bundles, retries, results (spec: tank 7). Time is in seconds.

One bundle is in flight at a time, so that retries keep the order. A bundle without an answer is sent again. A producer
that numbers its messages sends sparse bundles by message type 5, and the broker refuses the repetition of one that it
holds. It refuses a first attempt, too, if another producer has written to the partition meanwhile: from then on bundles
go by message type 1, and one that is sent again may be stored twice.
"""

from dataclasses import dataclass, field, replace
from enum import IntEnum

from fastwire.columns.block import Block
from fastwire.errors import FastwireError
from fastwire.producer import RETRY_S, Batch, BatchedProducer, BatchLimits
from fastwire.tank.format.error import BrokerError, ProduceCode
from fastwire.tank.producing.bundle import Message, encode_block, encode_bundle
from fastwire.tank.producing.outgoing import MessageBlock
from fastwire.tank.protocol.produce import PartitionBundle

MOST_MESSAGES = 65_535  # a broker counts the messages of a bundle modulo 65,536 in some places (spec: tank 5.4)
MOST_KEY = 255
OVERHEAD = 16  # bytes of a message beside key and value, about

# The bundle is not stored, and may be later, or elsewhere.
_AGAIN: frozenset[IntEnum] = frozenset({ProduceCode.NOT_ENOUGH_REPLICAS, ProduceCode.NO_LEADER, ProduceCode.REDIRECT})


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings:
    """Settings of a producer; ``compress`` None: bundles of more than 1 KiB or 512 messages.

    With ``numbered`` the producer numbers its messages until another producer writes to the partition.
    """

    compress: bool | None = None
    batching: BatchLimits = field(default_factory=BatchLimits)
    send_timeout_s: float | None = 120.0  # from the call of ``send``; None: no timeout
    numbered: bool = True

    def __post_init__(self) -> None:
        if self.batching.records > MOST_MESSAGES:
            raise ValueError(f"{self.batching.records} messages in a bundle: TANK has room for {MOST_MESSAGES}")


@dataclass(slots=True, eq=False)
class _Batch(Batch[Message]):
    first: int = -1  # sequence of the first message; -1: not numbered
    doubted: bool = False  # it was sent, and may be stored
    refused: bool = False  # as a repetition, or because another producer has written: the last sequence tells


@dataclass(frozen=True, slots=True)
class Sending:
    """A bundle to send; ``base`` is its first sequence if the producer numbers its messages."""

    data: bytes
    base: int | None = None

    def part(self, partition: int) -> PartitionBundle:
        """Return its part of a produce request."""
        return PartitionBundle(partition, self.data, self.base)


def weight(message: Message) -> int:
    """Return the approximate size of a message before compression, in bytes."""
    return OVERHEAD + len(message.value) + len(message.key or b"")


class Producer(BatchedProducer[Message, _Batch]):
    """Collects messages into bundles and keeps them until they are confirmed. ``take_outcomes`` returns the results.

    ``take`` returns the bundle to send; it comes back by ``answered`` or ``unanswered``. While ``needs_sequence`` is
    true nothing is sent: discover the last sequence of the partition and call ``number``.
    """

    def __init__(self, settings: ProducerSettings) -> None:
        super().__init__(settings)
        self.numbered = settings.numbered
        """True until another producer has written to the partition: no bundle is stored twice."""
        self._compress = settings.compress
        self._next = -1

    def _begin(self, now: float) -> _Batch:
        return _Batch(now)

    def _weigh(self, record: Message) -> int:
        return weight(record)

    def _block(self) -> Block:
        return MessageBlock()

    def send(self, record: Message, ticket: object, now: float) -> None:
        """Queue a message, as the base. Raises ValueError for a key of more than 255 bytes."""
        if len(record.key or b"") > MOST_KEY:
            raise ValueError(f"a key of {len(record.key or b'')} bytes: TANK has room for {MOST_KEY}")
        super().send(record, ticket, now)

    # --- bundles out

    @property
    def needs_sequence(self) -> bool:
        """True if the last sequence of the partition must be known now."""
        return self.numbered and self._next < 0 and bool(self._pending)

    def number(self, sequence: int) -> None:
        """Set the sequence of the next message: the last one of the partition + 1.

        After a repetition was refused this tells whether the bundle is stored, or another one.
        """
        self._next = sequence
        batch = self._pending[0] if self._pending else None
        if batch is not None and batch.refused:
            if sequence == batch.first + len(batch.records):
                self._end(batch, offset=batch.first)
            else:
                self._share(batch)

    def _share(self, batch: _Batch) -> None:
        """Number no more messages: another producer writes to the partition."""
        self.numbered = False
        batch.first, batch.data = -1, b""

    def take(self, now: float) -> Sending | None:
        """Return the bundle that may be sent now, if any."""
        if self._in_flight or not self._pending or self.needs_sequence or now < self._again_at:
            return None
        batch = self._pending[0]
        if not batch.data:
            if self.numbered:
                batch.first = self._next
                self._next += len(batch.records)
            batch.data = self._encoded(batch)
        self._in_flight = 1
        return Sending(batch.data, batch.first if batch.first >= 0 else None)

    def _encoded(self, batch: _Batch) -> bytes:
        records, count = batch.records, len(batch.records)
        if isinstance(records, MessageBlock):
            span = (batch.first, batch.first + count - 1) if self.numbered else None
            block, size = records.bundled(sparse=self.numbered), records.weight - OVERHEAD * count
            return encode_block(block, count, size, compress=self._compress, span=span)
        assert isinstance(records, list)
        if self.numbered:
            records = [replace(one, sequence=batch.first + place) for place, one in enumerate(records)]
        return encode_bundle(records, compress=self._compress, sparse=self.numbered)

    # --- answers in

    def answered(self, code: int, now: float) -> None:
        """Handle the code of the bundle in flight, a ProduceCode or an unknown number."""
        if self.failure is not None or not self._in_flight:
            return
        self._in_flight = 0
        batch = self._pending[0]
        if code == ProduceCode.STORED:
            self._end(batch, offset=batch.first)
        elif code == ProduceCode.BAD_SEQUENCE and batch.first >= 0:
            if batch.doubted:
                batch.refused = True
                self._next = -1
            else:
                self._share(batch)
        elif code == ProduceCode.TIMED_OUT or code in _AGAIN:
            batch.doubted = batch.doubted or code == ProduceCode.TIMED_OUT
            self.trouble = str(BrokerError(ProduceCode(code), "the broker has not stored the messages"))
            self._again_at = now + RETRY_S
        else:
            known = ProduceCode(code) if code in ProduceCode.__members__.values() else None
            what = "the broker has not stored the messages"
            error = FastwireError(f"{what}: code {code:#x}") if known is None else BrokerError(known, what)
            self._end(batch, error=error)

    def unanswered(self, now: float) -> None:
        """Handle a lost connection: the bundle in flight may be stored, and is sent again."""
        if self.failure is None and self._in_flight:
            self._in_flight = 0
            self._pending[0].doubted = True
