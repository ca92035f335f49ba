"""One partition of a topic: lookup, permits, reconnects, seeks, changes of role (spec: pulsar 7, 18-21)."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import replace
from typing import Any

from fastwire.coverage import Coverage
from fastwire.errors import FastwireError
from fastwire.position import Gap, Log, Position, Span
from fastwire.pulsar.names.topic import ServiceUrl
from fastwire.pulsar.position import POSITIONS, PULSAR_EARLIEST
from fastwire.pulsar.protocol.consumer import ConsumerMachine, Phase
from fastwire.pulsar.protocol.event import ConsumerClosed, EntryRejected, TopicMigrated
from fastwire.pulsar.reading.assembly import Torn
from fastwire.reason import Reason

from ....net.backoff import Backoff
from ....net.endpoint import LinkLost
from ....runtime.errors import ConfigurationRefused
from ....runtime.logs import get_logger
from ...reading.stage import Stage, StagedPartition
from ...source import Assignment, First, LogStopped, SourceFailed, StopReason
from ..refusal import is_missing
from ..routed import RoutedConsumer
from .coverage import Landed, declared_gap, landed_of, newly_landed
from .firstposition import StartAt, seek
from .host import Host

REFUSED_AS = {Reason.DECRYPTION: "decrypted", Reason.FRAME: "received"}  # others cannot be decoded
ACTIVE_WITHIN_S = 10.0  # a broker tells the active consumer right behind its SUCCESS

log = get_logger("source")


_ENDS = {Stage.STOPPED, Stage.REPLACED, Stage.GONE}


class Partition(StagedPartition, RoutedConsumer):
    """Keeps one consumer subscribed.

    A consumer is subscribed in the stages STAND_BY, ASSIGNED and READING. In CONNECTING and SEEKING it subscribes, or
    waits before another attempt.
    """

    TRANSITIONS = {  # noqa: RUF012 - the base declares it as a ClassVar
        Stage.CONNECTING: frozenset({Stage.CONNECTING, Stage.STAND_BY, Stage.ASSIGNED, *_ENDS}),
        Stage.STAND_BY: frozenset({Stage.CONNECTING, Stage.STAND_BY, Stage.ASSIGNED, *_ENDS}),
        Stage.ASSIGNED: frozenset({Stage.CONNECTING, Stage.STAND_BY, Stage.SEEKING, Stage.READING, *_ENDS}),
        Stage.SEEKING: frozenset({Stage.CONNECTING, Stage.ASSIGNED, *_ENDS}),
        Stage.READING: frozenset({Stage.CONNECTING, *_ENDS}),
        Stage.STOPPED: frozenset(),
        Stage.REPLACED: frozenset(),
        Stage.GONE: frozenset({Stage.CONNECTING}),
    }

    def __init__(
        self,
        host: "Host[Partition]",
        index: int,
        log_: Log,
        consumer: ConsumerMachine,
        service: ServiceUrl,
        *,
        first: bool,
        late: bool,
        discovered: bool = False,
    ) -> None:
        StagedPartition.__init__(self, index, log_, late=late)
        RoutedConsumer.__init__(self, consumer, service)
        self.discovered = discovered  # by a pattern: the topic may be deleted and recreated
        self.last: Position | None = None  # the last entry that the broker reported, entry -1 if there is none
        self.cursor: Position | None = None
        self.lost_at: float | None = None  # the loop's time since which no connection has carried it
        self.uncompared = 0  # attempts in a row to read the last landed entry again
        self._is_another_log = False
        self.until: Position | None = None  # the end of a bounded run
        # The head after the first subscribe; None for an empty log, and for one that is over before.
        self.informed: asyncio.Future[Position | None] = self._loop.create_future()
        self._host = host
        self._backoff = Backoff()
        self._first = first  # a refusal of the first subscribe that a retry cannot cure ends the source
        self._task: asyncio.Task[None] | None = None
        self._active = asyncio.Event()
        self._migrating: ServiceUrl | None = None

    # --- what the broker says, in wire order

    def on_receipt(self, request_id: int, accepted: bool) -> None:
        """See ``ConsumerEvents.on_receipt``."""
        self.consumer.acks.receipt(request_id, accepted)

    def on_closed(self, event: ConsumerClosed) -> None:
        """See ``ConsumerEvents.on_closed``."""
        self._route.closed(event, self.link)
        self._detached("closed by the broker")
        if self._migrating is not None and not self.over:
            service, self._migrating = self._migrating, None
            self.move(Stage.REPLACED)
            self._host.moved(self, service)
        elif self.stage is not Stage.SEEKING and not self._host.closing:
            self._host.reconnecting(self, "closed_by_broker")
            self._reconnect(at_once=self._route.redirected)

    def on_link_lost(self, reason: str) -> None:
        """See ``ConsumerEvents.on_link_lost``."""
        self.lost_at = self._loop.time() if self.lost_at is None else self.lost_at
        self._detached(reason)
        self._reconnect()

    def on_active(self, active: bool) -> None:
        """See ``ConsumerEvents.on_active``."""
        self.consumer.active = active
        if active:
            self._active.set()
        else:
            self._active.clear()
        if self._busy or self._host.closing:
            return  # the running task checks the role when it is done
        if active and self.stage is Stage.STAND_BY:
            self._spawn(self._take_over())
        elif not active and self.stage in (Stage.ASSIGNED, Stage.READING):
            self._retire()

    def on_end_of_topic(self) -> None:
        """See ``ConsumerEvents.on_end_of_topic``."""
        log.info("topic was terminated and is read to its end", topic=str(self.log))

    def on_migrated(self, event: TopicMigrated) -> None:
        """See ``ConsumerEvents.on_migrated``."""
        self._migrating = self._route.migrated(event) or self._migrating

    def on_rejected(self, event: EntryRejected) -> None:
        """See ``ConsumerEvents.on_rejected``."""
        entry = event.entry
        where = POSITIONS.format(entry.position)
        if event.is_dead_letter:
            log.debug("entry is a dead letter", topic=str(self.log), position=where, reason=entry.reason)
            return
        what = REFUSED_AS.get(entry.reason, "decoded")
        if entry.reason is Reason.DECRYPTION:
            cure = (
                "; source.encryption.private_keys has to name a key that opens it, "
                'or on_failure = "discard" or "consume" would go on without'
            )
        elif entry.reason is Reason.FRAME:
            cure = ""
        else:
            cure = '; on_corrupt = "dead_letter" would keep it as a dead letter and go on'
        why: StopReason = "encrypted" if entry.reason is Reason.DECRYPTION else "undecodable"
        self.stop(LogStopped(f"{self.log}: entry {where} cannot be {what} ({entry.reason}: {entry.detail}){cure}", why))

    def on_late(self, entry: Position) -> None:
        """Handle an entry that arrives behind later ones: records received since must not land without it."""
        at = POSITIONS.format(entry)
        last = POSITIONS.format(self._host.slots.staged_position(self.consumer.consumer_id))
        reason = f"{self.log}: entry {at} came behind {last}, which an entry filter of the broker does (RESCHEDULE)"
        self._host.diverged(self, reason)
        cure = 'read it with source.subscription_type = "shared" or "key_shared"'
        self.stop(LogStopped(f"{reason}; {cure}", "reordered"))

    # --- coming and going

    def start(self) -> None:
        """Subscribe in the background, and again whenever the subscription is lost."""
        self._reconnect(at_once=True)

    def _reconnect(self, *, at_once: bool = False) -> None:
        if self.stage is Stage.CONNECTING and not self._busy and not self._host.closing:
            self._spawn(self._establish(0.0 if at_once else self._backoff.next()))

    @property
    def reading(self) -> bool:
        """True while records arrive."""
        return self.granted and self.link is not None and self.link.ready and not self.link.transport.paused

    @property
    def ended(self) -> bool:
        """True once everything up to the end of a bounded run was received: no more permits are granted."""
        if self.until is None:
            return False
        slots, consumer_id = self._host.slots, self.consumer.consumer_id
        return slots.has_ended(consumer_id) or slots.staged_position(consumer_id) >= self.until

    @property
    def _busy(self) -> bool:
        return self._task is not None and not self._task.done()

    @property
    def connecting(self) -> bool:
        """True while the consumer subscribes, or waits before another attempt."""
        return self.stage in (Stage.CONNECTING, Stage.SEEKING)

    def inform(self, head: Position | None) -> None:
        """Complete ``informed``, once."""
        if not self.informed.done():
            self.informed.set_result(head)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._task = self._host.run(work, f"{self.log}")

    async def _establish(self, delay: float = 0.0) -> None:
        """Subscribe, with retries, and offer the log to the pipeline."""
        while True:
            if delay:
                await asyncio.sleep(delay)
            try:
                await self._attempt()
            except FastwireError as exc:
                await self._withdraw()
                if self.over:
                    return  # given up meanwhile
                self.error = str(exc)
                if self._fatal(exc):
                    return
                if self.discovered and is_missing(exc):
                    self._host.missed(self)
                delay = self._backoff.failed(log, "cannot subscribe, retrying", exc, topic=str(self.log))
                continue
            break
        self._offer()

    async def _attempt(self) -> None:
        """Subscribe once, and learn what the broker knows of the log."""
        async with self._host.gate:
            self._is_another_log = await self._host.is_another_log(self)
            await self._subscribe()
            await self._learn()
        # A topic that is deleted from here on must not be recreated, empty and without partitions, by a reconnect.
        self.consumer.want = replace(self.consumer.want, create=False)
        self.error = ""
        self.lost_at = None
        self._backoff.reset()
        self.inform(self.head)

    def _fatal(self, exc: FastwireError) -> bool:
        missing = self.discovered and is_missing(exc)
        if not self._first or self.informed.done() or missing or not self._host.is_fatal(exc):
            return False
        wrong = isinstance(exc, ConfigurationRefused)
        self._host.refused(
            SourceFailed(str(exc) if wrong else f"{self.log}: the subscription is refused: {exc}", configuration=wrong)
        )
        return True

    async def reach(self) -> None:
        """Find the broker and connect to it. Raises FastwireError."""
        await self._route.link(self._host.cluster)

    async def _subscribe(self) -> None:
        link = await self._route.link(self._host.cluster)
        if self.over:
            raise FastwireError("the log was given up")
        self._active.clear()
        await self._join(link)

    async def _learn(self) -> None:
        """Ask for what an assignment says of the log; also before this consumer takes over as the active one."""
        await self._ask_last()

    async def _ask_last(self) -> None:
        """Ask for the end of the log and the cursor."""
        link = self.link
        if link is None:
            raise LinkLost("the connection was lost meanwhile")
        last, cursor = await self._ask_end(link)
        self._check(link)
        self.last, self.cursor = last.position, cursor
        if self.cursor is not None:
            self.consumer.acks.stands(self.cursor)

    def _detached(self, reason: str = "") -> None:
        if self.stage is not Stage.SEEKING and not self.over:  # the assignment outlives a seek
            self._let_go(Stage.CONNECTING, reason)
        super()._detached(reason)

    def _let_go(self, to: Stage, reason: str) -> None:
        """Move to a stage without an assignment, and revoke the one that was in force, if any."""
        assignment, granted = self.assignment, self.granted
        self.move(to)
        if assignment is None:
            return
        if granted:
            # Entries that still arrive are ignored, even before the broker knows. A stand-by has none in flight.
            self._host.slots.detach(self.consumer.consumer_id)
        self._host.revoke(self, assignment, granted, reason)

    # --- roles

    @property
    def head(self) -> Position | None:
        """The last position of the log that the broker has reported; None for an empty log."""
        return self.last if self.last is not None and self.last.b >= 0 else None

    def _offer(self) -> None:
        if not self.consumer.active:
            self.move(Stage.STAND_BY)
            return
        progress = self.cursor is not None and self.cursor.b >= 0
        assignment = Assignment(self.index, self.log, self.head, self.cursor, progress)
        self.assign(assignment)
        self._host.offer(self, assignment)

    async def _take_over(self) -> None:
        """Handle the change to the active consumer: the cursor that the broker reported before is out of date."""
        try:
            await self._learn()
        except FastwireError as exc:
            self.error = str(exc)
            await self._withdraw()
            await self._establish(self._backoff.next())
        else:
            self._offer()

    def _retire(self) -> None:
        """Handle the change to a stand-by consumer.

        Permits that were granted stay with the broker, which would use them on the next change of roles, before
        this consumer knows the entries that the others have landed. So the consumer is closed, and subscribes again
        without permits.
        """
        reason = "another consumer has become the active one"
        if self.granted:
            self.reestablish(reason)
        else:
            self._let_go(Stage.STAND_BY, reason)

    async def _rejoin(self, delay: float = 0.0) -> None:
        await self._withdraw()
        await self._establish(delay)

    def reestablish(self, reason: str) -> None:
        """Close the consumer and subscribe again, so that the count of permits begins anew."""
        self._instead(Stage.CONNECTING, reason, self._rejoin)

    def void(self) -> None:
        """Subscribe again, because staged records are discarded and the broker has to redeliver them."""
        self._forget_staged()
        if self.granted:
            self.move(Stage.CONNECTING)
            self._host.slots.detach(self.consumer.consumer_id)
            self._spawn(self._rejoin())

    def _forget_staged(self) -> None:
        self._host.slots.void_staged(self.consumer.consumer_id)
        self._host.cluster.completion.assembly.forget(self.consumer.consumer_id)

    def vanish(self) -> None:
        """Close the consumer of a deleted topic, keep the subscription, and wait for a new topic of this name."""
        if not self.over:
            self._end(Stage.GONE, "the topic was deleted")

    def revive(self) -> None:
        """Read a recreated topic of this name: its entries have later positions, so the log continues with them."""
        if self.stage is Stage.GONE:
            self.move(Stage.CONNECTING)
            self.consumer.acks.forget()
            self._backoff.reset()
            self._spawn(self._run_after(self._task, self._establish))

    def _end(self, to: Stage, reason: str, error: str = "") -> None:
        """Move to a stage that is over, also while subscribing, and close the consumer."""
        self.error = error
        self._instead(to, reason, self._withdraw)
        self.inform(None)

    def _instead(self, to: Stage, reason: str, work: "Callable[[], Coroutine[Any, Any, None]]") -> None:
        """Move to a stage without an assignment, and do ``work`` in place of what this partition does now."""
        task = self._task
        if task is not None:
            task.cancel()
        self._let_go(to, reason)
        self._spawn(self._run_after(task, work))

    @staticmethod
    async def _run_after(task: "asyncio.Task[None] | None", work: "Callable[[], Coroutine[Any, Any, None]]") -> None:
        if task is not None:
            await asyncio.wait([task])
        await work()

    def stop(self, error: LogStopped) -> None:
        """Stop this log, also while subscribing, and close its consumer; the others continue."""
        if self.over:
            return
        self._host.cluster.completion.assembly.forget(self.consumer.consumer_id)
        self._end(Stage.STOPPED, str(error), str(error))
        self._host.stopped(self, error)

    # --- where to begin

    async def resolve(self, assignment: Assignment, coverage: Coverage) -> First | None:
        """Return the first position of an unknown log, or the gap of a known one. Raises LogStopped."""
        if self.assignment is not assignment or self.stage is not Stage.ASSIGNED:
            return None
        if coverage.start(self.log) is not None:
            return await self._resolve_known(coverage)
        began, progress = await self._resolve_unknown(assignment)
        if began is None:
            return None
        self.began = began
        return First(self.index, Span(self.log, began, began, 0), progress)

    async def _resolve_known(self, coverage: Coverage) -> First | None:
        end = coverage.end(self.log)
        if end is not None and self._behind(end):
            # Another reader may have landed more since the broker was asked.
            try:
                await self._ask_last()
            except FastwireError as exc:
                self.error = str(exc)
                self._offer_again()
                return None
            if self._behind(end):
                at, last = POSITIONS.format(end), POSITIONS.format(self.last or PULSAR_EARLIEST)
                raise LogStopped(
                    f"{self.log}: {at} has landed, but the broker's last position is {last}: the topic was deleted "
                    "and made again, or it was truncated; raise source.incarnation to read it as a new log",
                    "lost",
                )
        if self._is_another_log and end is not None:
            raise LogStopped(
                f"{self.log}: the broker has another entry at {POSITIONS.format(end)} than the one that has landed: "
                "its metadata was restored or lost, and ledger ids were given again; raise source.incarnation to read "
                "it as a new log",
                "lost",
            )
        if not self.consumer.ordered:
            return None
        landed = landed_of(coverage, self.log, self.cursor, ordered=True)
        staged = self._host.slots.staged_position(self.consumer.consumer_id)
        base = max(landed.floor, staged)
        if self.cursor is None or not declared_gap(base, self.cursor):
            return None
        gap = Gap(self.cursor, "the broker's cursor stands here: skipped, expired, or acknowledged by another consumer")
        return First(self.index, Span(self.log, base, base, 0, gap))

    def _behind(self, end: Position) -> bool:
        """Return True if the broker's log ends before what has landed; False if the broker does not report its end."""
        return self.last is not None and self.last.a >= 0 and self.last < end

    async def _resolve_unknown(self, assignment: Assignment) -> tuple[Position | None, bool]:
        cursor = self.cursor
        if cursor is not None and cursor.b >= 0:
            return cursor, True
        at = self._host.start_of(self)
        if at == "earliest" or at == PULSAR_EARLIEST:
            return PULSAR_EARLIEST, False
        if isinstance(at, Position) and self.last is not None and at > self.last:
            raise LogStopped(
                f"{self.log}: the start {POSITIONS.format(at)} lies beyond the last position "
                f"{POSITIONS.format(self.last)}",
                "start",
            )
        if not await self._seek(at) or self.assignment is not assignment:
            return None, False
        began = self.cursor
        if isinstance(at, Position):
            # The entry itself is redelivered and dropped. An entry that retention has deleted meanwhile cannot come.
            began = at if began is None else max(at, began)
        elif at == "latest" and began is None:
            began = self.last
        # Without a reported cursor nothing is dropped as a duplicate: only entries behind the seek arrive.
        return (PULSAR_EARLIEST if began is None else began), False

    async def _seek(self, at: StartAt) -> bool:
        """Move the cursor; the broker closes the consumer for that, so subscribe again. False: try another time."""
        link, consumer_id = self.link, self.consumer.consumer_id
        if link is None:
            return False
        self.move(Stage.SEEKING)
        sought = False
        try:
            await link.ask(lambda connection, now: seek(connection, consumer_id, at, now))
            self.consumer.acks.forget()
            await self._withdraw()  # the broker may have kept the consumer open
            await self._attempt()
            if not self.consumer.active:
                async with asyncio.timeout(ACTIVE_WITHIN_S):
                    await self._active.wait()
            ready = self.consumer.phase is Phase.READY and self.consumer.active
            sought = ready and self.stage is Stage.SEEKING
        except (FastwireError, TimeoutError) as exc:
            log.warning("cannot move the cursor, retrying", topic=str(self.log), error=str(exc))
            self.error = str(exc)
        finally:
            if sought:
                self.move(Stage.ASSIGNED)
            else:
                self._offer_again()
        return sought

    def unresolved(self, error: FastwireError) -> None:
        """Subscribe again for another assignment: something could not be asked that decides about this one."""
        log.warning("cannot find where to end, retrying", topic=str(self.log), error=str(error))
        self.error = str(error)
        self._offer_again()

    def _offer_again(self) -> None:
        """Release an assignment before it was granted, and subscribe again for another one."""
        if self.assignment is not None:
            self.move(Stage.CONNECTING)
            self._spawn(self._rejoin(self._backoff.next()))

    def grant(self, assignment: Assignment, coverage: Coverage) -> bool:
        """Request records, if ``assignment`` is still in force."""
        if self.assignment is not assignment or self.stage is not Stage.ASSIGNED:
            return False
        if not self.consumer.active:
            self._retire()
            return False
        self.move(Stage.READING)
        if self._host.follows_group:
            self._forget_staged()  # a program's Coverage has no part of an earlier assignment that is not acknowledged
        landed = self.landed(coverage)
        if not self.consumer.ordered and landed is not None:
            self._host.slots.set_landed_runs(self.consumer.consumer_id, landed.runs)
            self._host.slots.set_ahead(self.consumer.consumer_id, landed.across)
        self._give_up_landed(coverage)
        self.until = self._host.end_of(self, coverage)
        if self.until is not None:
            self._host.slots.end_at(self.consumer.consumer_id, self.until)
        self.consumer.hold(self._host.holding or self.ended)
        self.consumer.permits.window = self._host.most_permits
        self.consumer.grant()
        return True

    def _give_up_landed(self, coverage: Coverage) -> None:
        """Give up the held parts of messages that another reader has landed while this consumer did not read."""
        held = self._host.cluster.completion.assembly
        self.give_up(held.landed(self.consumer.consumer_id, lambda position: coverage.covers(self.log, position)))

    def give_up(self, torn: Sequence[Torn]) -> None:
        """Make dead letters of parts of chunked messages that can never be completed."""
        if torn and self.link is not None:
            self.link.give_up(torn)

    def give_back(self, positions: Iterable[Position]) -> None:
        """Let the broker deliver these entries again, to this consumer of a shared subscription or to another one."""
        runs = [(at.a, at.b, at.b) for at in positions]
        self._host.slots.release_runs(self.consumer.consumer_id, runs)
        self.consumer.redeliver(runs, self._loop.time())
        if self.link is not None:
            self.link.flush()

    def landed(self, coverage: Coverage) -> Landed | None:
        """Drop and acknowledge the entries of ``coverage``, which have landed, when they come again."""
        landed = self._landed(coverage)
        if landed is None:
            return None
        slots, consumer_id = self._host.slots, self.consumer.consumer_id
        if self.consumer.ordered:
            slots.set_landed(consumer_id, landed.floor)
            slots.set_ahead(consumer_id, landed.above)
            self.consumer.landed(landed.floor, (), self._loop.time())
            return landed
        # This runs first: the slot forgets entries below a new floor.
        runs = newly_landed(slots.entry_runs(consumer_id), coverage, self.log)
        slots.set_landed_runs(consumer_id, runs)
        slots.set_landed(consumer_id, landed.floor)
        self.consumer.landed(None, runs, self._loop.time())
        return landed

    def _landed(self, coverage: Coverage) -> Landed | None:
        if coverage.start(self.log) is not None:
            return landed_of(coverage, self.log, self.cursor, ordered=self.consumer.ordered)
        return None if self.began is None else Landed(self.began, ())

    async def leave(self) -> None:
        """Close the consumer at the broker."""
        await self._close()

    async def ask_cursor(self) -> Position | None:
        """Return the broker's cursor; None if it does not report one."""
        if self.link is None or self.consumer.phase is not Phase.READY or self._busy:
            return None
        await self._ask_last()
        return self.cursor
