"""Source of Kafka topics for one pipeline: partitions, leaders, offsets, and memory."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from fastwire.coverage import Coverage
from fastwire.errors import FastwireError
from fastwire.kafka.format.error import BrokerError, Code
from fastwire.kafka.position import POSITIONS
from fastwire.kafka.protocol.question import LATEST
from fastwire.kafka.protocol.session import ENDED
from fastwire.kafka.reading.evidence import CorruptBatch
from fastwire.kafka.reading.response import Fetched
from fastwire.kafka.reading.slot import PartitionResult, SlotTable
from fastwire.position import Position
from fastwire.wire.pool import Pool

from ....runtime.logs import get_logger
from ....runtime.metrics import PipelineMetrics
from ...reading.atleaders import AGAIN_S, Freshness
from ...reading.ends import Ends
from ...reading.offsetlag import LogEnds, OffsetLag
from ...reading.pulled import LogBroken
from ...reading.pullsource import PullSource
from ...reading.stage import Stage
from ...reading.topics import Changes
from ...source import Assignment, First, SourceEvents
from ..cluster import Cluster
from ..link import Link
from ..refusal import ends_reading, explained, is_for_good, is_of_login
from ..throttle import Throttling
from .firstposition import FirstPositions
from .leaders import KafkaLeaders
from .member import group_of
from .offsetlookup import KafkaOffsetLookup, outdated
from .partition import Partition
from .settings import KafkaSettings
from .topics import KafkaTopics

log = get_logger("source")


class KafkaSource(PullSource[Cluster, Link, Partition]):
    """The Source of one pipeline (``systems.source``). ``events`` is the pipeline.

    Without a group all partitions are read, and the cluster keeps no offsets of this source.
    """

    system = "kafka"
    broker_error = BrokerError
    settings: KafkaSettings
    slots: SlotTable
    _topics: KafkaTopics
    _lookup: KafkaOffsetLookup
    _leaders: KafkaLeaders

    def __init__(
        self,
        settings: KafkaSettings,
        events: SourceEvents,
        pool: Pool,
        *,
        metrics: PipelineMetrics | None = None,
        patient: bool = True,
        on_progress: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(events, metrics, patient=patient, on_progress=on_progress)
        self.settings = settings
        self._ends = Ends(settings.end)
        self.slots = SlotTable()
        self.cluster = Cluster(settings, self.slots, pool, self, settings.limits.within(pool.limit))
        self._topics = KafkaTopics(settings, self.cluster, self.slots, self.logs, self.partitions)
        self._first_positions = FirstPositions(settings, self.cluster)
        self._freshness = Freshness(
            lambda partition: self.cluster.metadata.leading(*partition.place), self._topics.ask, self.follow_topics
        )
        self._leaders = KafkaLeaders(self, self.cluster, self._freshness, self._first_positions, self._tasks)
        self._lookup = KafkaOffsetLookup(
            settings,
            self.cluster,
            self._freshness,
            self._topics.known,
            self._offers,
            self._tasks,
            self,
            patient=patient,
        )
        self._group = self._lookup.owner = group_of(self, self._topics, settings, self.cluster)
        self._stats = OffsetLag(self, metrics, settings.lag_poll_s)
        self._throttling = Throttling(metrics)

    # --- the contract

    async def _without_progress(self, partitions: Sequence[Partition]) -> Sequence[Partition]:
        committed = await self._group.committed([one.place for one in partitions])
        return [one for one in partitions if one.place not in committed]

    def _begin(self) -> None:
        self._lookup.follows_group = self.follows_group
        self._tasks.run(self._group.run(), f"group {self.settings.group}")

    def _granted(self, partitions: Sequence[Partition]) -> None:
        self._group.granted(partitions, self._coverage)

    def landed(self, coverage: Coverage, indexes: Collection[int] | None = None) -> None:
        """See ``Source.landed``."""
        super().landed(coverage, indexes)
        self._group.landed(coverage, self._chosen(indexes))

    def void(self, indexes: Collection[int] | None = None) -> None:
        """See ``Source.void``."""
        self._group.void(self._chosen(indexes))
        super().void(indexes)

    async def unfinished(self, heads: Mapping[int, Position], coverage: Coverage) -> Collection[int]:
        """See ``Source.unfinished``."""
        open_ = await super().unfinished(heads, coverage)
        if not open_:
            return open_
        try:
            committed = await self._group.committed([self.partitions[index].place for index in open_])
        except FastwireError as exc:
            log.debug("cannot ask for the group's offsets", error=str(exc))
            return open_
        old = outdated((self.partitions[index] for index in open_), committed, coverage)
        return {
            index: committed.get(one.place)
            for index, one in ((index, self.partitions[index]) for index in open_)
            # A committed offset from before a break is no progress in the log behind it.
            if one.resumes_at is not None
            or committed.get(one.place, (-1, -1))[0] < heads[index].a
            or self._lags(one, heads[index])
            or one in old
        }

    @property
    def standing_by(self) -> bool:
        """See ``Source.standing_by``."""
        return self._group.standing_by

    def status(self) -> dict[str, Any]:
        """See ``Source.status``."""
        return {
            "group": self.settings.group,
            "membership": self._group.status(),
            "throttled": self._throttling.status(self._loop.time()),
            **super().status(),
        }

    async def _say_goodbye(self) -> None:
        await self._group.leave()

    def _know(self, coverage: Coverage) -> None:
        super()._know(coverage)
        self._lookup.coverage = coverage

    def is_for_good(self, error: FastwireError) -> bool:
        """Return True if ``error`` needs a change of configuration or permissions."""
        return is_for_good(error)

    def is_of_login(self, error: FastwireError) -> bool:
        """See ``ClusteredSource.is_of_login``."""
        return is_of_login(error)

    def explain(self, error: FastwireError) -> str:
        """Return the text of ``error``, with advice."""
        return explained(error)

    # --- partitions that are read one at a time

    async def find(self, place: tuple[str, int]) -> Partition | None:
        """See ``PullSource.find``."""
        await self.cluster.refresh([place[0]])
        topic = self.cluster.topic(place[0])
        return self._topics.take(place) if topic is not None and place[1] in topic.leaders else None

    async def falls_short(self, partition: Partition, end: Position, *, silent: bool) -> int | None:
        """See ``PullSource.falls_short``.

        A high watermark counts only where the epoch of the end is not known: that of a new leader may lie below what
        its log holds, until its followers have caught up.
        """
        found = None if end.b < 0 else await self.cluster.epoch_end(partition.place, end.b)
        ends = -1 if found is None else found[1]
        if ends < 0 and silent and partition.replica.at_leader:
            ends = self._exhausted(partition)
        return ends if 0 <= ends < end.a else None

    def leave_replica(self, partition: Partition) -> bool:
        """See ``PullSource.leave_replica``."""
        if partition.replica.at_leader or self._exhausted(partition) < 0:
            return False
        self._leaders.avoid_replica(partition)
        return True

    def _exhausted(self, partition: Partition) -> int:
        """Return up to where the last answer lets this reader read, if that has been read; -1 otherwise."""
        if not partition.answers:
            return -1
        result = self.slots.result(partition.index)
        committed = self.settings.limits.read_committed and result.stable_offset >= 0
        readable = result.stable_offset if committed else result.high_watermark
        return readable if readable <= self.slots.position(partition.index).a else -1

    # --- what links tell

    def on_throttled(self, link: Link, seconds: float) -> None:
        """Count a throttle of a connection."""
        self.throttled_until = self._loop.time() + link.throttled_s
        self._throttling.throttled(str(link), seconds, link.throttled_s, self._loop.time())

    def on_corrupt(self, batch: CorruptBatch) -> None:
        """Stop the log of a batch that cannot be decoded and may not become a dead letter, or that is another log's."""
        partition = self.partitions[batch.index]
        if batch.replaced:
            landed = partition.position(self._coverage)
            partition.replaced_at = landed if landed.a >= batch.position.a else None
            self.part(partition, batch.position.a - 1)
            return
        at = POSITIONS.format(batch.position)
        self._stop(partition, f"the batch at {at} cannot be decoded ({batch.reason}: {batch.detail})", "undecodable")

    def on_fetched(self, link: Link, fetched: Fetched) -> None:
        """Handle the end of a Fetch response."""
        if self._closing:
            return
        about = link.fetcher.done(fetched)
        failed = fetched.error if fetched.error not in ENDED else Code.NONE
        for index in about if failed else fetched.answered:
            partition = self.partitions[index]
            if partition.granted and partition.link is link:
                partition.answers += 1
                result = self.slots.result(index)
                self._answered(partition, replace(result, error=failed, leader=-1) if failed else result, fetched)
        if not self.holding:
            link.pump()
        self._on_progress()

    def _answered(self, partition: Partition, result: PartitionResult, fetched: Fetched) -> None:
        """Handle the result of one partition in a Fetch response (spec: kafka 9.5)."""
        partition.log_start = max(partition.log_start, result.log_start)
        if self.rests(partition):
            return
        if result.error == Code.NONE:
            if partition.replica.open and result.preferred_replica >= 0:
                self._leaders.prefer(partition, result.preferred_replica)
                return
            partition.refusals.reset()
            if result.diverging >= 0:
                self.part(partition, result.diverging)
            else:
                self._leaders.reconsider_replica(partition)
            return
        if not partition.replica.at_leader:
            self._leaders.avoid_replica(partition)  # the leader knows better, whatever it is
            return
        partition.error = explained(BrokerError(result.error, str(partition.log)))
        if result.error == Code.OFFSET_OUT_OF_RANGE:
            self._leaders.forget(partition)
            self._tasks.run(self._look_outside(partition, partition.session), "position")
        elif ends_reading(result.error):
            self._stop(partition, partition.error.removeprefix(f"{partition.log}: "), "refused")
        else:
            self._leaders.refused(partition, result, fetched)

    async def _look_outside(self, partition: Partition, session: int) -> None:
        """Handle an offset outside the leader's log: deleted by retention, or lost."""
        try:
            stored = await self._first_positions.stored(partition)
        except FastwireError as exc:
            log.debug("cannot ask where a log ends", topic=str(partition.log), error=str(exc))
            await asyncio.sleep(AGAIN_S)
            stored = -1
        if not partition.granted or partition.session != session:
            return
        if stored < 0:
            self._freshness.old = True
            self._leaders.place(partition)
        elif stored < self.slots.position(partition.index).a:
            self.part(partition, stored)
        else:
            self._reconsider(partition, "the position lies before the log")

    # --- topics

    async def ends(self, places: Collection[tuple[str, int]]) -> LogEnds:
        """Ask for the end of each log at the isolation level of this source."""
        committed = self.settings.limits.read_committed
        offsets = await self.cluster.list_offsets(dict.fromkeys(places, LATEST), read_committed=committed)
        return LogEnds({place: end for place, (end, _) in offsets.found.items()}, offsets.failed)

    @property
    def cluster_id(self) -> str:
        """The cluster id in the newest metadata; "" if the brokers report none (before Metadata version 2)."""
        return self.cluster.metadata.cluster_id

    def _topics_changed(self, added: Sequence[Partition]) -> None:
        self._group.topics_changed(added)

    def _let_go(self, changes: Changes[Partition]) -> None:
        super()._let_go(changes)
        self._group.gone([*changes.replaced, *changes.gone])

    def _replace(self, old: Partition, new: Partition) -> None:
        """Replace ``old`` by ``new`` behind a break: the same place and owner, another log."""
        self.give_up([old], "the log goes on behind a break", Stage.REPLACED)
        heads = self._lookup.heads
        if heads.pop(old.index, None) is not None and new.resumes_at is not None and old.end > new.resumes_at.a:
            heads[new.index] = Position(old.end, -1)
        self.assign([new])

    async def _resolve(self, assignment: Assignment, coverage: Coverage) -> First | None:
        partition = self.partitions[assignment.index]
        if partition.assignment is assignment and not partition.granted:
            newest = self._topics.newest(partition, coverage)
            if newest is not partition:
                self._replace(partition, newest)
                return None
        return await super()._resolve(assignment, coverage)

    async def _end_at(self, partition: Partition, time: datetime) -> Position:
        return await self._first_positions.at_time(partition, time)

    async def _first(self, partition: Partition, assignment: Assignment, coverage: Coverage) -> First | None:
        return await self._first_positions.resolve(partition, assignment, coverage)

    def _unresolved(self, partition: Partition, error: FastwireError) -> None:
        """Handle the reason why an assigned partition cannot be read from its position."""
        if isinstance(error, LogBroken) and self.settings.on_truncation == "continue":
            log.error("reading goes on behind a break", error=str(error), offset=error.position.a)
            self._replace(partition, self._topics.go_on(partition, error.position))
        elif isinstance(error, BrokerError) and ends_reading(error.code):
            self._stop(partition, f"where to begin cannot be found: {explained(error)}", "refused")
        else:
            super()._unresolved(partition, error)

    def _lags(self, partition: Partition, head: Position) -> bool:
        """Return True if an assigned partition has not landed up to ``head``, whatever its group has committed.

        A dataset restored from a backup is behind the group's offset, which may also be one of a deleted topic.
        """
        landed = self._coverage.end(partition.log) or self._coverage.start(partition.log)
        return self._group.owns(partition) and (landed is None or landed.a < head.a)

    def _look(self, now: float) -> None:
        super()._look(now)
        self._throttling.look(now)
