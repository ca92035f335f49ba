"""The source of the toy system: one connection a partition, which fetches from the position in the dataset on."""

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastwire.columns.chunk import Chunk
from fastwire.columns.logs import LogTable
from fastwire.coverage import Coverage
from fastwire.position import Log, Position, Span
from fastwire.wire.pool import Pool
from fastwire_daemon.runtime.budget import Level
from fastwire_daemon.runtime.tasks import Tasks
from fastwire_daemon.systems.reading.earlier import EarlierLogs
from fastwire_daemon.systems.source import Assignment, First, LogStopped, SourceEvents, SourceFailed

from .config import ToySourceConfig
from .link import ConnectionLost, RequestRefused, connect
from .scan import Slot

RETRY_S = 0.05


@dataclass(eq=False)
class Partition:
    """One log. ``slot`` and ``reading`` are set from the grant of ``assignment`` on."""

    assignment: Assignment
    slot: Slot | None = None
    reading: "asyncio.Task[None] | None" = None
    connected: bool = False


class ToySource:
    """See ``systems.source.Source``."""

    system = "toy"
    confirms = False
    cluster_id = ""
    unreachable_because = ""
    standing_by = False
    follows_group = False
    goes_back = True
    backlog = None

    def __init__(
        self, config: ToySourceConfig, events: SourceEvents, pool: Pool, columns: frozenset[str] | None, cluster: str
    ) -> None:
        self.logs: list[Log] = []
        self.slots = LogTable()
        self.partitions: list[Partition] = []
        self.unreachable_since: float | None = asyncio.get_running_loop().time()
        self.stage_ns: Mapping[str, int] = {}
        self._config = config
        self._events = events
        self._pool = pool
        self._columns = columns
        self._cluster = cluster
        self._room = asyncio.Event()  # records may be requested
        self._room.set()
        self._full = False
        self._level = Level.FREE
        self._tasks = Tasks(lambda fault: events.on_failed(SourceFailed(fault)))

    # --- the contract

    async def start(self, coverage: Coverage) -> None:
        while True:
            try:
                ends = await self._ends()
                break
            except ConnectionLost as exc:
                self.unreachable_because = str(exc)
                await asyncio.sleep(RETRY_S)
            except RequestRefused as exc:
                raise SourceFailed(str(exc), configuration=True) from exc
        self.logs += ends
        for log, end in ends.items():
            head = Position(end, 0) if end else None
            self.partitions.append(Partition(Assignment(self.slots.add_log(log), log, head)))
        self._late = EarlierLogs(coverage.logs()).is_late
        self._events.on_assigned([each.assignment for each in self.partitions])

    async def resolve(self, assignments: Sequence[Assignment], coverage: Coverage) -> list[First]:
        new = [each for each in assignments if coverage.start(each.log) is None]
        begins = [self._beginning(each) for each in new]
        return [First(each.index, Span(each.log, at, at, 0)) for each, at in zip(new, begins, strict=True)]

    def grant(self, assignments: Iterable[Assignment], coverage: Coverage) -> None:
        for each in assignments:
            partition = self.partitions[each.index]
            if partition.assignment is each and partition.reading is None:
                end = coverage.end(each.log)
                assert end is not None
                partition.slot = Slot(each.index, int(each.log.partition), end.a)
                partition.reading = self._tasks.run(self._read(partition, partition.slot), "toy partition")

    def landed(self, coverage: Coverage) -> None:
        pass  # the broker does not want to know

    def void(self) -> None:
        for partition in self.partitions:
            if partition.reading is not None:
                self._end(partition)
                old = partition.assignment
                partition.assignment = Assignment(old.index, old.log, old.head)
                self._events.on_assigned([partition.assignment])

    def resume(self) -> None:
        self._full = False
        self._steer()

    def set_paused(self, index: int, *, paused: bool) -> None:
        raise ValueError("no group consumes the toy")

    def on_budget(self, level: Level) -> None:
        self._level = level
        self._steer()

    def position(self, index: int) -> Position | None:
        slot = self.partitions[index].slot
        return None if slot is None else Position(slot.offset, 0)

    async def heads(self) -> Mapping[int, Position]:
        assigned = (each.assignment for each in self.partitions)
        return {each.index: each.head for each in assigned if each.head is not None}

    @property
    def offering(self) -> bool:
        return False

    async def unfinished(self, heads: Mapping[int, Position], coverage: Coverage) -> Collection[int]:
        ends = {index: coverage.end(self.logs[index]) for index in heads}
        return [index for index, end in ends.items() if end is None or end < heads[index]]

    def waiting(self) -> Mapping[int, str]:
        return {each.assignment.index: "not connected" for each in self.partitions if not each.connected}

    def stop(self, index: int, why: str) -> None:
        self._end(self.partitions[index])
        self._events.on_stopped(index, LogStopped(why))

    def status(self) -> dict[str, Any]:
        return {"connected": sum(each.connected for each in self.partitions)}

    async def close(self, timeout: float) -> None:
        await self._tasks.close()

    # --- partitions

    async def _ends(self) -> dict[Log, int]:
        """Return the partitions of the topics, with the offset after the last record. Raises as ``Link.ask``."""
        link = await connect(self._config.url)
        try:
            return {
                Log(self.system, self._cluster, topic, str(number)): end
                for topic in self._config.topics
                for number, end in enumerate((await link.ask("topic", topic))["ends"])
            }
        finally:
            link.close()

    def _beginning(self, assignment: Assignment) -> Position:
        start, log = self._config.start, assignment.log
        if start.kind == "latest" and not self._late(log):
            return assignment.head or Position(0, 0)
        return start.positions.get(f"{log.topic}/{log.partition}", Position(0, 0))

    def _end(self, partition: Partition) -> None:
        """Stop reading a partition: nothing more of it arrives."""
        if partition.reading is not None:
            partition.reading.cancel()
        partition.slot = partition.reading = None

    # --- records

    async def _read(self, partition: Partition, slot: Slot) -> None:
        while True:
            try:
                await self._fetch(partition, slot)
            except ConnectionLost as exc:
                self.unreachable_because = str(exc)
                await asyncio.sleep(RETRY_S)
            except RequestRefused as exc:
                self.stop(slot.index, str(exc))

    async def _fetch(self, partition: Partition, slot: Slot) -> None:
        """Fetch records until the connection is lost, or the broker refuses. Raises as ``Link.fetch``."""
        link = await connect(self._config.url, self.slots, self._pool, self._took, columns=self._columns)
        self._is_connected(partition, True)
        try:
            while True:
                await self._room.wait()
                await link.fetch(slot, partition.assignment.log.topic)
        finally:
            link.close()
            self._is_connected(partition, False)

    def _is_connected(self, partition: Partition, connected: bool) -> None:
        partition.connected = connected
        up = any(each.connected for each in self.partitions)
        self.unreachable_since = None if up else asyncio.get_running_loop().time()

    def _took(self, chunk: Chunk) -> None:
        if not self._events.on_chunk(chunk):
            self._full = True
            self._steer()

    def _steer(self) -> None:
        if self._full or self._level is not Level.FREE:
            self._room.clear()
        else:
            self._room.set()
