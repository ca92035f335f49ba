"""Reading ahead: Spark takes batches in lockstep, so an event loop reads the brokers on a thread of its own meanwhile.

The thread is made when a task begins to read, after the fork. It waits for sockets and runs compiled code.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator
from queue import SimpleQueue
from threading import Thread
from typing import Any

import pyarrow as pa

from .connections import Connections

Give = Callable[[pa.RecordBatch], Awaitable[None]]


def prefetched(
    connections: Connections[Any], read: Callable[[Give], Coroutine[Any, Any, None]], depth: int
) -> Generator[pa.RecordBatch, None, None]:
    """Yield the batches of ``read``, of which at most ``depth`` are read ahead. Closing it cancels ``read``."""
    loop = connections.loop
    queue: SimpleQueue[pa.RecordBatch | BaseException | None] = SimpleQueue()
    room = asyncio.Semaphore(depth)

    async def give(batch: pa.RecordBatch) -> None:
        if room.locked():
            connections.pause()
            await room.acquire()
            connections.go_on()
        else:
            await room.acquire()
        queue.put(batch)

    reading = loop.create_task(read(give))

    def run() -> None:
        end: BaseException | None = None
        try:
            connections.run(reading)
        except BaseException as exc:
            end = exc.with_traceback(None)
        queue.put(end)

    thread = Thread(target=run, name="fastwire-read", daemon=True)
    thread.start()
    try:
        while (item := queue.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            loop.call_soon_threadsafe(room.release)
            yield item
    finally:
        loop.call_soon_threadsafe(reading.cancel)
        thread.join()
