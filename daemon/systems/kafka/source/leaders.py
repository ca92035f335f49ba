"""Assignment of partitions to connections: that of the leader, in the leader's epoch (spec: kafka 9.3, 13.3)."""

import asyncio
from collections.abc import Collection, Mapping
from math import inf
from typing import Protocol

from fastwire.errors import FastwireError
from fastwire.kafka.error import REFRESH, RETRY
from fastwire.kafka.fetch import Target
from fastwire.kafka.metadata import Leader, Node
from fastwire.kafka.response import Fetched
from fastwire.kafka.slot import PartitionResult, SlotTable

from ....net.endpoint import LinkLost
from ....runtime.logs import get_logger
from ....runtime.tasks import Tasks
from ..cluster import Cluster
from ..link import Link
from .atleaders import AtLeaders, Freshness
from .beginning import Beginnings
from .partition import Partition

__all__ = ["Leaders"]

MOST_S = 2.0  # the longest pause before a partition that leaders refuse is tried again

PREFERRED_S = 300.0  # after which the leader is asked again for the preferred read replica (spec: kafka 9.4)
AVOIDED_S = 30.0

log = get_logger("source")


class _Reader(Protocol):
    partitions: list[Partition]
    slots: SlotTable

    def part(self, partition: Partition, end: int) -> None: ...
    def placed(self, link: Link) -> None: ...


class Leaders:
    """Assigns each partition that is read to its leader's connection, and retries until it succeeds."""

    def __init__(
        self, reader: _Reader, cluster: Cluster, freshness: Freshness, beginnings: Beginnings, tasks: Tasks
    ) -> None:
        self._reader = reader
        self._cluster = cluster
        self._freshness = freshness
        self._beginnings = beginnings
        self._loop = asyncio.get_running_loop()
        self._unplaced = AtLeaders("leaders", freshness, tasks, self._place)  # read, and by no connection

    @property
    def failing(self) -> dict[Partition, str]:
        """The partitions that are not read because their leader is missing or unreachable, with the error."""
        return self._unplaced.failing

    def place(self, partition: Partition, delay_s: float = 0.0) -> None:
        """Read ``partition`` from the position of its slot, in ``delay_s`` seconds."""
        self._unplaced.add([partition], delay_s)

    def forget(self, partition: Partition) -> None:
        """Stop reading ``partition``."""
        self._unplaced.drop(partition)
        if partition.link is not None:
            partition.link.fetcher.drop(partition.index)
            partition.link = None

    def lost(self, link: Link) -> None:
        """Place the partitions of a lost connection on other connections."""
        self._freshness.old = True
        for partition in self._reader.partitions:
            if partition.link is link:
                partition.link = None
                self._choose(partition, -1, inf)
                if partition.granted:
                    self.place(partition)

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
        self.forget(partition)
        if result.error in RETRY:
            at_once = partition.refusals.failures == 0  # the leader may just have moved
            delay_s = min(partition.refusals.next(), MOST_S)
            delay_s = 0.0 if at_once else delay_s
        else:
            delay_s = partition.refusals.failed(log, "the leader refuses to be read from", partition.error)
        self.place(partition, delay_s)

    async def _place(self, partitions: Collection[Partition]) -> Mapping[Partition, FastwireError]:
        failures = await asyncio.gather(*map(self._try_to_place, partitions))
        return {partition: exc for partition, exc in zip(partitions, failures, strict=True) if exc is not None}

    async def _try_to_place(self, partition: Partition) -> FastwireError | None:
        try:
            if partition.granted:
                await self._place_one(partition)
        except FastwireError as exc:
            return exc
        return None

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
        if not link.ready:
            raise LinkLost(f"connection to {link} is closed")  # closed while the epoch was requested
        partition.checked_epoch = max(epoch, partition.checked_epoch)
        partition.link = link
        partition.error = ""
        link.fetcher.add(Target(partition.index, topic, partition.topic_id, number, epoch, session, partition.near))
        self._reader.placed(link)
