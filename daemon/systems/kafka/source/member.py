"""Group member: reads its assigned partitions, and commits before it releases them.

One loop talks to the coordinator, on a connection of its own, so heartbeats wait neither for records nor for a sink.
What could not be committed in time is read again by the next owner and deduplicated by the dataset's Coverage: exactly
once rests on that, and not on the group.
"""

import asyncio
import base64
import contextlib
import uuid
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from fastwire.coverage import Coverage
from fastwire.errors import FastwireError
from fastwire.kafka.format.error import RETRY, BrokerError, Code
from fastwire.kafka.format.message import Body
from fastwire.kafka.groups.membership import (
    Ask,
    Assign,
    ClassicMembership,
    ConsumerMembership,
    Elsewhere,
    Event,
    Lead,
    Lost,
    Membership,
    Revoke,
)
from fastwire.kafka.protocol.connection import Key
from fastwire.kafka.protocol.metadata import NO_ID

from ....net.backoff import Backoff
from ....runtime.logs import get_logger
from ....runtime.tasks import wait_for_set
from ...reading.topics import MISSING_S
from ..cluster import Cluster
from ..link import Link
from ..refusal import explained, may_be_taken_back
from .group import COMMIT_S, Alone, Group, Reader
from .partition import Partition
from .settings import KafkaSettings
from .topics import KafkaTopics

RELEASE = 0.8  # of the rebalance timeout: the longest wait for a commit before partitions are released without it
UNKNOWN_S = 1.0  # between two requests for assigned partitions that the metadata do not have
NAME_S = 1.0  # the longest wait for the name of a member that leaves
MOST_S = 5.0  # between two attempts: a session expires soon
# Errors of a coordinator that has the new protocol, but not for this group.
_NOT_SPOKEN = frozenset({Code.UNSUPPORTED_VERSION, Code.INCONSISTENT_GROUP_PROTOCOL, Code.GROUP_ID_NOT_FOUND})
_ELSEWHERE = frozenset({Code.COORDINATOR_NOT_AVAILABLE, Code.NOT_COORDINATOR})

log = get_logger("source")


def group_of(reader: Reader, topics: KafkaTopics, settings: KafkaSettings, cluster: Cluster) -> Alone:
    """Return a group member, a group that only stores offsets (``group_protocol`` none), or none without ``group``."""
    if not settings.group:
        return Alone(reader)
    if settings.protocol == "none":
        return Group(reader, settings, cluster)
    return GroupMember(reader, topics, settings, cluster)


class GroupMember(Group):
    """Runs ``fastwire.kafka.groups.membership`` for a reader."""

    def __init__(self, reader: Reader, topics: KafkaTopics, settings: KafkaSettings, cluster: Cluster) -> None:
        super().__init__(reader, settings, cluster)
        self._topics = topics
        self._loop = asyncio.get_running_loop()
        self._member: Membership[Any] | None = None  # None until a broker has reported its API versions
        self._link: Link | None = None  # to the coordinator
        self._question: tuple[Ask, asyncio.Future[Body]] | None = None  # whose answer is not handled yet
        self._coverage = Coverage()
        self._places: dict[tuple[Any, int], Partition] = {}
        self._looked_at: tuple[Membership[Any] | None, int] = None, 0
        self._releasing: dict[Partition, int] = {}  # the offset that has to land before the partition is released
        self._release_by = 0.0
        self._commit_at = 0.0
        self._events: deque[Event[Any]] = deque()  # events from the coordinator that are not handled yet
        self._doubting_since: float | None = None  # since when topics of a led group are missing
        self._changed = False  # topics
        self._was_in = False

    async def run(self) -> None:
        """Take part in the group until cancelled."""
        backoff = Backoff(most_s=MOST_S)
        while True:
            try:
                served = await self._turn()
            except FastwireError as exc:
                if self._falls_back(exc):
                    log.info("the group does not speak the consumer protocol: classic", reason=str(exc))
                    self._member, self._changed = ClassicMembership(self._settings.membership), True
                    self._events.clear()
                    continue
                if self._reader.is_fatal(exc) and not (self._was_in and may_be_taken_back(exc)):
                    self._reader.refuse(exc)
                    return
                self._error = explained(exc)
                self._link = None
                await asyncio.sleep(backoff.failed(log, "cannot take part in the group, retrying", self._error))
            else:
                if served:
                    self._error = ""
                    backoff.reset()

    async def _turn(self) -> bool:
        """Do the work that is due; wait if there is none.

        Return True if the coordinator has served this member, so that earlier failures are over. A turn that waits, or
        that only finds the coordinator, says nothing about that.
        """
        self._wake.clear()
        if self._member is None and not self._topics.names:
            self._reader.assign(())  # without topics there is nothing to join for
            await self._wake.wait()
            return True
        if self._link is None or not self._link.ready:
            self._link = await self._coordinator()
        link = self._link
        member = self._member
        if member is None:
            member = self._member = self._choose(link)
            self._changed = True
        if self._events:
            await self._obey(member, ())  # the first of them has failed before
        await self._release(member)
        if self._changed:
            self._changed = False
            # A member that has lost its last topic keeps its name: not every broker accepts a member without topics.
            await self._obey(member, member.topics_changed(self._topics.names or member.topics))
        if self._link is not link:
            return False  # the coordinator is another broker by now
        now = self._loop.time()
        step = member.next(now)
        if isinstance(step, Ask):
            self._question = step, asyncio.ensure_future(link.ask(step.key, step.body, timeout_s=step.timeout_s))
            try:
                answer = await asyncio.shield(self._question[1])
            except FastwireError:
                self._question = None
                member.unanswered()
                raise
            self._question = None
            await self._obey(member, member.answered(step, answer, self._loop.time()))
            return member.may_commit and self._link is link
        if self._landed and member.may_commit and now >= self._commit_at:
            self._commit_at = now + COMMIT_S
            await self._commit_or_tell()
        else:
            await wait_for_set(self._wake, max(min(step, self._next_look(member, now)) - now, 0))
        return False

    def _choose(self, link: Link) -> Membership[Any]:
        protocol, membership = self._settings.protocol, self._settings.membership
        topic_ids = all(partition.topic_id != NO_ID for partition in self._reader.partitions)
        if protocol == "consumer" or (
            protocol == "auto" and topic_ids and link.connection.speaks(Key.CONSUMER_GROUP_HEARTBEAT)
        ):
            return ConsumerMembership(membership, base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("="))
        return ClassicMembership(membership)

    def _falls_back(self, error: FastwireError) -> bool:
        return (
            self._settings.protocol == "auto"
            and isinstance(self._member, ConsumerMembership)
            and isinstance(error, BrokerError)
            and error.code in _NOT_SPOKEN
        )

    def _next_look(self, member: Membership[Any], now: float) -> float:
        times = [float("inf")]
        if self._landed and member.may_commit:
            times.append(self._commit_at)
        if member.releasing:
            times.append(self._release_by)
        if any(self._partition(member, place) is None for place in member.owned):
            times.append(now + UNKNOWN_S)
        return min(times)

    # --- what the coordinator says

    async def _obey(self, member: Membership[Any], events: Sequence[Event[Any]]) -> None:
        """Handle ``events`` after earlier ones; an event that fails is handled again in the next turn."""
        self._events += events
        while self._events:
            await self._deal_with(member, self._events[0])
            self._events.popleft()
        if any(self._partition(member, place) is None for place in member.owned):
            await self._look_for_topics()

    async def _deal_with(self, member: Membership[Any], event: Event[Any]) -> None:
        match event:
            case Assign(places):
                self._was_in = True
                log.info("partitions assigned", partitions=len(places), generation=member.generation)
                self._reader.assign(self._known(member, places))
            case Revoke(places):
                self._give_up(
                    self._known(member, places), "no longer assigned to this member of the group", patient=True
                )
            case Lost(places):
                log.warning(
                    "this member was removed from the group: it missed its heartbeats; it joins again",
                    partitions=len(places),
                )
                self._give_up(self._known(member, places), "this member was removed from the group", patient=False)
            case Lead(topics):
                await self._lead(member, topics)
            case Elsewhere():
                self._link = None

    async def _lead(self, member: Membership[Any], topics: Collection[str]) -> None:
        """Assign the partitions as the leader. No member reads a topic that is left out until the next rebalance."""
        assert isinstance(member, ClassicMembership)
        now = self._loop.time()
        self._doubting_since = now if self._doubting_since is None else self._doubting_since
        await self._topics.ask(topics)
        known = {name: topic for name in topics if (topic := self._cluster.metadata.topics.get(name)) is not None}
        for name, topic in known.items():
            if topic.error in RETRY and now - self._doubting_since < MISSING_S:
                raise BrokerError(topic.error, name)
        self._doubting_since = None
        partitions = {name: len(topic.leaders) for name, topic in known.items() if not topic.error}
        member.lead(partitions, self._cluster.metadata.racks(partitions))

    async def _look_for_topics(self) -> None:
        """Ask for partitions that the group has assigned and the metadata lack."""
        try:
            await self._topics.ask()
        except FastwireError as exc:
            log.debug("cannot ask for the topics", error=str(exc))
        else:
            self._reader.follow_topics()

    def _partition(self, member: Membership[Any], place: tuple[Any, int]) -> Partition | None:
        return self._by_place(member).get(place)

    def _by_place(self, member: Membership[Any]) -> dict[tuple[Any, int], Partition]:
        partitions = self._reader.partitions
        if self._looked_at != (member, len(partitions)):
            self._looked_at = member, len(partitions)
            # The latest incarnation of a topic comes last.
            self._places = {self._place(member, partition): partition for partition in partitions}
        return self._places

    def _known(self, member: Membership[Any], places: Collection[tuple[Any, int]]) -> list[Partition]:
        by_place = self._by_place(member)
        return [by_place[place] for place in sorted(places) if place in by_place]

    @staticmethod
    def _place(member: Membership[Any], partition: Partition) -> tuple[Any, int]:
        return partition.place if isinstance(member, ClassicMembership) else (partition.topic_id, partition.place[1])

    # --- giving away

    def _give_up(self, partitions: Sequence[Partition], reason: str, *, patient: bool) -> None:
        granted = [partition for partition in partitions if partition.granted]
        self._reader.give_up(partitions, reason)
        self._releasing = {}
        for partition in granted:
            at = self._reader.position(partition.index)
            if not patient:
                self._landed.pop(partition, None)
            elif at is not None and partition.position(self._coverage).a < at.a:
                self._releasing[partition] = at.a
        self._release_by = self._loop.time() + self._settings.membership.rebalance_timeout_s * RELEASE

    async def _release(self, member: Membership[Any]) -> None:
        """Release partitions that have landed, or whose time is over."""
        if not member.releasing or (self._releasing and self._loop.time() < self._release_by):
            return
        if self._releasing:
            log.warning("partitions are given away before they have landed", partitions=len(self._releasing))
            self._releasing = {}
        await self._commit_or_tell()
        for partition in self._known(member, member.releasing):
            self._landed.pop(partition, None)
        await self._obey(member, member.released())

    async def _commit_or_tell(self) -> None:
        """Commit if possible; the next owner finds in the dataset positions that the group does not know."""
        if self._landed:
            try:
                await self._commit()
            except FastwireError as exc:
                log.info("offsets were not committed", error=str(exc))
                if isinstance(exc, BrokerError) and exc.code in _ELSEWHERE:
                    self._link = None

    def _may_go_without(self, error: FastwireError) -> bool:
        return False  # a member needs the group's answer

    async def _coordinator(self) -> Link:
        link = self._link
        return link if link is not None and link.ready else await super()._coordinator()

    # --- what the reader says

    def owns(self, partition: Partition) -> bool:
        """Return True if this client reads the partition."""
        member = self._member
        return member is not None and self._place(member, partition) in member.owned - member.releasing

    def _commits(self, partition: Partition) -> bool:
        return self._member is not None and self._place(self._member, partition) in self._member.owned

    def topics_changed(self, added: Sequence[Partition]) -> None:
        """Handle new partitions, or a changed set of topics: the group assigns them."""
        self._changed = True
        self._wake.set()
        ours = [partition for partition in added if self.owns(partition)]
        if ours:
            self._reader.assign(ours)

    def gone(self, partitions: Iterable[Partition]) -> None:
        """Forget partitions whose topics were deleted; their release waits for nothing."""
        super().gone(partitions)
        for partition in partitions:
            self._releasing.pop(partition, None)
        self._wake.set()

    def landed(self, coverage: Coverage, partitions: Iterable[Partition]) -> None:
        """Note that ``coverage`` has landed, which has changed for no other ones than ``partitions``."""
        self._coverage = coverage
        super().landed(coverage, partitions)
        self._releasing = {one: at for one, at in self._releasing.items() if one.position(coverage).a < at}
        self._wake.set()

    def granted(self, partitions: Iterable[Partition], coverage: Coverage) -> None:
        """Note that ``partitions`` are read from now on."""
        self._coverage = coverage
        super().granted(partitions, coverage)

    def void(self, partitions: Iterable[Partition]) -> None:
        """Note that records of ``partitions`` that are being released cannot land any more."""
        for partition in partitions:
            self._releasing.pop(partition, None)
        self._wake.set()

    async def leave(self) -> None:
        """Commit the last offsets and leave the group."""
        await self._get_name()
        self._link = None  # a JoinGroup may be waiting there
        await super().leave()
        ask = None if self._member is None else self._member.leave()
        if ask is None:
            return
        try:
            link = await self._cluster.coordinator(self._settings.group, "ask")
            answer = await link.ask(ask.key, ask.body)
        except FastwireError as exc:
            log.warning("the group was not told that we leave", error=str(exc))
        else:
            log.info("left the group", group=self._settings.group, error=answer["error_code"])

    async def _get_name(self) -> None:
        """Wait for the answer to the first JoinGroup: under the name in it the group would wait for this member."""
        member = self._member
        if self._question is None or member is None:
            return
        ask, answer = self._question
        if member.leave() is None and member.settings.instance is None:
            with contextlib.suppress(FastwireError, TimeoutError):
                member.answered(ask, await asyncio.wait_for(answer, NAME_S), self._loop.time())
        answer.cancel()

    @property
    def standing_by(self) -> bool:
        """True in a group that has no partition for this member."""
        return self._member is not None and self._member.may_commit and not self._member.owned

    def status(self) -> dict[str, Any]:
        """Return the fields of the status page."""
        member = self._member
        if member is None:
            return {"kind": "looking for the coordinator", "error": self._error}
        return {
            "kind": member.kind,
            "member": member.member_id,
            "generation": member.generation,
            "partitions": len(member.owned),
            "giving_away": len(member.releasing),
            "error": self._error,
        }

    def _committing(self) -> Body:
        return {} if self._member is None else self._member.committing
