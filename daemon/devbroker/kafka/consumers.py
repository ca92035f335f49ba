"""Groups whose shares the broker makes: ConsumerGroupHeartbeat (kafka 12.2)."""

import asyncio
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fastwire.errors import ProtocolError
from fastwire.kafka.error import Code
from fastwire.kafka.message import Body

from .connection import KafkaConnection, Request
from .topic import RefusedError

if TYPE_CHECKING:
    from .broker import KafkaDevBroker

__all__ = ["ConsumerGroup", "ConsumerMember", "heartbeat"]

Place = tuple[str, int]
LEFT = -1
JOINS = 0


@dataclass(slots=True, eq=False)
class ConsumerMember:
    """``assigned`` is what it was told last, ``revoking`` what it has not yet said to have let go."""

    member_id: str
    epoch: int = 0
    topics: tuple[str, ...] = ()
    pattern: str = ""
    assigned: set[Place] = field(default_factory=set)
    revoking: set[Place] = field(default_factory=set)
    had: set[Place] = field(default_factory=set)  # ever
    outdated: bool = False  # what it was told, because a topic is gone
    expiry: asyncio.TimerHandle | None = None


class ConsumerGroup:
    """Members with their epochs; a share moves on when whoever had it has said that it let go."""

    def __init__(self, broker: "KafkaDevBroker") -> None:
        self.epoch = 0
        self.members: dict[str, ConsumerMember] = {}
        self.target: dict[str, set[Place]] = {}
        self._broker = broker
        self._known: list[tuple[str, int]] = []  # topics with the number of their partitions, as last shared out

    def member(self, member_id: str, epoch: int) -> ConsumerMember:
        """A member that says which epoch it is in, for its offsets. Raises RefusedError."""
        return self._member(member_id, epoch, Code.STALE_MEMBER_EPOCH)

    def _member(self, member_id: str, epoch: int, otherwise: Code) -> ConsumerMember:
        member = self.members.get(member_id)
        if member is None:
            raise RefusedError(Code.UNKNOWN_MEMBER_ID)
        if epoch > self.epoch:
            raise ProtocolError(f"{member_id} in epoch {epoch} of its group, which has {self.epoch}")
        if epoch != member.epoch:
            raise RefusedError(otherwise)
        return member

    def beat(self, body: Body) -> tuple[int, set[Place] | None]:
        """Take a heartbeat: the member's epoch from here on, and what it may own, None if that has not changed."""
        member_id, epoch = body["member_id"], body["member_epoch"]
        if epoch <= LEFT:
            self.remove(member_id)
            return epoch, None
        if epoch == JOINS:
            if body["topic_partitions"] is None:
                raise ProtocolError(f"{member_id} joins without saying that it owns nothing")
            self.remove(member_id)
            self.members[member_id] = ConsumerMember(member_id)
        member = self._member(member_id, epoch, Code.FENCED_MEMBER_EPOCH)
        self._alive(member)
        self._subscribe(member, body)
        owned = self._owned(body)
        if owned is not None:
            if not owned <= member.assigned | member.revoking:
                raise ProtocolError(f"{member_id} owns what it was never given: {sorted(owned - member.assigned)}")
            member.revoking &= owned
        return self._reconcile(member, joins=epoch == JOINS)

    def _reconcile(self, member: ConsumerMember, *, joins: bool) -> tuple[int, set[Place] | None]:
        target = self.target[member.member_id]
        if member.revoking:
            return member.epoch, None
        lost = member.assigned - target
        if lost:
            member.assigned -= lost
            member.revoking = lost
            return member.epoch, member.assigned
        member.epoch = self.epoch
        others = [one for one in self.members.values() if one is not member]
        new = target.difference(member.assigned, *(one.assigned | one.revoking for one in others))
        member.assigned |= new
        member.had |= new
        news, member.outdated = new or joins or member.outdated, False
        return member.epoch, member.assigned if news else None

    def _alive(self, member: ConsumerMember) -> None:
        if member.expiry is not None:
            member.expiry.cancel()
        member.expiry = self._broker.loop.call_later(
            self._broker.options.consumer_session_s, self.remove, member.member_id
        )

    def remove(self, member_id: str) -> None:
        """A member is gone, and has nothing any more."""
        member = self.members.pop(member_id, None)
        if member is not None:
            if member.expiry is not None:
                member.expiry.cancel()
            self._share()

    def forget(self, topic: str) -> None:
        """A topic is gone; of one that is made again under its name nobody has anything yet."""
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
        known = [(topic.name, len(topic.partitions)) for topic in self._broker.topics.values()]
        if before != (member.topics, member.pattern) or member.member_id not in self.target or known != self._known:
            self._known = known
            self._share()

    def _owned(self, body: Body) -> set[Place] | None:
        if body["topic_partitions"] is None:
            return None
        owned = set()
        for one in body["topic_partitions"]:
            topic = self._broker.find(one["topic_id"])
            if topic is not None:
                owned |= {(topic.name, number) for number in one["partitions"]}
        return owned

    def _share(self) -> None:
        """Share all partitions out anew: evenly, and leaving with each member what it has as far as that goes."""
        self.epoch += 1
        self.target = {member_id: set() for member_id in self.members}
        for topic in self._broker.topics.values():
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


def _wants(member: ConsumerMember, topic: str) -> bool:
    return topic in member.topics or bool(member.pattern and re.fullmatch(member.pattern, topic))


def heartbeat(connection: KafkaConnection, request: Request) -> Body | None:
    """Handle ConsumerGroupHeartbeat."""
    broker = connection.broker
    body = request.body
    answer: Body = {"heartbeat_interval_ms": broker.options.consumer_heartbeat_ms}
    try:
        if connection.node != broker.coordinator:
            raise RefusedError(Code.NOT_COORDINATOR)
        if body["server_assignor"] not in (None, "uniform", "range"):
            raise RefusedError(Code.UNSUPPORTED_ASSIGNOR)
        group = broker.group(body["group_id"])
        if group.members:
            raise RefusedError(Code.INCONSISTENT_GROUP_PROTOCOL)
        if not body["member_id"]:
            body["member_id"] = group.promise(request.client_id)
        epoch, assigned = group.consumers.beat(body)
    except RefusedError as exc:
        return answer | {"error_code": exc.code, "error_message": str(exc), "member_epoch": body["member_epoch"]}
    answer |= {"error_code": 0, "member_id": body["member_id"], "member_epoch": epoch}
    if assigned is not None:
        places: dict[bytes, list[int]] = {}
        for topic, number in sorted(assigned):
            places.setdefault(broker.topics[topic].topic_id, []).append(number)
        shares = [{"topic_id": topic_id, "partitions": numbers} for topic_id, numbers in places.items()]
        answer["assignment"] = {"topic_partitions": shares}
    return answer
