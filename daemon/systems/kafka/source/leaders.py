"""Assignment of partitions to connections, in the leader's epoch (spec: kafka 9.3, 13.3)."""

import asyncio
from math import inf
from typing import Protocol

from fastwire.errors import FastwireError
from fastwire.kafka.error import REFRESH, RETRY
from fastwire.kafka.fetch import Target
from fastwire.kafka.metadata import Leader, Node
from fastwire.kafka.response import Fetched
from fastwire.kafka.slot import PartitionResult, SlotTable

from ....runtime.logs import get_logger
from ....runtime.tasks import Tasks
from ...atleaders import Freshness
from ...leaders import MOST_S, LeaderReader, Leaders
from ..cluster import Cluster
from ..link import Link
from .beginning import Beginnings
from .partition import Partition

__all__ = ["KafkaLeaders"]

PREFERRED_S = 300.0  # after which the leader is asked again for the preferred read replica (spec: kafka 9.4)
AVOIDED_S = 30.0

log = get_logger("source")


class _Reader(LeaderReader[Partition], Protocol):
    slots: SlotTable

    def part(self, partition: Partition, end: int) -> None: ...


class KafkaLeaders(Leaders[Link, Partition]):
    """Assigns each partition that is read to its leader's connection, or to that of a replica that it has named."""

    def __init__(
        self, reader: _Reader, cluster: Cluster, freshness: Freshness[Partition], beginnings: Beginnings, tasks: Tasks
    ) -> None:
        super().__init__(reader, freshness, tasks)
        self._reader = reader
        self._cluster = cluster
        self._beginnings = beginnings
        self._loop = asyncio.get_running_loop()

    def _unlinked(self, partition: Partition) -> None:
        self._choose(partition, -1, inf)

    def prefer(self, partition: Partition, node: int) -> None:
        """Read ``partition`` from the preferred replica ``node`` that its leader has named."""
        self._choose(partition, node, PREFERRED_S)
        self.forget(partition)
        self.place(partition)

    def avoid_replica(self, partition: Partition) -> None:
        """Read from the leader for a while, because a replica has refused a Fetch (spec: kafka 9.4)."""
        delay_s = min(partition.refusals.next(), MOST_S) if partition.refusals.failures else 0.0
        self._choose(partition, -1, AVOIDED_S, near=False)
        self.forget(partition)
        self.place(partition, delay_s)

    def reconsider_replica(self, partition: Partition) -> None:
        """Ask the leader again for the preferred read replica, if that is due."""
        if self._loop.time() >= partition.choice_ends:
            self._choose(partition, -1, inf)
            self.forget(partition)
            self.place(partition)

    def _choose(self, partition: Partition, node: int, for_s: float, *, near: bool = True) -> None:
        partition.replica, partition.near = node, near
        partition.choice_ends = self._loop.time() + for_s

    def refused(self, partition: Partition, result: PartitionResult, fetched: Fetched) -> None:
        """Look for the leader again after an error; the response may name the new leader."""
        if result.error in REFRESH:
            leader = Leader(result.leader, result.leader_epoch)
            nodes = [Node(*node) for node in fetched.nodes]
            news = result.leader >= 0 and self._cluster.metadata.lead(*partition.place, leader, nodes)
            self._freshness.old |= not news
        self.try_again(partition, soon=result.error in RETRY)

    async def _link_to_read(self, partition: Partition) -> Link:
        if partition.replica >= 0:
            try:
                node = self._cluster.metadata.node(partition.replica)
                return await self._cluster.link("fetch", node.host, node.port)
            except FastwireError as exc:
                log.debug("cannot read from the nearest replica", topic=str(partition.log), error=str(exc))
                self._choose(partition, -1, AVOIDED_S, near=False)
        return await self._cluster.leader("fetch", partition.place)

    async def _place_one(self, partition: Partition) -> None:
        topic, number = partition.place
        session = partition.session
        link = await self._link_to_read(partition)
        epoch = self._cluster.metadata.leader(topic, number).epoch
        end = None
        if epoch > partition.checked_epoch:
            end = await self._beginnings.parting(partition, self._reader.slots.position(partition.index))
        if not partition.granted or partition.session != session:
            return
        if end is not None:
            self._reader.part(partition, end.a)
            return
        target = Target(partition.index, topic, partition.topic_id, number, epoch, session, partition.near)
        self._read_by(partition, link, target)
        partition.checked_epoch = max(epoch, partition.checked_epoch)
