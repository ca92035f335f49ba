"""Requests and commits of the driver to the brokers of Kafka (spec: kafka 5.1, 9.3, 13)."""

from collections.abc import Iterable, Mapping

from fastwire.errors import FastwireError
from fastwire.grammar import NamePattern
from fastwire.kafka.format.error import BrokerError, Code
from fastwire.kafka.protocol.metadata import NO_ID, Topic, topic_id_text
from fastwire.kafka.protocol.question import EARLIEST, LATEST, NO_MEMBER, Offsets
from fastwire.position import Position

from ....systems.kafka.cluster import Cluster
from ....systems.kafka.refusal import is_for_good
from ..connections import Connections
from ..offsetdriver import OffsetBroker
from ..offsetranges import OffsetRanges
from ..options import Options
from ..ranges import QueryPartition, Witness

COMMIT_PATIENCE_S = 10.0  # committed offsets serve monitoring only, so a batch does not wait long for them

# Errors a group coordinator returns for an offset commit by a non-member.
_TAKEN = frozenset({Code.UNKNOWN_MEMBER_ID, Code.ILLEGAL_GENERATION, Code.REBALANCE_IN_PROGRESS})


class KafkaBroker(OffsetBroker):
    """Implements ``Broker``."""

    def __init__(self, connections: Connections[OffsetRanges], options: Options) -> None:
        super().__init__(connections, options)
        self._kafka: Cluster = connections.cluster.source.cluster
        self._incarnations: dict[str, str] = {}
        self._committed: dict[QueryPartition, int] = {}

    # --- topics

    async def _find_topics(self) -> dict[str, list[QueryPartition]]:
        options, cluster = self._options, self._kafka
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
                found[name] = [QueryPartition(name, number) for number in sorted(topic.leaders)]
        return found

    def incarnation(self, topic: str) -> str:
        """Return the topic's id."""
        return self._incarnations.get(topic, "")

    async def _find_witness(self, partition: QueryPartition, end: Position) -> Witness | None:
        return None  # a topic has an id

    # --- places

    async def _ask_heads(
        self, partitions: list[QueryPartition]
    ) -> tuple[dict[QueryPartition, Position], dict[QueryPartition, FastwireError]]:
        """The metadata are asked for each time: names do not tell that a topic was made again."""
        self._beginnings.clear()
        names = {partition.topic for partition in partitions}
        offsets = await self._offsets(partitions, LATEST)
        topics = {name: self._kafka.topic(name) for name in names}
        self._incarnations = {name: _incarnation(topic) for name, topic in topics.items() if topic is not None}
        found = {QueryPartition(*place): Position(*position) for place, position in offsets.found.items()}
        return found, {QueryPartition(*place): error for place, error in offsets.failed.items()}

    async def _places(self, partitions: list[QueryPartition], timestamp: int) -> dict[QueryPartition, Position]:
        """Return the offsets that the present leaders report, without partitions that do not exist."""
        offsets = await self._offsets(partitions, timestamp)
        for error in offsets.failed.values():
            raise error
        return {QueryPartition(*place): Position(*position) for place, position in offsets.found.items()}

    async def _offsets(self, partitions: list[QueryPartition], timestamp: int) -> Offsets:
        names = {partition.topic for partition in partitions}
        if not names:
            return Offsets()
        await self._kafka.refresh(names)
        topics = {name: self._kafka.topic(name) for name in names}
        there = [
            partition
            for partition in partitions
            if (topic := topics[partition.topic]) is not None and partition.index in topic.leaders
        ]
        committed = self._options.own.get("isolationLevel") != "read_uncommitted"
        wanted = {(partition.topic, partition.index): timestamp for partition in there}
        return await self._kafka.list_offsets(wanted, read_committed=committed)

    async def _ask_beginnings(self, partitions: list[QueryPartition]) -> dict[QueryPartition, Position]:
        places = await self._places(partitions, EARLIEST)
        return {partition: Position(place.a, -1) for partition, place in places.items()}

    def at_time(self, partition: QueryPartition, time_ms: int) -> Position | None:
        """Ask the broker, which has an index of times."""
        what = f"finding a time in {partition}"
        found = self.patiently(what, lambda: self._places([partition], time_ms)).get(partition)
        return None if found is None or found.a < 0 else Position(found.a, -1)

    # --- commits

    def commit(self, positions: Mapping[QueryPartition, Position]) -> None:
        """Commit for the group what it has not been told; Spark's checkpoint is the truth, this is for people."""
        if not self._options.commits:
            return
        new = {each: at for each, at in positions.items() if self._committed.get(each, -1) != at.a}
        if new:
            self.patiently("committing", lambda: self._commit(new), COMMIT_PATIENCE_S)

    async def _commit(self, positions: Mapping[QueryPartition, Position]) -> None:
        cluster, group = self._kafka, self._options.subscription
        link = await cluster.coordinator(group)
        offsets = {(partition.topic, partition.index): (at.a, at.b) for partition, at in positions.items()}
        for (topic, number), code in (await cluster.commit(link, group, offsets, NO_MEMBER)).items():
            error = BrokerError(code, f"group {group}, {topic} partition {number}")
            if code in _TAKEN:
                raise GroupTakenError(f"others are in the group, who commit for themselves ({error})")
            if code != Code.UNKNOWN_TOPIC_OR_PARTITION:  # a topic that is gone needs no commit
                raise error
        self._committed |= {partition: at.a for partition, at in positions.items()}

    def _hopeless(self, error: FastwireError) -> bool:
        return isinstance(error, GroupTakenError) or is_for_good(error)


class GroupTakenError(FastwireError):
    """The group has other members."""


def _incarnation(topic: Topic) -> str:
    """Return the topic's id as text; "" if the cluster is too old to have one."""
    return "" if topic.topic_id == NO_ID else topic_id_text(topic.topic_id)
