"""Which connection reads which partition: that of its leader, in the leader's epoch (kafka 9.3, 13.3)."""

import asyncio
from typing import Protocol

from fastwire.errors import FastwireError
from fastwire.kafka.error import REFRESH
from fastwire.kafka.fetch import Target
from fastwire.kafka.metadata import Leader, Node
from fastwire.kafka.response import Fetched
from fastwire.kafka.slot import SlotTable, Told

from ...backoff import Backoff
from ...kafka.cluster import Cluster
from ...kafka.link import Link
from ...logs import get_logger
from ..tasks import Tasks
from .beginning import Beginnings
from .partition import Partition
from .topics import Topics

__all__ = ["Leaders"]

AGAIN_S = 0.1  # before what a leader has refused twice is tried again, at first
MOST_S = 2.0

log = get_logger("source")


class _Reader(Protocol):
    partitions: list[Partition]
    slots: SlotTable

    def follow_topics(self) -> None: ...
    def part(self, partition: Partition, end: int) -> None: ...
    def placed(self, link: Link) -> None: ...


class Leaders:
    """Gives each partition that is read to its leader's connection, however long that takes.

    ``old`` is set by whoever learns that the metadata are; ``asked_at`` is when they were asked for last, by the
    loop's clock.
    """

    def __init__(self, reader: _Reader, cluster: Cluster, topics: Topics, beginnings: Beginnings, tasks: Tasks) -> None:
        self.old = False
        self.asked_at = 0.0
        self._reader = reader
        self._cluster = cluster
        self._topics = topics
        self._beginnings = beginnings
        self._tasks = tasks
        self._loop = asyncio.get_running_loop()
        self._unplaced: set[int] = set()  # read, and by no connection
        self._placing: asyncio.Task[None] | None = None

    async def refresh(self) -> None:
        """Ask for the metadata, if they are old."""
        if self.old:
            await self._topics.ask()
            self.old = False
            self.asked_at = self._loop.time()

    def place(self, partition: Partition) -> None:
        """``partition`` is to be read, from where its slot stands."""
        self._unplaced.add(partition.index)
        if self._placing is None or self._placing.done():
            self._placing = self._tasks.run(self._place(), "leaders")

    def forget(self, partition: Partition) -> None:
        """It is not to be read any more."""
        self._unplaced.discard(partition.index)
        if partition.link is not None:
            partition.link.fetcher.drop(partition.index)
            partition.link = None

    def lost(self, link: Link) -> None:
        """A connection is gone: what it read is read by another."""
        self.old = True
        for partition in self._reader.partitions:
            if partition.link is link:
                partition.link = None
                if partition.granted:
                    self.place(partition)

    def refused(self, partition: Partition, told: Told, fetched: Fetched) -> None:
        """The leader has answered with an error: look for it again, with the help of what it says."""
        if told.error in REFRESH:
            leader = Leader(told.leader, told.leader_epoch)
            nodes = [Node(*node) for node in fetched.nodes]
            self.old |= told.leader < 0 or not self._cluster.metadata.lead(*partition.place, leader, nodes)
        partition.refusals += 1
        self.forget(partition)
        self.place(partition)

    async def _place(self) -> None:
        backoff = Backoff(first_s=AGAIN_S, most_s=MOST_S)
        while self._unplaced:
            partitions = self._reader.partitions
            if any(partitions[index].refusals > 1 for index in self._unplaced):
                await asyncio.sleep(backoff.next())
            try:
                if self.old:
                    await self.refresh()
                    self._reader.follow_topics()
            except FastwireError as exc:
                log.debug("cannot ask for leaders", error=str(exc))
            failed = False
            for index in tuple(self._unplaced):
                partition = partitions[index]
                self._unplaced.discard(index)
                if not partition.granted:
                    continue
                try:
                    await self._place_one(partition)
                except FastwireError as exc:
                    partition.error = str(exc)
                    self._unplaced.add(index)
                    failed = self.old = True
            if failed:
                delay = backoff.next()
                log.debug("partitions without a leader", partitions=len(self._unplaced), retry_s=round(delay, 3))
                await asyncio.sleep(delay)

    async def _place_one(self, partition: Partition) -> None:
        topic, number = partition.place
        link = await self._cluster.leader("fetch", partition.place)
        epoch = self._cluster.metadata.topics[topic].leaders[number].epoch
        session = partition.session
        end = None
        if epoch > partition.checked_epoch:
            end = await self._beginnings.parting(partition, self._reader.slots.position(partition.index))
        if not partition.granted or partition.session != session:
            return
        if end is not None:
            self._reader.part(partition, end.a)
            return
        partition.checked_epoch = max(epoch, partition.checked_epoch)
        partition.link = link
        partition.error = ""
        link.fetcher.add(Target(partition.index, topic, partition.topic_id, number, epoch, session))
        self._reader.placed(link)
