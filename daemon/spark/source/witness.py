"""The identity of a log without an id of its topic, for a query that has read it: one record of it, by a checksum.

A driver looks again when it has begun, and before that at the batch that it plans again. Brokers have only to be asked
for single records, of a few topics at a time: those of another cluster are told by any of them.
"""

import time
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from fastwire.position import Position

from .broker import PATIENCE_S, Broker
from .ranges import QueryPartition, Witness

RENEWED_S = 60.0  # retention takes old records, and what is gone shows nothing; so does what could not be read
MOST = 8  # topics in a batch


class Witnesses:
    """The witnesses of one driver: which are compared, and which are taken."""

    def __init__(self) -> None:
        self._compared: set[str] = set()
        self._open: dict[str, float] = {}  # topics that are still to be compared, by the time of the last attempt
        self._taken: dict[str, float] = {}

    def others(self, broker: Broker[Any], known: Mapping[str, Witness]) -> list[Witness]:
        """Return those of the witnesses ``known``, by topic, in whose place the brokers have another record.

        A topic that holds its record is looked at once. One whose record cannot be read now is compared later: until
        then no new witness of it is taken, so the old one stays in the checkpoint.
        """
        others = []
        for topic in known.keys() - self._compared:
            self._open.setdefault(topic, float("-inf"))
        begun = time.monotonic()
        for topic in _longest_ago(known.keys() & self._open.keys(), self._open):
            now = time.monotonic()
            if now - begun >= PATIENCE_S or now - self._open[topic] < RENEWED_S:
                break
            holds = broker.holds(known[topic])
            if holds is None:
                self._open[topic] = now
                continue
            del self._open[topic]
            if holds:
                self._compared.add(topic)
            else:
                others.append(known[topic])
        return others

    def take(
        self, broker: Broker[Any], ends: Mapping[QueryPartition, Position], moved: Iterable[QueryPartition]
    ) -> dict[str, Witness]:
        """Return new witnesses of some of the topics of the partitions ``moved``, by topic."""
        now = time.monotonic()
        due: dict[str, QueryPartition] = {}
        for partition in sorted(moved):
            since = now - self._taken.get(partition.topic, now - RENEWED_S)
            if since >= RENEWED_S and partition.topic not in self._open:
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
