"""First positions of partitions: behind what has landed, at the group's offset, or where ``start`` says."""

import asyncio
from collections.abc import Iterable

from fastwire.coverage import Coverage
from fastwire.position import Gap, Position, Span
from fastwire.tubemq.position import ENTRY_BYTES, POSITIONS
from fastwire.tubemq.reading.slot import SlotTable

from ...reading.ends import Ends
from ...source import First, LogStopped
from .partition import Partition
from .registrations import Registrations
from .settings import TubeMQSettings


class FirstPositions:
    """Resolves first positions, and registers partitions there.

    ``present`` are the keys of the partitions that were there before the group was, for ``start = "latest"``.
    """

    def __init__(self, settings: TubeMQSettings, registrations: Registrations, slots: SlotTable) -> None:
        self.present: frozenset[str] = frozenset()
        self._settings = settings
        self._registrations = registrations
        self._slots = slots
        self._fresh: frozenset[str] = frozenset()
        self._jumps: set[Partition] = set()
        self.ends = Ends(settings.end)

    def learn(self, coverage: Coverage) -> bool:
        """Note the topics of which nothing has landed; return True if their beginning depends on which are there."""
        known = {log.topic for log in coverage.logs() if log.cluster == self._settings.cluster}
        self._fresh = frozenset(self._settings.topics) - known
        return bool(self._fresh) and self._settings.start.kind in ("latest", "positions")

    def unnamed(self, keys: Iterable[str]) -> list[str]:
        """Return the names of those partitions of which nothing has landed, and which a table ``start`` leaves out."""
        parts = (key.split(":") for key in keys)
        names = [f"{topic}/{broker}:{number}" for broker, topic, number in parts if topic in self._fresh]
        return [name for name in names if name not in self._settings.start.positions]

    def jump(self, partition: Partition) -> None:
        """Let the next ``resolve`` of a partition go on at its end."""
        self._jumps.add(partition)

    async def look_up(self, partition: Partition, coverage: Coverage) -> None:
        """Register a partition where its group is, and note the offset; without one the group is at the oldest message.

        Whether the group has confirmed anything shows only beside the oldest offset, so a log of which nothing has
        landed is registered there for a moment. Raises as ``Registrations.register``.
        """
        stored = (await self._registrations.register(partition)).currOffset
        oldest = 0
        if stored > 0 and partition.log not in coverage:
            # The requests leave together, and the Broker handles them one after the other.
            found, _ = await asyncio.gather(
                self._registrations.register(partition, 0), self._registrations.register(partition, stored)
            )
            oldest = found.currOffset
        partition.stored, partition.oldest = stored, oldest

    async def resolve(self, partition: Partition, coverage: Coverage) -> First | None:
        """Register a partition where reading goes on; return the position to commit before, if there is one.

        Raises LogStopped where it must not be read, and as ``Registrations.register``.
        """
        first = await self._resolve(partition, coverage)
        name = f"{partition.place.topic}/{partition.place.name}"
        first = await self.ends.add(
            partition.index, partition.log, first, coverage, name=name, now=lambda: partition.head
        )
        until = None if first is None else first.span.until
        if until is not None and until.position.a > max(partition.end, 0):
            raise LogStopped(
                f"{partition.log}: the end {until.position.a} lies beyond the log, at {partition.end}", "start"
            )
        return first

    async def _resolve(self, partition: Partition, coverage: Coverage) -> First | None:
        at = coverage.end(partition.log)
        if at is None:
            again = self._settings.earlier(partition.log).intersection(coverage.logs())
            partition.began = await self._first(partition, again=bool(again))
            progress = partition.stored > partition.oldest and not again
            return First(partition.index, Span(partition.log, partition.began, partition.began, 0), progress)
        answer = await self._registrations.register(partition, at.a)
        reason = "the log begins here: what lay before was deleted by retention"
        if answer.currOffset < at.a or (answer.currOffset == at.a and answer.maxOffset < at.a + at.b * ENTRY_BYTES):
            raise LogStopped(
                f"{partition.log}: {POSITIONS.format(at)} has landed, but the Broker's log ends at "
                f"{answer.maxOffset}: {self.remedy(partition)}",
                "lost",
            )
        if partition in self._jumps:
            self._jumps.discard(partition)
            # At its end there is nothing to leave out.
            read_to = self._slots.least(partition.index) if self._slots.position(partition.index) == at else at.a
            if answer.maxOffset > read_to:
                answer = await self._registrations.register(partition, answer.maxOffset)
                reason = "an operator has asked the group to go on at the end"
        if answer.currOffset == at.a:
            return None
        partition.began = Position(answer.currOffset, 0)
        return First(partition.index, Span(partition.log, at, at, 0, Gap(partition.began, reason)))

    def remedy(self, partition: Partition) -> str:
        """Return what may have happened to a log that lacks what has landed, and what to do."""
        topic = partition.place.topic
        again = self._settings.incarnations.get(topic, 0) + 1
        return (
            "the topic was deleted and created again, or the Broker has lost messages. To read the log that is there "
            f"now from its beginning, as another one, set incarnation = {{ {topic} = {again} }} in the source: what it "
            "still has lands again"
        )

    async def _first(self, partition: Partition, *, again: bool) -> Position:
        """Register a partition where a log begins of which nothing has landed.

        With ``again`` an earlier incarnation has: the group's offset and ``start`` are about that one.
        """
        start, place = self._settings.start, partition.place
        wanted, skipped, named = partition.stored, 0, False
        if again:
            wanted = partition.oldest
        elif self._settings.keeps_offsets and partition.stored > partition.oldest:
            pass  # the group goes on, whatever ``start`` says
        elif start.positions:
            name = f"{place.topic}/{place.name}"
            if name not in start.positions:
                raise LogStopped(f"{partition.log}: start names no position for {name}", "start")
            (wanted, skipped), named = start.positions[name], True
        elif start.kind == "latest" and place.key in self.present:
            wanted = max(partition.end + (start.offset or 0) * ENTRY_BYTES, partition.oldest)
        else:
            wanted = partition.oldest
        answer = await self._registrations.register(partition, wanted)
        if named and answer.currOffset != wanted:
            raise LogStopped(
                f"{partition.log}: the Broker has no message at the offset {wanted} of start, it begins at "
                f"{answer.currOffset}",
                "start",
            )
        return Position(answer.currOffset, skipped)
