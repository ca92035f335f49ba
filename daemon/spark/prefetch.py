"""Reading ahead: Spark takes batches in lockstep, so brokers are read on a thread of their own meanwhile.

The thread is made when a task begins to read, after the fork. What it does is waiting for sockets and compiled code.
"""

from collections.abc import Callable, Iterator
from queue import Full, Queue
from threading import Event, Thread

import pyarrow as pa

from .broker import RangeRows

__all__ = ["prefetched"]

REST_S = 1.0
END_S = 10.0  # how long whoever ends early waits for the thread; it looks around every fifth of a second

Stopped = Callable[[], bool]


def prefetched(open_rows: Callable[[Stopped], RangeRows], depth: int) -> Iterator[pa.RecordBatch]:
    """The batches of a range, at most ``depth`` of them read ahead. ``open_rows`` is called on the thread."""
    stop = Event()
    queue: Queue[pa.RecordBatch | BaseException | None] = Queue(depth)

    def put(item: pa.RecordBatch | BaseException | None, rest: Callable[[], None]) -> None:
        while not stop.is_set():
            try:
                queue.put(item, timeout=REST_S)
                return
            except Full:
                rest()

    def run() -> None:
        end: BaseException | None = None
        try:
            rows = open_rows(stop.is_set)
            for batch in rows.batches():
                put(batch, rows.rest)
        except BaseException as exc:
            end = exc.with_traceback(None)
        put(end, _nothing)

    thread = Thread(target=run, name="fastwire-read", daemon=True)
    thread.start()
    try:
        while (item := queue.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        stop.set()
        thread.join(END_S)


def _nothing() -> None:
    """There is no connection any more."""
