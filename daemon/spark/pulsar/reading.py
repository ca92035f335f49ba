"""Reading a range of entries (S, E] of one partition the same way each time (pulsar 25.2).

A reader without a subscription of its own: nothing is acknowledged, so any number of attempts may read the same range
at the same time. Whole entries only. What tells a loss:

* The broker starts with the entry at S itself. If that one does not come, it is gone, and who knows what behind it.
* An entry beyond E before E itself: E is gone.
* A topic that ends before E: it was made again, or cut.
"""

import secrets
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator

import pyarrow as pa

from fastwire.columns.chunk import Chunk
from fastwire.errors import FastwireError
from fastwire.position import PULSAR_EARLIEST, Position, format_position
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.cold import ColdEntry
from fastwire.pulsar.consumer import Consumer
from fastwire.pulsar.request import BrokerError, SubscribeRequest, position_of
from fastwire.pulsar.scan import Scanner
from fastwire.pulsar.topic import Topic, parse_topic

from ...endpoint import LinkLost
from ...pulsar.refusal import is_for_good
from ..blocking import TURN_S
from ..ranges import Partition, Range
from ..reading import RangeReader, ReadingRules, TryAgainError
from .client import Client
from .link import Link

__all__ = ["Entries", "PulsarRangeReader", "is_missing", "place_of", "topic_of"]

# How far before a range the beginning of a chunked message is looked for, at first, and how much farther each time.
LOOK_BACK_ENTRIES = 100
LOOK_BACK_FACTOR = 10
# Silence is looked into after so long: a broker reads, writes and waits, in steps of milliseconds.
ASK_AFTER_S = 2.0

_MISSING = frozenset({pb.TopicNotFound, pb.SubscriptionNotFound})


def topic_of(partition: Partition) -> Topic:
    """The topic on the wire that ``partition`` is."""
    topic = parse_topic(partition.topic)
    return topic if partition.index < 0 else topic.of_partition(partition.index)


def is_missing(error: FastwireError) -> bool:
    """Whether the broker does not know the topic."""
    return isinstance(error, BrokerError) and error.code in _MISSING


def place_of(batch: pa.RecordBatch) -> Callable[[int], Position]:
    """A function that says which entry a row of ``batch`` is of."""
    ledgers, entries = batch.column("ledger"), batch.column("offset")
    return lambda row: Position(ledgers[row].as_py(), entries[row].as_py())


class Entries:
    """One reader on one connection: what comes after ``start``.

    ``start`` itself comes, too, and is cut; ``met_start`` tells whether it did. Entries that cannot be decoded are put
    aside, unless ``on_rejected`` is told.
    """

    def __init__(
        self,
        client: Client,
        partition: Partition,
        start: Position,
        *,
        window: int,
        name: str,
        on_rejected: Callable[[ColdEntry], None] | None = None,
        rollback_s: int = 0,
    ) -> None:
        self._client = client
        self._start = start
        self.met_start = False
        self.first = False  # whether the last ``pump`` was the first that brought anything
        self._seen = False
        slots = client.slots
        self.consumer_id = next(client.consumer_ids)
        slots.add(self.consumer_id, client.log_index(partition), ordered=True)
        if start != PULSAR_EARLIEST:
            slots.set_landed(self.consumer_id, start)
        topic = str(topic_of(partition))
        want = SubscribeRequest(
            topic=topic,
            subscription=f"{name}-{secrets.token_hex(5)}",
            subscription_type=pb.CommandSubscribe.Exclusive,
            consumer_id=self.consumer_id,
            consumer_name=name,
            create=False,
            reader_from=start,
            rollback_s=rollback_s,
        )
        self._consumer = Consumer(want, slots, window)
        self.link: Link = client.owner(topic)
        self.link.ask(lambda connection, now: self._consumer.subscribe(connection, self.link.link_id, now))
        self._consumer.subscribed(time.monotonic())
        self.link.on_rejected = on_rejected or self.link.scanner.divert

    def last(self) -> Position:
        """Where the topic ends now; the entry is -1 if there is none in it."""
        answer = self.link.ask(lambda connection, now: connection.get_last_message_id(self.consumer_id, now))
        return position_of(answer.getLastMessageIdResponse.last_message_id)

    def grant(self) -> None:
        """Ask for entries."""
        self._consumer.grant()
        self.link.flush()

    def pump(self) -> bool:
        """Take what has come, waiting a moment for it; whether anything of this reader has. Raises LinkLost."""
        before = self.position
        self.first = False
        self.link.pump(TURN_S)
        if self.consumer_id in self.link.closed:
            raise LinkLost(f"the broker has closed the reader of {self._consumer.want.topic}")
        if self.position == before:
            self._consumer.settle()
            return False
        if not self._seen:
            self._seen = self.first = True
            runs = self._client.slots.take_cut_landed(self.consumer_id)
            self.met_start = any(
                ledger == self._start.a and first <= self._start.b <= last for ledger, first, last in runs
            )
        self._consumer.pump()
        return True

    def take_all(self) -> list[Chunk]:
        """What has come so far."""
        chunks = [*self.link.chunks, *filter(None, [self.link.take_open()])]
        self.link.chunks.clear()
        return chunks

    @property
    def position(self) -> Position:
        """The last entry that came."""
        return self._client.slots.last_position(self.consumer_id)

    @property
    def ended(self) -> bool:
        """Whether the topic was terminated and everything has come."""
        return self.consumer_id in self.link.ended

    def close(self) -> None:
        """Leave; what is under way for this reader belongs to nobody."""
        try:
            self._consumer.close(time.monotonic())
            if self.link.ready:
                self.link.flush()
        except LinkLost:
            pass
        self.link.chunks.clear()
        self.link.scanner.drop_chunk()
        self._client.completion.assembly.forget(self.consumer_id)
        self._client.slots.remove(self.consumer_id)


class PulsarRangeReader(RangeReader):
    """A range of Pulsar's."""

    def __init__(self, client: Client, part: Range, rules: ReadingRules, stopped: Callable[[], bool]) -> None:
        super().__init__(part, rules, stopped)
        self._client = client
        self._from = part.start  # where brokers are asked to begin: earlier than that for the sake of a chunked message
        self._back = 0
        self._met_end = not part.end_exists
        self._scanner: Scanner | None = None  # of the connection that is read by

    def _is_missing(self, error: FastwireError) -> bool:
        return is_missing(error)

    def _is_for_good(self, error: FastwireError) -> bool:
        return is_for_good(error)

    def _attempt(self) -> Iterator[pa.RecordBatch]:
        part, rules = self._part, self._rules
        if not self._back:
            self._from = self._at
        self._client.completion.on_taken = self._taken
        entries = Entries(
            self._client, part.partition, self._from, window=rules.window, name=rules.name, on_rejected=self._rejected
        )
        self._link = link = entries.link
        self._scanner = link.scanner
        try:
            if not self._within_reach(entries):
                return
            entries.grant()
            asked_at = time.monotonic()
            while entries.position < self._end and not self._stopped():
                if entries.pump():
                    self._alive_at = asked_at = time.monotonic()
                    self._check_start(entries)
                    while link.chunks:
                        yield from self._hand_on(link.chunks.popleft())
                elif entries.ended:
                    break
                elif (now := time.monotonic()) - asked_at >= ASK_AFTER_S:
                    asked_at = now
                    if not self._within_reach(entries):
                        return
                    if now - self._alive_at >= rules.patience_s:
                        raise LinkLost("the broker is silent")
            if chunk := link.take_open():
                yield from self._hand_on(chunk)
        finally:
            self._link = self._scanner = None
            entries.close()
        if not self._met_end and not self._stopped():
            self._lost("the entry at the end did not come")

    def _hand_on(self, chunk: Chunk) -> Iterator[pa.RecordBatch]:
        """The rows of ``chunk`` that belong to the range."""
        # Spans end before a part of a chunked message that waits for others; rows behind it go on.
        spans = chunk.spans()
        last = spans[-1].end if spans else self._at
        if chunk.rows:
            batch = pa.record_batch(chunk)
            place, rows = place_of(batch), range(chunk.rows)
            last = max(last, place(rows[-1]))
            first = bisect_right(rows, self._at, key=place)
            behind = bisect_right(rows, self._end, key=place)
            self._met_end |= behind > 0 and place(behind - 1) == self._end
            if first < behind:
                yield batch.slice(first, behind - first)
        self._met_end |= last == self._end
        self._at = max(self._at, min(last, self._end))

    def _within_reach(self, entries: Entries) -> bool:
        """Whether the topic reaches to the end of the range, or far enough that there is something to read."""
        last = entries.last()
        if last >= self._end and last.b >= 0:
            return True
        where = f"ends at {format_position('pulsar', last)}" if last.b >= 0 else "is empty"
        self._met_end = True  # it is said now, and once
        self._lost(f"the topic {where}, before the range does")
        self._end = last
        return last.b >= 0 and last > self._at

    def _check_start(self, entries: Entries) -> None:
        exists = self._part.start_exists if self._from == self._part.start else self._part.end_exists
        if exists and not self._back and self._from.b >= 0 and entries.first and not entries.met_start:
            self._lost(f"the entry at {format_position('pulsar', self._from)}, where it begins, is gone")

    def _taken(self, position: Position) -> None:
        self._met_end |= position == self._end

    def _rejected(self, entry: ColdEntry) -> None:
        position = entry.position
        if self._at < position <= self._end:
            if entry.reason == "Chunked" and self._from != PULSAR_EARLIEST:
                self._look_back()
                raise TryAgainError
            place = format_position("pulsar", position)
            self._lost(f"the entry at {place} cannot be decoded: {entry.reason}: {entry.detail}")
        if self._scanner is not None:
            self._scanner.divert(entry)

    def _look_back(self) -> None:
        """Begin earlier: the first parts of a message may lie before the range that its last part belongs to."""
        self._back = self._back * LOOK_BACK_FACTOR or LOOK_BACK_ENTRIES
        whole_ledger = self._from.a == self._at.a and self._from.b < 0
        if whole_ledger or self._at.b < 0:
            self._from = PULSAR_EARLIEST
        else:
            self._from = Position(self._at.a, max(-1, self._at.b - self._back))
