"""Work of an engine on a thread of its own, so that Ctrl-C ends it also while it waits for a topic."""

import time
from _thread import start_new_thread
from collections.abc import Callable, Iterable
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

if TYPE_CHECKING:
    import duckdb

_T = TypeVar("_T")

END_S = 10.0
LOOK_S = 0.05


class Background(Generic[_T]):
    """Runs ``work``, which uses ``engine``, for the time of a block.

    What still runs at the end of the block is ended; ``ends`` end all that it may wait for. An engine on the main
    thread would look for signals between its own steps only, and make another error of a KeyboardInterrupt in a topic.
    """

    def __init__(
        self, engine: "duckdb.DuckDBPyConnection", ends: Iterable[Callable[[], Any]], work: Callable[[], _T]
    ) -> None:
        self._engine = engine
        self._ends = [*ends]
        self._work = work
        self._done: Future[_T] = Future()

    def __enter__(self) -> Self:
        # One step, which a KeyboardInterrupt cannot halve as it can Thread.start. The end of the process does not wait
        # for such a thread.
        try:
            start_new_thread(self._run, ())
            return self
        except BaseException:
            self._end()
            raise

    def __exit__(self, *_: object) -> None:
        self._end()

    def result(self) -> _T:
        """Wait for the end of the work, and return its result or raise its error."""
        return self._done.result()

    def _run(self) -> None:
        if not self._done.set_running_or_notify_cancel():
            return
        try:
            self._done.set_result(self._work())
        except BaseException as exc:
            self._done.set_exception(exc)

    def _end(self) -> None:
        if self._done.done() or self._done.cancel():
            return
        for end in self._ends:
            end()
        until = time.monotonic() + END_S
        while not self._done.done() and time.monotonic() < until:
            self._engine.interrupt()  # again and again: it may be before the first step of its query
            wait([self._done], LOOK_S)
