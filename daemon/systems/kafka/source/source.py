"""Source of Kafka topics for one pipeline: partitions, leaders, offsets, and memory."""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fastwire.errors import FastwireError
from fastwire.kafka.error import BrokerError, Code
from fastwire.kafka.position import POSITIONS
from fastwire.kafka.question import LATEST
from fastwire.kafka.response import Fetched
from fastwire.kafka.scan import CorruptBatch
from fastwire.kafka.session import ENDED
from fastwire.kafka.slot import PartitionResult, SlotTable
from fastwire.position import Coverage, Position
from fastwire.wire.pool import Pool

from ....net.backoff import Backoff
from ....runtime.budget import Level
from ....runtime.logs import get_logger
from ....runtime.metrics import PipelineMetrics
from ...clustered import ClusteredSource
from ...source import Assignment, First, LogStopped, SourceEvents, SourceFailed
from ...stage import Stage
from ..cluster import MISSING_S, Cluster
from ..link import Link
from ..refusal import advice, ends_reading, is_for_good
from ..throttle import Throttling
from .atleaders import AGAIN_S, Freshness
from .beginning import Beginnings
from .group import Alone
from .leaders import Leaders
from .member import group_of
from .offering import Offering
from .partition import LogBroken, Partition
from .settings import KafkaSettings
from .stats import Stats
from .topics import Changes, Topics

__all__ = ["KafkaSource"]

DOUBT_S = 1.0  # between two metadata requests while a topic may be deleted

_OURS = (Stage.PENDING, Stage.ASSIGNED, Stage.READING)

log = get_logger("source")


class KafkaSource(ClusteredSource[Cluster, Link, Partition]):
    """The Source of one pipeline (``systems.source``). ``events`` is the pipeline.

    Unless ``grouped`` all partitions are read, and the cluster keeps no offsets of ours. Unless ``patient`` nothing
    is waited for at the start that a broker does not promise by its error. ``on_progress`` is called after each Fetch
    response: a position moves across control records without a chunk.
    """

    system = "kafka"

    def __init__(
        self,
        settings: KafkaSettings,
        events: SourceEvents,
        pool: Pool,
        *,
        metrics: PipelineMetrics | None = None,
        grouped: bool = True,
        patient: bool = True,
        on_progress: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(events, metrics)
        self._on_progress = on_progress
        self.settings = settings
        self._patient = patient
        self._started = False
        self.slots = SlotTable()
        self.cluster = Cluster(settings, self.slots, pool, self, settings.limits.within(pool.limit))
        self._topics = Topics(settings, self.cluster, self.slots, self.logs, self.partitions)
        self._coverage = Coverage()  # as this source knows it
        self._beginnings = Beginnings(settings, self.cluster)
        self._freshness = Freshness(self.cluster.metadata, self._topics.ask, self.follow_topics)
        self._leaders = Leaders(self, self.cluster, self._freshness, self._beginnings, self._tasks)
        self._offering = Offering(
            settings,
            self.cluster,
            self._freshness,
            self._topics,
            self._offers,
            self._tasks,
            self.refuse,
            patient=patient,
        )
        self._group = group_of(self, settings, self.cluster) if grouped else Alone(self)
        self._stats = Stats(self, metrics, settings.lag_poll_s)
        self._throttling = Throttling(metrics)

    # --- the contract

    async def start(self, coverage: Coverage) -> None:
        """See ``Source.start``."""
        self._know(coverage)
        self._topics.learn(coverage)
        self._tick()
        backoff = Backoff()
        began = self._loop.time()
        while True:
            try:
                await self._topics.ask()
                now = self._loop.time()
                self._topics.check(patient=self._patient and now - began < MISSING_S)
                self._let_go(self._topics.compare(coverage, now, first=True))
                break
            except SourceFailed:
                raise
            except FastwireError as exc:
                if is_for_good(exc) or not (self._patient or isinstance(exc, BrokerError)):
                    raise self._failure(exc) from exc
                delay = backoff.failed(log, "cannot ask for the partitions, trying again", exc, warn=True)
            await asyncio.sleep(delay)
        self._freshness.asked_at = self._loop.time()
        self._started = True
        self._offering.start(self._group, [one for one in self.partitions if not one.over])
        for topic, partitions in self._topics.described():
            log.info("topic found", topic=topic, partitions=partitions)
        if not self.partitions:
            log.info("no topic matches yet", pattern=str(self.settings.pattern))
        self._tasks.run(self._group.run(), f"group {self.settings.group}")

    def grant(self, assignments: Iterable[Assignment], coverage: Coverage) -> None:
        """See ``Source.grant``."""
        self._know(coverage)
        granted = []
        for assignment in assignments:
            partition = self.partitions[assignment.index]
            if partition.assignment is not assignment or partition.granted:
                continue
            granted.append(partition)
            partition.move(Stage.READING)
            partition.session += 1
            self.slots.attach(partition.index, partition.position(coverage), partition.session)
            self._leaders.place(partition)
        self._group.granted(granted, coverage)

    def landed(self, coverage: Coverage) -> None:
        """See ``Source.landed``."""
        self._know(coverage)
        self._group.landed(coverage)

    def void(self) -> None:
        """See ``Source.void``."""
        self._group.void()
        for link in tuple(self.cluster.links.values()):
            link.drop_chunk()
        for partition in self.partitions:
            if partition.granted:
                self._detach(partition)
                self._offers.add(partition.offer())

    def position(self, index: int) -> Position | None:
        """See ``Source.position``."""
        return self.slots.position(index) if self.partitions[index].was_granted else None

    async def heads(self) -> Mapping[int, Position]:
        """See ``Source.heads``."""
        # The first assignment separates offsets that others have confirmed from unread ones.
        await self._offering.assigned.wait()
        await self._offering.found.wait()
        return self._offering.heads

    def waiting(self) -> Mapping[int, str]:
        """See ``Source.waiting``."""
        return {one.index: why for one, why in (self._offering.failing | self._leaders.failing).items()}

    def stop(self, index: int, why: str) -> None:
        """See ``Source.stop``."""
        self._stop(self.partitions[index], why)

    async def unfinished(self, heads: Mapping[int, Position], coverage: Coverage) -> Collection[int]:
        """See ``Source.unfinished``."""
        open_ = [index for index, head in heads.items() if not self._reached(index, head, coverage)]
        if not open_:
            return open_
        try:
            committed = await self._group.committed([self.partitions[index].place for index in open_])
        except FastwireError as exc:
            log.debug("cannot ask for the group's offsets", error=str(exc))
            return open_
        return [
            index
            for index, one in ((index, self.partitions[index]) for index in open_)
            # A committed offset from before a break is no progress in the log behind it.
            if one.resumes_at is not None
            or committed.get(one.place, (-1, -1))[0] < heads[index].a
            or self._lags(one, heads[index])
        ]

    @property
    def standing_by(self) -> bool:
        """See ``Source.standing_by``."""
        return self._group.standing_by

    def status(self) -> dict[str, Any]:
        """See ``Source.status``."""
        return {
            "url": str(self.settings.url),
            "group": self.settings.group,
            "topics": len(self._topics.names),
            "membership": self._group.status(),
            "throttled": self._throttling.status(self._loop.time()),
            **super().status(),
        }

    async def _say_goodbye(self) -> None:
        await self._group.leave()

    def _know(self, coverage: Coverage) -> None:
        self._coverage = self._offering.coverage = coverage

    def landed_up_to(self, partition: Partition) -> Position:
        """Return the end of the durable records of a granted partition."""
        return partition.position(self._coverage)

    # --- what the group tells

    def assign(self, partitions: Sequence[Partition]) -> None:
        """Read ``partitions`` from now on."""
        self._offering.offer(partitions)

    def give_up(self, partitions: Sequence[Partition], reason: str, to: Stage = Stage.IDLE) -> None:
        """Stop reading ``partitions``, which move to ``to``; records that were received are committed at once."""
        for link in {partition.link for partition in partitions if partition.link is not None}:
            link.hand_on()
        for partition in partitions:
            assignment = partition.assignment
            self._detach(partition)
            if to is not Stage.IDLE or not partition.over:
                partition.move(to)
            self._offering.drop(partition)
            if assignment is not None and not self._offers.withdraw(assignment):
                self._offers.revoke(partition.index, reason)

    def refuse(self, error: FastwireError) -> None:
        """Fail with ``error`` of the group or a leader, which a retry cannot cure."""
        self.refused(self._failure(error))

    def _failure(self, error: FastwireError) -> SourceFailed:
        return SourceFailed(f"{self.settings.url}: {error}", configuration=getattr(error, "configuration", False))

    # --- what links tell

    def _left(self, link: Link) -> None:
        self._leaders.lost(link)  # the positions are kept here, so only the connection is lost

    def on_throttled(self, link: Link, seconds: float) -> None:
        """Count a throttle of a connection."""
        self._throttling.throttled(str(link), seconds, link.throttled_s, self._loop.time())

    def on_corrupt(self, batch: CorruptBatch) -> None:
        """Stop the log of a batch that cannot be decoded and may not be diverted."""
        partition = self.partitions[batch.index]
        at = POSITIONS.format(batch.position)
        self._stop(partition, f"the batch at {at} cannot be decoded ({batch.reason}: {batch.detail})")

    def on_fetched(self, link: Link, fetched: Fetched) -> None:
        """Handle the end of a Fetch response."""
        if self._closing:
            return
        about = link.fetcher.done(fetched)
        failed = fetched.error if fetched.error not in ENDED else Code.NONE
        for index in about if failed else fetched.answered:
            partition = self.partitions[index]
            if partition.granted and partition.link is link:
                result = self.slots.result(index)
                self._answered(partition, replace(result, error=failed, leader=-1) if failed else result, fetched)
        if not self.holding:
            link.pump()
        self._on_progress()

    def _answered(self, partition: Partition, result: PartitionResult, fetched: Fetched) -> None:
        """Handle the result of one partition in a Fetch response (spec: kafka 9.5)."""
        partition.log_start = max(partition.log_start, result.log_start)
        if result.error == Code.NONE:
            if partition.replica < 0 and partition.near and result.preferred_replica >= 0:
                self._leaders.prefer(partition, result.preferred_replica)
                return
            partition.refusals.reset()
            if result.diverging >= 0:
                self.part(partition, result.diverging)
            else:
                self._leaders.reconsider_replica(partition)
            return
        if partition.replica >= 0:
            self._leaders.avoid_replica(partition)  # the leader knows better, whatever it is
            return
        partition.error = str(BrokerError(result.error, str(partition.log))) + advice(result.error)
        if result.error == Code.OFFSET_OUT_OF_RANGE:
            self._leaders.forget(partition)
            self._tasks.run(self._look_outside(partition, partition.session), "position")
        elif ends_reading(result.error):
            self._stop(partition, partition.error.removeprefix(f"{partition.log}: "))
        else:
            self._leaders.refused(partition, result, fetched)

    # --- leaders

    def placed(self, link: Link) -> None:
        """Send a Fetch for a connection with one more partition."""
        if not self.holding:
            link.pump()

    def _detach(self, partition: Partition) -> None:
        """Ignore all records of ``partition`` that still arrive."""
        if partition.granted:
            self.slots.detach(partition.index)
        self._leaders.forget(partition)

    async def _look_outside(self, partition: Partition, session: int) -> None:
        """Handle an offset outside the leader's log: deleted by retention, or lost."""
        try:
            stored = await self._beginnings.stored(partition)
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

    def part(self, partition: Partition, end: int) -> None:
        """Handle a leader's log that ends, or diverges, at ``end``: records that were read behind it must not land."""
        at = self.slots.position(partition.index)
        reason = f"{partition.log} was read up to {POSITIONS.format(at)}, the leader's log parts at {end}"
        if partition.position(self._coverage).a >= at.a:
            self._reconsider(partition, reason)  # nothing of it waits for a commit
            return
        self.slots.detach(partition.index)
        self._leaders.forget(partition)
        self.events.on_diverged(partition.index, reason)

    def _reconsider(self, partition: Partition, reason: str) -> None:
        """Release the log and assign it again, with a new request for its start and end."""
        log.warning("looking at the log again", topic=str(partition.log), reason=reason)
        self.give_up([partition], reason)
        self.assign([partition])

    def _stop(self, partition: Partition, why: str) -> None:
        """Stop this log; the others continue."""
        if partition.over:
            return
        partition.error = why
        self.give_up([partition], why, Stage.STOPPED)
        self._offers.tell_revoked()
        log.error("log stopped", topic=str(partition.log), error=why)
        self.events.on_stopped(partition.index, LogStopped(f"{partition.log}: {why}"))

    # --- topics

    async def describe(self) -> tuple[list[tuple[str, int]], list[str]]:
        """Ask for each topic with the number of its partitions, and their leaders for themselves; reads nothing.

        The second list says which partitions cannot be read at the moment, and why.
        """
        await self._topics.ask()
        self._topics.check(patient=False)
        described = self._topics.described()
        topics = self.cluster.metadata.topics
        asked = {(name, number): LATEST for name, _ in described for number in topics[name].leaders}
        offsets = await self.cluster.list_offsets(asked, read_committed=False)
        return described, [str(error) for _, error in sorted(offsets.failed.items())]

    @property
    def cluster_id(self) -> str:
        """The cluster id in the newest metadata; "" if the brokers report none (before Metadata version 2)."""
        return self.cluster.metadata.cluster_id

    @property
    def topic_names(self) -> Sequence[str]:
        """The names of the topics that exist."""
        return self._topics.names

    async def ask_topics(self, also: Collection[str] = ()) -> None:
        """Update the metadata of the topics of this source, and of ``also``."""
        await self._topics.ask(also)

    def follow_topics(self) -> None:
        """Apply new metadata: topics and partitions that were added, deleted or recreated."""
        names = self._topics.names
        changes = self._topics.compare(self._coverage, self._loop.time())
        self._let_go(changes)
        new = {partition.place for partition in changes.added}
        for topic, count in Counter(topic for topic, _ in new).items():
            log.info("topic found" if (topic, 0) in new else "topic has new partitions", topic=topic, partitions=count)
        if changes.added or names != self._topics.names:
            self._group.topics_changed(changes.added)

    def _let_go(self, changes: Changes) -> None:
        """Stop partitions that were deleted; only named topics are reported as stopped."""
        for partition in changes.replaced:
            log.warning("topic was deleted and made again", topic=str(partition.log))
            if self.settings.pattern is None:
                self._stop(partition, "the topic was deleted and made again; its new incarnation is read as a new log")
            self.give_up([partition], "the topic was deleted and made again", Stage.REPLACED)
        for partition in changes.gone:
            partition.error = ""
        self.give_up(changes.gone, "the topic was deleted", Stage.GONE)
        for topic, count in Counter(partition.place[0] for partition in changes.gone).items():
            log.info("topic is gone", topic=topic, partitions=count)
        self._group.gone([*changes.replaced, *changes.gone])

    def _replace(self, old: Partition, new: Partition) -> None:
        """Replace ``old`` by ``new`` behind a break: the same place and owner, another log."""
        self.give_up([old], "the log goes on behind a break", Stage.REPLACED)
        heads = self._offering.heads
        if heads.pop(old.index, None) is not None and new.resumes_at is not None and old.end > new.resumes_at.a:
            heads[new.index] = Position(old.end, -1)
        self.assign([new])

    async def _resolve(self, assignment: Assignment, coverage: Coverage) -> First | None:
        partition = self.partitions[assignment.index]
        if partition.assignment is not assignment or partition.granted:
            return None
        newest = self._topics.newest(partition, coverage)
        if newest is not partition:
            self._replace(partition, newest)
            return None
        try:
            return await self._beginnings.resolve(partition, assignment, coverage)
        except FastwireError as exc:
            if partition.assignment is assignment:  # it may have been revoked meanwhile
                self._unresolved(partition, exc)
        return None

    def _unresolved(self, partition: Partition, error: FastwireError) -> None:
        """Handle the reason why an assigned partition cannot be read from its position."""
        if isinstance(error, LogBroken) and self.settings.on_truncation == "continue":
            log.error("reading goes on behind a break", error=str(error), offset=error.position.a)
            self._replace(partition, self._topics.go_on(partition, error.position))
        elif isinstance(error, LogStopped):
            self._stop(partition, str(error).removeprefix(f"{partition.log}: "))
        else:
            log.warning("cannot find where to begin, trying again", topic=str(partition.log), error=str(error))
            partition.error = str(error)
            partition.move(Stage.PENDING)
            self._freshness.old = True
            self._offering.again(partition)

    def _lags(self, partition: Partition, head: Position) -> bool:
        """Return True if an assigned partition is read from before ``head``, whatever its group has committed.

        A dataset restored from a backup is behind the group's offset.
        """
        landed = self._coverage.end(partition.log) or self._coverage.start(partition.log)
        return partition.stage in _OURS and landed is not None and landed.a < head.a

    def _reached(self, index: int, head: Position, coverage: Coverage) -> bool:
        partition = self.partitions[index]
        if partition.over:
            return True
        end = coverage.end(partition.log) or coverage.start(partition.log)
        return end is not None and end.a >= head.a

    # --- memory, time

    @property
    def holding(self) -> bool:
        """True if no more records may be requested."""
        return self.level is not Level.FREE or self._full

    def _carries_records(self, link: Link) -> bool:
        # Answers that the pipeline waits for come on other connections, so these may rest.
        return bool(len(link.fetcher))

    def _ask_on(self) -> None:
        for link in () if self.holding else tuple(self.cluster.links.values()):
            link.pump()

    def _look(self, now: float) -> None:
        self._offering.tell()
        self._stats.look(now)
        self._throttling.look(now)
        age = DOUBT_S if self._topics.in_doubt else self.settings.metadata_max_age_s
        if now - self._freshness.asked_at >= age and self._started:
            self._freshness.asked_at = now
            self._tasks.run(self._refresh(), "metadata")

    async def _refresh(self) -> None:
        try:
            await self._topics.ask()
        except FastwireError as exc:
            log.debug("cannot ask for the topics", error=str(exc))
        else:
            self.follow_topics()
