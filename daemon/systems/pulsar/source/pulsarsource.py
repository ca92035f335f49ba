"""Source of Pulsar topics for one pipeline: partitions, one clock for all of them, permits, acks and memory."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime
from typing import Any, Protocol

from fastwire.coverage import Coverage
from fastwire.errors import FastwireError
from fastwire.position import Log, Position
from fastwire.pulsar.names.topic import ServiceUrl, Topic, parse_topic
from fastwire.pulsar.position import PULSAR_EARLIEST
from fastwire.pulsar.protocol.consumer import ConsumerMachine, Phase
from fastwire.pulsar.protocol.request import SubscribeRequest
from fastwire.pulsar.reading.slot import SlotTable
from fastwire.wire.pool import Pool

from ....net.backoff import Backoff
from ....net.endpoint import LinkLost
from ....net.transport import Pause
from ....runtime.budget import Level
from ....runtime.errors import ConfigurationRefused
from ....runtime.logs import get_logger
from ....runtime.metrics import PipelineMetrics
from ...reading.clustered import ClusteredSource, tell_found
from ...reading.ends import Ends
from ...reading.stage import Stage
from ...source import Assignment, First, LogStopped, SourceEvents, SourceFailed
from ..cluster import Cluster
from ..link import Link
from ..refusal import is_for_good, is_of_login
from ..settings import ClientSettings
from ..topics import News, Topics
from .firstposition import FirstPositions, StartAt
from .partition import Partition
from .settings import MOST_PERMITS_TOGETHER, PulsarSettings
from .stats import Stats
from .watch import Watch

SETUPS_AT_ONCE = 64  # concurrent lookups and subscribes; more would only wait for each other
# An offer is a commit and a look at all logs that are read: while more logs connect, fewer than those wait this long.
OFFER_S = 1.0
AWAY_S = 10.0  # without a connection: to restore a broker takes longer
MOST_UNCOMPARED = 3  # attempts to read the last landed entry, before the log is read without

log = get_logger("source")


class Beside(Protocol):
    """Readers of one partition beside the subscription; most pipelines need none, so they are loaded at their use."""

    async def witness_at(self, settings: ClientSettings, topic: str, at: Position) -> int | None:
        """Return the witness of the entry ``at``; None if the broker no longer has it, or its bytes no checksum."""

    async def entry_before(self, settings: ClientSettings, topic: str, time: datetime) -> Position | None:
        """Return the position before the first entry that was published at ``time`` or later; None if there is none."""


class PulsarSource(ClusteredSource[Cluster, Link, Partition]):
    """The Source of one pipeline (``systems.source``).

    ``events`` is the pipeline; ``beside`` gives the readers for entries that have landed, and for ends by time.
    """

    system = "pulsar"
    goes_back = False  # the broker's cursor decides
    creates = False  # brokers create no topic for the first question about it
    _stats: Stats

    def __init__(
        self,
        settings: PulsarSettings,
        events: SourceEvents,
        pool: Pool,
        *,
        metrics: PipelineMetrics | None = None,
        beside: Callable[[], Beside] | None = None,
    ) -> None:
        super().__init__(events, metrics)
        self.settings = settings
        self.slots = SlotTable()
        self.cluster = Cluster(settings, self.slots, pool, self)
        self.gate = asyncio.Semaphore(SETUPS_AT_ONCE)
        self._pool = pool
        self._beside = beside or _without_readers
        self._by_log: dict[Log, Partition] = {}
        self.topics = Topics(self.cluster, settings.url, settings.topics, settings.pattern, create=self.creates)
        self._first_positions = FirstPositions(settings)
        self._ends = Ends(settings.end)
        self._watch = Watch(self)
        self._stats = Stats(self, metrics, settings.lag_poll_s)
        self._held = False
        self._offered_at = -OFFER_S
        self._unsettled: set[int] = set()  # consumers whose permits are below the window
        self._acking: set[int] = set()  # consumers with acks to send
        self._coverage = Coverage()
        # The end that has landed and its witness, by log: set at the start of this process and after a broker was away
        # for long, dropped when the broker has shown the same entry there.
        self._to_compare: dict[Log, tuple[Position, int]] = {}

    # --- the contract

    async def start(self, coverage: Coverage) -> None:
        """See ``Source.start``."""
        for topic in self.settings.topics:
            if not topic.persistent:
                raise SourceFailed(
                    f"{topic}: non-persistent topics have no positions that could be committed", configuration=True
                )
        self._first_positions.learn(coverage)
        self._coverage = coverage
        self._to_compare = _last_entries(coverage, coverage.logs())
        self._tick()
        backoff = Backoff()
        while True:
            news = await self.topics.look()
            self._take_in(news, first=True)
            if news.failure is None:
                break
            self._give_up_if_refused(news.failure)
            await asyncio.sleep(backoff.failed(log, "cannot find the topics, retrying", news.failure, warn=True))
        if not self.partitions:
            log.info("no topic matches yet", pattern=str(self.settings.pattern))
        self._first_positions.start(self._loop.time())
        for partition in self.partitions:
            partition.start()
        self.run(self._follow(), "topics")

    def grant(self, assignments: Iterable[Assignment], coverage: Coverage) -> None:
        """See ``Source.grant``."""
        links = set()
        for assignment in assignments:
            partition = self.partitions[assignment.index]
            try:
                granted = partition.grant(assignment, coverage)
            except LogStopped as exc:
                partition.stop(exc)
                continue
            if granted:
                self._watch.granted(partition)
                self.note_acks(partition)
                if partition.link is not None:
                    links.add(partition.link)
        for link in links:
            link.flush()

    def landed(self, coverage: Coverage, indexes: Collection[int] | None = None) -> None:
        """See ``Source.landed``."""
        self._coverage = coverage
        for partition in self._chosen(indexes):
            if not partition.was_granted or partition.over:
                continue
            try:
                partition.landed(coverage)
            except LogStopped as exc:
                partition.stop(exc)
                continue
            self.note_acks(partition)
            self._watch.landed(partition, coverage)

    def void(self, indexes: Collection[int] | None = None) -> None:
        """See ``Source.void``."""
        for partition in self._cut_off(indexes):
            partition.void()

    def landed_up_to(self, partition: Partition) -> Position:
        """Return the position up to which all entries of a partition have landed, or were acknowledged before."""
        first = next(iter(self._coverage.intervals(partition.log)), None)
        if first is not None:
            return first[1]
        return self._coverage.start(partition.log) or partition.began or partition.cursor or PULSAR_EARLIEST

    def position(self, index: int) -> Position | None:
        """See ``Source.position``."""
        position = self.slots.last_position(self.partitions[index].consumer.consumer_id)
        return None if position.a < 0 else position

    async def heads(self) -> Mapping[int, Position]:
        """See ``Source.heads``."""
        partitions = list(self.partitions)
        heads = await asyncio.gather(*(asyncio.shield(partition.informed) for partition in partitions))
        return {one.index: head for one, head in zip(partitions, heads, strict=True) if head is not None}

    def waiting(self) -> Mapping[int, str]:
        """See ``Source.waiting``."""
        connecting = (one for one in self.partitions if one.connecting)
        return {one.index: one.error for one in connecting if one.error}

    def stop(self, index: int, why: str) -> None:
        """See ``Source.stop``."""
        partition = self.partitions[index]
        partition.stop(LogStopped(f"{partition.log}: {why}", "unreadable"))

    async def unfinished(self, heads: Mapping[int, Position], coverage: Coverage) -> Collection[int]:
        """See ``Source.unfinished``."""
        cursors = await asyncio.gather(
            *(self._cursor_before(self.partitions[index], head, coverage) for index, head in heads.items())
        )
        return {index: cursor for index, cursor in zip(heads, cursors, strict=True) if cursor is not None}

    @property
    def standing_by(self) -> bool:
        """See ``Source.standing_by``."""
        stages = {partition.stage for partition in self.partitions if not partition.over}
        return stages == {Stage.STAND_BY}

    def status(self) -> dict[str, Any]:
        """See ``Source.status``."""
        return {
            "url": str(self.settings.url),
            "subscription": self.settings.subscription,
            "subscription_type": self.settings.subscription_type,
            "consumer": self.settings.consumer_name,
            "topics": len(self.topics),
            **super().status(),
            "discarded_entries": self.cluster.completion.discarded,
        }

    async def close(self, timeout: float) -> None:
        """See ``Source.close``."""
        links = tuple(self.cluster.links.values())
        try:
            await super().close(timeout)
        finally:
            self._stats.count(links)

    # --- what partitions ask for

    @property
    def closing(self) -> bool:
        """True once the source is being closed."""
        return self._closing

    @property
    def holding(self) -> bool:
        """True if no more records may be requested."""
        return self.level is not Level.FREE or (self._full and bool(self._resolving))

    def start_of(self, partition: Partition) -> StartAt:
        """Return the start of a log that neither Coverage nor the broker's cursor knows."""
        return self._first_positions.of(partition.log, partition.consumer.want.topic, late=partition.late)

    def end_of(self, partition: Partition, coverage: Coverage) -> Position | None:
        """Return where a bounded run ends in a log; None for a run without end."""
        return self._ends.until(partition.log, coverage)

    async def is_another_log(self, partition: Partition) -> bool:
        """See ``Host.is_another_log``; asked of the broker once in a process, and after it was away for long.

        An entry that is gone proves nothing. Raises FastwireError where it cannot be read for now.
        """
        log_ = partition.log
        if partition.lost_at is not None and self._loop.time() - partition.lost_at >= AWAY_S:
            self._to_compare |= _last_entries(self._coverage, (log_,))
        # A compacted ledger has other bytes at the same place, and a topic that has moved is at another address.
        if log_ not in self._to_compare or self.settings.read_compacted or log_.cluster != self.settings.cluster:
            return False
        end, witness = self._to_compare[log_]
        await partition.reach()
        try:
            found = await self._beside().witness_at(self.settings, partition.consumer.want.topic, end)
        except (FastwireError, TimeoutError) as exc:
            why = str(exc) or "no answer in time"
            partition.uncompared += 1
            if isinstance(exc, TimeoutError | LinkLost) and partition.uncompared < MOST_UNCOMPARED:
                raise FastwireError(f"the last landed entry cannot be compared: {why}") from exc
            partition.uncompared = 0
            log.warning("the last landed entry was not compared", topic=str(log_), error=why)
            return False
        partition.uncompared = 0
        if found is None or found == witness:
            del self._to_compare[log_]
            return False
        return True

    def offer(self, partition: Partition, assignment: Assignment) -> None:
        """Offer a log to the pipeline, together with others that become ready at the same time."""
        self._offers.add(assignment)
        # From the end: they come roughly in order, and a search through all of them for each would be quadratic.
        if not any(one.connecting for one in reversed(self.partitions)):
            self._tell_offers()

    def revoke(self, partition: Partition, assignment: Assignment, granted: bool, reason: str) -> None:
        """Withdraw a log that cannot be read any more."""
        if self._offers.withdraw(assignment):
            return
        if partition.link is not None:
            partition.link.hand_on()
        if granted:
            self._offers.revoke(partition.index, reason)

    def stopped(self, partition: Partition, error: LogStopped) -> None:
        """Report a log that is stopped."""
        self._offers.tell_revoked()
        self.events.on_stopped(partition.index, error)

    def diverged(self, partition: Partition, reason: str) -> None:
        """Report that staged records of a log must not land."""
        self.events.on_diverged(partition.index, reason)

    def is_for_good(self, error: FastwireError) -> bool:
        """See ``ClusteredSource.is_for_good``."""
        return is_for_good(error)

    def is_of_login(self, error: FastwireError) -> bool:
        """See ``ClusteredSource.is_of_login``."""
        return is_of_login(error)

    def refused(self, error: SourceFailed) -> None:
        """Fail with ``error``, which a retry cannot cure."""
        for partition in () if self._closing else self.partitions:
            partition.inform(None)
        super().refused(error)

    def moved(self, partition: Partition, service: ServiceUrl) -> None:
        """Continue with a topic in another cluster: a new log, read from its beginning."""
        topic, index = parse_topic(partition.log.topic), int(partition.log.partition)
        moved = self._add(topic, index, first=False, late=True, service=service, cluster=service.hosts)
        moved.start()

    def missed(self, partition: Partition) -> None:
        """Note that a topic found by its pattern does not exist: it may be deleted, or still being created."""
        self.topics.doubt()

    def reconnecting(self, partition: Partition, reason: str) -> None:
        """Count a consumer that has to reconnect."""
        self._reconnected(reason)

    # --- what links tell

    def _left(self, link: Link) -> None:
        self._stats.count((link,))  # the link has reported its partitions

    def _answering(self) -> Collection[Link]:
        # While the pipeline waits for a response of the broker it takes no chunks, but the response must be read. Other
        # links may expect one, too, and not one more of their entries fits into memory.
        if not self._resolving:
            return ()
        awaiting = {link for link in self.cluster.links.values() if link.connection.awaiting}
        asked = {self.partitions[index].link for index in self._resolving}
        return awaiting if None in asked else awaiting & asked  # None: its broker is looked up, by any of them

    def _ask_on(self) -> None:
        if self.holding != self._held:
            self._held = self.holding
            for partition in self.partitions:
                if partition.granted:  # a new grant checks this again
                    partition.consumer.hold(self._held or partition.ended)
            for link in tuple(self.cluster.links.values()):
                link.flush()

    def after_read(self, link: Link) -> None:
        """Grant permits for entries that were read, before other requests are sent."""
        for consumer_id in self.slots.take_due():
            partition = self.partitions[consumer_id]  # consumer ids are indexes of this list
            if partition.ended:
                partition.consumer.hold(True)
            partition.consumer.pump()

    # --- the clock

    def _look(self, now: float) -> None:
        self._tell_offers()
        self._look_after_consumers(now)
        if self._watch.due(now):
            self._watch.look(now)
            self._count(now)
        for link in tuple(self.cluster.links.values()):
            if link.connection.has_outbound:
                link.flush()

    def _count(self, now: float) -> None:
        self._stats.count(self.cluster.links.values())
        self._stats.look(now)

    def _look_after_consumers(self, now: float) -> None:
        touched = set(self.slots.take_dirty())
        self._watch.touched(touched)
        for consumer_id in touched:
            partition = self.partitions[consumer_id]
            if (late := self.slots.take_late(consumer_id)) and not partition.over:
                partition.on_late(Position(*late[0][:2]))
            self._watch.came(partition, partition.acknowledge_again())
            self.note_acks(partition)
        # A consumer without records since the last look has drained the broker: restore its window.
        for consumer_id in self._unsettled - touched:
            self.partitions[consumer_id].consumer.settle()
        self._unsettled = touched
        for consumer_id in tuple(self._acking):
            partition = self.partitions[consumer_id]
            if partition.consumer.acks.due(now):
                partition.send_acks()
                if not partition.consumer.acks.waiting:
                    self._acking.discard(consumer_id)

    def note_acks(self, partition: Partition) -> None:
        """Note that a consumer may have acks to send."""
        if partition.consumer.acks.waiting:
            self._acking.add(partition.consumer.consumer_id)

    def _tell_offers(self) -> None:
        if not self._offers:
            self._offers.tell_revoked()
            return
        now = self._loop.time()
        connecting = {one.log.topic for one in self.partitions if one.connecting}
        if connecting and now - self._offered_at < OFFER_S and self._few_offers:
            self._offers.tell_revoked()
            return
        self._offered_at = now
        self._offers.tell(self._first_positions.together(connecting, now))

    @property
    def _few_offers(self) -> bool:
        return len(self._offers) < sum(partition.granted for partition in self.partitions)

    # --- partitions

    def _give_up_if_refused(self, exc: FastwireError) -> None:
        if self.is_fatal(exc):
            wrong = isinstance(exc, ConfigurationRefused)
            raise SourceFailed(str(exc) if wrong else f"{self.settings.url}: {exc}", configuration=wrong) from None

    def _add(
        self,
        topic: Topic,
        index: int,
        *,
        first: bool,
        late: bool,
        service: ServiceUrl | None = None,
        cluster: str = "",
    ) -> Partition:
        log_ = self._log(topic, index, cluster)
        log_index = self.slots.add_log(log_)
        consumer_id = len(self.partitions)
        self.slots.add(consumer_id, log_index, ordered=self.ordered)
        name = topic if topic.partition >= 0 or index < 0 else topic.of_partition(index)
        consumer = ConsumerMachine(self._want(name, consumer_id, late=late), self.slots, self.settings.most_permits)
        partition = self._partition(
            name,
            log_index,
            log_,
            consumer,
            service or self.settings.url,
            first=first,
            late=late,
            discovered=self.settings.pattern is not None,
        )
        self.logs.append(log_)
        self.partitions.append(partition)
        self._by_log[log_] = partition
        return partition

    def _want(self, name: Topic, consumer_id: int, *, late: bool) -> SubscribeRequest:
        settings = self.settings
        return SubscribeRequest(
            topic=str(name),
            subscription=settings.subscription,
            subscription_type=settings.wire_type,
            consumer_id=consumer_id,
            consumer_name=settings.consumer_name,
            create=settings.pattern is None,
            priority_level=settings.priority,
            properties=settings.properties,
            subscription_properties=settings.subscription_properties,
            replicate_state=settings.replicate_state,
            read_compacted=settings.read_compacted,
        )

    def _partition(self, name: Topic, *parts: Any, **more: Any) -> Partition:
        return Partition(self, *parts, **more)

    @property
    def ordered(self) -> bool:
        """True if slots expect the entries of a log in order, and land them so."""
        return self.settings.ordered

    @property
    def memory_limit(self) -> int:
        """The memory budget of the process, in bytes."""
        return self._pool.limit

    @property
    def most_permits(self) -> int:
        """The permit window with which a consumer begins; it may shrink while it reads, and never grows beyond this."""
        return max(1, min(self.settings.most_permits, MOST_PERMITS_TOGETHER // max(1, len(self.partitions))))

    async def _follow(self) -> None:
        """Apply changes of topics and partitions, on notices of the broker and by polling."""
        backoff = Backoff()
        wait_s = self.settings.partition_poll_s
        while True:
            notified = await self.topics.wait(wait_s)
            news = await self.topics.look(everything=not notified)
            for partition in self._take_in(news, first=False):
                partition.start()
            wait_s = self.settings.partition_poll_s
            if news.failure is None:
                backoff.reset()
            else:
                wait_s = min(wait_s, backoff.failed(log, "cannot look for new topics and partitions", news.failure))

    def _take_in(self, news: News, *, first: bool) -> list[Partition]:
        """Drop deleted topics; return the partitions that are new."""
        for topic in news.gone:
            gone = [one for one in self.partitions if one.discovered and self._is_of(one, topic)]
            log.info("topic is gone", topic=str(topic), partitions=len(gone))
            for partition in gone:
                partition.vanish()
        tell_found([(str(found.topic), found.partitions) for found in news.found if not found.first])
        added = []
        for found in news.found:
            if found.first:
                log.info("topic has new partitions", topic=str(found.topic), partitions=found.partitions)
            for index in found.indexes:
                log_ = self._log(found.topic, index)
                known = self._by_log.get(log_)
                if known is not None:
                    known.revive()
                    continue
                late = not first or self._first_positions.is_late(log_)
                added.append(self._add(found.topic, index, first=first, late=late))
        return added

    def _is_of(self, partition: Partition, topic: Topic) -> bool:
        """Return True if ``partition`` is one of ``topic`` in this cluster."""
        log_ = partition.log
        return (
            log_.topic == str(topic.base)
            and topic.partition in (-1, int(log_.partition))
            and log_.cluster == self.settings.cluster
        )

    def _log(self, topic: Topic, index: int, cluster: str = "") -> Log:
        settings = self.settings
        return Log("pulsar", cluster or settings.cluster, str(topic.base), str(index), str(settings.incarnation))

    async def _resolve(self, assignment: Assignment, coverage: Coverage) -> First | None:
        partition = self.partitions[assignment.index]
        try:
            first = await partition.resolve(assignment, coverage)
            if partition.assignment is not assignment or (first is None and partition.log not in coverage):
                return None
            return await self._ends.add(
                partition.index,
                partition.log,
                first,
                coverage,
                name=partition.consumer.want.topic,
                now=lambda: partition.head,
                at=lambda time: self._end_at(partition, time),
            )
        except LogStopped as exc:
            partition.stop(exc)
        except FastwireError as exc:
            partition.unresolved(exc)
        return None

    async def _end_at(self, partition: Partition, time: datetime) -> Position:
        """Return the position before the first entry of ``time`` or later, or the end of the log."""
        found = await self._beside().entry_before(self.settings, partition.consumer.want.topic, time)
        return found or partition.head or PULSAR_EARLIEST

    async def _cursor_before(self, partition: Partition, head: Position, coverage: Coverage) -> Position | None:
        """Return the broker's cursor of a partition that is not finished, EARLIEST if it is not known; else None."""
        if partition.over:
            return None
        end = coverage.end(partition.log)
        if self.settings.ordered and end is not None and end >= head:
            return None
        try:
            cursor = await partition.ask_cursor() or PULSAR_EARLIEST
        except FastwireError:
            return PULSAR_EARLIEST
        return cursor if cursor < head else None

    # --- the end

    async def _say_goodbye(self) -> None:
        for partition in self.partitions:
            partition.send_acks()
        links = [link for link in self.cluster.links.values() if link.ready]
        for link in links:
            link.transport.go_on(Pause.MEMORY | Pause.QUEUE)
            link.flush()
        await asyncio.gather(*(link.receipts() for link in links))
        await asyncio.gather(*(one.leave() for one in self.partitions if one.consumer.phase is not Phase.DETACHED))


def _without_readers() -> Beside:
    raise NotImplementedError("a source without a dataset compares nothing, and has no end")


def _last_entries(coverage: Coverage, logs: Iterable[Log]) -> dict[Log, tuple[Position, int]]:
    known = ((log_, coverage.end(log_), coverage.witness(log_)) for log_ in logs)
    return {log_: (end, witness) for log_, end, witness in known if end is not None and witness is not None}
