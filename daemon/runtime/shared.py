"""Coroutines that run once for all concurrent callers."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from fastwire.errors import FastwireError

K = TypeVar("K")
T = TypeVar("T")


async def shared(running: "dict[K, asyncio.Task[T]]", key: K, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Await ``work``, which runs once for all concurrent callers of one ``key``; a cancelled caller does not end it.

    ``running`` holds the running tasks by key. If its owner cancels them, the callers get a FastwireError: they are not
    cancelled themselves.
    """
    task = running.get(key)
    if task is None:
        task = asyncio.get_running_loop().create_task(work())
        running[key] = task
        task.add_done_callback(lambda done: _finished(running, key, done))
    try:
        await asyncio.wait([task])
        if task.cancelled():
            raise FastwireError("it was closed while this was under way")
        return task.result()
    finally:
        del task  # it holds its exception, which holds this frame


def _finished(running: "dict[K, asyncio.Task[T]]", key: K, task: "asyncio.Task[T]") -> None:
    running.pop(key, None)
    if not task.cancelled():
        task.exception()  # callers that still wait get it; without one it must not be reported as never retrieved
