"""An open reader or consumer for blocking callers."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import CancelledError
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, Generic, Self, TypeVar

from fastwire.errors import FastwireError

from .loopthread import LoopThread

_Opened = TypeVar("_Opened")
_Chunk = TypeVar("_Chunk")
_T = TypeVar("_T")


class Feed(Generic[_Opened, _Chunk]):
    """Opens a reader or a consumer for the time of a block, in a thread with a loop of its own.

    ``opening`` returns its context, which ``chunks`` iterates over; ``name`` is that of the thread.
    """

    def __init__(
        self,
        name: str,
        opening: Callable[[], AbstractAsyncContextManager[_Opened]],
        chunks: Callable[[_Opened], AsyncIterator[_Chunk]],
    ) -> None:
        self._name = name
        self._opening = opening
        self._iterate = chunks
        self.opened: _Opened | None = None
        """The reader or consumer, once it is open."""
        self._thread: LoopThread | None = None
        self._chunks: AsyncIterator[_Chunk] | None = None

    def __enter__(self) -> Self:
        self._thread = LoopThread(self._name)
        try:
            self.call(partial(self._open, self._thread))
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def next(self, timeout_s: float | None = None) -> _Chunk | None:
        """Return the next chunk; None at the end of the reading, and after ``timeout_s`` seconds without a chunk."""
        return self.call(partial(self._next, timeout_s))

    def call(self, work: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """Run the coroutine of ``work`` in the feed's loop and return its result.

        Raises FastwireError once the block has ended.
        """
        thread = self._thread
        if thread is None:
            raise FastwireError("the iteration has ended: what is not committed comes again")
        try:
            return thread.call(work)
        except CancelledError:
            raise FastwireError("the iteration was ended by another thread") from None

    def close(self) -> None:
        """End the reading, from any thread: a call that waits in another one raises FastwireError."""
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.close()

    async def _open(self, thread: LoopThread) -> None:
        self.opened = await thread.stack.enter_async_context(self._opening())
        self._chunks = self._iterate(self.opened)

    async def _next(self, timeout_s: float | None) -> _Chunk | None:
        assert self._chunks is not None, "it is open"
        try:
            async with asyncio.timeout(timeout_s):
                return await anext(self._chunks, None)
        except TimeoutError:
            return None
