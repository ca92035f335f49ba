"""Requests of the driver to the brokers of TANK (spec: tank 8, 9)."""

import asyncio
from collections.abc import Iterable, Mapping

from fastwire.errors import FastwireError
from fastwire.grammar import NamePattern
from fastwire.position import Position

from ....systems.tank.cluster import Cluster, Ranges
from ....systems.tank.refusal import is_for_good
from ..connections import Connections
from ..offsetdriver import OffsetBroker
from ..offsetranges import OffsetRanges
from ..options import Options
from ..ranges import QueryPartition, Witness


class TankBroker(OffsetBroker):
    """Implements ``Broker``. An answer about a topic has beginnings and ends of all its partitions."""

    def __init__(self, connections: Connections[OffsetRanges], options: Options) -> None:
        super().__init__(connections, options)
        self._tank: Cluster = connections.cluster.source.cluster

    async def _find_topics(self) -> dict[str, list[QueryPartition]]:
        options = self._options
        there = await self._tank.topics()
        names: Iterable[str] = options.topics
        if isinstance(options.pattern, NamePattern):
            names = filter(options.pattern.matches, there)
        return {
            name: [QueryPartition(name, number) for number in range(there[name])] for name in names if name in there
        }

    def incarnation(self, topic: str) -> str:
        """Return "": a topic that was created again is not distinguishable by an identity."""
        return ""

    async def _ask_heads(
        self, partitions: list[QueryPartition]
    ) -> tuple[dict[QueryPartition, Position], dict[QueryPartition, FastwireError]]:
        self._beginnings.clear()
        topics = {ranges.topic: ranges for ranges in await self._ranges(partitions)}
        found: dict[QueryPartition, Position] = {}
        failed: dict[QueryPartition, FastwireError] = {}
        for partition in partitions:
            ranges = topics.get(partition.topic)
            if ranges is None:
                continue
            if partition.index in ranges.failed:
                failed[partition] = ranges.failed[partition.index]
            elif partition.index in ranges.found:
                there = ranges.found[partition.index]
                found[partition] = Position(there.last + 1, 0)
                self._beginnings[partition] = Position(max(there.first, 1), 0)
        return found, failed

    async def _ask_beginnings(self, partitions: list[QueryPartition]) -> dict[QueryPartition, Position]:
        found = {}
        for ranges in await self._ranges(partitions):
            there = (each for each in partitions if each.topic == ranges.topic and each.index < ranges.count)
            found.update({each: Position(max(ranges.of(each.index).first, 1), 0) for each in there})
        return found

    async def _ranges(self, partitions: Iterable[QueryPartition]) -> list[Ranges]:
        """Ask for the sequences of the topics that exist."""
        topics = {partition.topic for partition in partitions}
        found = await asyncio.gather(*map(self._tank.existing, topics))
        return [ranges for ranges in found if ranges is not None]

    def at_time(self, partition: QueryPartition, time_ms: int) -> Position | None:
        """Raise FastwireError: the dialect has no option for a time, because brokers do not look at timestamps."""
        raise FastwireError(f"{partition}: a TANK broker cannot find a time")

    async def _find_witness(self, partition: QueryPartition, end: Position) -> Witness | None:
        spans = [span for chunk in await self._chunks(partition, end.a - 1, end.a) for span in chunk.spans()]
        if not spans or spans[-1].witness is None:
            return None
        return Witness(partition, spans[-1].end, spans[-1].witness)

    async def _compare(self, witness: Witness) -> bool:
        at = witness.position.a
        return await self._look(witness.partition, at, at + 1, witness.value).holds()

    def commit(self, positions: Mapping[QueryPartition, Position]) -> None:
        """Do nothing: a broker keeps no progress."""

    def _hopeless(self, error: FastwireError) -> bool:
        return is_for_good(error)
