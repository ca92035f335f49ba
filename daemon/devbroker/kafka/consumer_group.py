"""Consumer groups with assignment by the broker: member epochs and reconciliation (spec: kafka 12.2)."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from fastwire.errors import ProtocolError
from fastwire.kafka.format.error import Code
from fastwire.kafka.format.message import Body
from fastwire.kafka.names import TopicPartition

from ..base import RefusedError
from ..delayed import Timer
from .topics import StoredTopic

LEFT = -1
JOINS = 0


@dataclass(slots=True, eq=False)
class ConsumerMember:
    """A member: ``assigned`` is its last assignment, ``revoking`` are lost partitions that it still has to revoke."""

    member_id: str
    instance_id: str | None = None
    epoch: int = 0
    epoch_before: int = -1
    topics: tuple[str, ...] = ()
    pattern: str = ""
    assigned: set[TopicPartition] = field(default_factory=set)
    revoking: set[TopicPartition] = field(default_factory=set)
    had: set[TopicPartition] = field(default_factory=set)  # all partitions that were ever assigned
    outdated: bool = False  # a topic of its last assignment was deleted
    expiry: Timer = field(default_factory=Timer)


class ConsumerGroup:
    """Members with their epochs; a partition moves on when the member that had it has confirmed its revocation.

    ``topics`` are those of the cluster, as they change; members expire ``session_s`` seconds after a heartbeat.
    """

    def __init__(self, topics: Mapping[str, StoredTopic], session_s: float) -> None:
        self.epoch = 0
        self.members: dict[str, ConsumerMember] = {}
        self.target: dict[str, set[TopicPartition]] = {}
        self._topics = topics
        self._session_s = session_s
        self._known: list[tuple[str, int]] = []  # topics and numbers of their partitions at the last assignment

    def member(self, member_id: str, epoch: int) -> ConsumerMember:
        """Return the member with this id, in this epoch, for an offset commit. Raises RefusedError."""
        return self._member(member_id, epoch, Code.STALE_MEMBER_EPOCH)

    def _member(
        self, member_id: str, epoch: int, otherwise: Code, owned: set[TopicPartition] | None = None
    ) -> ConsumerMember:
        member = self.members.get(member_id)
        if member is None:
            raise RefusedError(Code.UNKNOWN_MEMBER_ID)
        if epoch > self.epoch:
            raise ProtocolError(f"{member_id} in epoch {epoch} of its group, which has {self.epoch}")
        missed = epoch == member.epoch_before and owned is not None and owned <= member.assigned
        if epoch != member.epoch and not missed:
            raise RefusedError(otherwise)
        return member

    def beat(self, body: Body) -> tuple[int, set[TopicPartition] | None]:
        """Handle a heartbeat; return the epoch of the member, and its assignment, or None if that has not changed.

        Raises RefusedError.
        """
        member_id, epoch = body["member_id"], body["member_epoch"]
        if epoch <= LEFT:
            self.remove(member_id)
            return epoch, None
        if epoch == JOINS:
            if body["topic_partitions"] is None:
                raise ProtocolError(f"{member_id} joins without saying that it owns nothing")
            self.remove(member_id)
            instance = body["instance_id"]
            if instance is not None and any(one.instance_id == instance for one in self.members.values()):
                raise RefusedError(Code.UNRELEASED_INSTANCE_ID)
            self.members[member_id] = ConsumerMember(member_id, instance)
        owned = self._owned(body)
        member = self._member(member_id, epoch, Code.FENCED_MEMBER_EPOCH, owned)
        self._alive(member)
        self._subscribe(member, body)
        if owned is not None:
            if not owned <= member.assigned | member.revoking:
                raise ProtocolError(f"{member_id} owns what it was never given: {sorted(owned - member.assigned)}")
            member.revoking &= owned
        epoch, assigned = self._reconcile(member)
        return epoch, member.assigned if _says_everything(body) else assigned

    def _reconcile(self, member: ConsumerMember) -> tuple[int, set[TopicPartition] | None]:
        target = self.target[member.member_id]
        if member.revoking:
            return member.epoch, None
        lost = member.assigned - target
        if lost:
            member.assigned -= lost
            member.revoking = lost
            return member.epoch, member.assigned
        if member.epoch != self.epoch:
            member.epoch_before, member.epoch = member.epoch, self.epoch
        others = [one for one in self.members.values() if one is not member]
        new = target.difference(member.assigned, *(one.assigned | one.revoking for one in others))
        member.assigned |= new
        member.had |= new
        news, member.outdated = new or member.outdated, False
        return member.epoch, member.assigned if news else None

    def _alive(self, member: ConsumerMember) -> None:
        member.expiry.start(self._session_s, self.remove, member.member_id)

    def remove(self, member_id: str) -> None:
        """Remove a member, if it is there; its partitions are free at once."""
        member = self.members.pop(member_id, None)
        if member is not None:
            member.expiry.cancel()
            self._assign()

    def forget(self, topic: str) -> None:
        """Take a deleted topic from all assignments."""
        for member in self.members.values():
            for places in (member.assigned, member.revoking):
                gone = {place for place in places if place[0] == topic}
                places -= gone
                member.outdated |= bool(gone)
        self._known = []

    def _subscribe(self, member: ConsumerMember, body: Body) -> None:
        names, pattern = body["subscribed_topic_names"], body.get("subscribed_topic_regex")
        before = member.topics, member.pattern
        if names is not None:
            member.topics = tuple(sorted(names))
        if pattern is not None:
            member.pattern = pattern
        known = [(topic.name, len(topic.partitions)) for topic in self._topics.values()]
        if before != (member.topics, member.pattern) or member.member_id not in self.target or known != self._known:
            self._known = known
            self._assign()

    def _owned(self, body: Body) -> set[TopicPartition] | None:
        if body["topic_partitions"] is None:
            return None
        owned = set[TopicPartition]()
        for one in body["topic_partitions"]:
            names = [topic.name for topic in self._topics.values() if topic.topic_id == one["topic_id"]]
            owned |= {(name, number) for name in names for number in one["partitions"]}
        return owned

    def _assign(self) -> None:
        """Assign all partitions anew: evenly, and as far as possible to their present members."""
        self.epoch += 1
        self.target = {member_id: set() for member_id in self.members}
        for topic in self._topics.values():
            readers = [one for _, one in sorted(self.members.items()) if _wants(one, topic.name)]
            if not readers:
                continue
            free = [(topic.name, one.number) for one in topic.partitions]
            least, more = divmod(len(free), len(readers))
            for place, reader in enumerate(readers):
                quota = least + (place < more)
                kept = [one for one in free if one in reader.assigned][:quota]
                self.target[reader.member_id].update(kept)
                free = [one for one in free if one not in kept]
            for place, reader in enumerate(readers):
                mine = self.target[reader.member_id]
                missing = least + (place < more) - sum(name == topic.name for name, _ in mine)
                mine.update(free[:missing])
                free = free[missing:]


def _says_everything(body: Body) -> bool:
    """Return True if a member joins, or may have missed a response: it then gets its complete assignment."""
    topics = body["subscribed_topic_names"], body.get("subscribed_topic_regex")
    return body["rebalance_timeout_ms"] >= 0 and body["topic_partitions"] is not None and topics != (None, None)


def _wants(member: ConsumerMember, topic: str) -> bool:
    return topic in member.topics or bool(member.pattern and re.fullmatch(member.pattern, topic))
