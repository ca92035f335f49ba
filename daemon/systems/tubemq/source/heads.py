"""Ends of partitions, for runs that wait until all that was there at their start has landed."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Protocol

from fastwire.coverage import Coverage
from fastwire.position import Position
from fastwire.tubemq.reading.slot import SlotTable

from ....runtime.logs import get_logger
from ....runtime.tasks import wait_for_set
from .partition import Partition
from .settings import TubeMQSettings

# A Master balances once a minute, first a minute after its start, and drops dead members after 30 s (spec: tubemq 9.3).
UNASSIGNED_S = 150.0
LOOK_S = 1.0
_UNKNOWN = 1 << 62  # the end of a partition that was not registered yet: it ends where a GET finds no message

log = get_logger("source")


class _Source(Protocol):
    settings: TubeMQSettings
    partitions: list[Partition]
    slots: SlotTable

    @property
    def coverage(self) -> Coverage: ...


class Heads:
    """The ends of the partitions of one member. Offsets have no order, so a GET tells what lies before a head.

    ``shared`` is to be set after each change of the member's partitions. ``expected`` returns which of the partitions
    that are present this member waits for.
    """

    def __init__(self, source: _Source, expected: Callable[[frozenset[str]], frozenset[str]]) -> None:
        self.shared = asyncio.Event()
        self._source = source
        self._expected = expected
        self._clock = asyncio.get_running_loop().time

    async def find(self, present: frozenset[str]) -> Mapping[int, Position]:
        """Return the ends, once this member has all partitions that are ``present``, by their keys.

        Other members may have some, and no answer says whether they live: the Master gives those of the dead to this
        one after a while. When none has come for ``UNASSIGNED_S``, the others are taken to be alive.
        """
        missing, since = self._missing(present), self._clock()
        while missing and (left := since + UNASSIGNED_S - self._clock()) > 0:
            self.shared.clear()
            await wait_for_set(self.shared, min(left, LOOK_S))
            before, missing = missing, self._missing(present)
            if missing != before:
                since = self._clock()
        if missing:
            log.warning("partitions of other members are left to them", partitions=len(missing), waited_s=UNASSIGNED_S)
        ends = {one.index: one.end if one.end >= 0 else _UNKNOWN for one in self._source.partitions}
        return {index: Position(end, 0) for index, end in ends.items() if end}

    def _missing(self, present: frozenset[str]) -> frozenset[str]:
        found = {one.place.key for one in self._source.partitions if one.over or (one.ours and one.end >= 0)}
        return self._expected(present) - found

    def is_behind(self, partition: Partition, head: Position) -> bool:
        """Return True if messages before ``head`` may not have been received."""
        return not partition.granted or not (partition.ended or partition.at_end or partition.read_at >= head.a)

    def is_finished(self, partition: Partition, head: Position, coverage: Coverage) -> bool:
        """Return True if everything before ``head`` is part of ``coverage``, or is read by others."""
        if partition.over or not (partition.ours or partition.granted):
            return True
        if self.is_behind(partition, head):
            return False
        at = self._source.slots.position(partition.index)
        landed = self._source.coverage.end(partition.log)
        return at == coverage.end(partition.log) or (at == landed and not partition.dirty)

    def is_refused(self, partition: Partition) -> bool:
        """Return True if no Broker has registered a partition of this member for ``UNASSIGNED_S``."""
        return self._clock() - partition.lost_at > UNASSIGNED_S
