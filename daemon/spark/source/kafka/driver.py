"""Requests and commits of the driver to the brokers of Kafka (spec: kafka 5.1, 9.3, 13)."""

import time
from collections.abc import Iterable, Mapping
from itertools import pairwise

from fastwire.errors import FastwireError
from fastwire.grammar import NamePattern
from fastwire.kafka.error import BrokerError, Code
from fastwire.kafka.question import EARLIEST, LATEST, NO_MEMBER, Offsets
from fastwire.position import Position

from ....net.endpoint import LinkLost
from ....systems.kafka.refusal import is_for_good
from ..asking import AskingBroker
from ..connections import Connections
from ..options import Options
from ..ranges import Partition, Range
from .cluster import RangeCluster, incarnation_of
from .reading import Records, place_of

__all__ = ["KafkaBroker"]

SAMPLE_RECORDS = 100
COMMIT_PATIENCE_S = 10.0  # committed offsets serve monitoring only, so a batch does not wait long for them

# Errors a group coordinator returns for an offset commit by a non-member.
_TAKEN = frozenset({Code.UNKNOWN_MEMBER_ID, Code.ILLEGAL_GENERATION, Code.REBALANCE_IN_PROGRESS})


class KafkaBroker(AskingBroker[RangeCluster]):
    """Implements ``Broker``."""

    def __init__(self, connections: Connections[RangeCluster], options: Options) -> None:
        super().__init__(connections, options)
        self._incarnations: dict[str, str] = {}
        self._beginnings: dict[Partition, Position] = {}  # asked for since the last heads
        self._committed: dict[Partition, int] = {}

    # --- topics

    async def _find_topics(self) -> dict[str, list[Partition]]:
        options, cluster = self._options, self._cluster
        names: Iterable[str] = options.topics
        if isinstance(options.pattern, NamePattern):
            await cluster.refresh(None)
            names = cluster.metadata.matching(options.pattern)
        else:
            await cluster.refresh(names)
        found = {}
        for name in names:
            topic = cluster.topic(name)
            if topic is not None:
                found[name] = [Partition(name, number) for number in sorted(topic.leaders)]
        return found

    def incarnation(self, topic: str) -> str:
        """Return the topic's id."""
        return self._incarnations.get(topic, "")

    # --- places

    async def _ask_heads(
        self, partitions: list[Partition]
    ) -> tuple[dict[Partition, Position], dict[Partition, FastwireError]]:
        """The metadata are asked for each time: names do not tell that a topic was made again."""
        self._beginnings.clear()
        names = {partition.topic for partition in partitions}
        offsets = await self._offsets(partitions, LATEST)
        topics = {name: self._cluster.topic(name) for name in names}
        self._incarnations = {name: incarnation_of(topic) for name, topic in topics.items() if topic is not None}
        found = {Partition(*place): Position(*position) for place, position in offsets.found.items()}
        return found, {Partition(*place): error for place, error in offsets.failed.items()}

    async def _places(self, partitions: list[Partition], timestamp: int) -> dict[Partition, Position]:
        """Return the offsets that the present leaders report, without partitions that do not exist."""
        offsets = await self._offsets(partitions, timestamp)
        for error in offsets.failed.values():
            raise error
        return {Partition(*place): Position(*position) for place, position in offsets.found.items()}

    async def _offsets(self, partitions: list[Partition], timestamp: int) -> Offsets:
        names = {partition.topic for partition in partitions}
        if not names:
            return Offsets()
        await self._cluster.refresh(names)
        topics = {name: self._cluster.topic(name) for name in names}
        there = [
            partition
            for partition in partitions
            if (topic := topics[partition.topic]) is not None and partition.index in topic.leaders
        ]
        return await self._cluster.offsets({place_of(partition): timestamp for partition in there})

    def beginnings(self, partitions: Iterable[Partition]) -> dict[Partition, Position]:
        """Return the first offsets of the logs; they are requested at most as often as the heads."""
        wanted = list(partitions)
        new = [partition for partition in wanted if partition not in self._beginnings]
        if new:
            self._beginnings |= self.patiently("asking where topics begin", lambda: self._places(new, EARLIEST))
        return {each: Position(self._beginnings[each].a, -1) for each in wanted if each in self._beginnings}

    def at_time(self, partition: Partition, time_ms: int) -> Position | None:
        """Ask the broker, which has an index of times."""
        what = f"finding a time in {partition}"
        found = self.patiently(what, lambda: self._places([partition], time_ms)).get(partition)
        return None if found is None or found.a < 0 else Position(found.a, -1)

    def rows(self, partition: Partition, start: Position, end: Position) -> int:
        """Return the difference of the offsets: holes count as records."""
        return max(0, end.a - start.a)

    def _sample(self, partition: Partition, head: Position) -> None:
        """Read what stands before the head; that may be nothing, but markers."""

        async def look() -> None:
            await self._cluster.refresh([partition.topic])
            start = Position(max(begin, head.a - SAMPLE_RECORDS), -1)
            link = await self._cluster.leader("fetch", place_of(partition))
            records = Records(self._cluster, partition, start, link, -1)
            begun_at = time.monotonic()
            try:
                while records.position.a < head.a and not self._cluster.chunks:
                    await records.news()
                    waited_since = max(begun_at, self._cluster.throttled_until)
                    if time.monotonic() - waited_since >= self._options.patience_s:
                        raise LinkLost(records.silence())
                for chunk in self._cluster.take_all():
                    if chunk.rows:
                        self._saw(chunk.payload_bytes, chunk.rows)
            finally:
                records.close()

        begin = self.beginnings([partition]).get(partition, head).a
        if begin < head.a:
            self.patiently(f"looking into {partition}", look)

    def limited(self, partition: Partition, start: Position, end: Position, rows: int) -> Position:
        """The epoch of the end holds for what lies before it: a log that was not cut there was not cut here."""
        return Position(min(start.a + rows, end.a), end.b)

    def ranges(self, partition: Partition, start: Position, end: Position, pieces: int) -> list[Range]:
        """Split the ranges at any offset."""
        count = min(pieces, end.a - start.a)
        cuts = [start, *(Position(start.a + (end.a - start.a) * each // count, end.b) for each in range(1, count)), end]
        return [
            Range(
                system="kafka", partition=partition, start=one, end=two, incarnation=self.incarnation(partition.topic)
            )
            for one, two in pairwise(cuts)
        ]

    # --- commits

    def commit(self, positions: Mapping[Partition, Position]) -> None:
        """Commit for the group what it has not been told; Spark's checkpoint is the truth, this is for people."""
        if not self._options.commits:
            return
        new = {each: at for each, at in positions.items() if self._committed.get(each, -1) != at.a}
        if new:
            self.patiently("committing", lambda: self._commit(new), COMMIT_PATIENCE_S)

    async def _commit(self, positions: Mapping[Partition, Position]) -> None:
        cluster, group = self._cluster, self._options.subscription
        link = await cluster.coordinator(group)
        offsets = {place_of(partition): (at.a, at.b) for partition, at in positions.items()}
        for (topic, number), code in (await cluster.commit(link, group, offsets, NO_MEMBER)).items():
            error = BrokerError(code, f"group {group}, {topic} partition {number}")
            if code in _TAKEN:
                raise GroupTakenError(f"others are in the group, who commit for themselves ({error})")
            if code != Code.UNKNOWN_TOPIC_OR_PARTITION:  # of what is gone nobody has to know any more
                raise error
        self._committed |= {partition: at.a for partition, at in positions.items()}

    def _hopeless(self, error: FastwireError) -> bool:
        return isinstance(error, GroupTakenError) or is_for_good(error)


class GroupTakenError(FastwireError):
    """The group has other members."""
