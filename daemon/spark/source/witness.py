"""The identity of a log without an id of its topic, for a query that has read it: one record of it, by a checksum.

A driver looks again when it has begun, and before that at the batch that it plans again. Brokers have only to be asked
for single records, of a few topics at a time: those of another cluster are told by any of them.
"""

import time
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple, Protocol

from fastwire.position import Position

from .ranges import QueryPartition

__all__ = ["Witness", "WitnessBroker", "Witnesses"]

RENEWED_S = 60.0  # retention takes old records, and what is gone shows nothing
MOST = 8  # topics in a batch
PATIENCE_S = 5.0  # a record that cannot be had holds up no batch


class Witness(NamedTuple):
    """The record that ends at ``position`` of ``partition``; ``value`` is what ``Span.witness`` is."""

    partition: QueryPartition
    position: Position
    value: int


class WitnessBroker(Protocol):
    """The part of a ``Broker`` that looks at single records."""

    def witness(self, partition: QueryPartition, end: Position) -> Witness | None:
        """Return the witness of the record that ends at ``end``, or of one soon behind it.

        None if there is none, or if the system has ids of topics.
        """

    def holds(self, witness: Witness) -> bool:
        """Return False if the broker has another record there. What is gone, or cannot be read now, is none."""


class Witnesses:
    """The witnesses of one driver: which are compared, and which are taken."""

    def __init__(self) -> None:
        self._compared: set[str] = set()
        self._taken: dict[str, float] = {}

    def others(self, broker: WitnessBroker, known: Mapping[str, Witness]) -> list[Witness]:
        """Return those of the witnesses ``known``, by topic, in whose place the brokers have another record.

        A topic that holds its record is looked at once.
        """
        others = []
        for topic in sorted(known.keys() - self._compared):
            if broker.holds(known[topic]):
                self._compared.add(topic)
            else:
                others.append(known[topic])
        return others

    def take(
        self, broker: WitnessBroker, ends: Mapping[QueryPartition, Position], moved: Iterable[QueryPartition]
    ) -> dict[str, Witness]:
        """Return new witnesses of some of the topics of the partitions ``moved``, by topic."""
        now = time.monotonic()
        due: dict[str, QueryPartition] = {}
        for partition in sorted(moved):
            if now - self._taken.get(partition.topic, now - RENEWED_S) >= RENEWED_S:
                due.setdefault(partition.topic, partition)
        found = {}
        for topic in _longest_ago(due, self._taken)[:MOST]:
            self._taken[topic] = now
            self._compared.add(topic)
            if (witness := broker.witness(due[topic], ends[due[topic]])) is not None:
                found[topic] = witness
        return found


def _longest_ago(topics: Collection[str], times: Mapping[str, float]) -> list[str]:
    return sorted(topics, key=lambda topic: times.get(topic, float("-inf")))
