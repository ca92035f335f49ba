"""Connections on which nothing is consumed: for questions and for producers."""

import asyncio
from typing import Self

from fastwire.columns.chunk import Chunk
from fastwire.kafka.fetch import FetchLimits
from fastwire.kafka.response import Fetched
from fastwire.kafka.scan import CorruptBatch
from fastwire.kafka.slot import SlotTable
from fastwire.wire.pool import Pool

from .cluster import Cluster
from .link import Link
from .settings import ClientSettings

__all__ = ["QuietCluster"]

TICK_S = 0.25
MEMORY = 1 << 20  # nothing is consumed


class QuietCluster(Cluster):
    """A cluster that looks after its connections itself, as long as it is used as a context."""

    def __init__(self, settings: ClientSettings) -> None:
        super().__init__(settings, SlotTable(), Pool(MEMORY), self, FetchLimits())
        self._clock: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._clock = asyncio.create_task(self._keep_time())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._clock is not None:
            self._clock.cancel()
        await self.close()

    async def _keep_time(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(TICK_S)
            for link in tuple(self.links.values()):
                link.tick(loop.time(), TICK_S)

    def on_lost(self, link: Link, reason: Exception | None) -> None:
        """The next one who needs that broker connects again."""
        self.forget(link)

    def on_chunk(self, chunk: Chunk) -> None: ...
    def on_fetched(self, link: Link, fetched: Fetched) -> None: ...
    def on_corrupt(self, batch: CorruptBatch) -> None: ...
    def on_connected(self, link: Link) -> None: ...
