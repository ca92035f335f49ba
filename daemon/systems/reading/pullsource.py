"""The common base of sources that request records by offset from the leaders of partitions."""

import asyncio
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar, TypeVar

from fastwire.coverage import Coverage
from fastwire.errors import FastwireError
from fastwire.position import Position, format_position

from ...net.backoff import Backoff
from ...runtime.budget import Level
from ...runtime.logs import get_logger
from ...runtime.metrics import PipelineMetrics
from ..links.fetchlink import FetchLink
from ..links.linkbook import LinkBook
from ..source import Assignment, First, LogStopped, SourceEvents, SourceFailed, StopReason, unnamed_partitions
from .atleaders import AGAIN_S, MOST_S, Freshness
from .clustered import ClusteredSource, tell_found
from .ends import Ends
from .leaders import Leaders, Slots
from .offsetlag import LogEnds, OffsetLag
from .offsetlookup import OffsetLookup
from .pulled import PulledPartition
from .sourcefields import PullSettings
from .stage import Stage
from .topics import MISSING_S, Changes, Topics

DOUBT_S = 1.0  # between two metadata requests while a topic may be deleted

log = get_logger("source")

C = TypeVar("C", bound=LinkBook[Any, Any])
L = TypeVar("L", bound=FetchLink[Any, Any, Any, Any])
P = TypeVar("P", bound=PulledPartition[Any])


class PullSource(ClusteredSource[C, L, P]):
    """Reads partitions ``P`` of cluster ``C``, each by the link ``L`` to its leader, from the position in its slot.

    Unless ``patient`` nothing is waited for at the start that a broker does not promise by its error. ``on_progress``
    is called after each answer: a position may move without a chunk.
    """

    system: str
    throttled_until = 0.0
    """The loop's time until which silence is no sign of a broker that is away: it throttles."""
    broker_error: ClassVar[type[FastwireError]]
    """The class of the errors that brokers answer."""

    settings: PullSettings
    slots: Slots
    _topics: Topics[P]
    _freshness: Freshness[P]
    _leaders: Leaders[L, P]
    _lookup: OffsetLookup[C, P]
    _stats: OffsetLag
    _ends: Ends

    def __init__(
        self,
        events: SourceEvents,
        metrics: PipelineMetrics | None,
        *,
        patient: bool,
        on_progress: Callable[[], None],
    ) -> None:
        super().__init__(events, metrics)
        self.patient = patient
        self._on_progress = on_progress
        self._started = False
        self._coverage = Coverage()  # as this source knows it
        self._beginless: dict[P, tuple[str, int]] = {}  # no first position was found: why, and in how many attempts

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
                self._topics.check(patient=self.patient and now - began < MISSING_S)
                self._let_go(self._topics.compare(coverage, now, first=True))
                break
            except SourceFailed:
                raise
            except FastwireError as exc:
                if self.is_fatal(exc) or not (self.patient or self.is_answer(exc)):
                    raise self._failure(exc) from exc
                delay = backoff.failed(log, "cannot fetch the partition list, retrying", exc, warn=True)
            await asyncio.sleep(delay)
        await self._refuse_unnamed(coverage)
        self._freshness.asked_at = self._loop.time()
        self._started = True
        self._lookup.start([one for one in self.partitions if not one.over])
        tell_found(self._topics.described())
        if not self.partitions:
            log.info("no topic matches yet", pattern=str(self.settings.pattern))
        self._begin()

    async def _refuse_unnamed(self, coverage: Coverage) -> None:
        """Raise SourceFailed if ``start`` is a table that leaves out partitions, before others begin to land."""
        start = self.settings.start
        unnamed: Sequence[P] = [
            one for one in self.partitions if start.kind == "positions" and one.is_unnamed(start, coverage)
        ]
        backoff = Backoff()
        while unnamed:
            try:
                unnamed = await self._without_progress(unnamed)
                break
            except FastwireError as exc:
                if self.is_fatal(exc) or not self.patient:
                    raise self._failure(exc) from exc
                delay = backoff.failed(log, "cannot ask for the group's offsets, retrying", exc, warn=True)
            await asyncio.sleep(delay)
        if unnamed:
            raise unnamed_partitions(str(self.settings.url), (one.start_name for one in unnamed))

    async def _without_progress(self, partitions: Sequence[P]) -> Sequence[P]:
        """Return those of ``partitions`` that no group goes on with. Raises FastwireError."""
        return partitions

    @abstractmethod
    def _begin(self) -> None:
        """Have partitions assigned, now that those that exist are known."""

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
            partition.answers = 0
            partition.until = self._ends.until(partition.log, coverage)
            if partition.until is not None:
                self.slots.end_at(partition.index, partition.until.a)
            self._attach(partition, partition.position(coverage), coverage)
            if not self.has_ended(partition):
                self._leaders.place(partition)
        self._granted(granted)

    def _attach(self, partition: P, at: Position, coverage: Coverage) -> None:
        """Read ``partition`` from ``at`` on, where ``coverage`` ends."""
        # Offsets are given again by a broker that was restored, so the last record that has landed says whether it is
        # still the same log.
        witness = coverage.witness(partition.log) if partition.log_start < at.a else None
        self.slots.attach(partition.index, at, partition.session, witness)

    # --- partitions that are read one at a time, without ``start``

    def listen(self) -> None:
        """Begin to keep the time, in place of ``start``: partitions are then found and assigned by the caller."""
        self._tick()

    @abstractmethod
    async def find(self, place: tuple[str, int]) -> P | None:
        """Return the partition at ``place`` as it is now, to be assigned; None if it does not exist.

        Raises what the cluster's answers raise, also for a topic that is missing until that is certain.
        """

    @abstractmethod
    async def falls_short(self, partition: P, end: Position, *, silent: bool) -> int | None:
        """Return where the leader's log ends if that is before ``end``; None if it is not, or not known.

        ``silent``: the leader has sent no records for a while.
        """

    def leave_replica(self, partition: P) -> bool:
        """Read from the leader if a replica has nothing more, which may lag; return False if none is read from."""
        return False

    # --- ends

    def has_ended(self, partition: P) -> bool:
        """Return True if a granted partition was read up to the end of a bounded run."""
        return partition.until is not None and self.slots.position(partition.index).a >= partition.until.a

    def set_paused(self, index: int, *, paused: bool) -> None:
        """See ``LimitedSource.set_paused``."""
        partition = self.partitions[index]
        if partition.paused == paused:
            return
        partition.paused = paused
        if paused:
            self._leaders.forget(partition)
        elif partition.granted:
            self._leaders.place(partition)

    def rests(self, partition: P) -> bool:
        """Request no more records of a partition that has reached its end; return True if it has."""
        if not self.has_ended(partition):
            return False
        self._leaders.forget(partition)
        return True

    def _granted(self, partitions: Sequence[P]) -> None:
        """Note that ``partitions`` are read from now on."""

    def landed(self, coverage: Coverage, indexes: Collection[int] | None = None) -> None:
        """See ``Source.landed``."""
        self._know(coverage)

    def void(self, indexes: Collection[int] | None = None) -> None:
        """See ``Source.void``."""
        for partition in self._cut_off(indexes):
            if partition.granted:
                self._detach(partition)
                self._offers.add(partition.offer())

    def position(self, index: int) -> Position | None:
        """See ``Source.position``."""
        return self.slots.position(index) if self.partitions[index].was_granted else None

    async def heads(self) -> Mapping[int, Position]:
        """See ``Source.heads``."""
        # The first assignment separates offsets that others have acknowledged from unread ones.
        await self._lookup.assigned.wait()
        await self._lookup.found.wait()
        return self._lookup.heads

    @property
    def offering(self) -> bool:
        """See ``Source.offering``."""
        return super().offering or self._lookup.offering

    def is_behind(self, index: int, head: Position) -> bool:
        """Return True if records before ``head`` were not received."""
        at = self.position(index)
        return at is None or at.a < head.a

    def waiting(self) -> Mapping[int, str]:
        """See ``Source.waiting``."""
        beginless = {one: why for one, (why, _) in self._beginless.items()}
        return {one.index: why for one, why in (beginless | self._lookup.failing | self._leaders.failing).items()}

    def stop(self, index: int, why: str) -> None:
        """See ``Source.stop``."""
        self._stop(self.partitions[index], why, "unreadable")

    async def unfinished(self, heads: Mapping[int, Position], coverage: Coverage) -> Collection[int]:
        """See ``Source.unfinished``."""
        open_ = [index for index, head in heads.items() if not self._reached(index, head, coverage)]
        return {index: coverage.end(self.partitions[index].log) for index in open_}

    def _reached(self, index: int, head: Position, coverage: Coverage) -> bool:
        partition = self.partitions[index]
        if partition.over:
            return True
        end = coverage.end(partition.log) or coverage.start(partition.log)
        return end is not None and end.a >= head.a

    @property
    def standing_by(self) -> bool:
        """See ``Source.standing_by``."""
        return False

    def status(self) -> dict[str, Any]:
        """See ``Source.status``."""
        return {"url": str(self.settings.url), "topics": len(self._topics.names), **super().status()}

    async def _say_goodbye(self) -> None:
        """Return at once: the brokers keep no state of this source."""

    def _know(self, coverage: Coverage) -> None:
        self._coverage = coverage

    def landed_up_to(self, partition: P) -> Position:
        """Return the end of the durable records of a partition; where it begins, without any."""
        landed = self._coverage.end(partition.log) or self._coverage.start(partition.log) or partition.began
        return partition.beginning if landed is None else landed

    # --- errors

    def is_answer(self, error: FastwireError) -> bool:
        """Return True if ``error`` is a broker's answer."""
        return isinstance(error, self.broker_error)

    def explain(self, error: FastwireError) -> str:
        """Return the text of ``error`` for a user; a system may add advice."""
        return str(error)

    def refuse(self, error: FastwireError) -> None:
        """Fail with ``error``, which a retry cannot cure."""
        self.refused(self._failure(error))

    def _failure(self, error: FastwireError) -> SourceFailed:
        told = f"{self.settings.url}: {self.explain(error)}"
        return SourceFailed(told, configuration=getattr(error, "configuration", False))

    # --- assignments

    def assign(self, partitions: Sequence[P]) -> None:
        """Read ``partitions`` from now on."""
        self._lookup.offer(partitions)

    def give_up(self, partitions: Sequence[P], reason: str, to: Stage = Stage.IDLE) -> None:
        """Stop reading ``partitions``, which move to ``to``; records that were received are committed at once."""
        for partition in partitions:
            assignment = partition.assignment
            self._detach(partition)
            if to is not Stage.IDLE or not partition.over:
                partition.move(to)
            self._lookup.drop(partition)
            self._beginless.pop(partition, None)
            if assignment is not None and not self._offers.withdraw(assignment):
                self._offers.revoke(partition.index, reason)

    def _detach(self, partition: P) -> None:
        """Ignore all records of ``partition`` that still arrive."""
        if partition.granted:
            self.slots.detach(partition.index)
        self._leaders.forget(partition)

    def _stop(self, partition: P, why: str, reason: StopReason) -> None:
        """Stop this log; the others continue."""
        if partition.over:
            return
        partition.error = why
        self.give_up([partition], why, Stage.STOPPED)
        self._offers.tell_revoked()
        self.events.on_stopped(partition.index, LogStopped(f"{partition.log}: {why}", reason))

    def _reconsider(self, partition: P, reason: str) -> None:
        """Release the log and assign it again, with a new request for its start and end."""
        log.warning("looking at the log again", topic=str(partition.log), reason=reason)
        self.give_up([partition], reason)
        self.assign([partition])

    def part(self, partition: P, end: int) -> None:
        """Handle a leader's log that ends, or diverges, at ``end``: records that were read behind it must not land."""
        at = self.slots.position(partition.index)
        reason = f"{partition.log} was read up to {format_position(self.system, at)}, the leader's log parts at {end}"
        if partition.position(self._coverage).a >= at.a:
            self._reconsider(partition, reason)  # nothing of it waits for a commit
            return
        self.slots.detach(partition.index)
        self._leaders.forget(partition)
        self.events.on_diverged(partition.index, reason)

    # --- first positions

    async def _resolve(self, assignment: Assignment, coverage: Coverage) -> First | None:
        partition = self.partitions[assignment.index]
        if partition.assignment is not assignment or partition.granted:
            return None
        try:
            first = await self._first(partition, assignment, coverage)
            if partition.assignment is not assignment:
                return None
            first = await self._ends.add(
                partition.index,
                partition.log,
                first,
                coverage,
                name=partition.start_name,
                now=lambda: partition.head,
                at=lambda time: self._end_at(partition, time),
            )
            self._beginless.pop(partition, None)
            return first
        except FastwireError as exc:
            if partition.assignment is assignment:  # it may have been revoked meanwhile
                self._unresolved(partition, exc)
        return None

    @abstractmethod
    async def _first(self, partition: P, assignment: Assignment, coverage: Coverage) -> First | None:
        """Return the position to commit before ``partition`` is read, or None if nothing needs a commit.

        Raises LogStopped where it must not be read, and what the cluster's answers raise.
        """

    async def _end_at(self, partition: P, time: datetime) -> Position:
        """Return the position before the first record of ``time`` or later. Raises FastwireError."""
        raise NotImplementedError(f"brokers of {self.system} find no record by its time, which the model refuses")

    def _unresolved(self, partition: P, error: FastwireError) -> None:
        """Handle the reason why an assigned partition cannot be read from its position."""
        if isinstance(error, LogStopped):
            self._stop(partition, str(error).removeprefix(f"{partition.log}: "), error.reason)
        else:
            _, tries = self._beginless.get(partition, ("", 0))
            if tries & (tries - 1) == 0:  # the first, the second, the third, the fifth …
                log.warning("cannot find where to begin, retrying", topic=str(partition.log), error=str(error))
            partition.error = str(error)
            self._beginless[partition] = str(error), tries + 1
            partition.move(Stage.PENDING)
            self._freshness.old = True
            self._lookup.again(partition, min(AGAIN_S * (1 << min(tries, 10)), MOST_S))

    # --- links

    def _left(self, link: L) -> None:
        self._leaders.lost(link)  # the positions are kept here, so only the connection is lost

    def placed(self, link: L) -> None:
        """Request records on a connection with one more partition."""
        if not self.holding:
            link.pump()

    @property
    def holding(self) -> bool:
        """True if no more records may be requested."""
        return self.level is not Level.FREE or self._full

    def _carries_records(self, link: L) -> bool:
        # Answers that the pipeline waits for come on other connections, so these may rest.
        return bool(len(link.fetcher))

    def _ask_on(self) -> None:
        for link in () if self.holding else tuple(self.cluster.links.values()):
            link.pump()

    # --- topics

    @abstractmethod
    async def ends(self, places: Collection[tuple[str, int]]) -> LogEnds:
        """Ask for the end of each log, as far as it can be read. Raises FastwireError if no broker answers."""

    async def describe(self) -> tuple[list[tuple[str, int]], list[str]]:
        """Ask for each topic with the number of its partitions, and their leaders for themselves; reads nothing.

        The second list says which partitions cannot be read at the moment, and why.
        """
        self._tick()  # the deadlines of connections
        await self._topics.ask()
        self._topics.check(patient=False)
        described = self._topics.described()
        ends = await self.ends([(name, number) for name, count in described for number in range(count)])
        return described, [str(error) for _, error in sorted(ends.failed.items())]

    def follow_topics(self) -> None:
        """Apply new metadata: topics and partitions that were added, deleted or recreated."""
        names = self._topics.names
        changes = self._topics.compare(self._coverage, self._loop.time())
        self._let_go(changes)
        new = {partition.place for partition in changes.added}
        counts = Counter(topic for topic, _ in new)
        tell_found([each for each in counts.items() if (each[0], 0) in new])
        for topic, count in counts.items():
            if (topic, 0) not in new:
                log.info("topic has new partitions", topic=topic, partitions=count)
        if changes.added or names != self._topics.names:
            self._topics_changed(changes.added)

    def _topics_changed(self, added: Sequence[P]) -> None:
        """Handle new partitions, or a changed set of topics."""
        self.assign(added)

    def _let_go(self, changes: Changes[P]) -> None:
        """Stop partitions that were deleted; only named topics are reported as stopped."""
        for partition in changes.replaced:
            log.warning("topic was deleted and made again", topic=str(partition.log))
            if self.settings.pattern is None:
                again = "the topic was deleted and made again; its new incarnation is read as a new log"
                self._stop(partition, again, "recreated")
            self.give_up([partition], "the topic was deleted and made again", Stage.REPLACED)
            partition.error = ""
        for partition in changes.gone:
            partition.error = ""
        self.give_up(changes.gone, "the topic was deleted", Stage.GONE)
        for topic, count in Counter(partition.place[0] for partition in changes.gone).items():
            log.info("topic is gone", topic=topic, partitions=count)

    # --- time

    def _look(self, now: float) -> None:
        self._lookup.tell()
        self._stats.look(now)
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
