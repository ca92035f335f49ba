"""A thread with an event loop of its own, for blocking calls from threads that may have a loop already."""

import asyncio
import atexit
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, TypeVar

import uvloop

_T = TypeVar("_T")

END_S = 5.0


class LoopThread:
    """Runs coroutines on its loop until ``close``, which first leaves the contexts that ``stack`` has entered there.

    The end of the process closes it, too: behind that no thread runs that a generator, which is dropped last, could
    wait for.
    """

    def __init__(self, name: str) -> None:
        self.stack = AsyncExitStack()
        self._closing = threading.Lock()  # held from the beginning of close
        self._calls: set[Future[Any]] = set()
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
        for future in tuple(self._calls):  # of calls that came too late for the loop
            future.cancel()

    def call(self, work: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """Run the coroutine that ``work`` returns to its end and return its result, or raise its exception.

        An exception in the calling thread meanwhile, such as KeyboardInterrupt, cancels it. Raises CancelledError if
        another thread closes this one, or has done so.
        """
        return self._wait(work, lambda: self._closing.locked())

    def close(self) -> None:
        """Leave the contexts, and end the loop and the thread. A second call does nothing."""
        atexit.unregister(self.close)
        if not self._closing.acquire(blocking=False):
            return
        try:
            self._wait(self.stack.aclose, lambda: False)
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(END_S)

    def _wait(self, work: Callable[[], Coroutine[Any, Any, _T]], refused: Callable[[], bool]) -> _T:
        """Let the loop run ``work`` unless it is ``refused`` there, and wait.

        A coroutine that is made in the calling thread could be dropped there by KeyboardInterrupt.
        """
        future: Future[_T] = Future()

        def begin() -> None:
            if refused():
                future.cancel()
            if not future.cancelled():
                task = self._loop.create_task(_begun(work))
                future.add_done_callback(lambda _: self._loop.call_soon_threadsafe(task.cancel))
                task.add_done_callback(partial(_settle, future))

        self._calls.add(future)
        try:
            try:
                self._loop.call_soon_threadsafe(begin)
            except RuntimeError:  # it is closed
                raise CancelledError from None
            return future.result()
        finally:
            future.cancel()
            self._calls.discard(future)


async def _begun(work: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
    """Return what the coroutine of ``work`` returns; also its exception is that of a task then."""
    return await work()


def _settle(future: "Future[_T]", task: "asyncio.Task[_T]") -> None:
    """Give the outcome of ``task`` to the caller that waits for ``future``."""
    if task.cancelled():
        future.cancel()
    error = None if task.cancelled() else task.exception()
    if not future.set_running_or_notify_cancel():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(task.result())
