"""Reading of a range of sequences [S, E) of one partition, with the same rows each time (spec: tank 5).

Compaction leaves holes. What tells a loss:

* S lies before the first available sequence: retention was faster.
* The leader says by *discover partitions* that its log ends before E: the topic was deleted and created again. There is
  no telling by an identity, so one that has grown beyond E again is taken for the old one.
* A bundle that cannot be decoded.
* A hole that has no message after it in the bundles that the broker sends for it (spec: tank 5.5).

An answer without messages tells nothing: its high-water mark may be too low (spec: tank 5.4).
"""

import asyncio
import time

from fastwire.errors import FastwireError
from fastwire.position import Position
from fastwire.tank.format.error import BrokerError, PartitionStatus
from fastwire.tank.protocol.fetch import MOST_FETCH, Target
from fastwire.tank.reading.slot import PartitionResult

from ....net.endpoint import LinkLost
from ....systems.tank.cluster import MOST_REDIRECTS
from ....systems.tank.link import Link
from ....systems.tank.refusal import is_for_good
from ..offsetrangereader import OffsetRangeReader, UnreadableError
from ..rangereader import TryAgainError
from ..ranges import QueryPartition
from .cluster import RangeCluster

__all__ = ["Records", "TankRangeReader"]

EMPTY_PAUSE_S = 0.05  # before a broker is asked again that has answered without messages

_READ = (PartitionStatus.OK, PartitionStatus.OK_SPARSE)


class TopicGoneError(FastwireError):
    """There is no such topic, or it has no such partition."""


class BoundaryError(FastwireError):
    """The log does not have the sequence that was asked for."""

    def __init__(self, result: PartitionResult) -> None:
        super().__init__(f"the log has the sequences {result.first_available} to {result.high_watermark}")
        self.first = max(result.first_available, 1)
        self.end = result.high_watermark + 1


class HoleError(FastwireError):
    """The broker sends no message at or after the sequence that was asked for."""


class Records:
    """The messages of a partition from ``start`` on, read over the connection to its leader.

    The one before ``start`` is compared with ``witness``, if that is given.
    """

    def __init__(
        self,
        cluster: RangeCluster,
        partition: QueryPartition,
        start: Position,
        link: Link,
        witness: int | None = None,
    ) -> None:
        self.link = link
        self._cluster = cluster
        self._partition = partition
        self._index = cluster.log_index(partition)
        self._answered = False
        cluster.watch(link)
        session = next(cluster.sessions)
        cluster.slots.attach(self._index, start, session, witness)
        cluster.answered.clear()
        link.fetcher.add(Target(self._index, partition.topic, partition.index, session))

    @property
    def position(self) -> Position:
        """The next sequence."""
        return self._cluster.slots.position(self._index)

    async def news(self) -> bool:
        """Request messages and wait a moment; return True if an answer about the partition is complete.

        Raises LinkLost, BrokerError for an error of the partition, UnreadableError, BoundaryError, HoleError.
        """
        cluster = self._cluster
        self.link.pump()
        await cluster.news()
        if cluster.ended_by is not None:
            raise cluster.ended_by
        if self._index not in cluster.answered:
            return False
        cluster.answered.clear()
        self._answered = True
        self._judge(cluster.slots.result(self._index))
        return True

    def _judge(self, result: PartitionResult) -> None:
        """Raise the error of an answer about the partition, if it has one."""
        if result.status == PartitionStatus.BOUNDARY:
            raise BoundaryError(result)
        if result.status not in _READ:
            raise BrokerError(PartitionStatus(result.status), f"{self._partition.topic}/{self._partition.index}")
        at = self.position.a
        if result.needed > MOST_FETCH:
            raise UnreadableError(f"the log cannot be read from {at} on: a bundle has {result.needed} bytes")
        if result.stuck and result.high_watermark >= at:
            raise HoleError(f"the broker has no messages from {at} on, and its log ends at {result.high_watermark + 1}")

    def silence(self) -> str:
        """Describe a leader that sends no messages."""
        if not self._answered:
            return "the broker does not answer"
        high_watermark = self._cluster.slots.result(self._index).high_watermark
        at = self.position.a
        return f"the broker answers without messages from sequence {at} on (high-water mark {high_watermark})"

    def close(self) -> None:
        """End reading; what is in flight for this partition is refused when it comes."""
        self._cluster.slots.detach(self._index)
        self.link.fetcher.drop(self._index)
        self._cluster.leave(self.link)


class TankRangeReader(OffsetRangeReader[RangeCluster]):
    """A range of sequences."""

    unit = "bundle"
    _redirects = 0  # since messages came

    def _is_missing(self, error: FastwireError) -> bool:
        return isinstance(error, TopicGoneError)

    def _is_for_good(self, error: FastwireError) -> bool:
        return is_for_good(error)

    async def _attempt(self) -> None:
        if not await self._is_there():
            return
        link = await self._cluster.leader("fetch", self._place)
        records = Records(self._cluster, self._part.partition, self._at, link)
        failure = await self._drain(records, self._follow(records))
        if failure is not None:
            self._failed(failure)

    async def _is_there(self) -> bool:
        """Compare the end of the range with the leader's log; return True if there are messages left to read."""
        topic, number = self._place
        ranges = await self._cluster.existing(topic)
        if ranges is None or number >= ranges.count:
            raise TopicGoneError(str(self._part.partition))
        there = ranges.of(number)
        if there.last + 1 < self._end.a:
            self._falls_short(there.last + 1)
        return self._at.a < self._end.a

    async def _follow(self, records: Records) -> None:
        """Read until the end of the range has come. Raises what ends the reading before that."""
        seen = records.position.a
        while records.position.a < self._end.a:
            answered = await records.news()
            now = time.monotonic()
            if records.position.a > seen:
                seen = records.position.a
                self._alive_at, self._redirects = now, 0
                if seen < self._end.a:
                    records.link.pump()  # the broker prepares the next answer while this one is handed on
                for chunk in self._cluster.take_full():
                    await self._hand_on(chunk)
                continue
            if answered:
                for chunk in self._cluster.take_all():
                    await self._hand_on(chunk)  # what has come is not lost, whatever is there now
                await self._is_there()
                await asyncio.sleep(EMPTY_PAUSE_S)
            if now - self._alive_at >= self._rules.patience_s:
                raise LinkLost(records.silence())

    def _failed(self, error: FastwireError) -> None:
        """Raise the error for reading that has ended at ``_at`` with this one; return if the range has ended."""
        match error:
            case HoleError():
                self._lost(str(error))
                self._end = self._at
            case BoundaryError() if error.first > self._at.a:
                self._begins_late(error.first)
                raise TryAgainError
            case BoundaryError() if error.end < self._end.a:
                self._falls_short(error.end)
                raise TryAgainError
            case BrokerError() if error.code is PartitionStatus.REDIRECT and self._redirects < MOST_REDIRECTS:
                self._redirects += 1
                raise TryAgainError
            case _:
                raise error
