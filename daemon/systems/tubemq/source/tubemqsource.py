"""Source of TubeMQ topics for one pipeline: a member of a group.

The dataset is the cursor: a registration names the offset where Coverage ends. The group's offset at the Broker follows
the dataset.
"""

import asyncio
import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from fastwire.coverage import Coverage
from fastwire.errors import FastwireError
from fastwire.position import Log, Position
from fastwire.tubemq.format.error import BrokerError, Code, Remedy, remedy_of
from fastwire.tubemq.format.text import BrokerPartition
from fastwire.tubemq.groups.client_membership import ClientMembership
from fastwire.tubemq.groups.master import Change
from fastwire.tubemq.groups.membership import Membership
from fastwire.tubemq.position import ENTRY_BYTES, POSITIONS
from fastwire.tubemq.reading.fetched import CorruptMessage, Fetched, ResponseTooLargeError
from fastwire.tubemq.reading.flow import Pace
from fastwire.tubemq.reading.slot import SlotTable
from fastwire.wire.pool import Pool

from ....net.endpoint import LinkLost
from ....runtime.budget import Level
from ....runtime.logs import get_logger
from ....runtime.metrics import PipelineMetrics
from ...reading.clustered import ClusteredSource
from ...reading.stage import Stage
from ...source import Assignment, First, LogStopped, SourceEvents, SourceFailed, StopReason, unnamed_partitions
from ..cluster import Cluster
from ..inventory import count_partitions
from ..link import Link, RefusedError
from .commits import Commits
from .firstposition import FirstPositions
from .gets import Gets
from .heads import Heads
from .heartbeats import Heartbeats
from .lag import FetchedLag
from .listing import Listing
from .member import AnyMember, Member, NodeMember
from .partition import Partition
from .registrations import Registrations
from .settings import TubeMQSettings

REGISTER_TRIES = 5
AGAIN_S = 1.0
MOVED_S = 10.0  # within which a position that is moved again is registered after a pause
GOODBYE_S = 5.0  # the longest wait for Brokers at the end


log = get_logger("source")


class TubeMQSource(ClusteredSource[Cluster, Link, Partition]):
    """The Source of one pipeline (``systems.source``). ``events`` is the pipeline."""

    system = "tubemq"

    def __init__(
        self,
        settings: TubeMQSettings,
        events: SourceEvents,
        pool: Pool,
        *,
        metrics: PipelineMetrics | None = None,
        patient: bool = True,
        on_progress: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(events, metrics)
        self.patient = patient
        self.settings = settings
        self.slots = SlotTable()
        self.cluster = Cluster(settings, self.slots, pool, self)
        self._on_progress = on_progress
        self._member: AnyMember[Any]
        if settings.node is None:
            self._member = Member(Membership(settings.membership()), self.cluster, self._perform, self._refuse)
        else:
            node = ClientMembership(settings.node_membership(*settings.node))
            self._member = NodeMember(node, self.cluster, self._perform, self._refuse)
        self._member.membership.logs_in_again = patient
        self._registrations = Registrations(settings, self.cluster, self._member.membership.token.for_broker)
        self._first_positions = FirstPositions(settings, self._registrations, self.slots)
        self._gets = Gets(self, self._registrations)
        self._commits = Commits(self, self._registrations, self._tasks, self._ask_on)
        self._heartbeats = Heartbeats(
            self, self._registrations, self._member.membership, self._tasks, self._registration_ended
        )
        self._heads = Heads(self, self._member.expected)
        self._listing = Listing(self, self._member.denied)
        self._stats = FetchedLag(self, metrics, settings.lag_poll_s)
        self._by_key: dict[str, Partition] = {}
        self._coverage = Coverage()
        self._changed = asyncio.Event()  # Coverage, a connection, or what was received

    # --- the contract

    async def start(self, coverage: Coverage) -> None:
        """See ``Source.start``. The partitions of this member follow, as the balance assigns them."""
        self._coverage = coverage
        self._tick()
        if self._first_positions.learn(coverage) or not self.patient:
            # Before the group is there: partitions that come later are read from their beginning.
            named = self.settings.start.kind == "positions"
            listed = self._listing.if_allowed("start is not compared with them") if named else self._listing.all()
            self._first_positions.present = await listed
            unnamed = self._first_positions.unnamed(self._first_positions.present)
            if named and unnamed:
                raise unnamed_partitions(str(self.settings.url), unnamed)
        self._tasks.run(self._member.run(), "group")
        self._tasks.run(self._member.perform(), "assignments")
        await self._member.registered.wait()

    async def describe(self) -> tuple[list[tuple[str, int]], list[str]]:
        """Ask the Master for the number of partitions of each topic; reads nothing, and joins no group.

        The second list is empty: Brokers are not asked. Raises FastwireError for a topic without partitions.
        """
        self._tick()
        return await count_partitions(self.cluster, self.settings, self.settings.topics), []

    async def _resolve(self, assignment: Assignment, coverage: Coverage) -> First | None:
        partition = self.partitions[assignment.index]
        if partition.assignment is not assignment:
            return None  # the lock may be held for the next one
        async with partition.lock:
            if partition.assignment is not assignment or partition.granted:
                return None
            try:
                first = await self._first_positions.resolve(partition, coverage)
            except LogStopped as exc:
                if partition.assignment is assignment:
                    self._stop(partition, str(exc).removeprefix(f"{partition.log}: "), exc.reason)
                return None
            except FastwireError as exc:
                if partition.assignment is assignment:
                    self._unregistered(partition, exc)
                return None
        if partition.assignment is not assignment:
            return None  # it was revoked meanwhile
        if partition.link is None:
            self._unregistered(partition, LinkLost("the connection was lost behind the registration"))
            return None
        partition.tries = 0
        return first

    def _unregistered(self, partition: Partition, error: FastwireError) -> None:
        """Try a registration again soon, unless the partition is lost or the Broker has not been there for long."""
        partition.tries += 1
        owned = isinstance(error, BrokerError) and error.remedy in (Remedy.LEAVE, Remedy.CREDENTIALS)
        if owned or partition.tries >= REGISTER_TRIES:
            partition.tries = 0
            self._lose(partition, str(error))
            return
        self._again(partition, error)

    def _again(self, partition: Partition, error: FastwireError) -> None:
        """Offer the partition again after a pause."""
        partition.error = str(error)
        partition.again_at = self._loop.time() + AGAIN_S
        partition.move(Stage.PENDING)

    def grant(self, assignments: Iterable[Assignment], coverage: Coverage) -> None:
        """See ``Source.grant``."""
        self._coverage = coverage
        for assignment in assignments:
            partition = self.partitions[assignment.index]
            if partition.assignment is assignment and not partition.granted:
                partition.move(Stage.READING)
                partition.session += 1
                partition.error = ""
                partition.committing = partition.at_end = partition.dirty = partition.held = False
                partition.confirmed_at = self._loop.time()
                partition.pace = Pace(partition.pace.filtered)
                witness = coverage.witness(partition.log)
                at = partition.position(coverage)
                partition.end_at(self._first_positions.ends.until(partition.log, coverage), at)
                self.slots.attach(partition.index, at, partition.session, witness)
        self._ask_on()

    def landed(self, coverage: Coverage, indexes: Collection[int] | None = None) -> None:
        """See ``Source.landed``."""
        self._coverage = coverage
        self._changed.set()
        for partition in self._chosen(indexes):
            self._commits.soon(partition)

    def void(self, indexes: Collection[int] | None = None) -> None:
        """See ``Source.void``."""
        for partition in self._cut_off(indexes):
            if partition.granted:
                self.slots.detach(partition.index)
                self._offers.add(partition.offer())
        self._offers.tell()

    @property
    def unreachable_since(self) -> float | None:
        """See ``Source.unreachable_since``; a Master that refuses the login serves as little as one that is away."""
        return super().unreachable_since or self._member.denied_since

    @property
    def unreachable_because(self) -> str:
        """See ``Source.unreachable_because``."""
        return super().unreachable_because or self._member.error

    def position(self, index: int) -> Position | None:
        """See ``Source.position``."""
        return self.slots.position(index) if self.partitions[index].was_granted else None

    async def heads(self) -> Mapping[int, Position]:
        """See ``Source.heads``: the ends of the partitions that are assigned to this member.

        An account for which the Master does not list partitions ends with those that it is assigned.
        """
        present = await self._listing.if_allowed("the end is that of those assigned now")
        return await self._heads.find(present)

    async def unfinished(self, heads: Mapping[int, Position], coverage: Coverage) -> Collection[int]:
        """See ``Source.unfinished``. Stops partitions that no Broker gives."""
        for partition in map(self.partitions.__getitem__, heads):
            if self._heads.is_refused(partition):
                self._stop(partition, f"no Broker gives it: {partition.error}", "refused")
        return [at for at, head in heads.items() if not self._heads.is_finished(self.partitions[at], head, coverage)]

    def is_behind(self, index: int, head: Position) -> bool:
        """See ``UnorderedSource.is_behind``."""
        return self._heads.is_behind(self.partitions[index], head)

    def waiting(self) -> Mapping[int, str]:
        """See ``Source.waiting``."""
        return {one.index: one.error for one in self.partitions if one.stage is Stage.PENDING}

    def stop(self, index: int, why: str) -> None:
        """See ``Source.stop``."""
        self._stop(self.partitions[index], why, "unreadable")

    @property
    def standing_by(self) -> bool:
        """See ``Source.standing_by``."""
        return self._member.standing_by

    def status(self) -> dict[str, Any]:
        """See ``Source.status``."""
        membership = self._member.membership
        return {
            "url": str(self.settings.url),
            "group": self.settings.group,
            "membership": {
                "state": membership.state.value,
                "partitions": len(membership.held),
                "error": self._member.error,
            },
            **super().status(),
        }

    async def _say_goodbye(self) -> None:
        registered = [one for one in self.partitions if one.owner is not None]
        try:
            async with asyncio.timeout(GOODBYE_S):
                await asyncio.gather(*map(self._settle, registered))
                await asyncio.gather(*(self._release(one, self.position(one.index)) for one in registered))
        except TimeoutError:
            log.warning("a Broker did not answer the end of the registrations in time", timeout_s=GOODBYE_S)
        await self._member.leave()

    # --- the balance

    async def _perform(self, change: Change) -> None:
        """Register or give up the partitions of a change (spec: tubemq 9.3, 10)."""
        if change.give_up:
            log.info("partitions revoked", partitions=len(change.give_up))
            await asyncio.gather(*map(self._give_back, change.give_up))
        if change.take:
            log.info("partitions assigned", partitions=len(change.take))
            await asyncio.gather(*map(self._take, change.take))
            self._offers.tell()
            self._heads.shared.set()
        if change.to_end:
            self._jump()

    async def _take(self, place: BrokerPartition) -> None:
        """Register one partition; one that fails is left to a later round."""
        partition = self._known(place)
        partition.ours = True
        if partition.assignment is not None or partition.stage is Stage.PENDING:
            self._member.took(place)  # it is held, and the Master has not known
            return
        partition.place = place
        async with partition.lock:
            for left in range(REGISTER_TRIES - 1, -1, -1):
                try:
                    await self._first_positions.look_up(partition, self._coverage)
                    break
                except FastwireError as exc:
                    partition.error = str(exc)
                    log.info("a Broker does not give a partition", partition=str(place), error=str(exc))
                    owned = isinstance(exc, BrokerError) and exc.remedy in (Remedy.LEAVE, Remedy.CREDENTIALS)
                    if owned or not left:
                        partition.lost_at = min(partition.lost_at, self._loop.time())
                        self._member.refused(place)
                        return
                    await asyncio.sleep(AGAIN_S)
        partition.error = ""
        partition.lost_at = math.inf
        self._member.took(place)
        if not partition.over:
            self._offers.add(partition.offer())

    def _known(self, place: BrokerPartition) -> Partition:
        partition = self._by_key.get(place.key)
        if partition is None:
            types = self.settings.filters.get(place.topic, ())
            name = Log("tubemq", self.settings.cluster, place.topic, place.name, self.settings.incarnation(place.topic))
            index = self.slots.add(name, types)
            partition = self._by_key[place.key] = Partition(index, name, place, Pace(bool(types)))
            self.logs.append(name)
            self.partitions.append(partition)
        return partition

    async def _give_back(self, place: BrokerPartition) -> None:
        """Give up a partition after its received messages have landed."""
        partition = self._by_key.get(place.key)
        if partition is not None:
            partition.ours = False
            partition.leaving = True
            try:
                await self._settle(partition)
                received = self.position(partition.index) if partition.granted else None
                self._revoke(partition, "no longer assigned to this member of the group")
                await self._until_landed(partition, received)
                async with partition.lock:
                    await self._release(partition, received)
            finally:
                partition.leaving = False
        self._member.membership.gave_up([place])

    async def _settle(self, partition: Partition) -> None:
        """Wait until no GET of a partition is in flight: a COMMIT behind it would confirm what it brings."""
        while partition.in_flight and partition.link is not None and partition.link.ready:
            await self._change()

    async def _until_landed(self, partition: Partition, received: Position | None) -> None:
        try:
            async with asyncio.timeout(self.settings.release_s):
                while received is not None and self._coverage.end(partition.log) != received:
                    await self._change()
        except TimeoutError:
            log.warning("a partition is given away before it has landed", partition=str(partition.log))

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    async def _release(self, partition: Partition, received: Position | None) -> None:
        """Leave the Broker the position that has landed, and end the registration."""
        at = self._coverage.end(partition.log)
        try:
            known = self.settings.keeps_offsets and partition.registered
            if known and at is not None and not await self._commits.last(partition, at == received):
                await self._registrations.register(partition, at.a)
            await self._registrations.unregister(partition)
        except FastwireError as exc:
            log.info("a partition was not unregistered", partition=str(partition.place), error=str(exc))

    def _jump(self) -> None:
        """Go on at the end of each partition, as an operator asks; the dataset declares what is left out."""
        for partition in self.partitions:
            if partition.granted:
                self._first_positions.jump(partition)
                self._reconsider(partition, "an operator asks to go on at the end")

    @property
    def coverage(self) -> Coverage:
        """The positions that have landed."""
        return self._coverage

    def _revoke(self, partition: Partition, reason: str) -> None:
        """Stop reading a partition; messages that were received are committed at once."""
        self.cluster.hand_on()
        assignment = partition.assignment
        granted = partition.granted
        if granted:
            self.slots.detach(partition.index)
        if not partition.over:
            partition.move(Stage.IDLE)
        if assignment is not None and not self._offers.withdraw(assignment) and granted:
            self._offers.revoke(partition.index, reason)

    def _lose(self, partition: Partition, reason: str) -> None:
        """Drop a partition that the Broker does not give any more, and report it to the Master."""
        log.warning("partition lost", topic=str(partition.log), reason=reason)
        partition.error = reason
        partition.lost_at = self._loop.time()
        partition.registered = False
        self._revoke(partition, reason)
        self._member.lost([partition.place])

    def _registration_ended(self, place: BrokerPartition) -> None:
        self._lose(self._by_key[place.key], "the Broker has ended the registration")

    def _stop(self, partition: Partition, why: str, reason: StopReason) -> None:
        """Stop this log; the others continue."""
        if partition.over:
            return
        self._revoke(partition, why)
        partition.error = why
        partition.move(Stage.STOPPED)
        self._offers.tell_revoked()
        self.events.on_stopped(partition.index, LogStopped(f"{partition.log}: {why}", reason))

    def _reconsider(self, partition: Partition, reason: str) -> None:
        """Release the log and assign it again: its position is looked for anew."""
        log.warning("looking at the log again", topic=str(partition.log), reason=reason)
        self._revoke(partition, reason)
        self._offers.add(partition.offer())
        self._offers.tell()

    def went_on(self, partition: Partition, offset: int) -> None:
        """Read on where messages have landed: the Broker's position is at ``offset``, which may leave out some."""
        reason = (
            f"the Broker goes on at {offset}, which is not where it has ended: an administrator may have moved the "
            "group's offset. Reading goes on behind what has landed"
        )
        now = self._loop.time()
        if now - partition.moved_at < MOVED_S:  # a Broker that does so again and again is not asked without a pause
            self._revoke(partition, reason)
            self._again(partition, FastwireError(reason))
        else:
            self._reconsider(partition, reason)
        partition.moved_at = now

    def is_for_good(self, error: FastwireError) -> bool:
        """See ``ClusteredSource.is_for_good``."""
        return isinstance(error, BrokerError) and error.remedy in (Remedy.FATAL, Remedy.CREDENTIALS)

    def is_of_login(self, error: FastwireError) -> bool:
        """See ``ClusteredSource.is_of_login``."""
        return isinstance(error, BrokerError) and error.remedy is Remedy.CREDENTIALS

    def _refuse(self, error: FastwireError) -> None:
        self.refused(SourceFailed(f"{self.settings.url}: {error}"))

    # --- GETs

    @property
    def holding(self) -> bool:
        """True while no more messages may be requested."""
        return self.level is not Level.FREE or self._full

    def _answering(self) -> Collection[Link]:
        return {link for link in self.cluster.links.values() if link.connection.awaiting}

    def _carries_records(self, link: Link) -> bool:
        return link.fetches

    @property
    def asking(self) -> bool:
        """True while messages may be requested."""
        return not (self.holding or self._closing)

    def _ask_on(self) -> None:
        self._gets.send_due()

    def set_paused(self, index: int, *, paused: bool) -> None:
        """See ``LimitedSource.set_paused``."""
        partition = self.partitions[index]
        partition.paused = paused
        if not paused and partition.granted:
            self._gets.plan(partition)

    def on_fetched(self, link: Link, fetched: Fetched) -> None:
        """Handle the end of a GET response (spec: tubemq 11.2, 15)."""
        partition = self.partitions[fetched.index]
        self._arrived(link, partition)
        if fetched.code in (Code.SUCCESS, Code.NOT_FOUND) and not fetched.at_end:
            partition.dirty = True
        if self._closing or not partition.granted or partition.session != fetched.session:
            return
        if fetched.replaced:
            remedy = self._first_positions.remedy(partition)
            other = f"the Broker holds other messages than those that have landed: {remedy}"
            self._stop(partition, other, "lost")
            return
        if fetched.moved:
            self.went_on(partition, fetched.offset)
            return
        if fetched.at_end and self.slots.owes(fetched.index):
            at, remedy = POSITIONS.format(self.slots.position(fetched.index)), self._first_positions.remedy(partition)
            self._stop(partition, f"{at} has landed, but the Broker's log ends before: {remedy}", "lost")
            return
        if remedy_of(fetched.code) in (Remedy.REGISTER, Remedy.DROP, Remedy.CREDENTIALS, Remedy.LEAVE):
            self._lose(partition, str(BrokerError(fetched.code, fetched.text)))
            return
        if remedy_of(fetched.code) is Remedy.WAIT:
            self._release_unsure(partition, BrokerError(fetched.code, fetched.text))
            return
        membership = self._member.membership
        now = self._loop.time()
        partition.pace.answered(fetched, now, time.time(), membership.group_rules, membership.cluster_rules)
        if fetched.code == Code.SUCCESS:
            partition.read_at, partition.end = fetched.offset, fetched.max_offset
            partition.lag_bytes = fetched.lag_bytes
            partition.backlog = max(0, (fetched.max_offset - fetched.offset) // ENTRY_BYTES - fetched.messages)
        elif fetched.at_end:
            partition.lag_bytes = partition.backlog = 0
        partition.at_end = fetched.at_end
        partition.look_at_end()
        fine = fetched.code in (Code.SUCCESS, Code.NOT_FOUND)
        partition.error = "" if fine else str(BrokerError(fetched.code, fetched.text))
        if partition.at_end:
            self._commits.soon(partition)
        self._gets.plan(partition)
        self._gets.send_queued(link)
        self._on_progress()

    def _arrived(self, link: Link, partition: Partition) -> None:
        """Note the end of a GET."""
        if partition.link is link:
            partition.in_flight = False
        self._changed.set()

    def on_fetch_refused(self, link: Link, index: int, session: int, error: RefusedError) -> None:
        """Register the partition again after an exception of the Broker."""
        partition = self.partitions[index]
        self._arrived(link, partition)
        if partition.granted and partition.session == session and not self._closing:
            self._release_unsure(partition, error)

    def _release_unsure(self, partition: Partition, error: FastwireError) -> None:
        """Register a partition again after a pause: the Broker may have read messages before it failed."""
        self._revoke(partition, f"the Broker has failed to answer a GET: {error}")
        self._again(partition, error)

    def on_corrupt(self, message: CorruptMessage) -> None:
        """Stop the log of a message that cannot be decoded and may not become a dead letter."""
        at = POSITIONS.format(message.position)
        self._stop(
            self.partitions[message.index],
            f"the message at {at} cannot be decoded ({message.reason}: {message.detail})",
            "undecodable",
        )

    # --- connections and time

    def on_lost(self, link: Link, reason: Exception | None) -> None:
        """See ``ClusteredSource.on_lost``. A response that never fits into the memory stops its partition."""
        for partition in self.partitions:
            if partition.link is link:
                partition.link = None
                partition.in_flight = partition.queued = False
        self._changed.set()
        super().on_lost(link, reason)
        if isinstance(reason, ResponseTooLargeError) and not self._closing:
            self._stop(self.partitions[reason.index], str(reason), "unreadable")

    def _left(self, link: Link) -> None:
        for partition in self.partitions:
            if partition.link is None and partition.assignment is not None and not partition.lock.locked():
                self._reconsider(partition, "the connection was lost, and the Broker has moved its position")

    def _look(self, now: float) -> None:
        for partition in self.partitions:
            if partition.stage is Stage.PENDING and now >= partition.again_at:
                self._offers.add(partition.offer())
        self._offers.tell()
        self._stats.look(now)
        self._commits.look(now)
        self._steer()  # answers may be awaited behind messages
        self._heartbeats.look(now)
