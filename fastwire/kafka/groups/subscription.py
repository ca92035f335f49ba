"""Subscriptions and assignments, the data that group members exchange through the coordinator (spec: kafka 10)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fastwire.errors import ProtocolError

from ..format.message import Body, Table
from ..names import TopicPartition

PROTOCOL_TYPE = "consumer"
VERSION = 3  # older members ignore surplus fields

_OWNED = """
  topic string
  partitions [i32]
]
"""
_VERSION = Table("version i16")
_SUBSCRIPTION = Table(
    "topics [string]\nuser_data bytes null=0+\nowned [ v1+" + _OWNED + "generation i32 v2+ =-1\nrack string v3+ null=3+"
)
_ASSIGNMENT = Table("topics [" + _OWNED + "user_data bytes null=0+")
_STICKY = Table("topics [" + _OWNED + "generation i32 =-1")
_COOPERATIVE = Table("generation i32 =-1")


@dataclass(frozen=True, slots=True)
class Member:
    """One member for an assignor; ``generation`` is that of its ``owned`` partitions, -1 if unknown."""

    id: str
    topics: frozenset[str]
    instance: str | None = None
    owned: tuple[TopicPartition, ...] = ()
    generation: int = -1
    rack: str | None = None


def encode_subscription(
    protocol: str, topics: Iterable[str], owned: Iterable[TopicPartition], generation: int, rack: str | None = None
) -> bytes:
    """Return the metadata of a member. ``owned`` includes just revoked partitions for sticky assignors.

    A change of ``generation`` changes the bytes, which makes the coordinator start a rebalance.
    """
    by_topic = _by_topic(owned)
    user_data = None
    if protocol == "cooperative-sticky":
        user_data = _COOPERATIVE.encode({"generation": generation})
    elif protocol == "sticky" and by_topic:
        user_data = _STICKY.encode({"topics": by_topic, "generation": generation})
    body: Body = {"topics": sorted(topics), "user_data": user_data, "generation": generation, "rack": rack}
    if protocol == "cooperative-sticky":
        body["owned"] = by_topic
    return _VERSION.encode({"version": VERSION}) + _SUBSCRIPTION.encode(body, VERSION)


def decode_member(protocol: str, body: Body) -> Member:
    """Decode a member of a JoinGroup response. Raises ProtocolError; invalid user data count as no owned partitions."""
    metadata = body["metadata"]
    said = _SUBSCRIPTION.decode(metadata, _version(metadata), 2)
    owned, generation = said.get("owned", []), said.get("generation", -1)
    user_data = said["user_data"]
    if user_data:
        try:
            if protocol == "sticky":
                more = _STICKY.decode(user_data)
                owned, generation = more["topics"], more["generation"]
            elif protocol == "cooperative-sticky" and generation < 0:
                generation = _COOPERATIVE.decode(user_data)["generation"]
        except ProtocolError:
            owned, generation = [], -1
    instance = body.get("group_instance_id")
    rack = said.get("rack") or None
    return Member(body["member_id"], frozenset(said["topics"]), instance, tuple(_places(owned)), generation, rack)


def encode_assignment(places: Iterable[TopicPartition]) -> bytes:
    """Encode the assignment of one member."""
    return _VERSION.encode({"version": VERSION}) + _ASSIGNMENT.encode({"topics": _by_topic(places)})


def decode_assignment(data: bytes) -> frozenset[TopicPartition]:
    """Decode the member's own assignment. Raises ProtocolError, also for no bytes at all, which some leaders send."""
    _version(data)
    return frozenset(_places(_ASSIGNMENT.decode(data, at=2)["topics"]))


def _version(data: bytes) -> int:
    if len(data) < 2:
        raise ProtocolError("group metadata", 0, 2, len(data))
    version = int(_VERSION.decode(data)["version"])
    if version < 0:
        raise ProtocolError("group metadata", 0, detail=f"version {version}")
    return min(version, VERSION)


def _by_topic(places: Iterable[TopicPartition]) -> list[Body]:
    topics: dict[str, list[int]] = {}
    for topic, number in sorted(places):
        topics.setdefault(topic, []).append(number)
    return [{"topic": topic, "partitions": numbers} for topic, numbers in topics.items()]


def _places(topics: Sequence[Mapping[str, object]]) -> list[TopicPartition]:
    return [(str(one["topic"]), number) for one in topics for number in one["partitions"]]  # type: ignore[attr-defined]
