"""Background work of a source: whatever ends by a fault of ours must not go unnoticed."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

__all__ = ["Tasks"]


class Tasks:
    """Runs coroutines until they end or ``close``; ``on_fault`` is told of what none of them should have raised."""

    def __init__(self, on_fault: Callable[[str], None]) -> None:
        self._on_fault = on_fault
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing = False

    def run(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Do ``work`` in the background; not at all once ``close`` was called."""
        task = self._loop.create_task(work, name=name)
        if self._closing:
            task.cancel()  # before its first step
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    async def close(self) -> None:
        """Cancel everything and wait for its end."""
        self._closing = True
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None and not self._closing:
            # Everything that brokers can do is dealt with; this is a fault of ours, and going on would hide it.
            self._loop.call_exception_handler({"message": "source task failed", "exception": error, "task": task})
            self._on_fault(f"{task.get_name()}: {type(error).__name__}: {error}")
