"""Topics and partitions of the embedded Kafka broker: batches by offset, who leads them, what producers have sent."""

from collections import deque
from dataclasses import dataclass, field

from fastwire.kafka.error import Code
from fastwire.kafka.payload import MAX_SEQUENCE, BatchHead, place_batch, split_batches

from ..topiclog import TopicLog

__all__ = ["Partition", "RefusedError", "Topic"]

REMEMBERED = 5  # batches of a producer that are known again when they are sent twice


class RefusedError(Exception):
    """A request is answered with an error code: the client did nothing that a sound one may not do."""

    def __init__(self, code: int, text: str = "") -> None:
        super().__init__(text or f"error {int(code)}")
        self.code = int(code)


@dataclass(slots=True)
class _Producer:
    epoch: int
    next_sequence: int = 0
    recent: "deque[tuple[int, int, int]]" = field(default_factory=lambda: deque(maxlen=REMEMBERED))


class Partition:
    """One log. An entry of it is a batch, a message of it an offset: those of holes in batches count."""

    def __init__(self, topic: str, number: int, node: int) -> None:
        self.topic = topic
        self.number = number
        self.log = TopicLog()
        self.start = 0  # the first offset; it may lie inside of a batch
        self.leader = node
        self.epoch = 0
        self.highest = 0  # offset that ever came next, before elections lost some
        self.looked_up = 0  # how often somebody asked where to begin
        self.aborted: list[tuple[int, int, int]] = []  # producer, first and last offset
        self._epochs = [(0, 0)]  # epoch, and the offset that it began at
        self._open: dict[int, int] = {}  # first offset of each transaction that is not over, by producer
        self._producers: dict[int, _Producer] = {}

    def __str__(self) -> str:
        return f"{self.topic}-{self.number}"

    @property
    def end(self) -> int:
        """The offset that comes next."""
        return self.log.messages

    @property
    def stable(self) -> int:
        """The offset up to which every transaction is over."""
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
        """Store what a client has sent; what an idempotent producer sends again is not stored again."""
        if head.producer_id < 0:
            return self.append(batch, now_ms)
        known = self._producers.get(head.producer_id)
        if known is not None and head.producer_epoch < known.epoch:
            raise RefusedError(Code.INVALID_PRODUCER_EPOCH)
        if known is None:
            known = _Producer(head.producer_epoch, head.base_sequence)  # any will do, as with the real one
        elif head.producer_epoch > known.epoch:
            known = _Producer(head.producer_epoch, 0)
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

    def lead(self, node: int) -> None:
        """Have another leader, or the same one again, in a new epoch."""
        self.leader = node
        self.epoch += 1
        self._epochs.append((self.epoch, self.end))

    def truncate(self, offset: int) -> None:
        """Lose the batches from the one that holds ``offset`` on, and be led by somebody who never had them."""
        self.log.truncate(self.log.find_message(offset))
        self._epochs = [(epoch, min(began, self.end)) for epoch, began in self._epochs]
        self._open = {producer: first for producer, first in self._open.items() if first < self.end}
        self.aborted = [one for one in self.aborted if one[2] < self.end]

    def trim(self, offset: int) -> None:
        """Let the log begin at ``offset``, as retention does."""
        self.start = max(self.start, min(offset, self.end))
        self.log.trim(self.log.find_message(self.start))

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        """The largest epoch up to ``epoch``, and where it ended; -1 and -1 if there is none (kafka 5.1)."""
        if epoch > self.epoch:
            return -1, -1
        found = -1, -1
        for place, (known, _) in enumerate(self._epochs):
            if known <= epoch:
                found = known, self._epochs[place + 1][1] if place + 1 < len(self._epochs) else self.end
        return found

    def find_time(self, time_ms: int) -> tuple[int, int]:
        """Time and offset of the first batch that has a record of that time or later; -1 and -1 without one."""
        for index in range(self.log.start, self.log.end):
            entry = self.log[index]
            if entry.time_ms >= time_ms:
                return entry.time_ms, max(entry.first, self.start)
        return -1, -1


@dataclass(slots=True)
class Topic:
    """A topic in one of its incarnations."""

    name: str
    topic_id: bytes
    partitions: list[Partition]


def _is_abort(marker: bytes) -> bool:
    # The record of a marker begins behind the header: length, attributes, two deltas, length of the key, version, type.
    return marker[61 + 7 : 61 + 9] == b"\0\0"
