"""Reading of a range of offsets [S, E) of one partition, with the same rows each time (spec: kafka 9, 13).

Compaction, markers and aborted transactions leave holes. What tells a loss:

* The topic of that name is another one by its id.
* The epoch in which E was planned ends before E in the leader's log: it was cut by an unclean election.
* S lies before the beginning of the log: retention was faster.
* The leader says that its log ends before E: by the end of the epoch, or, where no epoch is known, by a high watermark
  that stays below E.
* A batch that cannot be decoded.

An answer without records tells nothing: a broker sends those to a reader above its quota, too, and while records are
fetched from tiered storage.
"""

import asyncio
import time

from fastwire.errors import FastwireError
from fastwire.kafka.format.error import BrokerError, Code
from fastwire.kafka.protocol.fetch import Target
from fastwire.kafka.protocol.question import EARLIEST, LATEST
from fastwire.kafka.reading.slot import PartitionResult
from fastwire.position import Position

from ....net.endpoint import LinkLost
from ....systems.kafka.link import Link
from ....systems.kafka.refusal import ends_reading, is_for_good
from ....systems.kafka.replica import ReplicaChoice
from ..offsetrangereader import OffsetRangeReader
from ..rangereader import TryAgainError, logger
from ..ranges import QueryPartition
from .cluster import RangeCluster, incarnation_of

__all__ = ["KafkaRangeReader", "Records", "place_of"]


class TopicGoneError(FastwireError):
    """There is no such topic, or it has no such partition."""


# A new leader may take a moment to say how far its log can be read. Its epochs are asked for again as often.
SHORT_S = 5.0
# Before a leader is asked again that has answered without records, perhaps at once.
EMPTY_PAUSE_S = 0.05


def place_of(partition: QueryPartition) -> tuple[str, int]:
    """Return the partition as requests name it."""
    return partition.topic, partition.index


class ElsewhereError(FastwireError):
    """The leader has named a replica that is nearer to us: ``node``."""

    def __init__(self, node: int) -> None:
        super().__init__(f"node {node} is nearer")
        self.node = node


class Records:
    """The records of a partition from ``start`` on, read over the connection to its leader or to a replica.

    ``replica`` says which, and whether the leader may name one.
    """

    def __init__(
        self, cluster: RangeCluster, partition: QueryPartition, start: Position, link: Link, replica: ReplicaChoice
    ) -> None:
        topic, number = place_of(partition)
        known = cluster.metadata.topics[topic]
        epoch = cluster.metadata.leader(topic, number).epoch
        cluster.watch(link)
        self.link = link
        self.replica = replica
        self._cluster = cluster
        self._index = cluster.log_index(partition, incarnation_of(known))
        self._answers = cluster.answers
        self._answered = False
        session = next(cluster.sessions)
        cluster.slots.attach(self._index, start, session)
        link.fetcher.add(Target(self._index, topic, known.topic_id, number, epoch, session, replica.near))

    @property
    def position(self) -> Position:
        """The next offset."""
        return self._cluster.slots.position(self._index)

    @property
    def result(self) -> PartitionResult:
        """The partition's part of the last response."""
        return self._cluster.slots.result(self._index)

    @property
    def readable_end(self) -> int:
        """The offset up to which the leader lets this reader read, by its last answer; -1 where that is not known."""
        result = self.result
        committed = self._cluster.limits.read_committed and result.stable_offset >= 0
        return result.stable_offset if committed else result.high_watermark

    async def news(self) -> bool:
        """Request records and wait a moment; return True if a response about the partition is complete.

        Raises LinkLost, BrokerError for an error of the partition, UnreadableError, ElsewhereError.
        """
        cluster = self._cluster
        self.link.pump()
        await cluster.news()
        if cluster.ended_by is not None:
            raise cluster.ended_by
        if cluster.answers == self._answers:
            return False
        self._answers, self._answered = cluster.answers, True
        if self.result.error:
            raise BrokerError(self.result.error, str(self.link))
        if self.replica.open and self.result.preferred_replica >= 0:
            raise ElsewhereError(self.result.preferred_replica)
        return True

    def silence(self) -> str:
        """Describe a leader that sends no records."""
        result, at = self.result, self.position.a
        if not self._answered:
            return "the broker does not answer"
        return f"the broker answers without records from offset {at} on (high watermark {result.high_watermark})"

    def close(self) -> None:
        """End reading; what is in flight for this partition is refused when it comes."""
        self._cluster.slots.detach(self._index)
        self.link.fetcher.drop(self._index)
        self._cluster.leave(self.link)


class KafkaRangeReader(OffsetRangeReader[RangeCluster]):
    """A range of Kafka's."""

    def _is_missing(self, error: FastwireError) -> bool:
        return isinstance(error, TopicGoneError)

    def _is_for_good(self, error: FastwireError) -> bool:
        return is_for_good(error) or (isinstance(error, BrokerError) and ends_reading(error.code))

    async def _attempt(self) -> None:
        if not await self._is_ours():
            return
        replica = self._cluster.replica(self._place)
        link = await self._cluster.nearest(self._place, replica)
        at_replica = not replica.at_leader
        records = Records(self._cluster, self._part.partition, self._at, link, replica)
        failure = await self._drain(records, self._follow(records, at_replica))
        if isinstance(failure, ElsewhereError):
            replica.prefer(failure.node, self._cluster.now)
            raise TryAgainError
        if failure is not None and at_replica:
            logger.warning("%s: %s; reading from the leader", self._part, failure)
            replica.avoid(self._cluster.now)
            self._alive_at = time.monotonic()
            raise TryAgainError
        if failure is not None:
            await self._failed(failure)

    async def _follow(self, records: Records, at_replica: bool) -> None:
        """Read until the end of the range has come. Raises what ends the reading before that."""
        short_since: float | None = None
        seen = records.position.a
        while records.position.a < self._end.a:
            answered = await records.news()
            now = time.monotonic()
            self._alive_at = max(self._alive_at, self._cluster.throttled_until)
            if records.position.a > seen:
                seen = records.position.a
                self._alive_at, short_since = now, None
                if records.position.a < self._end.a:
                    records.link.pump()  # the broker prepares the next answer while this one is handed on
                for chunk in self._cluster.take_full():
                    await self._hand_on(chunk)
                continue
            if answered:
                if not 0 <= records.readable_end <= seen:
                    short_since = None
                elif short_since is None:
                    short_since = now
                elif now - short_since >= min(SHORT_S, self._rules.patience_s):
                    if at_replica:
                        raise LinkLost(records.silence())  # it lags behind its leader
                    short_since = None
                    await self._check_end(seen)
                await asyncio.sleep(EMPTY_PAUSE_S)
            if short_since is None and now - self._alive_at >= self._rules.patience_s:
                raise LinkLost(records.silence())

    async def _is_ours(self) -> bool:
        """Return True if the leader's log is the one that the range was planned in, and records are left to read."""
        cluster, part = self._cluster, self._part
        name = part.partition.topic
        await cluster.refresh([name])
        topic = cluster.topic(name)
        if topic is None or part.partition.index not in topic.leaders:
            raise TopicGoneError(str(part.partition))
        incarnation = incarnation_of(topic)
        if part.incarnation and incarnation and part.incarnation != incarnation:
            self._lost("the topic was deleted and made again")
            return False
        await self._check_end()
        return self._at.a < self._end.a

    async def _check_end(self, readable_end: int | None = None) -> None:
        """Ask the leader whether its log reaches the end of the range.

        ``readable_end`` counts only where the epoch of the end is not known: the high watermark of a new leader may lie
        below what its log holds, until its followers have caught up.
        """
        found = None if self._end.b < 0 else await self._cluster.epoch_end(self._place, self._end.b)
        ends = -1 if found is None else found[1]
        if ends < 0 and readable_end is not None:
            ends = readable_end
        if 0 <= ends < self._end.a:
            self._falls_short(ends)

    async def _failed(self, error: FastwireError) -> None:
        """Raise the error for reading that has ended at ``_at`` with this one."""
        if not isinstance(error, BrokerError) or error.code != Code.OFFSET_OUT_OF_RANGE:
            raise error
        # The log begins behind the offset that was asked for, or ends before it.
        at = self._at.a
        place = self._place
        begin, end = [(await self._cluster.offsets({place: each})).of(place)[0] for each in (EARLIEST, LATEST)]
        if begin > at:
            self._begins_late(begin)
        elif end < at:
            self._falls_short(end)
        raise TryAgainError
