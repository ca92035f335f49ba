"""Requests and acknowledgements of the driver to the brokers of Pulsar (spec: pulsar 6.1, 15, 18.2, 25.2).

Each partition has one consumer here that is never given a record: of the query's durable subscription, whose cursor
keeps the broker from deleting what Spark has not read, or of none. It is asked where the topic ends.
"""

import asyncio
import secrets
import time
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pyarrow as pa

from fastwire.columns.chunk import Chunk
from fastwire.errors import FastwireError
from fastwire.position import Position
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.names.namespace import list_topics
from fastwire.pulsar.names.pattern import TopicPattern
from fastwire.pulsar.names.topic import parse_topic
from fastwire.pulsar.position import POSITIONS, PULSAR_EARLIEST
from fastwire.pulsar.protocol.request import Kind, SubscribeRequest, position_of

from ....net.endpoint import LinkLost
from ....systems.pulsar.refusal import is_for_good
from ..broker import SMOOTHING, Broker
from ..connections import Connections
from ..options import Options
from ..ranges import QueryPartition, Range, Witness
from .cluster import Attached, RangeCluster, topic_of
from .rangereader import Entries, is_missing, place_of

LATEST = Position(0x7FFFFFFFFFFFFFFF, 0x7FFFFFFFFFFFFFFF)
# What a ledger that cannot be counted from here is taken to hold.
LEDGER_ENTRIES = 50_000
EPOCH = datetime.fromtimestamp(0, UTC)
LAST_MS = (datetime(9999, 12, 31, tzinfo=UTC) - EPOCH) // timedelta(milliseconds=1)


class _Watch(Attached):
    """One partition's consumer.

    ``mark``: everything up to here is acknowledged, where the broker tells; ``acked``: by us.
    """

    mark: Position | None = None
    acked: Position | None = None


class PulsarBroker(Broker[RangeCluster]):
    """Implements ``Broker``."""

    def __init__(self, connections: Connections[RangeCluster], options: Options) -> None:
        super().__init__(connections, options)
        self._watches: dict[QueryPartition, _Watch] = {}
        self._entry_rows = 1.0

    # --- topics

    async def _find_topics(self) -> dict[str, list[QueryPartition]]:
        names = list(self._options.topics)
        pattern = self._options.pattern
        if isinstance(pattern, TopicPattern):
            answer = await self._cluster.ask(
                self._cluster.service,
                lambda connection, now: connection.request(Kind.LIST_TOPICS, list_topics(pattern, ""), now),
            )
            names = sorted({str(topic.base) for topic in pattern.chosen(answer.getTopicsOfNamespaceResponse.topics)})
        found = {}
        for name in names:
            try:
                found[name] = await self._partitions_of(name)
            except FastwireError as exc:
                if not is_missing(exc):
                    raise
        return found

    async def _partitions_of(self, name: str) -> list[QueryPartition]:
        topic = parse_topic(name)
        cluster = self._cluster
        count = 0 if topic.partition >= 0 else await cluster.partitions(name, cluster.service, create=False)
        if not count:
            return [QueryPartition(str(topic.base), topic.partition)]
        return [QueryPartition(name, index) for index in range(count)]

    # --- heads

    async def _ask_heads(
        self, partitions: list[QueryPartition]
    ) -> tuple[dict[QueryPartition, Position], dict[QueryPartition, FastwireError]]:
        answers = await asyncio.gather(*map(self._ask_head, partitions))
        found = {}
        failed = {}
        for partition, answer in zip(partitions, answers, strict=True):
            if isinstance(answer, Position):
                found[partition] = answer
            elif not is_missing(answer):
                failed[partition] = answer
        return found, failed

    async def _ask_head(self, partition: QueryPartition) -> Position | FastwireError:
        try:
            watch = await self._watch(partition)
            answer = await watch.last_message()
        except FastwireError as exc:
            return exc
        self._learn(watch, answer)
        return position_of(answer.last_message_id)

    def _learn(self, watch: _Watch, answer: pb.CommandGetLastMessageIdResponse) -> None:
        if answer.HasField("consumer_mark_delete_position"):
            watch.mark = position_of(answer.consumer_mark_delete_position)
        last = answer.last_message_id
        rows = last.batch_index + 1 if last.HasField("batch_index") and last.batch_index >= 0 else 1
        self._entry_rows += SMOOTHING * (rows - self._entry_rows)

    async def _watch(self, partition: QueryPartition) -> _Watch:
        watch = self._watches.get(partition)
        if watch is not None and not watch.alive:
            del self._watches[partition]
            watch.forget()
            watch = None
        if watch is None:
            watch = self._attach(partition)
            await watch.attach()
            self._watches[partition] = watch
        return watch

    def _attach(self, partition: QueryPartition) -> _Watch:
        options = self._options
        want = SubscribeRequest(
            topic=str(topic_of(partition)),
            subscription=options.subscription or f"{options.prefix}-{secrets.token_hex(5)}",
            subscription_type=pb.CommandSubscribe.Exclusive,
            consumer_id=next(self._cluster.consumer_ids),
            consumer_name=options.prefix,
            create=False,
            reader_from=None if options.subscription else LATEST,
            latest=not options.subscription,  # without it a broker takes the end for no place at all
        )
        return _Watch(self._cluster, partition, want)

    # --- places

    def incarnation(self, topic: str) -> str:
        """Ledgers only grow, so a topic that was made again is told by its positions."""
        return ""

    def beginnings(self, partitions: Iterable[QueryPartition]) -> dict[QueryPartition, Position]:
        """Return the same position for all partitions, without a request."""
        return dict.fromkeys(partitions, PULSAR_EARLIEST)

    def at_time(self, partition: QueryPartition, time_ms: int) -> Position | None:
        """Read from a little before the time on, as the daemon does."""
        from ....systems.pulsar.client.beside import entry_before  # a reader, which few queries need

        at = EPOCH + timedelta(milliseconds=min(time_ms, LAST_MS))
        topic = str(topic_of(partition))

        async def find() -> Position | None:
            return await self._in_time(entry_before(self._cluster.settings, topic, at), self._options.patience_s)

        return self.patiently(f"finding a time in {partition}", find)

    def rows(self, partition: QueryPartition, start: Position, end: Position) -> int:
        """By entries, where both are in one ledger, and the rows of recent entries."""
        if end <= start:
            return 0
        entries = end.b - start.b if start.a == end.a else end.b + 1 + LEDGER_ENTRIES
        return max(1, round(entries * self._entry_rows))

    def _sample(self, partition: QueryPartition, head: Position) -> None:
        if head.b >= 0:
            self._first(partition, Position(head.a, head.b - 1))

    def limited(self, partition: QueryPartition, start: Position, end: Position, rows: int) -> Position:
        """Count entries within one ledger; elsewhere ask the broker which entry stands where the limit would be."""
        entries = max(1, int(rows / self._entry_rows))
        if start.a != end.a:
            first = self._first(partition, start)
            if first is None or first >= end:
                return end
            start = Position(first.a, first.b - 1)
        wanted = Position(start.a, start.b + entries)
        if start.a == end.a:
            return min(wanted, end)
        # Beyond the end of a closed ledger there is nothing that a range could end with: what does come is the end.
        found = self._first(partition, Position(wanted.a, wanted.b - 1))
        return end if found is None else min(found, end)

    def ranges(self, partition: QueryPartition, start: Position, end: Position, pieces: int) -> list[Range]:
        """Split by entries, where the broker can tell that all are in one ledger."""
        held = self._held(partition, start)
        first, last = start, end
        if pieces > 1 and start.a != end.a:
            found = self._first(partition, start)
            if found is not None:
                first = Position(found.a, found.b - 1)
        cuts = [start]
        if first.a == last.a:
            step = (last.b - first.b) / pieces
            cuts += sorted(
                {Position(last.a, first.b + round(step * each)) for each in range(1, pieces)} - {first, last}
            )
        cuts.append(end)
        return [
            Range(
                system="pulsar",
                partition=partition,
                start=one,
                end=two,
                start_exists=not held and one != PULSAR_EARLIEST,
                end_exists=not held and two.b >= 0,
            )
            for one, two in pairwise(cuts)
        ]

    def _held(self, partition: QueryPartition, start: Position) -> bool:
        """Return True if the subscription has kept the broker from deleting entries behind ``start``."""
        watch = self._watches.get(partition)
        if watch is None or not self._options.subscription:
            return False
        # In front of a ledger stands what the broker makes of the end of the one before when that is deleted.
        return watch.mark is None or watch.mark <= start or watch.mark.b < 0

    def _first(self, partition: QueryPartition, start: Position) -> Position | None:
        """Return the first entry behind ``start``; None if there is none yet."""

        async def find() -> Position | None:
            async with self._entries(partition, start) as entries:
                last = await entries.last()
                return None if last.b < 0 or last <= start else await self._first_of(entries, last)

        return self.patiently(f"looking into {partition}", find)

    async def _find_witness(self, partition: QueryPartition, end: Position) -> Witness | None:
        if end.b < 0:
            return None
        from ....systems.pulsar.client.beside import witness_at  # a reader, as above

        value = await witness_at(self._cluster.settings, str(topic_of(partition)), end)
        return None if value is None else Witness(partition, end, value)

    def _entries(self, partition: QueryPartition, start: Position) -> Entries:
        return Entries(self._cluster, partition, start, window=1, name=f"{self._options.prefix}-look")

    async def _first_of(self, entries: Entries, last: Position) -> Position | None:
        """Return the first entry up to ``last``; None if no entry lies before it."""
        entries.grant()
        patient_until = time.monotonic() + self._options.patience_s
        while entries.position < last and not entries.ended:
            if await entries.news():
                for chunk in self._cluster.take_all():
                    if (first := self._look(chunk)) is not None:
                        return first
            elif time.monotonic() >= patient_until:
                place = POSITIONS.format(entries.position)
                raise LinkLost(f"the broker sends no entry behind {place}, where the topic goes on")
        return None

    def _look(self, chunk: Chunk) -> Position | None:
        """Return the first entry of ``chunk``, and learn from its rows."""
        found = {letter.position for letter in chunk.dead_letters}
        if chunk.rows:
            place, row = place_of(pa.record_batch(chunk)), 0
            while row < chunk.rows:
                found.add(place(row))
                row = bisect_right(range(chunk.rows), place(row), lo=row, key=place)
            self._saw(chunk.payload_bytes, chunk.rows)
            self._entry_rows += SMOOTHING * (chunk.rows / len(found) - self._entry_rows)
        return min(found, default=None)

    # --- acknowledgements

    def commit(self, positions: Mapping[QueryPartition, Position]) -> None:
        """Acknowledge, cumulatively; the cursor follows what Spark has committed, and the backlog shrinks."""
        if self._options.commits:
            self.patiently("acknowledging", lambda: self._acknowledge(positions))

    async def _acknowledge(self, positions: Mapping[QueryPartition, Position]) -> None:
        together = (self._acknowledge_one(*one) for one in positions.items())
        for failure in await asyncio.gather(*together, return_exceptions=True):
            if isinstance(failure, BaseException):
                raise failure

    async def _acknowledge_one(self, partition: QueryPartition, position: Position) -> None:
        if position.b < 0:
            return
        try:
            watch = await self._watch(partition)
        except FastwireError as exc:
            if not is_missing(exc):
                raise
            return
        if watch.acked is None or position > watch.acked:
            await watch.acknowledge(position)
            watch.acked = position

    def _hopeless(self, error: FastwireError) -> bool:
        return is_missing(error) or is_for_good(error)
