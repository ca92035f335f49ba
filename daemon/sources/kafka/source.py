"""Reads Kafka topics for one pipeline: partitions, leaders, offsets, and memory."""

import asyncio
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from fastwire.errors import FastwireError
from fastwire.kafka.error import BrokerError, Code
from fastwire.kafka.question import EARLIEST, LATEST
from fastwire.kafka.response import Fetched
from fastwire.kafka.scan import CorruptBatch
from fastwire.kafka.session import ENDED
from fastwire.kafka.slot import SlotTable, Told
from fastwire.position import Coverage, Position, format_position
from fastwire.wire.pool import Pool

from ...backoff import Backoff
from ...budget import Level
from ...kafka.cluster import MISSING_S, Cluster
from ...kafka.link import Link
from ...kafka.refusal import is_for_good
from ...logs import get_logger
from ...metrics import PipelineMetrics
from ..base import Assignment, First, LogStopped, SourceEvents, SourceFailed
from ..clustered import ClusteredSource
from .beginning import Beginnings
from .group import Alone
from .leaders import AGAIN_S, Leaders
from .member import group_of
from .partition import LogBroken, Partition, Stage
from .settings import KafkaSettings
from .stats import Stats
from .topics import Changes, Topics

__all__ = ["KafkaSource"]

DOUBT_S = 1.0  # between two looks while a topic may be gone

log = get_logger("source")


class KafkaSource(ClusteredSource[Cluster, Link, Partition]):
    """The Source of one pipeline (``sources.base``). ``events`` is the pipeline.

    Unless ``grouped`` all partitions are read, and the cluster keeps no offsets of ours. Unless ``patient`` nothing
    is waited for at the start that a broker does not promise by its error.
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
    ) -> None:
        super().__init__(events, metrics)
        self.settings = settings
        self._patient = patient
        self.slots = SlotTable()
        self.cluster = Cluster(settings, self.slots, pool, self, settings.limits.within(pool.limit))
        self._topics = Topics(settings, self.cluster, self.slots, self.logs, self.partitions)
        self._coverage = Coverage()  # as we know it
        self._beginnings = Beginnings(settings, self.cluster)
        self._leaders = Leaders(self, self.cluster, self._topics, self._beginnings, self._tasks)
        self._group = group_of(self, settings, self.cluster) if grouped else Alone(self)
        self._stats = Stats(self, metrics, settings.lag_poll_s)
        self._heads: dict[int, Position] = {}
        self._found_heads = asyncio.Event()
        self._assigned = asyncio.Event()  # the group has given us something, or nothing

    # --- the contract

    async def start(self, coverage: Coverage) -> None:
        """See ``Source.start``."""
        self._coverage = coverage
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
                await self._ask_offsets([one for one in self.partitions if not one.over])
                break
            except SourceFailed:
                raise
            except FastwireError as exc:
                if is_for_good(exc) or not (self._patient or isinstance(exc, BrokerError)):
                    raise SourceFailed(
                        f"{self.settings.url}: {exc}", configuration=getattr(exc, "configuration", False)
                    ) from None
                delay = backoff.failed(log, "cannot ask for the partitions, trying again", exc, told=True)
            await asyncio.sleep(delay)
        self._leaders.asked_at = self._loop.time()
        heads = ((one.index, one.head) for one in self.partitions if not one.over)
        self._heads.update({index: head for index, head in heads if head is not None})
        self._found_heads.set()
        for topic, partitions in self._topics.described():
            log.info("topic found", topic=topic, partitions=partitions)
        if not self.partitions:
            log.info("no topic matches yet", pattern=str(self.settings.pattern))
        self._tasks.run(self._group.run(), f"group {self.settings.group}")

    def grant(self, assignments: Iterable[Assignment], coverage: Coverage) -> None:
        """See ``Source.grant``."""
        self._coverage = coverage
        granted = []
        for assignment in assignments:
            partition = self.partitions[assignment.index]
            if partition.assignment is not assignment or partition.granted:
                continue
            granted.append(partition)
            partition.granted = partition.was_granted = True
            partition.stage = Stage.READING
            partition.session += 1
            self.slots.attach(partition.index, partition.position(coverage), partition.session)
            self._leaders.place(partition)
        self._group.granted(granted, coverage)

    def landed(self, coverage: Coverage) -> None:
        """See ``Source.landed``."""
        self._coverage = coverage
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
        # What others have confirmed is told from what nobody has by our first assignment.
        await self._assigned.wait()
        await self._found_heads.wait()
        return self._heads

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
            # What was committed before a break says nothing of the log behind it.
            if one.resumes_at is not None or committed.get(one.place, (-1, -1))[0] < heads[index].a
        ]

    def status(self) -> dict[str, Any]:
        """See ``Source.status``."""
        return {
            "url": str(self.settings.url),
            "group": self.settings.group,
            "topics": len(self._topics.names),
            "membership": self._group.status(),
            **super().status(),
        }

    async def _say_goodbye(self) -> None:
        await self._group.leave()

    def landed_up_to(self, partition: Partition) -> Position:
        """What of a granted partition is durable."""
        return partition.position(self._coverage)

    # --- what the group tells

    def assign(self, partitions: Sequence[Partition]) -> None:
        """These are ours to read from here on."""
        self._tasks.run(self._offer(partitions), "offer")

    def give_up(self, partitions: Sequence[Partition], reason: str) -> None:
        """These are not ours any more; what was received of them is to be committed at once."""
        for link in {partition.link for partition in partitions if partition.link is not None}:
            link.hand_on()
        for partition in partitions:
            self._detach(partition)
            if partition.assignment is not None and not self._offers.withdraw(partition.assignment):
                self._offers.revoke(partition.index, reason)
            partition.assignment = None
            if not partition.over:
                partition.stage = Stage.IDLE

    def refuse(self, error: FastwireError) -> None:
        """The group does not take us, and never will."""
        self.refused(SourceFailed(f"{self.settings.url}: {error}"))

    # --- what links tell

    def _left(self, link: Link) -> None:
        self._leaders.lost(link)  # offsets are ours, so nothing but the connection is lost

    def on_corrupt(self, batch: CorruptBatch) -> None:
        """A batch cannot be decoded, and is not to be put aside, or has no end that could be believed."""
        partition = self.partitions[batch.index]
        at = format_position("kafka", batch.position)
        self._stop(partition, f"the batch at {at} cannot be decoded ({batch.reason}: {batch.detail})")

    def on_fetched(self, link: Link, fetched: Fetched) -> None:
        """A Fetch answer is through."""
        if self._closing:
            return
        link.fetcher.done(fetched)
        if fetched.error and fetched.error not in ENDED:
            link.abort(str(BrokerError(fetched.error, f"Fetch from {link}")))
            return
        for index in fetched.answered:
            partition = self.partitions[index]
            if partition.granted and partition.link is link:
                self._told(partition, self.slots.told(index), fetched)
        if not self.holding:
            link.pump()

    def _told(self, partition: Partition, told: Told, fetched: Fetched) -> None:
        """Look at what an answer says of one partition (kafka 9.5)."""
        partition.log_start = max(partition.log_start, told.log_start)
        if told.error == Code.NONE:
            partition.refusals = 0
            if told.diverging >= 0:
                self.part(partition, told.diverging)
            return
        partition.error = str(BrokerError(told.error, str(partition.log)))
        if told.error == Code.OFFSET_OUT_OF_RANGE:
            self._leaders.forget(partition)
            self._tasks.run(self._look_outside(partition, partition.session), "position")
        elif told.error in (Code.TOPIC_AUTHORIZATION_FAILED, Code.UNSUPPORTED_COMPRESSION_TYPE):
            self._stop(partition, partition.error)
        else:
            self._leaders.refused(partition, told, fetched)

    # --- leaders

    def placed(self, link: Link) -> None:
        """A connection has one more partition to read."""
        if not self.holding:
            link.pump()

    def _detach(self, partition: Partition) -> None:
        """Nothing that still comes of this partition counts."""
        if partition.granted:
            self.slots.detach(partition.index)
        self._leaders.forget(partition)
        partition.granted = False

    async def _look_outside(self, partition: Partition, session: int) -> None:
        """The leader has not got what comes next for us: not yet deleted by retention, or lost."""
        try:
            stored = await self._beginnings.stored(partition)
        except FastwireError as exc:
            log.debug("cannot ask where a log ends", topic=str(partition.log), error=str(exc))
            await asyncio.sleep(AGAIN_S)
            stored = -1
        if not partition.granted or partition.session != session:
            return
        if stored < 0:
            self._leaders.old = True
            self._leaders.place(partition)
        elif stored < self.slots.position(partition.index).a:
            self.part(partition, stored)
        else:
            self._reconsider(partition, "the position lies before the log")

    def part(self, partition: Partition, end: int) -> None:
        """The leader's log ends at ``end``, or parts there from what was read: that must not land."""
        at = self.slots.position(partition.index)
        reason = f"{partition.log} was read up to {format_position('kafka', at)}, the leader's log parts at {end}"
        if partition.position(self._coverage).a >= at.a:
            self._reconsider(partition, reason)  # nothing of it waits for a commit
            return
        self.slots.detach(partition.index)
        self._leaders.forget(partition)
        self.events.on_diverged(partition.index, reason)

    def _reconsider(self, partition: Partition, reason: str) -> None:
        """Give the log back, and take it again with a look at where it begins and ends."""
        log.warning("looking at the log again", topic=str(partition.log), reason=reason)
        self.give_up([partition], reason)
        self.assign([partition])

    def _stop(self, partition: Partition, why: str) -> None:
        """Give this log up; the others go on."""
        if partition.over:
            return
        partition.stage = Stage.STOPPED
        partition.error = why
        self.give_up([partition], why)
        self._offers.tell_revoked()
        log.error("log stopped", topic=str(partition.log), error=why)
        self.events.on_stopped(partition.index, LogStopped(f"{partition.log}: {why}"))

    # --- topics

    async def describe(self) -> list[tuple[str, int]]:
        """Ask for each topic with the number of its partitions; reads nothing."""
        await self._topics.ask()
        self._topics.check(patient=False)
        return self._topics.described()

    @property
    def topic_names(self) -> Sequence[str]:
        """The topics that are meant, as far as they are there."""
        return self._topics.names

    async def ask_topics(self, also: Collection[str] = ()) -> None:
        """Bring what is known of our topics up to date, and of those that others read."""
        await self._topics.ask(also)

    def follow_topics(self) -> None:
        """Metadata are new: topics and partitions may have come or gone, or a topic may have been made again."""
        names = self._topics.names
        changes = self._topics.compare(self._coverage, self._loop.time())
        self._let_go(changes)
        new = {partition.place for partition in changes.added}
        for topic, count in Counter(topic for topic, _ in new).items():
            log.info("topic found" if (topic, 0) in new else "topic has new partitions", topic=topic, partitions=count)
        if changes.added or names != self._topics.names:
            self._group.topics_changed(changes.added)

    def _let_go(self, changes: Changes) -> None:
        """Leave what is not there any more: a named topic with a word, those of a pattern may come and go."""
        for partition in changes.replaced:
            log.warning("topic was deleted and made again", topic=str(partition.log))
            if self.settings.pattern is None:
                self._stop(partition, "the topic was deleted and made again; its new incarnation is read as a new log")
            else:
                self.give_up([partition], "the topic was deleted and made again")
            partition.stage = Stage.REPLACED
        self.give_up(changes.gone, "the topic was deleted")
        for partition in changes.gone:
            partition.stage = Stage.GONE
            partition.error = ""
        for topic, count in Counter(partition.place[0] for partition in changes.gone).items():
            log.info("topic is gone", topic=topic, partitions=count)
        self._group.gone([*changes.replaced, *changes.gone])

    def _replace(self, old: Partition, new: Partition) -> None:
        """``new`` goes on for ``old`` behind a break: same place, same owner, another log."""
        self.give_up([old], "the log goes on behind a break")
        old.stage = Stage.REPLACED
        if self._heads.pop(old.index, None) is not None and new.resumes_at is not None and old.end > new.resumes_at.a:
            self._heads[new.index] = Position(old.end, -1)
        self.assign([new])

    # --- offsets

    async def _ask_offsets(self, partitions: Sequence[Partition]) -> None:
        """Where these logs begin and end, as a reader sees it."""
        places = {partition.place: partition for partition in partitions}
        committed = self.settings.limits.read_committed
        starts = await self.cluster.list_offsets(dict.fromkeys(places, EARLIEST), read_committed=committed)
        ends = await self.cluster.list_offsets(dict.fromkeys(places, LATEST), read_committed=committed)
        for place, partition in places.items():
            partition.log_start = starts[place][0]
            partition.end = ends[place][0]

    async def _offer(self, partitions: Sequence[Partition]) -> None:
        """Find out where these logs stand, and offer them."""
        backoff = Backoff()
        wanted = list(partitions)
        while (wanted := [one for one in wanted if not one.over]) and not self._closing:
            try:
                await self._leaders.refresh()
                await self._ask_offsets(wanted)
                committed = await self._group.committed([one.place for one in wanted])
                break
            except FastwireError as exc:
                self._leaders.old = True
                delay = backoff.failed(log, "cannot ask for offsets, trying again", exc, told=True)
            await asyncio.sleep(delay)
        for partition in wanted:
            if self._group.owns(partition) and not partition.granted and not partition.over:
                at = committed.get(partition.place)
                partition.committed = None if at is None else Position(*at)
                self._offers.add(partition.offer())
        self._offers.tell()
        self._assigned.set()

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
        except LogBroken as exc:
            if self.settings.on_truncation == "continue":
                log.error("reading goes on behind a break", error=str(exc), offset=exc.position.a)
                self._replace(partition, self._topics.go_on(partition, exc.position))
            else:
                self._stop(partition, str(exc).removeprefix(f"{partition.log}: "))
        except LogStopped as exc:
            self._stop(partition, str(exc).removeprefix(f"{partition.log}: "))
        except FastwireError as exc:
            partition.error = str(exc)
            log.warning("cannot find where to begin, trying again", topic=str(partition.log), error=str(exc))
            partition.assignment = None
            self.assign([partition])
        return None

    def _reached(self, index: int, head: Position, coverage: Coverage) -> bool:
        partition = self.partitions[index]
        if partition.over:
            return True
        end = coverage.end(partition.log) or coverage.start(partition.log)
        return end is not None and end.a >= head.a

    # --- memory, time

    @property
    def holding(self) -> bool:
        """Whether nothing more may be asked for."""
        return self.level is not Level.FREE or self._full

    def _carries_records(self, link: Link) -> bool:
        # Answers that the pipeline waits for come on other connections, so these may rest.
        return bool(len(link.fetcher))

    def _ask_on(self) -> None:
        for link in () if self.holding else tuple(self.cluster.links.values()):
            link.pump()

    def _look(self, now: float) -> None:
        self._offers.tell()
        self._stats.look(now)
        age = DOUBT_S if self._topics.in_doubt else self.settings.metadata_max_age_s
        if now - self._leaders.asked_at >= age and self._found_heads.is_set():
            self._leaders.asked_at = now
            self._tasks.run(self._refresh(), "metadata")

    async def _refresh(self) -> None:
        try:
            await self._topics.ask()
        except FastwireError as exc:
            log.debug("cannot ask for the topics", error=str(exc))
        else:
            self.follow_topics()
