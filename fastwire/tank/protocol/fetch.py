"""Scheduling of consume requests to one broker.

Answers come in any order, so a request that waits delays no other one (spec: tank 3). Partitions that lag are split
over two requests, which are answered at once; those at their end wait in others. The end of a partition is where an
answer was empty, or where a position lies above the high-water mark of an answer that was not (spec: tank 5.4).
"""

from collections import OrderedDict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from fastwire.tank.protocol.connection import Connection
from fastwire.tank.protocol.consume import ConsumeRequest, FetchPartition
from fastwire.tank.reading.response import Fetched, Planned
from fastwire.tank.reading.slot import SlotTable

MOST_FETCH = 64 << 20  # a broker caps fetch sizes (spec: tank 5.1)
MOST_NAMES = 255  # topics of a request, and partitions of each
MOST_BEHIND = 2  # concurrent requests for partitions that lag
MOST_WAITING = 8  # concurrent requests that wait
MEMORY_SHARE = 8  # an answer may take the memory divided by this
LEAST_ANSWER = 1 << 20
LEAST_FETCH = 64 << 10


@dataclass(frozen=True, slots=True)
class Target:
    """A partition to read: its slot, its place, and the session of its slot."""

    index: int
    topic: str
    partition: int
    session: int


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """Approximate limits of an answer in bytes, and the longest wait of a request at the end of all its partitions."""

    answer_bytes: int = 16 << 20
    partition_bytes: int = 4 << 20
    max_wait_ms: int = 1000

    def within(self, memory: int) -> "FetchLimits":
        """Return limits for a reader with ``memory`` bytes for messages; several brokers have two answers in flight
        each.
        """
        answer = min(self.answer_bytes, max(memory // MEMORY_SHARE, LEAST_ANSWER))
        return replace(self, answer_bytes=answer, partition_bytes=min(self.partition_bytes, answer))


class Fetcher:
    """The consume requests of one connection."""

    def __init__(self, slots: SlotTable, limits: FetchLimits, client_id: str) -> None:
        self._slots = slots
        self._limits = limits
        self._client_id = client_id
        self._targets: OrderedDict[int, Target] = OrderedDict()  # the least recently served first
        self._behind: set[int] = set()
        self._busy: set[int] = set()
        self._needed: dict[int, int] = {}  # fetch sizes of partitions whose next bundle was cut off
        self._flights: dict[int, tuple[bool, Collection[int]]] = {}  # by request id: whether it waits, its partitions

    def __len__(self) -> int:
        return len(self._targets)

    def add(self, target: Target) -> None:
        """Read ``target`` from now on."""
        self._targets[target.index] = target
        self._behind.add(target.index)

    def drop(self, index: int) -> None:
        """Stop reading a partition; its slot's session rejects answers in flight."""
        self._targets.pop(index, None)
        self._behind.discard(index)
        self._needed.pop(index, None)

    @property
    def may_ask(self) -> bool:
        """True if ``pump`` may have a request to make: a partition is in no request in flight."""
        return len(self._targets) > len(self._busy & self._targets.keys())

    def pump(self, connection: Connection, now: float) -> bool:
        """Queue all consume requests that may be sent now; return False if there are none."""
        ready = [target for index, target in self._targets.items() if index not in self._busy]
        behind = [target for target in ready if target.index in self._behind]
        waits = [waits for waits, _ in self._flights.values()]
        asked = False
        for free in range(MOST_BEHIND - waits.count(False), 0, -1):
            # The second half is requested at once, too, and is answered while the first one is decoded.
            part = behind[: -(-len(behind) // free)]
            if part:
                sent = self._send(connection, part, 0, now)
                behind = [target for target in behind if target.index not in sent]
                asked = True
        idle = [target for target in ready if target.index not in self._behind]
        if idle and waits.count(True) < MOST_WAITING:
            self._send(connection, idle, self._limits.max_wait_ms, now)
            asked = True
        return asked

    def _send(self, connection: Connection, targets: Sequence[Target], wait_ms: int, now: float) -> Collection[int]:
        """Request messages of as many of ``targets`` as the limits allow; return the indexes of these."""
        limits = self._limits
        size = min(max(limits.answer_bytes // len(targets), LEAST_FETCH), limits.partition_bytes)
        topics: dict[str, list[FetchPartition]] = {}
        planned: dict[bytes, dict[int, tuple[int, int]]] = {}
        indexes: set[int] = set()
        room = limits.answer_bytes
        for target in targets:
            partitions = topics.get(target.topic, [])
            if len(partitions) == MOST_NAMES or (not partitions and len(topics) == MOST_NAMES):
                continue
            wanted = max(size, self._needed.get(target.index, 0))
            if indexes and wanted > room:
                break
            room -= wanted
            sequence = self._slots.fetch_sequence(target.index)
            topics.setdefault(target.topic, partitions).append(FetchPartition(target.partition, sequence, wanted))
            planned.setdefault(target.topic.encode(), {})[target.partition] = target.index, target.session
            indexes.add(target.index)
        request = ConsumeRequest(
            tuple((topic, tuple(partitions)) for topic, partitions in topics.items()),
            max_wait_ms=wait_ms,
            client_id=self._client_id,
        )
        self._flights[connection.fetch(request, Planned(planned), now)] = wait_ms > 0, indexes
        self._busy |= indexes
        return indexes

    def done(self, fetched: Fetched) -> None:
        """Handle the end of an answer."""
        _, indexes = self._flights.pop(fetched.request_id, (False, ()))
        self._busy.difference_update(indexes)
        for index in fetched.answered:
            if index not in self._targets:
                continue
            result = self._slots.result(index)
            if result.needed:
                self._needed[index] = result.needed
            else:
                self._needed.pop(index, None)
            if result.received and (result.needed or self._slots.position(index).a <= result.high_watermark):
                self._behind.add(index)
            else:
                self._behind.discard(index)
            if result.received:
                self._targets.move_to_end(index)

    def lost(self) -> None:
        """Forget all requests, because the connection is gone."""
        self._flights.clear()
        self._busy.clear()
