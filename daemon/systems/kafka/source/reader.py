"""Reader of topics without a group: no offsets are committed, and other readers are not affected."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from fastwire.columns.chunk import Chunk
from fastwire.errors import FastwireError
from fastwire.position import Coverage, Position
from fastwire.wire.pool import Pool

from ...patience import Patience
from ...pulsar.schemas import Schemas
from ...source import Assignment, LogStopped, SourceFailed
from .settings import KafkaSettings
from .source import KafkaSource

__all__ = ["Reader"]

QUEUE = 4
LOOK_S = 0.05


class Reader:
    """Yields chunks of all partitions from ``settings.start`` on; it stores nothing."""

    def __init__(self, settings: KafkaSettings, pool: Pool) -> None:
        self.schemas: Schemas | None = None  # they are in registries of their own
        self._settings = settings
        self._source = KafkaSource(settings, self, pool, grouped=False, patient=False)
        self._coverage = Coverage()
        self._queue: asyncio.Queue[Chunk] = asyncio.Queue()
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._granting: set[asyncio.Task[None]] = set()
        self._to_end = False
        self._stopped: list[LogStopped] = []

    async def open(self) -> None:
        """Find the partitions and request records. Raises FastwireError if a broker refuses or none is reachable."""
        await self._source.start(self._coverage)

    async def describe(self) -> tuple[list[tuple[str, int]], list[str]]:
        """Each topic with the number of its partitions, and what is wrong with some of those; reads nothing."""
        return await self._source.describe()

    async def __aiter__(self) -> AsyncIterator[Chunk]:
        """Yield chunks as they come."""
        while True:
            chunk = await self._next()
            if chunk is not None:
                yield chunk

    async def up_to_now(self) -> AsyncIterator[Chunk]:
        """Yield chunks up to what the topics held at ``open``.

        In the end raises LogStopped if partitions could not be read to theirs, or not for ``patience.LOG_LIMIT_S``.
        """
        self._to_end = True
        patience = Patience(self._source)
        finding = asyncio.ensure_future(self._source.heads())
        try:
            while not (finding.done() and self._queue.empty() and self._at_end(finding.result())):
                patience.look()
                chunk = await self._next()
                if chunk is not None:
                    yield chunk
        finally:
            finding.cancel()
        if self._stopped:
            raise LogStopped("; ".join(map(str, self._stopped)))

    async def _next(self) -> Chunk | None:
        """Return the next chunk, or None after a pause without one. Raises the error that has ended the reading."""
        getting = asyncio.ensure_future(self._queue.get())
        try:
            either: list[asyncio.Future[Any]] = [getting, self._failed]
            await asyncio.wait(either, timeout=LOOK_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not getting.done():
                getting.cancel()
        if getting.done() and not getting.cancelled():
            if self._queue.qsize() < QUEUE:
                self._source.resume()
            return getting.result()
        if self._failed.done():
            self._failed.result()
        return None

    def _at_end(self, heads: Mapping[int, Position]) -> bool:
        """Return True if all records up to ``heads`` were handed on."""
        for index, head in heads.items():
            at = self._source.position(index)
            if not self._source.partitions[index].over and (at is None or at.a < head.a):
                return False
        for link in tuple(self._source.cluster.links.values()):
            link.hand_on()
        return self._queue.empty()

    async def close(self) -> None:
        """Close the connections."""
        if not self._failed.done():
            self._failed.cancel()
        for task in tuple(self._granting):
            task.cancel()
        await asyncio.gather(*self._granting, return_exceptions=True)
        await self._source.close(1.0)

    async def _grant(self, assignments: Sequence[Assignment]) -> None:
        for first in await self._source.resolve(assignments, self._coverage):
            self._coverage.add(first.span)
        self._source.grant(assignments, self._coverage)

    def _fail(self, error: FastwireError) -> None:
        if not self._failed.done():
            self._failed.set_exception(error)

    # --- what the source tells

    def on_chunk(self, chunk: Chunk) -> bool:
        """Queue a chunk for the iterator."""
        self._queue.put_nowait(chunk)
        return self._queue.qsize() < QUEUE

    def on_assigned(self, assignments: Sequence[Assignment]) -> None:
        """Read the assigned partitions at once."""
        task = asyncio.get_running_loop().create_task(self._grant(assignments))
        self._granting.add(task)
        task.add_done_callback(self._granting.discard)

    def on_revoked(self, indexes: Sequence[int], reason: str) -> None:
        """Fail if an assigned partition is revoked; deleted topics are ignored."""
        if not all(self._source.partitions[index].over for index in indexes):
            self._fail(FastwireError(reason))

    def on_diverged(self, index: int, reason: str) -> None:
        """Fail: records that were already yielded no longer exist."""
        self._fail(FastwireError(reason))

    def on_stalled(self, index: int, unacked: int, reason: str) -> None:
        """Do nothing: Kafka never waits for acknowledgments."""

    def on_settled(self, index: int, floor: Position) -> None:
        """Do nothing: no state is kept."""

    def on_stopped(self, index: int, error: LogStopped) -> None:
        """Note a partition that cannot be read. Reading fails, unless it has an end: the others are read up to it."""
        self._stopped.append(error)
        if not self._to_end:
            self._fail(error)

    def on_failed(self, error: SourceFailed) -> None:
        """Fail the iteration."""
        self._fail(error)
