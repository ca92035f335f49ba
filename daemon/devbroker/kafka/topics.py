"""Topics as the embedded Kafka broker stores them: batches by offset, leader epochs, the state of producers."""

from collections import deque
from dataclasses import dataclass, field

from fastwire.kafka.format.error import Code
from fastwire.kafka.producing.payload import MAX_SEQUENCE, BatchHead, place_batch, split_batches

from ..base import RefusedError
from ..topiclog import TopicLog

REMEMBERED = 5  # batches of a producer by which a repeated one is recognized (spec: kafka 14)


@dataclass(slots=True)
class _ProducerState:
    epoch: int
    next_sequence: int = 0
    recent: "deque[tuple[int, int, int]]" = field(default_factory=lambda: deque(maxlen=REMEMBERED))


class PartitionLog:
    """The log of one partition. Its entries are batches, its messages offsets, those of holes in batches included."""

    def __init__(self, topic: str, number: int, node: int) -> None:
        self.topic = topic
        self.number = number
        self.log = TopicLog()
        self.start = 0  # the first offset; it may lie inside of a batch
        self.leader = node
        self.epoch = 0
        self.highest = 0  # end of the log at its longest, before elections truncated it
        self.looked_up = 0  # requests for offsets to begin at
        self.aborted: list[tuple[int, int, int]] = []  # producer, first and last offset
        self._epochs = [(0, 0)]  # epoch, and the offset that it began at
        self._open: dict[int, int] = {}  # first offset of each open transaction, by producer
        self._producers: dict[int, _ProducerState] = {}

    def __str__(self) -> str:
        return f"{self.topic}-{self.number}"

    @property
    def end(self) -> int:
        """The offset of the next record: the high watermark, as all replicas share one memory."""
        return self.log.messages

    @property
    def stable(self) -> int:
        """The last stable offset: the end, or the begin of the first open transaction."""
        return min(self._open.values(), default=self.end)

    def append(self, batch: bytes, now_ms: int) -> int:
        """Store one sound batch as the leader does, and return the offset that it begins at."""
        (head,) = split_batches(batch)
        base = self.end
        last = base + head.last_offset_delta
        if head.control:
            first = self._open.pop(head.producer_id, None)
            if first is not None and _is_abort(batch):
                self.aborted.append((head.producer_id, first, last))
        elif head.transactional:
            self._open.setdefault(head.producer_id, base)
        self.log.append(place_batch(batch, base, self.epoch), head.last_offset_delta + 1, head.max_timestamp, now_ms)
        self.highest = max(self.highest, self.end)
        return base

    def produce(self, head: BatchHead, batch: bytes, now_ms: int) -> int:
        """Store a batch of a client, and return its offset; a repeated one is not stored again (spec: kafka 14).

        Raises RefusedError for an old epoch and for a gap in the sequence.
        """
        if head.producer_id < 0:
            return self.append(batch, now_ms)
        known = self._producers.get(head.producer_id)
        if known is not None and head.producer_epoch < known.epoch:
            raise RefusedError(Code.INVALID_PRODUCER_EPOCH)
        if known is None:
            known = _ProducerState(head.producer_epoch, head.base_sequence)  # any will do, as with the real one
        elif head.producer_epoch > known.epoch:
            known = _ProducerState(head.producer_epoch, 0)
        for sequence, count, offset in known.recent:
            if (sequence, count) == (head.base_sequence, head.count):
                return offset
        if head.base_sequence != known.next_sequence:
            raise RefusedError(Code.OUT_OF_ORDER_SEQUENCE_NUMBER, f"the next is {known.next_sequence}")
        offset = self.append(batch, now_ms)
        known.recent.append((head.base_sequence, head.count, offset))
        known.next_sequence = (head.base_sequence + head.count) & MAX_SEQUENCE
        self._producers[head.producer_id] = known
        return offset

    def mark(self, producer_id: int, epoch: int, marker: bytes, now_ms: int) -> None:
        """Store the marker of a coordinator: batches of earlier epochs of the producer are refused from now on."""
        self.append(marker, now_ms)
        known = self._producers.get(producer_id)
        if known is None or known.epoch != epoch:
            self._producers[producer_id] = _ProducerState(epoch)

    def lead(self, node: int) -> None:
        """Begin a new leader epoch, with this leader."""
        self.leader = node
        self.epoch += 1
        self._epochs.append((self.epoch, self.end))

    def truncate(self, offset: int) -> None:
        """Lose the batches from the one that holds ``offset`` on."""
        self.log.truncate(self.log.find_message(offset))
        self._epochs = [(epoch, min(began, self.end)) for epoch, began in self._epochs]
        self._open = {producer: first for producer, first in self._open.items() if first < self.end}
        self.aborted = [one for one in self.aborted if one[2] < self.end]

    def damage(self, offset: int, at: int, mask: int) -> None:
        """Flip bits of the batch that holds ``offset``."""
        entry = self.log[self.log.find_message(offset)]
        entry.body = entry.body[:at] + bytes([entry.body[at] ^ mask]) + entry.body[at + 1 :]
        entry.damaged = True

    def trim(self, offset: int) -> None:
        """Delete what lies before ``offset``, as retention does."""
        self.start = max(self.start, min(offset, self.end))
        self.log.trim(self.log.find_message(self.start))

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        """Return the largest epoch up to ``epoch`` and its end offset; -1 and -1 if there is none (spec: kafka 5.1)."""
        if epoch > self.epoch:
            return -1, -1
        found = -1, -1
        for place, (known, _) in enumerate(self._epochs):
            if known <= epoch:
                found = known, self._epochs[place + 1][1] if place + 1 < len(self._epochs) else self.end
        return found

    def find_time(self, time_ms: int) -> tuple[int, int]:
        """Return time and offset of the first batch with a record of that time or later; -1 and -1 without one."""
        for index in range(self.log.start, self.log.end):
            entry = self.log[index]
            if entry.time_ms >= time_ms:
                return entry.time_ms, max(entry.first, self.start)
        return -1, -1


@dataclass(slots=True)
class StoredTopic:
    """One incarnation of a topic."""

    name: str
    topic_id: bytes
    partitions: list[PartitionLog]
    configs: dict[str, str | None] = field(default_factory=dict)


@dataclass(slots=True)
class TransactionalId:
    """The producer of one transactional id, and the partitions of its open transaction."""

    producer_id: int
    epoch: int = 0
    places: set[tuple[str, int]] = field(default_factory=set)
    ended: tuple[int, int] | None = None  # epoch and kind of the marker of the transaction that has ended


def _is_abort(marker: bytes) -> bool:
    # The record of a marker begins behind the header: length, attributes, two deltas, length of the key, version, type.
    return marker[61 + 7 : 61 + 9] == b"\0\0"
