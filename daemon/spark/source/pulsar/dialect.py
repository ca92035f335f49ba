"""The words that options have for Pulsar."""

from typing import Any

from fastwire.position import Position
from fastwire.pulsar.grammar import GRAMMAR
from fastwire.pulsar.position import POSITIONS
from fastwire.pulsar.topic import parse_topic

from ..dialects import EARLIEST, LATEST, Dialect
from ..values import text, whole

__all__ = ["DIALECT"]


def _topic(given: str) -> str:
    topic = parse_topic(given)
    if not topic.persistent:
        raise ValueError(f'"{given}": a non-persistent topic keeps nothing that could be read by position')
    return str(topic)


def _position(value: Any) -> Position:
    if not isinstance(value, str):
        raise ValueError(f'a position is text such as "12:34", {EARLIEST} (earliest) or {LATEST} (latest)')
    return POSITIONS.parse(value)


DIALECT = Dialect(
    name="pulsar",
    title="Pulsar",
    topic=_topic,
    pattern=GRAMMAR.pattern,
    position=_position,
    places_example='{"topic":{"0":"12:34","1":-2}}',
    least_partition=-1,
    in_range=frozenset({"ledger", "offset"}),
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
        "clientId": "",
        "clientRack": "",
    },
)
