"""Work that several want at the same time, done once."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

__all__ = ["shared"]

K = TypeVar("K")
T = TypeVar("T")


async def shared(running: "dict[K, asyncio.Task[T]]", key: K, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Do ``work`` once for all who want it while it runs; one that gives up does not take it from the others.

    ``running`` holds what is under way, by ``key``; whoever owns it may cancel it.
    """
    task = running.get(key)
    if task is None:
        task = asyncio.get_running_loop().create_task(work())
        running[key] = task
        task.add_done_callback(lambda done: _finished(running, key, done))
    waiting: Awaitable[T] = asyncio.shield(task)
    return await waiting


def _finished(running: "dict[K, asyncio.Task[T]]", key: K, task: "asyncio.Task[T]") -> None:
    running.pop(key, None)
    if not task.cancelled():
        task.exception()  # those who wait have it; if nobody does any more it is of no interest
