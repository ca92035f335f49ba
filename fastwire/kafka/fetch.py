"""Which partitions of a broker are asked for when: plain Fetch requests, two in flight over disjoint partitions.

A broker works on one request of a connection at a time, and a Fetch that finds nothing waits (kafka 1). So as long as
some partition is behind its log's end, the partitions that are behind are split over two requests, which are answered
at once; all others ride along in one of them. Only when nobody is behind does one request wait for news.
"""

from collections import OrderedDict
from dataclasses import dataclass

from fastwire.kafka.connection import Connection, Key
from fastwire.kafka.message import Body
from fastwire.kafka.metadata import NO_ID
from fastwire.kafka.response import Planned
from fastwire.kafka.slot import SlotTable

__all__ = ["FetchLimits", "Fetcher", "Target"]

LAST_WITH_NAMES = 12  # from the next version on topics go by their ids


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """How much an answer may hold, in bytes, and how long a broker may wait for news."""

    response_bytes: int = 16 << 20
    partition_bytes: int = 1 << 20
    max_wait_ms: int = 500
    read_committed: bool = True


@dataclass(slots=True)
class Target:
    """A partition that is read from this broker; ``session`` is that of its slot."""

    index: int
    topic: str
    topic_id: bytes
    partition: int
    leader_epoch: int
    session: int
    behind: bool = True


class Fetcher:
    """The Fetch requests of one connection."""

    def __init__(self, slots: SlotTable, limits: FetchLimits) -> None:
        self._slots = slots
        self.limits = limits
        self._targets: OrderedDict[int, Target] = OrderedDict()  # who was served last stands last
        self._flights: dict[int, list[int]] = {}
        self._busy: set[int] = set()

    def __len__(self) -> int:
        return len(self._targets)

    def add(self, target: Target) -> None:
        """Read ``target`` from here on."""
        self._targets[target.index] = target

    def drop(self, index: int) -> None:
        """Read it no more; what is in flight is for the slot's session to refuse."""
        self._targets.pop(index, None)

    def pump(self, connection: Connection, now: float) -> bool:
        """Ask for what may be asked for now; false if nothing was."""
        asked = False
        while len(self._flights) < 2:
            ready = [target for index, target in self._targets.items() if index not in self._busy]
            behind = [target for target in ready if target.behind]
            if not ready or (self._flights and not behind):
                break
            if not behind:
                self._send(connection, ready, self.limits.max_wait_ms, now)
            elif self._flights:
                self._send(connection, behind, 0, now)
            else:
                # The larger half now; the other half follows at once, and is answered while this one is decoded.
                later = {target.index for target in behind[(len(behind) + 1) // 2 :]}
                self._send(connection, [one for one in ready if one.index not in later], self.limits.max_wait_ms, now)
            asked = True
        return asked

    def done(self, correlation_id: int) -> list[int]:
        """An answer is through; the partitions that it was about, in the order of the request."""
        flight = self._flights.pop(correlation_id, [])
        self._busy.difference_update(flight)
        for index in flight:
            target = self._targets.get(index)
            if target is None:
                continue
            told = self._slots.told(index)
            end = told.stable_offset if self.limits.read_committed and told.stable_offset >= 0 else told.high_watermark
            target.behind = self._slots.position(index).a < end
            if told.received:
                self._targets.move_to_end(index)  # who got nothing comes first (kafka 9)
        return flight

    def lost(self) -> None:
        """The connection is gone, and with it every answer."""
        self._flights.clear()
        self._busy.clear()

    def _send(self, connection: Connection, targets: list[Target], wait_ms: int, now: float) -> None:
        version = connection.version_of(Key.FETCH)
        if version > LAST_WITH_NAMES and any(target.topic_id == NO_ID for target in targets):
            version = connection.version_of(Key.FETCH, LAST_WITH_NAMES)
        by_id = version > LAST_WITH_NAMES
        topics: dict[bytes, Body] = {}
        planned: dict[bytes, dict[int, tuple[int, int]]] = {}
        for target in targets:
            key = target.topic_id if by_id else target.topic.encode()
            said = topics.setdefault(key, {"topic_id" if by_id else "topic": key if by_id else target.topic})
            said.setdefault("partitions", []).append(
                {
                    "partition": target.partition,
                    "current_leader_epoch": target.leader_epoch,
                    "fetch_offset": self._slots.position(target.index).a,
                    "partition_max_bytes": self.limits.partition_bytes,
                }
            )
            planned.setdefault(key, {})[target.partition] = target.index, target.session
        body = {
            "max_wait_ms": wait_ms,
            "min_bytes": 1,
            "max_bytes": self.limits.response_bytes,
            "isolation_level": int(self.limits.read_committed),
            "session_epoch": -1,
            "topics": list(topics.values()),
        }
        correlation_id = connection.fetch(body, Planned(version, self.limits.read_committed, planned), now)
        indexes = [target.index for target in targets]
        self._flights[correlation_id] = indexes
        self._busy.update(indexes)
