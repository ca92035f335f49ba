"""A thread with an event loop of its own, for blocking calls from threads that may have a loop already."""

import asyncio
import atexit
import threading
from collections.abc import Coroutine
from concurrent.futures import CancelledError, Future
from contextlib import AsyncExitStack
from typing import Any, TypeVar

import uvloop

__all__ = ["LoopThread"]

_T = TypeVar("_T")

END_S = 5.0


class LoopThread:
    """Runs coroutines on its loop until ``close``, which first leaves the contexts that ``stack`` has entered there.

    The end of the process closes it, too: behind that no thread runs that a generator, which is dropped last, could
    wait for.
    """

    def __init__(self, name: str) -> None:
        self.stack = AsyncExitStack()
        self._closing = threading.Lock()
        self._closed = False
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        left = asyncio.all_tasks(self._loop)  # those of calls that wait in other threads
        for task in left:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        self._loop.close()

    def call(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run ``work`` to its end and return its result, or raise its exception.

        An exception in the calling thread meanwhile, such as KeyboardInterrupt, cancels it. Raises CancelledError if
        another thread closes this one, or has done so.
        """
        with self._closing:  # what comes behind the end of the loop would never be run
            if self._closed:
                work.close()
                raise CancelledError
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        return self.wait(future)

    @staticmethod
    def wait(future: "Future[_T]") -> _T:
        """Return the result of ``future``, which an exception in this thread cancels."""
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """Leave the contexts, and end the loop and the thread. A second call does nothing."""
        atexit.unregister(self.close)
        with self._closing:
            if self._closed:
                return
            self._closed = True
            leaving = asyncio.run_coroutine_threadsafe(self.stack.aclose(), self._loop)
        try:
            self.wait(leaving)
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(END_S)
