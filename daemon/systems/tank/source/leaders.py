"""Assignment of partitions to the connections of their leaders, and of their offsets (spec: tank 5.7, 8)."""

from collections.abc import Collection, Mapping

from fastwire.errors import FastwireError
from fastwire.tank.format.error import PartitionStatus
from fastwire.tank.format.message import PartitionRange
from fastwire.tank.protocol.fetch import Target
from fastwire.tank.reading.slot import PartitionResult

from ....runtime.tasks import Tasks
from ...reading.atleaders import Freshness
from ...reading.leaders import LeaderReader, Leaders
from ...reading.offsetlookup import OffsetLookup
from ..cluster import Cluster
from ..link import Link
from .partition import Partition


def note_range(partition: Partition, found: PartitionRange) -> None:
    """Note the start and end of a log. An empty one begins with sequence 1."""
    partition.log_start, partition.end = max(found.first, 1), found.last + 1


class TankLeaders(Leaders[Link, Partition]):
    """Assigns each partition that is read to its leader's connection."""

    def __init__(
        self, reader: LeaderReader[Partition], cluster: Cluster, freshness: Freshness[Partition], tasks: Tasks
    ) -> None:
        super().__init__(reader, freshness, tasks)
        self._cluster = cluster

    def refused(self, partition: Partition, result: PartitionResult) -> None:
        """Look for the leader again after an error; the answer may name the new leader."""
        moved = result.status in (PartitionStatus.REDIRECT, PartitionStatus.NO_LEADER)
        if moved or result.status in (PartitionStatus.UNKNOWN_TOPIC, PartitionStatus.UNKNOWN_PARTITION):
            self._cluster.lead(partition.place, result.leader)
        self._freshness.old |= not moved
        self.try_again(partition, soon=moved)

    async def _place_one(self, partition: Partition) -> None:
        session = partition.session
        link = await self._cluster.leader("fetch", partition.place)
        if partition.granted and partition.session == session:
            self._read_by(partition, link, Target(partition.index, *partition.place, session))


class TankOffering(OffsetLookup[Cluster, Partition]):
    """Offers all partitions: no group assigns them."""

    async def _ask_offsets(self, partitions: Collection[Partition]) -> Mapping[Partition, FastwireError]:
        failed: dict[Partition, FastwireError] = {}
        ranges = await self._cluster.ranges_of({partition.place[0] for partition in partitions})
        for partition in partitions:
            topic, number = partition.place
            try:
                note_range(partition, ranges[topic].of(number))
            except FastwireError as exc:
                failed[partition] = exc
        return failed
