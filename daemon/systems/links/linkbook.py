"""The connections to one cluster, one per key: opened on demand and shared by all callers."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable
from typing import Any, Generic, Self, TypeVar

from fastwire.columns.chunk import Chunk
from fastwire.errors import FastwireError

from ...net.auth import AuthError
from ...net.backoff import Backoff
from ...runtime.shared import shared
from .link import BrokerLink

TICK_S = 0.25
CLOSE_S = 1.0
CLIENT_MEMORY = 1 << 20  # bytes of a pool for links that read no records

K = TypeVar("K")
L = TypeVar("L", bound=BrokerLink[Any, Any, Any])


class _Refused:
    """A peer that has refused the login: why, and the loop's time before which it gets no other one."""

    def __init__(self) -> None:
        self.error = FastwireError("")
        self.until = 0.0
        self.backoff = Backoff()


class LinkBook(ABC, Generic[K, L]):
    """Holds the links ``L`` to the brokers of a cluster by keys ``K``; its owner calls their ``tick``."""

    def __init__(self) -> None:
        self.links: dict[K, L] = {}
        self.failure = ""  # the reason why the last attempt to connect has failed; "" if it has not
        self._opening: dict[K, asyncio.Task[L]] = {}
        self._refused: dict[Hashable, _Refused] = {}  # by peer
        self._closed = False

    @abstractmethod
    def _make(self, key: K) -> L:
        """Return a new link that is not open yet."""

    def _peer(self, key: K) -> Hashable:
        """Return what a refused login of ``key`` speaks for: the links to the same peer."""
        return key

    def _is_of_login(self, error: FastwireError) -> bool:
        """Return True if ``error`` says that the credentials are refused, or that there are none."""
        return isinstance(error, AuthError)

    async def _link(self, key: K) -> L:
        """Return the open link of ``key``, opened if necessary. Concurrent callers share one attempt.

        A peer that has refused the login is asked again after a pause, which doubles: accounts are locked for failures
        that repeat. Until then callers get the same refusal at once, so that they can go on to other brokers.

        Raises FastwireError after ``close``: no owner is left that would close the link.
        """
        if self._closed:
            raise FastwireError("the connections to the cluster are closed")
        link = self.links.get(key)
        if link is not None and link.ready:
            return link
        if key not in self._opening:
            self._rest(self._peer(key))
        return await shared(self._opening, key, lambda: self._open(key))

    def _rest(self, peer: Hashable) -> None:
        """Raise the last refusal of ``peer`` while its pause lasts."""
        refused = self._refused.get(peer)
        if refused is not None and asyncio.get_running_loop().time() < refused.until:
            self.failure = str(refused.error)
            raise refused.error.with_traceback(None)  # it would grow with each raise

    def _note_refusal(self, peer: Hashable, error: FastwireError) -> None:
        refused = self._refused.setdefault(peer, _Refused())
        refused.error = error
        refused.until = asyncio.get_running_loop().time() + refused.backoff.next()

    async def _open(self, key: K) -> L:
        link = self._make(key)
        self.links[key] = link
        try:
            await link.open()
        except FastwireError as exc:
            self.forget(link)
            self.failure = str(exc)
            if self._is_of_login(exc):
                self._note_refusal(self._peer(key), exc)
            # Tasks, futures and frames refer to each other by their exception, until the next full collection.
            # The receive buffer of a failed attempt must not wait for that, because attempts are frequent.
            del link
            exc.__context__ = None
            raise exc.with_traceback(None)  # noqa: B904 - it is the same one
        except BaseException:
            self.forget(link)
            raise
        self.failure = ""
        self._refused.pop(self._peer(key), None)
        return link

    def forget(self, link: L) -> None:
        """Remove a lost ``link``: the next caller that needs its broker connects again."""
        for key, one in tuple(self.links.items()):
            if one is link:
                del self.links[key]

    def hand_on(self) -> None:
        """Pass the open chunks of all links on."""
        for link in tuple(self.links.values()):
            link.hand_on()

    @property
    def ready(self) -> bool:
        """True if any connection is up."""
        return any(link.ready for link in self.links.values())

    def _questions(self) -> Iterable["asyncio.Task[Any]"]:
        """Return the running tasks beside those that open links; ``close`` cancels them."""
        return ()

    async def close(self) -> None:
        """Close all connections and wait until they are closed. Links that are requested from now on are refused."""
        self._closed = True
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


class TimedLinkBook(LinkBook[K, L]):
    """Links without consumers, for requests and for producers.

    Use it as an async context manager: inside, it calls the links' ``tick``.
    """

    chunk_age_s = TICK_S  # after which an open chunk is handed on
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
                try:
                    link.tick(loop.time(), self.chunk_age_s)
                except Exception as exc:  # a bug: without this clock no wait for a response would end
                    loop.call_exception_handler({"message": f"the tick of {link} failed", "exception": exc})
                    link.abort(f"{type(exc).__name__}: {exc}")
            self.on_tick()

    def on_tick(self) -> None:
        """Do the periodic work of a subclass."""

    def on_lost(self, link: L, reason: Exception | None) -> None:
        """Forget the link: the next caller that needs its broker connects again."""
        self.forget(link)

    def on_chunk(self, chunk: Chunk) -> None:
        """Do nothing: no records are requested on these links."""

    def on_fetched(self, link: L, fetched: Any, /) -> None:
        """Do nothing, as for a chunk."""

    def on_corrupt(self, found: Any, /) -> None:
        """Do nothing, as for a chunk."""

    def on_connected(self, link: L) -> None:
        """Do nothing."""
