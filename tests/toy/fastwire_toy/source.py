"""The source of the toy system: acquires partitions, reads them by one fetch at a time, and commits offsets."""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fastwire.columns.chunk import Chunk
from fastwire.columns.logs import LogTable
from fastwire.position import Coverage, Log, Position, Span
from fastwire.wire.pool import Pool
from fastwire_daemon.runtime.budget import Level
from fastwire_daemon.runtime.tasks import Tasks
from fastwire_daemon.systems.earlier import EarlierLogs
from fastwire_daemon.systems.source import Assignment, First, LogStopped, SourceEvents, SourceFailed

from .config import ToySourceConfig
from .link import ConnectionLost, Link, RequestRefused, connect
from .scan import Place

__all__ = ["ToySource"]

RETRY_S = 0.05


@dataclass(eq=False)
class Partition:
    """One log, and what is known of it. ``assignment`` is set while the broker lets this consumer read it."""

    index: int
    log: Log
    late: bool
    assignment: Assignment | None = None
    place: Place | None = None
    sent: int = -1  # the offset of the last commit
    stopped: bool = False

    @property
    def keys(self) -> dict[str, Any]:
        """The keys of requests about this partition."""
        return {"topic": self.log.topic, "partition": int(self.log.partition), "incarnation": self.log.incarnation}


@dataclass(eq=False)
class Connected:
    """What ends with a connection: the tasks that read, and the commits that are not answered."""

    link: Link
    tasks: set["asyncio.Task[None]"] = field(default_factory=set)
    commits: set["asyncio.Task[Any]"] = field(default_factory=set)


class ToySource:
    """See ``systems.source.Source``."""

    system = "toy"
    cluster_id = ""
    unreachable_because = ""
    standing_by = False

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
        self._earlier = EarlierLogs()
        self._now: Connected | None = None
        self._found = asyncio.Event()  # the partitions are known
        self._room = asyncio.Event()  # records may be requested
        self._room.set()
        self._full = False
        self._level = Level.FREE
        self._tasks = Tasks(lambda fault: events.on_failed(SourceFailed(fault)))

    # --- the contract

    async def start(self, coverage: Coverage) -> None:
        self._earlier = EarlierLogs(coverage.logs())
        self._tasks.run(self._stay_connected(), "toy connection")
        await self._found.wait()

    async def resolve(self, assignments: Sequence[Assignment], coverage: Coverage) -> list[First]:
        return [
            First(each.index, Span(each.log, begin, begin, 0), each.progress)
            for each in assignments
            if coverage.start(each.log) is None
            for begin in [self._beginning(self.partitions[each.index], each)]
        ]

    def grant(self, assignments: Iterable[Assignment], coverage: Coverage) -> None:
        for each in assignments:
            partition = self.partitions[each.index]
            if partition.assignment is each and partition.place is None and self._now is not None:
                end = coverage.end(each.log)
                assert end is not None
                partition.place = Place(each.index, int(each.log.partition), end.a)
                self._run(self._read, self._now.link, partition, partition.place)
        self.landed(coverage)

    def landed(self, coverage: Coverage) -> None:
        for partition in self.partitions:
            end = coverage.end(partition.log)
            if end is not None and partition.place is not None and end.a > partition.sent:
                self.commit(partition, end.a)

    def void(self) -> None:
        for partition in self.partitions:
            if partition.assignment is not None:
                partition.place = None
                self._assign(partition, partition.assignment)

    def resume(self) -> None:
        self._full = False
        self._steer()

    def on_budget(self, level: Level) -> None:
        self._level = level
        self._steer()

    def position(self, index: int) -> Position | None:
        place = self.partitions[index].place
        return None if place is None else Position(place.offset, 0)

    async def heads(self) -> Mapping[int, Position]:
        found = {}
        for partition in self.partitions:
            end = (await self._ask("committed", **self._keys(partition)))["end"]
            if end:
                found[partition.index] = Position(end, 0)
        return found

    async def unfinished(self, heads: Mapping[int, Position], coverage: Coverage) -> Collection[int]:
        behind = []
        for index, head in heads.items():
            end = coverage.end(self.logs[index])
            if end is None or end < head:
                answer = await self._ask("committed", **self._keys(self.partitions[index]))
                if (answer["committed"] or 0) < head.a:
                    behind.append(index)
        return behind

    def waiting(self) -> Mapping[int, str]:
        return {each.index: "not connected" for each in self.partitions if self._now is None}

    def stop(self, index: int, why: str) -> None:
        partition = self.partitions[index]
        partition.assignment = partition.place = None
        partition.stopped = True
        self._events.on_stopped(index, LogStopped(why))

    def status(self) -> dict[str, Any]:
        return {"assigned": sum(each.assignment is not None for each in self.partitions)}

    async def close(self, timeout: float) -> None:
        now = self._now
        if now is not None and now.commits:
            await asyncio.wait(now.commits, timeout=timeout)
        await self._tasks.close()

    # --- connection and partitions

    async def _stay_connected(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                link = await connect(self._config.url, self.slots, self._pool, self._took, columns=self._columns)
            except ConnectionLost as exc:
                self.unreachable_because = str(exc)
                await asyncio.sleep(RETRY_S)
                continue
            self._now = now = Connected(link)
            self.unreachable_since = None
            try:
                await self._find_partitions(link)
                await link.ended
            except ConnectionLost:
                pass
            finally:
                for task in now.tasks:
                    task.cancel()
                self._now = None
                await link.close()
            self.unreachable_since = loop.time()
            self.revoke("the connection was lost")

    async def _find_partitions(self, link: Link) -> None:
        for topic in self._config.topics:
            try:
                found = await link.ask("topic", topic=topic)
            except RequestRefused as exc:
                self._events.on_failed(SourceFailed(f"topic {topic}: {exc}", configuration=True))
                return
            known = {each.log: each for each in self.partitions}
            for number in range(found["partitions"]):
                log = Log(self.system, self._cluster, topic, str(number), found["incarnation"])
                partition = known.get(log) or self._add(log)
                if not partition.stopped:
                    self._run(self._acquire, link, partition)
        self._found.set()

    def _add(self, log: Log) -> Partition:
        partition = Partition(self.slots.add_log(log), log, self._found.is_set() or self._earlier.is_late(log))
        self.logs.append(log)
        self.partitions.append(partition)
        return partition

    async def _acquire(self, link: Link, partition: Partition) -> None:
        try:
            answer = await link.ask("acquire", **self._keys(partition))
        except RequestRefused as exc:
            self.stop(partition.index, str(exc))
            return
        done, end = answer["committed"], answer["end"]
        self._assign(
            partition,
            Assignment(
                partition.index,
                partition.log,
                Position(end, 0) if end else None,
                None if done is None else Position(done, 0),
                bool(done),
            ),
        )

    def _assign(self, partition: Partition, like: Assignment) -> None:
        """Offer the partition to the pipeline, as another assignment than all before."""
        assignment = Assignment(like.index, like.log, like.head, like.cursor, like.progress)
        partition.assignment = assignment
        partition.sent = -1
        self._events.on_assigned([assignment])

    def revoke(self, reason: str) -> None:
        """Give up all partitions: what was read of them is committed, and the rest is read by another assignment."""
        granted = [each.index for each in self.partitions if each.place is not None]
        for partition in self.partitions:
            partition.assignment = partition.place = None
        if granted:
            self._events.on_revoked(granted, reason)

    def _beginning(self, partition: Partition, assignment: Assignment) -> Position:
        start = self._config.start
        if assignment.cursor is not None:
            return assignment.cursor
        named = start.positions.get(f"{partition.log.topic}/{partition.log.partition}")
        if named is not None:
            return named
        if start.kind == "latest" and not partition.late:
            return assignment.head or Position(0, 0)
        return Position(0, 0)

    # --- records and commits

    async def _read(self, link: Link, partition: Partition, place: Place) -> None:
        while partition.place is place:
            await self._room.wait()
            try:
                await link.ask("fetch", place=place, offset=place.offset, **partition.keys)
            except RequestRefused:
                await self._replace(link, partition)

    async def _replace(self, link: Link, partition: Partition) -> None:
        """The topic was deleted: land what was read, and wait for the topic that takes its name."""
        partition.assignment = partition.place = None
        partition.stopped = True
        self._events.on_revoked([partition.index], "the topic was deleted")
        topic = partition.log.topic
        while True:
            try:
                if (await link.ask("topic", topic=topic))["incarnation"] != partition.log.incarnation:
                    break
            except RequestRefused:
                pass
            await asyncio.sleep(RETRY_S)
        if not any(each.log.topic == topic and not each.stopped for each in self.partitions):
            await self._find_partitions(link)

    def _took(self, chunk: Chunk) -> None:
        if not self._events.on_chunk(chunk):
            self._full = True
            self._steer()

    def _steer(self) -> None:
        if self._full or self._level is not Level.FREE:
            self._room.clear()
        else:
            self._room.set()

    def commit(self, partition: Partition, offset: int) -> None:
        """Tell the broker that the group is done with everything before ``offset``."""
        if self._now is not None:
            partition.sent = offset
            commits = self._now.commits
            task = self._run(self._commit, self._now.link, partition, offset)
            commits.add(task)
            task.add_done_callback(commits.discard)

    async def _commit(self, link: Link, partition: Partition, offset: int) -> None:
        try:
            await link.ask("commit", offset=offset, **self._keys(partition))
        except RequestRefused:
            pass  # the topic is gone, and with it the offsets of its groups

    def _run(self, work: Callable[..., Coroutine[Any, Any, None]], *args: object) -> "asyncio.Task[None]":
        assert self._now is not None

        async def until_lost() -> None:
            try:
                await work(*args)
            except ConnectionLost:
                pass

        task = self._tasks.run(until_lost(), "toy")
        self._now.tasks.add(task)
        task.add_done_callback(self._now.tasks.discard)
        return task

    async def _ask(self, what: str, **keys: Any) -> dict[str, Any]:
        while True:
            try:
                if self._now is not None:
                    return await self._now.link.ask(what, **keys)
            except ConnectionLost:
                pass
            await asyncio.sleep(RETRY_S)

    def _keys(self, partition: Partition) -> dict[str, Any]:
        return {**partition.keys, "group": self._config.subscription}
