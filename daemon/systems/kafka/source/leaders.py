"""Assignment of partitions to connections, in the leader's epoch (spec: kafka 9.3, 13.3)."""

import asyncio

from fastwire.kafka.format.error import REFRESH, RETRY
from fastwire.kafka.protocol.fetch import Target
from fastwire.kafka.protocol.metadata import Leader, Node
from fastwire.kafka.reading.response import Fetched
from fastwire.kafka.reading.slot import PartitionResult

from ....runtime.tasks import Tasks
from ...reading.atleaders import Freshness
from ...reading.leaders import MOST_S, Leaders
from ...reading.pullsource import PullSource
from ..cluster import Cluster
from ..link import Link
from .firstposition import FirstPositions
from .partition import Partition


class KafkaLeaders(Leaders[Link, Partition]):
    """Assigns each partition that is read to its leader's connection, or to that of a replica that it has named."""

    def __init__(
        self,
        reader: PullSource[Cluster, Link, Partition],
        cluster: Cluster,
        freshness: Freshness[Partition],
        first_positions: FirstPositions,
        tasks: Tasks,
    ) -> None:
        super().__init__(reader, freshness, tasks)
        self._reader = reader
        self._cluster = cluster
        self._first_positions = first_positions
        self._loop = asyncio.get_running_loop()

    def _unlinked(self, partition: Partition) -> None:
        partition.replica.reset()

    def prefer(self, partition: Partition, node: int) -> None:
        """Read ``partition`` from the preferred replica ``node`` that its leader has named."""
        partition.replica.prefer(node, self._loop.time())
        self._move(partition)

    def avoid_replica(self, partition: Partition) -> None:
        """Read from the leader for a while, because a replica has refused a Fetch (spec: kafka 9.4)."""
        delay_s = min(partition.refusals.next(), MOST_S) if partition.refusals.failures else 0.0
        partition.replica.avoid(self._loop.time())
        self._move(partition, delay_s)

    def reconsider_replica(self, partition: Partition) -> None:
        """Ask the leader again for the preferred read replica, if that is due."""
        if partition.replica.is_over(self._loop.time()):
            partition.replica.reset()
            self._move(partition)

    def _move(self, partition: Partition, delay_s: float = 0.0) -> None:
        self.forget(partition)
        self.place(partition, delay_s)

    def refused(self, partition: Partition, result: PartitionResult, fetched: Fetched) -> None:
        """Look for the leader again after an error; the response may name the new leader."""
        if result.error in REFRESH:
            leader = Leader(result.leader, result.leader_epoch)
            nodes = [Node(*node) for node in fetched.nodes]
            news = result.leader >= 0 and self._cluster.metadata.lead(*partition.place, leader, nodes)
            self._freshness.old |= not news
        self.try_again(partition, soon=result.error in RETRY)

    async def _place_one(self, partition: Partition) -> None:
        topic, number = partition.place
        session = partition.session
        link = await self._cluster.nearest(partition.place, partition.replica)
        epoch = self._cluster.metadata.leader(topic, number).epoch
        end = None
        if epoch > partition.checked_epoch:
            end = await self._first_positions.parting(partition, self._reader.slots.position(partition.index))
        if not partition.granted or partition.session != session:
            return
        if end is not None:
            self._reader.part(partition, end.a)
            return
        target = Target(partition.index, topic, partition.topic_id, number, epoch, session, partition.replica.near)
        self._read_by(partition, link, target)
        partition.checked_epoch = max(epoch, partition.checked_epoch)
