"""The thread that runs the calls of a pipeline's sink."""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from time import perf_counter_ns
from typing import Any, TypeVar

from fastwire.columns.chunk import Chunk
from fastwire.coverage import Coverage

from ..dataset.deadletters.sums import DeadLetterSums
from ..runtime.logs import of_pipeline
from ..runtime.outside import TOLD_AFTER_S, waiting
from .base import Decoded, LoggedSink, Sink, logged
from .workers import Calls, OwnThread, Workers

SLOW_S = 10.0  # a call that takes longer is told, also without a known reason
PUBLISH_AGAIN_S = 60.0  # a table that takes no files is tried again, also without a commit
PUBLISHING_S = 1.0  # and a catalog that has not answered yet is looked at

_T = TypeVar("_T")


class SinkThread:
    """Runs the blocking calls of one sink, one at a time, on its own thread. Created on the loop's thread.

    With ``workers`` the calls run on one of these, which serve many sinks. ``name`` is that of the pipeline, for log
    lines.
    """

    def __init__(self, sink: Sink, name: str, workers: Workers | None = None) -> None:
        self.sink = sink
        self._name = name
        # Tested once: a check against a protocol costs more than the decoding of a chunk.
        self.logged: LoggedSink | None = logged(sink)
        """The sink, if it has a log; the properties below have neutral values for one that has none."""
        self.busy_since: float | None = None
        """The loop's time at which the running call began; None while no call runs. The call's thread sets it."""
        self.busy_ns = 0
        """Nanoseconds of all calls so far."""
        self._unpublished_at: float | None = None  # when files were seen to be unpublished, or tried again
        # Two thread switches per chunk cost more than a sink that only counts.
        self._quick = bool(getattr(sink, "quick", False))
        self._loop = asyncio.get_running_loop()
        self._tell = self._loop.call_soon_threadsafe
        self._ident: int | None = None  # the number of the thread that has begun the last call
        # A standard library executor does the same, but costs as much as the decoding of a thousand records.
        self._calls: Calls = OwnThread(f"sink-{name}") if workers is None else workers.calls()

    async def open(self) -> Coverage:
        """Open the sink; one that has ``chosen`` another one, before or thereby, is replaced by that for good."""
        coverage = None if self._replaced() else await self.run(self.sink.open)
        if coverage is None or self._replaced():
            coverage = await self.run(self.sink.open)
        return coverage

    def _replaced(self) -> bool:
        chosen: Sink | None = getattr(self.sink, "chosen", None)
        if chosen is not None:
            self.sink, self.logged = chosen, logged(chosen)
        return chosen is not None

    async def write(self, chunk: Chunk) -> None:
        """Write ``chunk`` to the sink: on its thread, or at once on this thread if the sink is quick."""
        if not self._quick:
            await self.run(self.sink.write, chunk)
            return
        began = perf_counter_ns()
        self.sink.write(chunk)
        self.busy_ns += perf_counter_ns() - began

    async def run(self, call: Callable[..., _T], *args: object) -> _T:
        """Run ``call`` on the thread, after all earlier calls, and return its result. Raises its exception."""
        done: asyncio.Future[_T] = self._loop.create_future()
        self._calls.put(partial(self._perform, [call, args, done]))
        try:
            return await done
        finally:
            del done  # an exception in it holds this frame, and with it the arguments

    @property
    def exactly_once(self) -> bool:
        """True if rows and positions are one commit: of a sink with a log, unless it says otherwise."""
        return bool(getattr(self.sink, "exactly_once", self.logged is not None))

    @property
    def staged_bytes(self) -> int:
        """See ``LoggedSink.staged_bytes``."""
        return 0 if self.logged is None else self.logged.staged_bytes

    def unpooled_bytes(self) -> int:
        """Return ``LoggedSink.unpooled_bytes``, for the budget."""
        return 0 if self.logged is None else self.logged.unpooled_bytes

    @property
    def published(self) -> tuple[int, int]:
        """Files that the sink has published so far, and their size in bytes."""
        return (0, 0) if self.logged is None else (self.logged.committed_files, self.logged.committed_bytes)

    def tell_dead_letters(self, entries: DeadLetterSums, pipeline: str) -> Counter[str]:
        """Log the dead letters of a commit: ``entries`` of the source, and those that the sink itself has made.

        Returns their number by reason.
        """
        own = getattr(self.sink, "dead_letter_sums", None) or DeadLetterSums()
        kept = self.logged is not None
        return entries.tell(pipeline, kept=kept) + own.tell(pipeline, kept=kept)

    @property
    def decoded(self) -> Decoded | None:
        """See ``LoggedSink``, other sinks may have it, too; None for a sink that decodes nothing."""
        return getattr(self.sink, "decoded", None)

    @property
    def changed_times(self) -> int:
        """Event times that the topic of the sink does not have as they are, of all records written."""
        return getattr(self.sink, "changed_times", 0)

    @property
    def unpublished(self) -> str:
        """See ``LoggedSink``; "" for a sink without a table."""
        return getattr(self.logged, "unpublished", "")

    @property
    def publishing(self) -> bool:
        """See ``LoggedSink``; False for a sink without a table."""
        return getattr(self.logged, "publishing", False)

    async def look(self) -> None:
        """Publish what is not published, as far as the table takes it. Raises as ``LoggedSink.refresh``."""
        if self.logged is not None:
            await self.run(self.logged.refresh)

    @property
    def _again_s(self) -> float | None:
        """The time between two attempts to publish without a commit, in seconds; None without a need."""
        if self.publishing:
            return PUBLISHING_S
        return PUBLISH_AGAIN_S if self.unpublished else None

    def next_look(self) -> float | None:
        """Return the time until ``publish_again`` may be due, in seconds; None if nothing is unpublished."""
        return self._again_s

    def publish_again(self, now: float) -> bool:
        """Return True now and then while files are unpublished: a refresh of the sink tries them again."""
        again_s = self._again_s
        if again_s is None or self._unpublished_at is None:
            self._unpublished_at = None if again_s is None else now
            return False
        due = now - self._unpublished_at >= again_s
        if due:
            self._unpublished_at = None
        return due

    @property
    def must_end(self) -> str | None:
        """The reason why the sink needs a commit soon; None if it does not."""
        return "many folders" if self.logged is not None and self.logged.too_many_files else None

    @property
    def waiting(self) -> str | None:
        """See ``LoggedSink.waiting``, which other sinks may have, too."""
        why: str | None = getattr(self.sink, "waiting", None)
        return why

    @property
    def waits_for(self) -> str | None:
        """As ``waiting``, and also the service that a call waits for, or the time that it has taken, as text."""
        since = self.busy_since
        if (why := self.waiting) or since is None:
            return why
        taken = self._loop.time() - since
        slow = f"a call of the sink has taken {taken:.0f} s" if taken >= SLOW_S else None
        return waiting(self._threads, TOLD_AFTER_S) or slow

    def hung_s(self, now: float) -> float:
        """Return the seconds that the running call has taken without a known reason; 0 without one."""
        since = self.busy_since
        if since is None or self.waiting or waiting(self._threads, 0.0):
            return 0.0
        return now - since

    @property
    def _threads(self) -> Iterable[int | None]:
        return (self._ident, *getattr(self.sink, "threads", ()))

    @property
    def stage_ns(self) -> Mapping[str, int]:
        """See ``LoggedSink.stage_ns``; a sink without a log has one stage, its calls."""
        return {"sink": self.busy_ns} if self.logged is None else self.logged.stage_ns

    def interrupt(self) -> None:
        """See ``LoggedSink.interrupt``, which other sinks may have, too."""
        interrupt: Callable[[], None] | None = getattr(self.sink, "interrupt", None)
        if interrupt is not None:
            interrupt()

    def shutdown(self) -> None:
        """End the thread after the calls already made; no call may follow."""
        self._calls.end()

    def _perform(self, job: list[Any]) -> None:
        # No reference may last until the next call: the argument keeps a chunk in memory.
        call, args, done = job
        job.clear()
        of_pipeline.set(self._name)
        self._ident = threading.get_ident()
        self.busy_since = self._loop.time()  # not before: of many sinks a call waits for a thread, which is not slow
        began = perf_counter_ns()
        try:
            told: tuple[Any, ...] = (_succeed, done, call(*args))
        except BaseException as exc:
            told = (_fail, done, exc)
        self.busy_ns += perf_counter_ns() - began
        self.busy_since = None
        del call, args, done
        try:
            self._tell(*told)
        except RuntimeError:
            pass  # the loop is closed: no coroutine waits any more


def _succeed(done: "asyncio.Future[Any]", result: object) -> None:
    if not done.done():
        done.set_result(result)


def _fail(done: "asyncio.Future[Any]", error: BaseException) -> None:
    if not done.done():
        done.set_exception(error)
