"""Background tasks whose unexpected errors are reported, a cheap wait for an event, and blocking calls with a limit."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from fastwire.errors import FastwireError

_T = TypeVar("_T")


def on_failure(task: "asyncio.Task[Any]", call: Callable[[FastwireError], object]) -> None:
    """Call ``call`` with the error that ends ``task``, so that callers that wait for its work can be told.

    Tasks handle every error that a broker can cause: another exception is a bug, which is reported and becomes a
    FastwireError.
    """
    task.add_done_callback(lambda done: None if (error := _failure_of(done)) is None else call(error))


def _failure_of(task: "asyncio.Task[Any]") -> FastwireError | None:
    error = None if task.cancelled() else task.exception()
    if error is None or isinstance(error, FastwireError):
        return error
    task.get_loop().call_exception_handler({"message": "background task failed", "exception": error, "task": task})
    return FastwireError(f"{task.get_name()}: {type(error).__name__}: {error}")


class Tasks:
    """Runs coroutines until they end or ``close``; calls ``on_fault`` with the text of an unexpected exception.

    ``expected`` are exceptions that the callers of ``run`` take from its tasks.
    """

    def __init__(self, on_fault: Callable[[str], None], expected: tuple[type[Exception], ...] = ()) -> None:
        self._on_fault = on_fault
        self._expected = expected
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closing = False

    def run(self, work: Coroutine[Any, Any, _T], name: str) -> asyncio.Task[_T]:
        """Run ``work`` in the background; after ``close`` it is cancelled before its first step."""
        task = self._loop.create_task(work, name=name)
        if self._closing:
            task.cancel()  # before its first step
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    async def close(self) -> None:
        """Cancel all tasks and wait until they have ended."""
        self._closing = True
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None and not self._closing and not isinstance(error, self._expected):
            # Tasks handle every error that a broker can cause, so this is a bug, and it must not stay hidden.
            self._loop.call_exception_handler({"message": "source task failed", "exception": error, "task": task})
            self._on_fault(f"internal error in {task.get_name()}: {type(error).__name__}: {error}")


async def wait_for_set(event: asyncio.Event, timeout: float | None) -> None:
    """Wait until ``event`` is set, and set it after ``timeout`` seconds (None: never).

    ``asyncio.timeout`` around the wait takes half as long again.
    """
    timer = None if timeout is None else asyncio.get_running_loop().call_later(timeout, event.set)
    try:
        await event.wait()
    finally:
        if timer is not None:
            timer.cancel()


async def in_thread(call: Callable[[], _T], most_s: float, what: str) -> _T:
    """Run a blocking ``call`` on a thread of its own, and return its result or raise its exception.

    Raises TimeoutError with ``what`` after ``most_s`` seconds. The thread cannot be ended: it goes on, does not hold up
    the end of the process, and its result is dropped.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[_T] = loop.create_future()

    def settle(result: _T | None, error: BaseException | None) -> None:
        if done.done():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # type: ignore[arg-type]  # None is a result, too

    def work() -> None:
        result, error = None, None
        try:
            result = call()
        except BaseException as exc:
            error = exc
        try:
            loop.call_soon_threadsafe(settle, result, error)
        except RuntimeError:
            pass  # the loop is closed

    threading.Thread(target=work, name=what, daemon=True).start()
    try:
        async with asyncio.timeout(most_s):
            return await done
    except TimeoutError:
        if done.done() and not done.cancelled():
            raise
        raise TimeoutError(f"{what}: no end after {most_s:g} s") from None
