"""Reading topics without a group: no offset is committed, nobody else is kept from reading."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from fastwire.columns.chunk import Chunk
from fastwire.errors import FastwireError
from fastwire.position import Coverage, Position
from fastwire.wire.pool import Pool

from ...pulsar.schemas import Schemas
from ..base import Assignment, LogStopped, SourceFailed
from .settings import KafkaSettings
from .source import KafkaSource

__all__ = ["Reader"]

QUEUE = 4
LOOK_S = 0.05


class Reader:
    """Chunks of all partitions from ``settings.start`` on: a source whose pipeline keeps nothing."""

    def __init__(self, settings: KafkaSettings, pool: Pool) -> None:
        self.schemas: Schemas | None = None  # they are in registries of their own
        self._settings = settings
        self._source = KafkaSource(settings, self, pool, grouped=False, patient=False)
        self._coverage = Coverage()
        self._queue: asyncio.Queue[Chunk] = asyncio.Queue()
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._granting: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Find the partitions and ask for their records. Raises FastwireError where a broker says no, or none is."""
        await self._source.start(self._coverage)

    async def describe(self) -> list[tuple[str, int]]:
        """Each topic with the number of its partitions; reads nothing."""
        return await self._source.describe()

    async def __aiter__(self) -> AsyncIterator[Chunk]:
        """Yield chunks as they come."""
        while True:
            chunk = await self._next()
            if chunk is not None:
                yield chunk

    async def up_to_now(self) -> AsyncIterator[Chunk]:
        """Yield chunks up to what the topics held at ``open``."""
        heads = await self._source.heads()
        while not (self._queue.empty() and self._at_end(heads)):
            chunk = await self._next()
            if chunk is not None:
                yield chunk

    async def _next(self) -> Chunk | None:
        """The next chunk, or None after a while without one. Raises what has ended the reading."""
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
        """Whether everything came, and was handed on."""
        for index, head in heads.items():
            at = self._source.position(index)
            if not self._source.partitions[index].over and (at is None or at.a < head.a):
                return False
        for link in tuple(self._source.cluster.links.values()):
            link.hand_on()
        return self._queue.empty()

    async def close(self) -> None:
        """Leave; nobody knew that we were there."""
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
        """A chunk for whoever iterates."""
        self._queue.put_nowait(chunk)
        return self._queue.qsize() < QUEUE

    def on_assigned(self, assignments: Sequence[Assignment]) -> None:
        """Read them at once."""
        task = asyncio.get_running_loop().create_task(self._grant(assignments))
        self._granting.add(task)
        task.add_done_callback(self._granting.discard)

    def on_revoked(self, indexes: Sequence[int], reason: str) -> None:
        """They come back, from where they begin: looking is not worth more care. What was deleted does not."""
        if not all(self._source.partitions[index].over for index in indexes):
            self._fail(FastwireError(reason))

    def on_diverged(self, index: int, reason: str) -> None:
        """What was shown is not there any more: say so, and end."""
        self._fail(FastwireError(reason))

    def on_stalled(self, index: int, unacked: int, reason: str) -> None:
        """Kafka never waits for acks."""

    def on_settled(self, index: int, floor: Position) -> None:
        """Nothing is kept."""

    def on_stopped(self, index: int, error: LogStopped) -> None:
        """A partition cannot be read: say why, and end."""
        self._fail(error)

    def on_failed(self, error: SourceFailed) -> None:
        """Nothing can be read."""
        self._fail(error)
