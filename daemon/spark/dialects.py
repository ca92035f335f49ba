"""What options say otherwise of each system: how topics and positions are written, and what only one of them has."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fastwire.position import Position, parse_position
from fastwire.pulsar.topic import parse_topic as parse_pulsar_topic

from ..config.systems import KAFKA, PULSAR, TopicPattern, system_of
from .values import one_of, size, text, whole

__all__ = ["EARLIEST", "LATEST", "Dialect", "dialect_of"]

EARLIEST, LATEST = -2, -1  # in the JSON of positions, as in Spark's own Kafka source


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """The words of one system; functions raise ValueError that says what would be right.

    ``position`` reads what stands for one in JSON. ``group`` is the option with the name under which brokers know how
    far the query is, ``unheld`` what a stream is warned of that has none, ``prefix`` what names begin with that nobody
    has given. ``only`` are options that no other system has; ``instead`` has those of others, with what they are here
    or "".
    """

    name: str
    title: str
    topic: Callable[[str], str]
    pattern: Callable[[str], TopicPattern]
    position: Callable[[Any], Position]
    places_example: str
    least_partition: int
    unheld: str
    group: str
    prefix: str
    only: Mapping[str, Callable[[str], Any]]
    instead: Mapping[str, str]


def _pulsar_topic(given: str) -> str:
    topic = parse_pulsar_topic(given)
    if not topic.persistent:
        raise ValueError(f'"{given}": a non-persistent topic keeps nothing that could be read by position')
    return str(topic)


def _pulsar_position(value: Any) -> Position:
    if not isinstance(value, str):
        raise ValueError(f'a position is text such as "12:34", {EARLIEST} (earliest) or {LATEST} (latest)')
    return parse_position("pulsar", value)


def _kafka_position(value: Any) -> Position:
    return parse_position("kafka", str(value))


_PULSAR = Dialect(
    name="pulsar",
    title="Pulsar",
    topic=_pulsar_topic,
    pattern=PULSAR.pattern,
    position=_pulsar_position,
    places_example='{"topic":{"0":"12:34","1":-2}}',
    least_partition=-1,
    unheld=(
        "without the option subscription the brokers do not know what this query has still to read: "
        "retention alone decides how long they keep it"
    ),
    group="subscription",
    prefix="subscriptionPrefix",
    only={"subscription": text, "subscriptionPrefix": text, "receiverQueueSize": whole(1)},
    instead={
        "groupId": "subscription",
        "groupIdPrefix": "subscriptionPrefix",
        "isolationLevel": "",
        "fetchMaxBytes": "receiverQueueSize",
    },
)
_KAFKA = Dialect(
    name="kafka",
    title="Kafka",
    topic=KAFKA.topic,
    pattern=KAFKA.pattern,
    position=_kafka_position,
    places_example='{"topic":{"0":1234,"1":-2}}',
    least_partition=0,
    unheld="",  # retention decides in any case
    group="groupId",
    prefix="groupIdPrefix",
    only={
        "groupId": text,
        "groupIdPrefix": text,
        "isolationLevel": one_of("read_committed", "read_uncommitted"),
        "fetchMaxBytes": size,
    },
    instead={
        "subscription": "groupId",
        "subscriptionPrefix": "groupIdPrefix",
        "receiverQueueSize": "fetchMaxBytes",
        # As in Spark's own source.
        "kafka.bootstrap.servers": "servers",
        "kafka.group.id": "groupId",
        "kafka.isolation.level": "isolationLevel",
        "kafkaConsumer.pollTimeoutMs": "pollTimeoutMs",
    },
)
_DIALECTS = {dialect.name: dialect for dialect in (_PULSAR, _KAFKA)}


def dialect_of(url: str) -> Dialect:
    """By the scheme of the brokers' address; that of most users where it cannot be told."""
    return _DIALECTS[system_of(url).name]
