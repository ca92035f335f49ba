"""Reader of topics by a source that keeps no state on the brokers: other readers are not affected."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple, Protocol

from fastwire.columns.chunk import Chunk
from fastwire.coverage import Coverage
from fastwire.errors import FastwireError
from fastwire.position import Log, Position, Span
from fastwire.wire.pool import Pool

from ...config import Connection, SourceConfig, Start, TopicChoice
from ...runtime.tasks import on_failure, wait_for_set
from ..base import Described, LimitedSource, MakeSource, SchemaTexts, System
from ..links.linkbook import LinkBook
from ..source import Assignment, LogStopped, ProgramEvents, Source, SourceEvents, SourceFailed, added_firsts
from .patience import LOOK_S, Patience
from .stage import StagedPartition

QUEUE = 4
DESCRIBE_BYTES = 16 << 20  # the pool of a reader that only asks


class StatelessSource(Source, Protocol):
    """A source that commits nothing to its cluster, as the reader uses it."""

    @property
    def cluster(self) -> LinkBook[Any, Any]:
        """The connections."""

    @property
    def partitions(self) -> Sequence[StagedPartition]:
        """The partitions, by log index."""

    def is_behind(self, index: int, head: Position) -> bool:
        """Return True if records of a log before ``head`` were not received."""

    async def describe(self) -> tuple[list[tuple[str, int]], list[str]]:
        """Return each topic with the number of its partitions, and why some cannot be read; reads nothing."""


class ClusterReader(ProgramEvents):
    """Yields chunks of all partitions; it stores nothing.

    ``make_source`` makes the source from its events and a function that it calls when a position may have moved.
    """

    def __init__(self, make_source: Callable[[SourceEvents, Callable[[], None]], StatelessSource]) -> None:
        self.schemas: SchemaTexts | None = None  # they are in registries of their own
        self._moved = asyncio.Event()  # set by all that an iteration may wait for
        self._source = make_source(self, self._moved.set)
        self._coverage = Coverage()
        self._queue: deque[Chunk] = deque()
        self._failure: FastwireError | None = None
        self._granting: set[asyncio.Task[None]] = set()
        self._to_end = False
        self._heads: Mapping[int, Position] = {}
        self._reached: dict[Log, int] = {}
        self._looking = False  # nothing is read
        self._stopped: list[LogStopped] = []
        self.gaps: list[Span] = []
        """Spans whose gap follows a position that was to be read on from: records that were deleted before."""

    async def open(self, coverage: Coverage | None = None) -> None:
        """Find the partitions and request records: those of logs in ``coverage`` behind it.

        Raises FastwireError if a broker refuses or none is reachable.
        """
        self._coverage = self._coverage if coverage is None else coverage
        await self._source.start(self._coverage)

    @property
    def logs(self) -> frozenset[Log]:
        """The logs that were found."""
        return frozenset(partition.log for partition in self._source.partitions)

    async def ends(self) -> dict[Log, Position]:
        """Return the end of each log; to be called instead of ``open``, and followed by ``close``."""
        self._looking = True
        await self._source.start(self._coverage)
        heads = await self._source.heads()
        return {one.log: heads.get(one.index, one.beginning) for one in self._source.partitions}

    @property
    def share(self) -> float | None:
        """See ``TopicReader.share``; by the positions of what was handed on."""
        whole = done = 0
        for index, head in self._heads.items():
            log = self._source.partitions[index].log
            first = self._coverage.end(log)
            if first is None:
                return None  # it does not begin yet
            whole += max(0, head.a - first.a)
            done += max(0, min(head.a, self._reached.get(log, first.a)) - first.a)
        return done / whole if whole else None

    async def describe(self) -> Described:
        """Return each topic with the number of its partitions, and why some cannot be read; close without reading."""
        try:
            return Described(*await self._source.describe())
        finally:
            await self.close()

    async def __aiter__(self) -> AsyncIterator[Chunk]:
        """Yield chunks as they come."""
        while True:
            self._moved.clear()
            while (chunk := self._take()) is not None:
                yield chunk
            await self._moved.wait()

    async def up_to_now(self) -> AsyncIterator[Chunk]:
        """Yield chunks up to what the topics held at ``open``.

        In the end raises LogStopped if partitions could not be read to theirs, or not for ``patience.LOG_LIMIT_S``.
        """
        self._to_end = True
        patience = Patience(self._source)
        finding = asyncio.ensure_future(self._source.heads())
        finding.add_done_callback(lambda _: self._moved.set())
        try:
            while True:
                self._moved.clear()
                if finding.done():
                    self._heads = finding.result()
                while (chunk := self._take()) is not None:
                    self._reached.update((span.log, span.end.a) for span in chunk.spans())
                    yield chunk
                if finding.done() and self._at_end(finding.result()):
                    # A position may be that of a request with several records, and offsets may have none.
                    self._reached = {self._source.partitions[index].log: head.a for index, head in self._heads.items()}
                    break
                patience.look()
                await wait_for_set(self._moved, LOOK_S)
        finally:
            finding.cancel()
        if self._stopped:
            raise LogStopped("; ".join(map(str, self._stopped)), self._stopped[0].reason)

    def _take(self) -> Chunk | None:
        """Return the next chunk that has arrived, or None. Raises the error that has ended the reading."""
        if not self._queue:
            if self._failure is not None:
                raise self._failure.with_traceback(None)  # it would grow with each raise
            return None
        chunk = self._queue.popleft()
        if len(self._queue) < QUEUE:
            self._source.resume()
        return chunk

    def _at_end(self, heads: Mapping[int, Position]) -> bool:
        """Return True if all records up to ``heads`` were handed on."""
        for index, head in heads.items():
            if not self._source.partitions[index].over and self._source.is_behind(index, head):
                return False
        self._source.cluster.hand_on()
        return not self._queue

    async def close(self) -> None:
        """Close the connections."""
        self._fail(FastwireError("the reader was closed"))
        for task in tuple(self._granting):
            task.cancel()
        await asyncio.gather(*self._granting, return_exceptions=True)
        await self._source.close(1.0)

    async def _grant(self, assignments: Sequence[Assignment]) -> None:
        for first in await added_firsts(self._source, assignments, self._coverage):
            if first.span.gap is not None:
                self.gaps.append(first.span)
        self._source.grant(assignments, self._coverage)

    def _fail(self, error: FastwireError) -> None:
        self._failure = self._failure or error
        self._moved.set()

    # --- what the source tells

    def on_chunk(self, chunk: Chunk) -> bool:
        """Queue a chunk for the iterator."""
        self._queue.append(chunk)
        self._moved.set()
        return len(self._queue) < QUEUE

    def on_assigned(self, assignments: Sequence[Assignment]) -> None:
        """Read the assigned partitions at once."""
        if self._looking:
            return
        task = asyncio.get_running_loop().create_task(self._grant(assignments))
        self._granting.add(task)
        task.add_done_callback(self._granting.discard)
        on_failure(task, self._fail)

    def on_revoked(self, indexes: Sequence[int], reason: str) -> None:
        """Fail if an assigned partition is revoked; deleted topics are ignored."""
        self._moved.set()
        if not all(self._source.partitions[index].over for index in indexes):
            self._fail(FastwireError(reason))

    def on_diverged(self, index: int, reason: str) -> None:
        """Fail: records that were already yielded no longer exist."""
        self._fail(FastwireError(reason))

    def on_stopped(self, index: int, error: LogStopped) -> None:
        """Note a partition that cannot be read. Reading fails, unless it has an end: the others are read up to it."""
        self._stopped.append(error)
        self._moved.set()
        if not self._to_end:
            self._fail(error)

    def on_failed(self, error: SourceFailed) -> None:
        """Fail the iteration."""
        self._fail(error)


class _Source(StatelessSource, LimitedSource, Protocol):
    """A source for pipelines and for readers."""


class Driver(NamedTuple):
    """The source of a system, and its settings for pipelines and for readers (``System.open_reader``)."""

    source: Callable[..., _Source]
    settings_from: Callable[..., Any]
    reader_settings: Callable[..., Any]

    def reader(self, settings: Any, pool: Pool) -> ClusterReader:
        """Return a reader by the source with ``settings``."""
        return ClusterReader(
            lambda events, moved: self.source(settings, events, pool, patient=False, on_progress=moved)
        )


class ClusterSystem(System):
    """A system whose reader is its source, without a dataset and without a group."""

    @property
    def driver(self) -> Driver:
        """The ``DRIVER`` of the system's package ``source``, which is imported here because few commands need it."""
        driver: Driver = import_module(f"{type(self).__module__.rpartition('.')[0]}.source").DRIVER
        return driver

    def make_source(self, source: SourceConfig) -> MakeSource:
        """See ``System.make_source``."""
        make, settings_from, _ = self.driver
        settings_from(source)  # a file that cannot be used is refused now, and not when the pipeline opens
        return lambda events, pool, metrics, columns, cluster: make(
            settings_from(source, columns=columns, cluster=cluster), events, pool, metrics=metrics
        )

    def open_reader(
        self,
        connection: Connection,
        topics: TopicChoice,
        start: Start,
        pool: Pool,
        columns: frozenset[str] | None = None,
    ) -> ClusterReader:
        """See ``System.open_reader``."""
        return self.driver.reader(self.driver.reader_settings(connection, topics, start, columns), pool)

    async def describe(self, connection: Connection, topics: TopicChoice) -> Described:
        """See ``System.describe``."""
        return await self.open_reader(connection, topics, Start("earliest"), Pool(DESCRIBE_BYTES)).describe()
