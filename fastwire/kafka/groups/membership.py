"""Membership in a consumer group: the next request to the coordinator, and the effect of its responses (spec: kafka
12).

Both protocols have one interface. ``next`` returns the next request, or the time at which it is due. ``answered`` takes
the response and returns events. After ``Revoke`` the driver stops reading the partitions, commits their offsets, and
calls ``released``; heartbeats continue meanwhile. ``owned`` are the member's partitions, including those being revoked.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

from fastwire.errors import ProtocolError

from ..format.error import BrokerError, Code
from ..format.message import Body
from ..names import TopicIdPartition, TopicPartition
from ..protocol.connection import Key
from .assignor import COOPERATIVE, Assignor, Racks, assign
from .subscription import (
    PROTOCOL_TYPE,
    Member,
    decode_assignment,
    decode_member,
    encode_assignment,
    encode_subscription,
)

P = TypeVar("P", TopicPartition, TopicIdPartition)

AGAIN_S = 0.2  # delay before the retry of a request that the coordinator could not serve yet
MARGIN_S = 5.0  # added to the rebalance timeout as the timeout of a JoinGroup
BEATS = 3  # least number of heartbeats within a session timeout
BEAT_S = 3.0
LEAST_BEAT_S = 0.05  # lower bound of the coordinator's interval


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """Settings of a group member; times in seconds."""

    group: str
    topics: tuple[str, ...]
    instance: str | None = None
    assignor: Assignor = COOPERATIVE
    session_timeout_s: float = 45.0
    rebalance_timeout_s: float = 60.0
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class Ask:
    """A request to the coordinator."""

    key: int
    body: Body
    timeout_s: float | None = None


@dataclass(frozen=True, slots=True)
class Assign(Generic[P]):
    """Partitions assigned to this member, in addition to those it owns; possibly none."""

    places: Collection[P]


@dataclass(frozen=True, slots=True)
class Revoke(Generic[P]):
    """Partitions to give up: stop reading them, commit their offsets, and call ``released``."""

    places: Collection[P]


@dataclass(frozen=True, slots=True)
class Lost(Generic[P]):
    """Partitions that belong to other members already: stop reading them. Their offsets cannot be committed."""

    places: Collection[P]


@dataclass(frozen=True, slots=True)
class Lead:
    """This member is the group leader: call ``lead`` with the partitions and racks of these topics."""

    topics: Collection[str]


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """The coordinator has moved to another broker: look it up again."""


Event = Assign[P] | Revoke[P] | Lost[P] | Lead | Elsewhere


class Membership(ABC, Generic[P]):
    """The common part of both group protocols."""

    kind: str

    def __init__(self, settings: GroupSettings) -> None:
        self.settings = settings
        self.topics: Sequence[str] = settings.topics
        """Subscribed topics; ``topics_changed`` replaces them."""
        self.member_id = ""
        self.generation = -1
        """Generation, or member epoch."""
        self.owned: frozenset[P] = frozenset()
        self.releasing: frozenset[P] = frozenset()
        """The part of ``owned`` that is being revoked."""
        self._not_before = 0.0
        self._beat_at = 0.0

    @abstractmethod
    def next(self, now: float) -> Ask | float:
        """Return the next request, or the time of the next call."""

    @abstractmethod
    def answered(self, ask: Ask, body: Body, now: float) -> Sequence[Event[P]]:
        """Handle a response. Raises BrokerError if the coordinator refuses the member, and ProtocolError."""

    def unanswered(self) -> None:
        """Handle a lost response: the coordinator may have processed the last request, or not."""

    @abstractmethod
    def released(self) -> Sequence[Event[P]]:
        """Handle the release of the revoked partitions."""

    @abstractmethod
    def topics_changed(self, topics: Sequence[str]) -> Sequence[Event[P]]:
        """Set the subscribed ``topics``, which are new, or whose partitions have changed.

        The driver has released the partitions of dropped topics before.
        """

    @abstractmethod
    def leave(self) -> Ask | None:
        """Return the request that removes this member from the group; None if none is to be sent."""

    @property
    def may_commit(self) -> bool:
        """True if the coordinator accepts offset commits of this member now."""
        return self.generation >= 0

    @property
    def committing(self) -> Body:
        """The member's fields of an OffsetCommit."""
        return {
            "generation_id_or_member_epoch": self.generation,
            "member_id": self.member_id,
            "group_instance_id": self.settings.instance,
        }

    def _lose(self) -> list[Event[P]]:
        lost, self.owned, self.releasing = self.owned, frozenset(), frozenset()
        self.generation = -1
        return [Lost(lost)] if lost else []

    def _revoke(self, places: frozenset[P]) -> list[Event[P]]:
        self.releasing = places
        return [Revoke(places)]

    def _let_go(self) -> None:
        self.owned -= self.releasing
        self.releasing = frozenset()

    def _common(self, code: int, what: str, now: float, said: str | None = None) -> list[Event[P]]:
        """Handle an error that has the same meaning for all requests."""
        self._not_before = now + AGAIN_S
        match code:
            case Code.COORDINATOR_NOT_AVAILABLE | Code.NOT_COORDINATOR:
                return [Elsewhere()]
            case Code.COORDINATOR_LOAD_IN_PROGRESS | Code.REQUEST_TIMED_OUT:
                return []
        raise BrokerError(code, what, said)


class Phase(Enum):
    """The phases of a rebalance, as a member of the classic protocol goes through them."""

    UNJOINED = "unjoined"  # JoinGroup follows, once nothing is being released
    LEADING = "leading"  # joined; the driver is asked for ``lead``
    SYNCING = "syncing"  # SyncGroup follows
    STABLE = "stable"


class ClassicMembership(Membership[TopicPartition]):
    """JoinGroup, SyncGroup, Heartbeat; the group leader assigns the partitions (spec: kafka 12.1)."""

    kind = "classic"

    def __init__(self, settings: GroupSettings) -> None:
        super().__init__(settings)
        self.cooperative = settings.assignor == COOPERATIVE
        self.leader = False
        self._phase = Phase.UNJOINED
        self._members: Sequence[Member] = ()
        self._plan: list[Body] = []
        self._before: frozenset[TopicPartition] = frozenset()  # last assignment, the start of a sticky one
        self._before_in = -1  # its generation
        self._said = self.topics  # topics at the last JoinGroup
        self._questioned = False  # whether the first assignment was checked against an earlier subscription

    @property
    def may_commit(self) -> bool:
        """True between a SyncGroup and the next rebalance."""
        return self._phase is Phase.STABLE

    def next(self, now: float) -> Ask | float:
        """Return the next JoinGroup, SyncGroup or Heartbeat, or the time of the next call."""
        if now < self._not_before:
            return self._not_before
        settings = self.settings
        if self._phase is Phase.UNJOINED and not self.releasing:
            return self._join()
        if self._phase is Phase.SYNCING:
            return Ask(
                Key.SYNC_GROUP,
                {
                    **self._us(),
                    "protocol_type": PROTOCOL_TYPE,
                    "protocol_name": settings.assignor,
                    "assignments": self._plan,
                },
                settings.rebalance_timeout_s + MARGIN_S,
            )
        return self._beat_at if now < self._beat_at else Ask(Key.HEARTBEAT, self._us())

    def _us(self) -> Body:
        return {
            "group_id": self.settings.group,
            "generation_id": self.generation,
            "member_id": self.member_id,
            "group_instance_id": self.settings.instance,
        }

    def _join(self) -> Ask:
        settings = self.settings
        owned, generation = self.owned, self.generation
        if settings.assignor == "sticky" and self._before:
            owned, generation = self._before, self._before_in
        self._said = self.topics
        metadata = encode_subscription(settings.assignor, self.topics, owned, generation, settings.rack)
        body = {
            "group_id": settings.group,
            "session_timeout_ms": round(settings.session_timeout_s * 1000),
            "rebalance_timeout_ms": round(settings.rebalance_timeout_s * 1000),
            "member_id": self.member_id,
            "group_instance_id": settings.instance,
            "protocol_type": PROTOCOL_TYPE,
            "protocols": [{"name": settings.assignor, "metadata": metadata}],
        }
        return Ask(Key.JOIN_GROUP, body, settings.rebalance_timeout_s + MARGIN_S)

    def answered(self, ask: Ask, body: Body, now: float) -> Sequence[Event[TopicPartition]]:
        """Handle a response; ``ask`` is its request."""
        code = body["error_code"]
        if ask.key == Key.JOIN_GROUP:
            return self._was_joined(code, body, now)
        if ask.key == Key.SYNC_GROUP:
            return self._was_synced(code, body, now)
        if code == Code.NONE:
            self._beat(now)
            return ()
        if code == Code.REBALANCE_IN_PROGRESS:
            self._beat(now)
            return () if self.releasing else self._rejoin()
        return self._expelled(code, "Heartbeat", now)

    def _beat(self, now: float) -> None:
        self._beat_at = now + min(BEAT_S, self.settings.session_timeout_s / BEATS)

    def _expelled(self, code: int, what: str, now: float) -> list[Event[TopicPartition]]:
        """Handle an error that may mean that the coordinator has removed this member."""
        if code not in (Code.UNKNOWN_MEMBER_ID, Code.ILLEGAL_GENERATION):
            return self._common(code, what, now)
        if code == Code.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        self._phase = Phase.UNJOINED
        return self._lose()

    def _was_joined(self, code: int, body: Body, now: float) -> list[Event[TopicPartition]]:
        if code == Code.MEMBER_ID_REQUIRED:
            self.member_id = body["member_id"]
            return []
        if code == Code.REBALANCE_IN_PROGRESS:
            self._not_before = now + AGAIN_S
            return []
        if code:
            return self._expelled(code, "JoinGroup", now)
        if body["generation_id"] < 0:
            raise ProtocolError("generation_id", detail=f"is {body['generation_id']} in an answer without an error")
        if body["protocol_name"] != self.settings.assignor:
            raise BrokerError(Code.INCONSISTENT_GROUP_PROTOCOL, "JoinGroup", f"{body['protocol_name']} was chosen")
        self.generation = body["generation_id"]
        self.member_id = body["member_id"]
        self._plan = []
        self._beat(now)
        self.leader = body["leader"] == self.member_id
        if not self.leader or body.get("skip_assignment"):
            self._phase = Phase.SYNCING
            return []
        self._phase = Phase.LEADING
        self._members = [decode_member(self.settings.assignor, one) for one in body["members"]]
        return [Lead(frozenset[str]().union(*(one.topics for one in self._members)))]

    def lead(self, partitions: Mapping[str, int], racks: Racks | None = None) -> None:
        """Assign the partitions: the number of partitions by topic, and the racks of their replicas."""
        shares = assign(self.settings.assignor, self._members, partitions, racks)
        self._plan = [
            {"member_id": member, "assignment": encode_assignment(places)} for member, places in shares.items()
        ]
        self._members = ()
        if self._phase is Phase.LEADING:
            self._phase = Phase.SYNCING

    def _was_synced(self, code: int, body: Body, now: float) -> list[Event[TopicPartition]]:
        if code == Code.REBALANCE_IN_PROGRESS:
            self._phase = Phase.UNJOINED
            return []
        if code:
            return self._expelled(code, "SyncGroup", now)
        assigned = decode_assignment(body["assignment"])
        if self._said != self.topics or self._is_of_former_life({topic for topic, _ in assigned}):
            self._phase, self._not_before = Phase.UNJOINED, now + AGAIN_S
            return []
        self._beat(now)
        self._phase = Phase.STABLE
        self._before, self._before_in = assigned, self.generation
        gone = self.owned - assigned
        added = assigned - self.owned
        self.owned |= assigned
        events: list[Event[TopicPartition]] = [Assign(added)]
        return [*self._revoke(gone), *events] if gone else events

    def _is_of_former_life(self, topics: set[str]) -> bool:
        """Return True if the assignment may stem from an earlier subscription of this static member.

        The coordinator returns the old assignment to a static member that comes back, without a rebalance. A second
        JoinGroup, with the known generation, triggers one.
        """
        wanted = set(self.topics)
        first = self.settings.instance is not None and not self._questioned
        self._questioned = True
        return not topics <= wanted or (first and topics != wanted)

    def _rejoin(self) -> list[Event[TopicPartition]]:
        if not self.cooperative and self.owned:
            return self._revoke(self.owned)
        self._phase = Phase.UNJOINED
        return []

    def released(self) -> Sequence[Event[TopicPartition]]:
        """Join again, so that the next round assigns the released partitions to other members."""
        self._let_go()
        self._phase = Phase.UNJOINED
        return ()

    def topics_changed(self, topics: Sequence[str]) -> Sequence[Event[TopicPartition]]:
        """Join again if the topics are others, or if this member is the leader, which alone knows of new partitions."""
        others = set(topics) != set(self.topics)
        if others:
            self.topics = topics
            self.owned = frozenset(place for place in self.owned if place[0] in topics)
        news = others or self.leader
        return self._rejoin() if news and self._phase is Phase.STABLE and not self.releasing else ()

    def leave(self) -> Ask | None:
        """Return LeaveGroup; None for a static member or before the first join."""
        if not self.member_id or self.settings.instance is not None:
            return None
        who = {"member_id": self.member_id, "group_instance_id": None}
        return Ask(Key.LEAVE_GROUP, {"group_id": self.settings.group, "member_id": self.member_id, "members": [who]})


class ConsumerMembership(Membership[TopicIdPartition]):
    """ConsumerGroupHeartbeat; the coordinator assigns the partitions (spec: kafka 12.2, KIP-848)."""

    kind = "consumer"

    def __init__(self, settings: GroupSettings, member_id: str) -> None:
        """``member_id`` is random, and constant for the life of the object."""
        super().__init__(settings)
        self.member_id = member_id
        self.generation = 0
        self._target: frozenset[TopicIdPartition] | None = None
        self._all = True  # send every field
        self._owned_news = True  # report owned partitions to the coordinator
        self._joining = False  # the coordinator may have taken this member in, and the answer is on its way

    @property
    def may_commit(self) -> bool:
        """True once the coordinator has given a member epoch."""
        return self.generation > 0

    def next(self, now: float) -> Ask | float:
        """Return the next heartbeat, or the time of the next call."""
        if now < self._not_before:
            return self._not_before
        if now < self._beat_at:
            return self._beat_at
        settings = self.settings
        body: Body = {
            "group_id": settings.group,
            "member_id": self.member_id,
            "member_epoch": self.generation,
            "instance_id": settings.instance,
        }
        if self._all:
            body |= {
                "rack_id": settings.rack,
                "rebalance_timeout_ms": round(settings.rebalance_timeout_s * 1000),
                "subscribed_topic_names": sorted(self.topics),
            }
        if self._all or self._owned_news:
            topics: dict[bytes, list[int]] = {}
            for topic, number in sorted(self.owned):
                topics.setdefault(topic, []).append(number)
            body["topic_partitions"] = [{"topic_id": topic, "partitions": found} for topic, found in topics.items()]
        self._joining = self._joining or self.generation == 0
        return Ask(Key.CONSUMER_GROUP_HEARTBEAT, body)

    def answered(self, ask: Ask, body: Body, now: float) -> Sequence[Event[TopicIdPartition]]:
        """Handle a heartbeat response."""
        code = body["error_code"]
        self._joining = False
        if code:
            self.unanswered()
            if code in (Code.FENCED_MEMBER_EPOCH, Code.UNKNOWN_MEMBER_ID):
                lost = self._lose()
                self.generation = 0
                self._target = None
                return lost
            return self._common(code, "ConsumerGroupHeartbeat", now, body["error_message"])
        if body["member_epoch"] <= 0:
            raise ProtocolError("member_epoch", detail=f"is {body['member_epoch']} in an answer without an error")
        first = self.generation == 0
        self._all = self._owned_news = False
        self.generation = body["member_epoch"]
        self.member_id = body["member_id"] or self.member_id
        self._beat_at = now + max(body["heartbeat_interval_ms"] / 1000, LEAST_BEAT_S)
        if body["assignment"] is not None:
            self._target = frozenset(
                (one["topic_id"], number)
                for one in body["assignment"]["topic_partitions"]
                for number in one["partitions"]
            )
        elif not first:
            return ()
        return self._reconcile()

    def unanswered(self) -> None:
        """Send all fields next: the lost response may have had an assignment, which is repeated only then (spec: kafka
        12.2).
        """
        self._all = True
        self._beat_at = 0.0

    def _reconcile(self) -> list[Event[TopicIdPartition]]:
        """Revoke partitions that are not in the target assignment, then take the new ones."""
        target = self._target or frozenset()
        if self.releasing:
            return []
        gone = self.owned - target
        if gone:
            return self._revoke(gone)
        added = target - self.owned
        if added:
            self._tell()
        self.owned = target
        return [Assign(added)]

    def _tell(self) -> None:
        self._owned_news = True
        self._beat_at = 0.0

    def released(self) -> Sequence[Event[TopicIdPartition]]:
        """Report the release to the coordinator, then take new partitions."""
        self._let_go()
        self._tell()
        return self._reconcile()

    def topics_changed(self, topics: Sequence[str]) -> Sequence[Event[TopicIdPartition]]:
        """Send new topics with the next heartbeat; the coordinator itself notices new partitions."""
        if set(topics) != set(self.topics):
            self.topics = topics
            self._all = True
            self._beat_at = 0.0
        return ()

    def leave(self) -> Ask | None:
        """Return the last heartbeat; None if the coordinator cannot know this member.

        One that it has taken in and that does not leave holds its partitions until its session has timed out.
        """
        if self.generation <= 0 and not self._joining:
            return None
        epoch = -1 if self.settings.instance is None else -2  # -2: the static member will come back
        return Ask(
            Key.CONSUMER_GROUP_HEARTBEAT,
            {
                "group_id": self.settings.group,
                "member_id": self.member_id,
                "member_epoch": epoch,
                "instance_id": self.settings.instance,
            },
        )
