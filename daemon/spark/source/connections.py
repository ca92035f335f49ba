"""The connections of one of Spark's processes: the daemon's links on an event loop, for callers that block."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Generic, Protocol, Self, TypeVar

import uvloop

from fastwire.columns.chunk import Chunk

from ...net.transport import Pause
from ...systems.links.link import BrokerLink

logger = logging.getLogger("fastwire.spark")

POOL_BYTES = 1 << 30  # an entry may become an eighth of it; beyond that the prefetch queue of a task limits memory

T = TypeVar("T")

_told_unfit = False


def tell_unfit(chunk: Chunk) -> None:
    """Warn, once in a process, of a chunk that had times which its columns cannot hold."""
    global _told_unfit
    if chunk.unfit_times and not _told_unfit:
        logger.warning("times of records do not fit into a TIMESTAMP: the nearest time that fits is read")
        _told_unfit = True


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
