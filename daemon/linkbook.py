"""The connections to one cluster, one for each key: made when somebody needs them, and for all who do."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, Generic, Self, TypeVar

from fastwire.columns.chunk import Chunk
from fastwire.errors import FastwireError

from .link import BrokerLink
from .shared import shared

__all__ = ["LinkBook", "QuietBook"]

TICK_S = 0.25
CLOSE_S = 1.0

K = TypeVar("K")
L = TypeVar("L", bound=BrokerLink[Any, Any, Any])


class LinkBook(ABC, Generic[K, L]):
    """Keeps the links ``L`` to the brokers of a cluster by keys ``K``; its owner ticks them."""

    def __init__(self) -> None:
        self.links: dict[K, L] = {}
        self.failure = ""  # why the last attempt to connect has failed; "" once one has not
        self._opening: dict[K, asyncio.Task[L]] = {}

    @abstractmethod
    def _make(self, key: K) -> L:
        """A link that is not open yet."""

    async def _link(self, key: K) -> L:
        """The link of ``key``, made if there is none. Whoever asks meanwhile waits for the same attempt."""
        link = self.links.get(key)
        if link is not None and link.ready:
            return link
        return await shared(self._opening, key, lambda: self._open(key))

    async def _open(self, key: K) -> L:
        link = self._make(key)
        self.links[key] = link
        try:
            await link.open()
        except FastwireError as exc:
            self.forget(link)
            self.failure = str(exc)
            # Tasks, futures and frames hold each other by way of their exception, until the next full collection.
            # The receive buffer of a failed attempt must not wait for that: whoever waits for a broker tries often.
            del link
            exc.__context__ = None
            raise exc.with_traceback(None)  # noqa: B904 - it is the same one
        except BaseException:
            self.forget(link)
            raise
        self.failure = ""
        return link

    def forget(self, link: L) -> None:
        """``link`` is gone: the next one who needs its broker connects again."""
        for key, one in tuple(self.links.items()):
            if one is link:
                del self.links[key]

    @property
    def ready(self) -> bool:
        """Whether any connection is up."""
        return any(link.ready for link in self.links.values())

    def _questions(self) -> Iterable["asyncio.Task[Any]"]:
        """What is under way beside the opening of links, and ends with them."""
        return ()

    async def close(self) -> None:
        """Close all connections and wait until they are."""
        tasks = [*self._opening.values(), *self._questions()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        links = list(self.links.values())
        for link in links:
            link.close()
        if links:
            await asyncio.wait([link.lost for link in links], timeout=CLOSE_S)
        for link in links:
            link.abort("closed")


class QuietBook(LinkBook[K, L]):
    """Links on which nothing is consumed, for questions and for producers.

    It looks after them itself, as long as it is used as a context.
    """

    _clock: "asyncio.Task[None] | None" = None

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

    def on_lost(self, link: L, reason: Exception | None) -> None:
        """The next one who needs that broker connects again."""
        self.forget(link)

    def on_chunk(self, chunk: Chunk) -> None: ...
    def on_connected(self, link: L) -> None: ...
