"""The life of a pipeline, with one dataset or with one for each topic: its start, its failure and its end."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar, cast

from fastwire.coverage import Coverage

from ..runtime.budget import Budget
from ..runtime.logs import of_pipeline
from ..runtime.metrics import PipelineMetrics, PipelineState
from ..systems.source import Source, SourceEvents, SourceFailed
from .failure import failure_of
from .roll import RollPolicy
from .until_end import watch_bounds, watch_end

S = TypeVar("S", bound=Source)

SourceFactory = Callable[[SourceEvents, str | None], Source]
"""Makes the source of a pipeline from its events and the cluster's name (None: the sink records no cluster)."""


class BasePipeline(ABC, Generic[S]):
    """Reads the source that ``make_source`` makes.

    With ``until_end`` it ends when all records that the broker held at the start are committed, ``bounded`` when those
    up to the source's ``end`` are. ``create`` allows a new dataset although the source's cursor has progress already.
    ``max_records`` drains it after so many records.
    """

    _has_own_source = True

    def __init__(
        self,
        name: str,
        make_source: SourceFactory,
        budget: Budget,
        metrics: PipelineMetrics,
        policy: RollPolicy,
        *,
        until_end: bool = False,
        bounded: bool = False,
        max_records: int | None = None,
        create: bool = False,
        drain_timeout_s: float = 30.0,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.name = name
        self.coverage = Coverage()
        """The positions that have landed, as intervals of each log."""
        self.state: PipelineState = "starting"
        self.error: str | None = None
        self._make_source = make_source
        self._made_source: S | None = None
        self._cluster: str | None = None
        self._budget = budget
        self._metrics = metrics
        self._policy = policy
        self._until_end, self._bounded = until_end, bounded
        self._max_records = max_records
        self._create = create
        self._drain_timeout_s = drain_timeout_s
        self._clock = clock or asyncio.get_running_loop().time
        self._failure: BaseException | None = None
        self._draining = False
        self._wake = asyncio.Event()
        self._background: list[asyncio.Future[None]] = []

    def on_grown(self) -> None:
        """See ``SourceEvents.on_grown``."""
        self._budget.check()

    def on_unconfirmed(self, reason: str) -> None:
        """See ``SourceEvents.on_unconfirmed``."""
        self.commit_soon(reason)

    def on_failed(self, error: SourceFailed) -> None:
        """See ``SourceEvents.on_failed``: what was received is committed first."""
        self._fail(error)

    @property
    def is_draining(self) -> bool:
        """True once no more records are taken."""
        return self._draining

    @abstractmethod
    def commit_soon(self, reason: str) -> None:
        """Request a commit of the records taken so far, if there are any."""

    async def run(self) -> None:
        """Run until drained. Raises PipelineFailed, after a commit of the records taken if that is possible."""
        if self._has_own_source:
            of_pipeline.set(self.name)
        try:
            await self._run()
            self._state("ended")
        except Exception as exc:
            failure = failure_of(exc)
            self.error = str(failure or f"internal error: {type(exc).__name__}: {exc}")
            self._state("failed")
            if failure is None or failure is exc:
                raise
            raise failure from exc
        finally:
            for task in self._background:
                task.cancel()
            await self._close()

    @abstractmethod
    async def _run(self) -> None:
        """Make the source, start it, and work until there is no more to do."""

    @abstractmethod
    async def _close(self) -> None:
        """Let go of the source and the sinks."""

    def _start_source(self, source: S, held_bytes: Callable[[], int]) -> "asyncio.Future[None]":
        """Start the source, and watch for the end of a run that has one; return the start, which goes on.

        ``held_bytes`` is the memory that counts for the budget, beside that of the chunks.
        """
        self._made_source = source
        self._budget.watch(source.on_budget)
        self._budget.count(held_bytes)
        starting = self._begin(source.start(self.coverage))
        watched = cast(Any, self)  # a subclass has the rest of it
        if self._bounded:
            self._begin(watch_bounds(watched, source, starting))
        elif self._until_end:
            self._begin(watch_end(watched, source, starting, self._policy.max_age_s))
        return starting

    async def _close_source(self) -> None:
        if self._made_source is not None:
            self._budget.unwatch(self._made_source.on_budget)
            await self._made_source.close(self._drain_timeout_s)

    def _begin(self, work: Awaitable[None]) -> "asyncio.Future[None]":
        """Let ``work`` go on until the end; its failure is that of the pipeline."""
        task = asyncio.ensure_future(work)
        task.add_done_callback(self._background_ended)
        self._background.append(task)
        return task

    def _background_ended(self, task: "asyncio.Future[None]") -> None:
        if not task.cancelled() and (exc := task.exception()) is not None:
            self._fail(exc)

    def _fail(self, error: BaseException) -> None:
        self._failure = self._failure or error
        self._wake.set()

    def _state(self, state: PipelineState) -> None:
        self.state = state
        self._metrics.state(state)
