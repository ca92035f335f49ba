"""Reading of a range of entries (S, E] of one partition, with the same rows each time (spec: pulsar 25.2).

A reader without a subscription of its own: nothing is acknowledged, so any number of attempts may read the same range
at the same time. Whole entries only. What tells a loss:

* The broker starts with the entry at S itself. If that one does not come, it is gone, and who knows what behind it.
* An entry beyond E before E itself: E is gone.
* A topic that ends before E: it was made again, or cut.
"""

import secrets
import time
from bisect import bisect_right
from collections.abc import Callable
from typing import Self

import pyarrow as pa

from fastwire.columns.chunk import Chunk
from fastwire.errors import FastwireError
from fastwire.position import Position
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.position import POSITIONS, PULSAR_EARLIEST
from fastwire.pulsar.protocol.event import EntryRejected
from fastwire.pulsar.protocol.request import BrokerError, SubscribeRequest, position_of
from fastwire.pulsar.reading.cold import ColdEntry
from fastwire.reason import Reason

from ....net.endpoint import LinkLost
from ....systems.pulsar.refusal import is_for_good
from ..rangereader import RangeReader, ReadingRules, TryAgainError
from ..ranges import QueryPartition, Range
from .cluster import Attached, RangeCluster, topic_of

# How far before a range the beginning of a chunked message is looked for, at first, and how much farther each time.
LOOK_BACK_ENTRIES = 100
LOOK_BACK_FACTOR = 10
# Silence is looked into after so long: a broker reads, writes and waits, in steps of milliseconds.
ASK_AFTER_S = 2.0

NOTHING = Position(-1, -1)  # in the slot table, before the first entry

_MISSING = frozenset({pb.TopicNotFound, pb.SubscriptionNotFound})


def is_missing(error: FastwireError) -> bool:
    """Return True if the broker does not know the topic."""
    return isinstance(error, BrokerError) and error.code in _MISSING


def place_of(batch: pa.RecordBatch) -> Callable[[int], Position]:
    """Return a function from a row of ``batch`` to the position of its entry."""
    ledgers, entries = batch.column("ledger"), batch.column("offset")
    return lambda row: Position(ledgers[row].as_py(), entries[row].as_py())


class Entries(Attached):
    """A reader of the entries after ``start``; use it as a context.

    ``start`` itself comes, too, and is dropped; ``met_start`` tells whether it did. Entries that cannot be decoded are
    put aside, unless ``reject`` deals with them: its exceptions end the reading.
    """

    def __init__(
        self,
        cluster: RangeCluster,
        partition: QueryPartition,
        start: Position,
        *,
        window: int,
        name: str,
        reject: Callable[[ColdEntry], None] | None = None,
    ) -> None:
        want = SubscribeRequest(
            topic=str(topic_of(partition)),
            subscription=f"{name}-{secrets.token_hex(5)}",
            subscription_type=pb.CommandSubscribe.Exclusive,
            consumer_id=next(cluster.consumer_ids),
            consumer_name=name,
            create=False,
            reader_from=start,
        )
        super().__init__(cluster, partition, want, window)
        if start != PULSAR_EARLIEST:
            cluster.slots.set_landed(self.consumer_id, start)
        self.met_start = False
        self.first = False  # whether the last ``news`` was the first that brought anything
        self._start = start
        self._reject = reject
        self._seen = NOTHING

    async def __aenter__(self) -> Self:
        await self.attach()
        self._cluster.watch(self.link)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.leave()
        self._cluster.leave(self.link)

    async def last(self) -> Position:
        """The position at which the topic ends now; the entry is -1 if there is none in it."""
        return position_of((await self.last_message()).last_message_id)

    def grant(self) -> None:
        """Ask for entries."""
        self._consumer.grant()
        self.link.flush()

    async def news(self) -> bool:
        """Wait a moment; return True if entries of this reader have come.

        Raises LinkLost, or what ``reject`` has raised.
        """
        await self._cluster.news()
        if self._cluster.ended_by is not None:
            raise self._cluster.ended_by
        if not self.alive:
            raise LinkLost(f"the broker has closed the reader of {self._consumer.want.topic}")
        before, self._seen = self._seen, self.position
        if self._seen == before:
            self._consumer.settle()
            self.link.flush()
            return False
        self.first = before == NOTHING
        if self.first:
            runs = self._cluster.slots.take_landed_again(self.consumer_id)
            self.met_start = any(
                ledger == self._start.a and first <= self._start.b <= last for ledger, first, last in runs
            )
        self._consumer.pump()
        self.link.flush()
        return True

    @property
    def position(self) -> Position:
        """The last entry that came."""
        return self._cluster.slots.last_position(self.consumer_id)

    def on_rejected(self, event: EntryRejected) -> None:
        """Put aside what cannot be decoded, or end the reading."""
        try:
            if self._reject is not None:
                self._reject(event.entry)
        except (FastwireError, TryAgainError) as exc:
            self._cluster.tell(exc)
        else:
            super().on_rejected(event)


class PulsarRangeReader(RangeReader):
    """A range of Pulsar's."""

    def __init__(self, cluster: RangeCluster, part: Range, rules: ReadingRules) -> None:
        super().__init__(part, rules)
        self._cluster = cluster
        self._from = part.start  # where brokers are asked to begin: earlier than that for the sake of a chunked message
        self._back = 0
        self._met_end = not part.end_exists

    def _is_missing(self, error: FastwireError) -> bool:
        return is_missing(error)

    def _is_for_good(self, error: FastwireError) -> bool:
        return is_for_good(error)

    async def _attempt(self) -> None:
        part, rules = self._part, self._rules
        if not self._back:
            self._from = self._at
        self._cluster.completion.on_taken = self._taken
        async with Entries(
            self._cluster,
            part.partition,
            self._from,
            window=self._cluster.window,
            name=rules.name,
            reject=self._rejected,
        ) as entries:
            if not await self._within_reach(entries):
                return
            entries.grant()
            asked_at = time.monotonic()
            while entries.position < self._end:
                if await entries.news():
                    self._alive_at = asked_at = time.monotonic()
                    self._check_start(entries)
                    for chunk in self._cluster.take_full():
                        await self._hand_on(chunk)
                elif entries.ended:
                    break
                elif (now := time.monotonic()) - asked_at >= ASK_AFTER_S:
                    asked_at = now
                    if not await self._within_reach(entries):
                        return
                    if now - self._alive_at >= rules.patience_s:
                        place = POSITIONS.format(entries.position)
                        raise LinkLost(f"the broker sends no entry behind {place}, where the topic goes on")
            for chunk in self._cluster.take_all():
                await self._hand_on(chunk)
        if not self._met_end:
            self._lost("the entry at the end did not come")

    async def _hand_on(self, chunk: Chunk) -> None:
        """Pass on the rows of ``chunk`` that belong to the range."""
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
                await self._pass_on(batch.slice(first, behind - first))
        self._met_end |= last == self._end
        self._at = max(self._at, min(last, self._end))

    async def _within_reach(self, entries: Entries) -> bool:
        """Return True if the topic reaches the end of the range, or has entries of it to read."""
        last = await entries.last()
        if last >= self._end and last.b >= 0:
            return True
        where = f"ends at {POSITIONS.format(last)}" if last.b >= 0 else "is empty"
        self._met_end = True  # it is said now, and once
        self._lost(f"the topic {where}, before the range does")
        self._end = last
        return last.b >= 0 and last > self._at

    def _check_start(self, entries: Entries) -> None:
        exists = self._part.start_exists if self._from == self._part.start else self._part.end_exists
        if exists and not self._back and self._from.b >= 0 and entries.first and not entries.met_start:
            self._lost(f"the entry at {POSITIONS.format(self._from)}, where it begins, is gone")

    def _taken(self, position: Position) -> None:
        self._met_end |= position == self._end

    def _rejected(self, entry: ColdEntry) -> None:
        position = entry.position
        if self._at < position <= self._end:
            if entry.reason is Reason.CHUNKED and self._from != PULSAR_EARLIEST:
                self._look_back()
                raise TryAgainError
            place = POSITIONS.format(position)
            self._lost(f"the entry at {place} cannot be decoded: {entry.reason}: {entry.detail}")

    def _look_back(self) -> None:
        """Begin earlier: the first parts of a message may lie before the range that its last part belongs to."""
        self._back = self._back * LOOK_BACK_FACTOR or LOOK_BACK_ENTRIES
        whole_ledger = self._from.a == self._at.a and self._from.b < 0
        if whole_ledger or self._at.b < 0:
            self._from = PULSAR_EARLIEST
        else:
            self._from = Position(self._at.a, max(-1, self._at.b - self._back))
