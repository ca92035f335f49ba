"""The connections of one of Spark's processes: the daemon's links on an event loop, for callers that block."""

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import Any, Generic, Protocol, Self, TypeVar

import uvloop

from fastwire.columns.chunk import Chunk
from fastwire.errors import FastwireError

from ...net.endpoint import LinkLost
from ...net.transport import Pause
from ...systems.links.link import BrokerLink
from ...systems.links.linkbook import TimedLinkBook

__all__ = ["POOL_BYTES", "Cluster", "Connections", "RangeBook", "tell_unfit"]

logger = logging.getLogger("fastwire.spark")

POOL_BYTES = 1 << 30  # an entry may become an eighth of it; beyond that the prefetch queue of a task limits memory

K = TypeVar("K")
L = TypeVar("L", bound=BrokerLink[Any, Any, Any])
T = TypeVar("T")


_told_unfit = False


def tell_unfit(chunk: Chunk) -> None:
    """Warn, once in a process, of a chunk that had times which its columns cannot hold."""
    global _told_unfit
    if chunk.unfit_times and not _told_unfit:
        logger.warning("times of records do not fit into a TIMESTAMP: the nearest time that fits is read")
        _told_unfit = True


class RangeBook(TimedLinkBook[K, L]):
    """The links of a cluster of which one at a time is read: that of the partition whose range a task reads.

    ``chunks`` are those that came and were not taken, ``ended_by`` is what has ended the reading before its end.
    """

    chunk_age_s = math.inf  # a range has an end, so a reader takes the open chunk itself

    def __init__(self) -> None:
        super().__init__()
        self.chunks: deque[Chunk] = deque()
        self.ended_by: Exception | None = None
        self._reading: L | None = None
        self._news = asyncio.Event()
        self._time = asyncio.get_running_loop().time

    @property
    def now(self) -> float:
        """The time of the loop, in seconds."""
        return self._time()

    def watch(self, link: L) -> None:
        """Begin to read by ``link``. Raises LinkLost if it is closed."""
        if not link.ready:
            raise LinkLost(f"connection to {link} is closed")
        self._reading, self.ended_by = link, None
        self.chunks.clear()

    def leave(self, link: L) -> None:
        """End reading by ``link``; records that were not taken are dropped."""
        self._reading = None
        link.drop_chunk()
        self.chunks.clear()

    def take_full(self) -> Iterator[Chunk]:
        """Yield the chunks that are full, in the order of arrival."""
        while self.chunks:
            yield self.chunks.popleft()

    def take_all(self) -> Iterator[Chunk]:
        """Yield all chunks; the last one may not be full."""
        if self._reading is not None:
            self._reading.hand_on()
        return self.take_full()

    def tell(self, failure: Exception | None = None) -> None:
        """Wake the reader. ``failure`` is the error that has ended the reading, if any; the first one is kept."""
        self.ended_by = self.ended_by or failure
        self._news.set()

    async def news(self) -> None:
        """Wait until something happens that concerns the reader, at most until the links are ticked."""
        await self._news.wait()
        self._news.clear()

    # --- calls of the links and of the clock

    def on_tick(self) -> None:
        """Wake the reader, which checks its patience."""
        self._news.set()

    def on_chunk(self, chunk: Chunk) -> None:
        """Keep a chunk for the reader."""
        tell_unfit(chunk)
        self.chunks.append(chunk)
        self.tell()

    def on_lost(self, link: L, reason: Exception | None) -> None:
        """Forget a link, and end the reading if that was its link."""
        super().on_lost(link, reason)
        if link is not self._reading:
            return
        if isinstance(reason, FastwireError) and not isinstance(reason, LinkLost):
            self.tell(reason)
        else:
            self.tell(LinkLost(f"connection to {link}: {'closed by the broker' if reason is None else reason}"))


class Cluster(Protocol):
    """The connections to the brokers of one cluster, while it is entered."""

    @property
    def links(self) -> Mapping[Any, BrokerLink[Any, Any, Any]]:
        """The connections."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *_: object) -> None: ...


B = TypeVar("B", bound=Cluster)


class Connections(Generic[B]):
    """A cluster on an event loop of its own, used by one thread at a time.

    The loop runs while a caller waits in ``run``; the connections are suspended in between.
    """

    def __init__(self, make: Callable[[], B]) -> None:
        self.loop = uvloop.new_event_loop()
        try:
            self.cluster = self.loop.run_until_complete(self._open(make))
        except BaseException:
            self.loop.close()
            raise

    async def _open(self, make: Callable[[], B]) -> B:
        return await make().__aenter__()

    def run(self, work: Coroutine[Any, Any, T] | asyncio.Task[T]) -> T:
        """Run ``work`` to its end."""
        return self.loop.run_until_complete(self._awake(work))

    async def _awake(self, work: Coroutine[Any, Any, T] | asyncio.Task[T]) -> T:
        self.go_on()
        try:
            return await work
        finally:
            self.pause()

    def pause(self) -> None:
        """Receive nothing until ``go_on``; while the loop runs the links are kept alive."""
        for link in self.cluster.links.values():
            if link.ready:
                link.transport.pause(Pause.QUEUE)

    def go_on(self) -> None:
        """Receive again."""
        for link in self.cluster.links.values():
            link.transport.go_on(Pause.QUEUE)

    def close(self) -> None:
        """Close all connections and the loop."""
        if not self.loop.is_closed():
            self.loop.run_until_complete(self.cluster.__aexit__())
            self.loop.close()
