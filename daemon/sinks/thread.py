"""The thread that a pipeline's sink lives on."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from .base import Sink

__all__ = ["SinkThread"]

_T = TypeVar("_T")


class SinkThread:
    """Runs the blocking calls of one sink, one at a time, on a thread of its own."""

    def __init__(self, sink: Sink, name: str) -> None:
        self.sink = sink
        self.busy_since: float | None = None
        """Loop time since when a call runs; None while none does."""
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"sink-{name}")

    async def run(self, call: Callable[..., _T], *args: object) -> _T:
        """Return what ``call`` returns; it runs after all calls that were made before."""
        loop = asyncio.get_running_loop()
        self.busy_since = loop.time()
        try:
            return await loop.run_in_executor(self._thread, call, *args)
        finally:
            self.busy_since = None

    def shutdown(self) -> None:
        """No call may follow; one that is running goes on."""
        self._thread.shutdown(wait=False)
