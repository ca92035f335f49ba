"""A pipeline with a dataset for each topic.

One source reads all topics. Each dataset has a pipeline of its own, so that each step of the protocol holds for it by
itself: what goes wrong with one dataset stops its logs and no others. The calls of all sinks run on a few threads.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, cast

from fastwire.columns.chunk import Chunk
from fastwire.coverage import Coverage
from fastwire.errors import FastwireError
from fastwire.position import Position

from ...net.backoff import Backoff
from ...runtime.budget import Budget, Level
from ...runtime.health import HUNG_AFTER_S, Health, health_of
from ...runtime.logs import get_logger
from ...runtime.metrics import PipelineMetrics
from ...runtime.tasks import in_thread, wait_for_set
from ...sinks.workers import Workers
from ...systems.source import Assignment, LogStopped, ShareableSource, Source
from ..base import BasePipeline, SourceFactory
from ..failure import PipelineFailed
from ..figures import PipelineFigures
from ..freshness import Freshness
from ..impairments import starved, unreachable
from ..roll import RollPolicy
from ..stages import stage_figures
from .dealing import Dealer
from .landing import Landing, LandingBudget, LandingMetrics, LandingPipeline, SharedSource
from .landings import Landings, Running
from .places import Found, Places
from .totals import Totals

LOOK_S = 0.25
WORKERS = 8
SLOW_S = 2.0  # a call of a sink takes longer: while its chunks wait, its partitions are paused
REST_S = 5.0  # between two looks for sinks that have nothing to do
MOST_OPEN = 512  # sinks: beyond that those without work are closed, until they have some
QUEUE_SHARE = 8  # of the memory budget: chunks that wait for sinks
DEAL_SHARE = 32  # of it: chunks that are gathered to be dealt
HOLD_SHARE = 3  # of it: rows in sinks, above which the largest rolls end early
FIND_S = 600.0  # the longest time to find and read the datasets that exist

log = get_logger("pipeline")


class FanOut(BasePipeline[ShareableSource]):
    """Moves the records of one source into a dataset for each topic: see ``Pipeline``, of which this is the plural.

    ``places`` finds the datasets, and makes the sink of a topic. Coverage is that of all of them, and grows in place.
    """

    def __init__(
        self,
        name: str,
        make_source: SourceFactory,
        places: Places,
        budget: Budget,
        metrics: PipelineMetrics,
        policy: RollPolicy,
        **options: Any,
    ) -> None:
        super().__init__(name, make_source, budget, metrics, policy, **options)
        self._places = places
        self._workers = Workers(WORKERS, f"sinks-{name}")
        self._landings = Landings()
        self._known_logs = 0  # log indexes that are in ``_landings``
        self._dealer: Dealer | None = None
        self._queued = self._held = 0  # bytes of all landings, as last counted
        self._full = False
        self._received = 0
        self._rested_at = 0.0
        self._waiting: str | None = None
        self._freshness = Freshness(metrics)
        self.figures = Totals(lambda: [each.figures for each in self._landings.values()])

    # --- events of the source: see ``SourceEvents``

    def on_chunk(self, chunk: Chunk) -> bool:
        """Deal the rows of ``chunk`` to their datasets. While draining the chunk is dropped."""
        if self._draining:
            chunk.release()
            return False
        self._budget.arrived(chunk.nbytes)
        self._received += chunk.rows
        self._deal.add(chunk)
        if self._max_records is not None and self._received >= self._max_records:
            self.drain("max-records")
        self._full = self._queued >= self._budget.limit // QUEUE_SHARE
        return not self._full

    def on_assigned(self, assignments: Sequence[Assignment]) -> None:
        """Pass assignments on to the pipelines of their topics, which are made with the first one."""
        self._know_logs()
        by_topic: dict[str, list[Assignment]] = {}
        for each in assignments:
            by_topic.setdefault(each.log.topic, []).append(each)
        for topic, its in by_topic.items():
            landing = self._landings[topic]
            landing.assigned |= {each.index: each for each in its}
            if landing.pipeline is not None:
                landing.pipeline.on_assigned(its)
            elif landing.error is None and not self._draining:
                self._start(landing)

    def on_revoked(self, indexes: Sequence[int], reason: str) -> None:
        """Have the datasets of these logs commit."""
        self._deal.flush()
        for landing, its in self._by_landing(indexes):
            if landing.pipeline is not None:
                landing.pipeline.on_revoked(its, reason)

    def on_diverged(self, index: int, reason: str) -> None:
        """Pass it on to the log's dataset."""
        self._deal.flush()
        if (pipeline := self._landing_of(index).pipeline) is not None:
            pipeline.on_diverged(index, reason)

    def on_stalled(self, index: int, unacked: int, reason: str) -> None:
        """Pass it on to the log's dataset."""
        self._deal.flush()
        if (pipeline := self._landing_of(index).pipeline) is not None:
            pipeline.on_stalled(index, unacked, reason)

    def on_floor(self, index: int, floor: Position) -> None:
        """Pass it on to the log's dataset."""
        if (pipeline := self._landing_of(index).pipeline) is not None:
            pipeline.on_floor(index, floor)

    def on_stopped(self, index: int, error: LogStopped) -> None:
        """Pass it on to the log's dataset, which fails when all of its logs have stopped."""
        self._deal.flush()
        landing = self._landing_of(index)
        if landing.pipeline is not None:
            landing.pipeline.on_stopped(index, error)
        else:
            log.error(str(error), pipeline=self.name, topic=landing.topic)

    # --- for the service: see ``Pipeline``

    def drain(self, reason: str) -> None:
        """Take no more records, commit and ack those that were taken, and let ``run`` return."""
        if self._draining:
            return
        if self._dealer is not None:
            self._dealer.flush()
        self._draining = True
        self._state("draining")
        log.info("draining", pipeline=self.name, reason=reason)
        for landing in self._landings.running():
            landing.pipeline.drain(reason)
        self._wake.set()

    @property
    def ready(self) -> bool:
        """True while the broker is connected, and some dataset lands records or this instance stands by."""
        source = self._made_source
        if source is None or source.unreachable_since is not None:
            return False
        if self.state == "running":
            return any(each.running for each in self._landings.values())
        return self.state == "starting" and source.standing_by

    @property
    def waiting(self) -> str | None:
        """The reason why all datasets wait, with the number of them; None if one does not wait."""
        if self._waiting is not None:
            return self._waiting
        return self._landings.common(lambda pipeline: pipeline.waiting)

    @property
    def waits_for(self) -> str | None:
        """As ``waiting``, and also what calls of sinks have taken long for."""
        return self.waiting or self._landings.common(lambda pipeline: pipeline.waits_for)

    def hung_s(self, now: float) -> float:
        """Return the seconds that the call of some sink has taken without a known reason."""
        return max((each.pipeline.hung_s(now) for each in self._landings.busy()), default=0.0)

    @property
    def impairments(self) -> list[str]:
        """Sentences about what does not land, although the pipeline runs."""
        source = None if self.state in ("failed", "ended") else self._made_source
        return [*unreachable(source), *self._landings.impairments(), *starved(self._budget)]

    @property
    def parts(self) -> Landings:
        """The datasets, of which some do not land while the others do."""
        return self._landings

    @property
    def health(self) -> Health:
        """The health of this pipeline now: degraded if some dataset does not land, or not all of it."""
        hung = self.hung_s(self._clock()) >= HUNG_AFTER_S
        return health_of(hung=hung, ready=self.ready or self.state == "ended", impaired=bool(self.impairments))

    def look(self) -> None:
        """Note what does not land, and log it again now and then; to be called about once a second."""
        waiting: dict[str, dict[int, str]] = {}
        for index, why in () if self._made_source is None else self._made_source.waiting().items():
            waiting.setdefault(self._landing_of(index).topic, {})[index] = why
        self._landings.look(waiting, self._metrics, self.name)
        self._landings.tell_waits(self.name)
        self._freshness.look(None if self._made_source is None else self._made_source.backlog)
        self._metrics.health(self.health)

    def stages(self) -> dict[str, Any]:
        """Return the time by stage, of the source and of all sinks together."""
        first = self.figures.first_row_at
        if first is None or self._made_source is None:
            return {}
        spent = self._landings.stage_ns(self._made_source.stage_ns)
        return stage_figures(spent, self.figures.rows_received, self._clock() - first[0])

    def status(self) -> dict[str, Any]:
        """Return this pipeline's part of ``/status``, as plain values."""
        return {
            "state": self.state,
            "health": self.health,
            "degraded": self.impairments,
            "exactly_once": True,
            "error": self.error,
            **self.figures.status(),
            **self._freshness.status(),
            "waiting": self.waits_for,
            "stages": self.stages(),
            **self._landings.status(),
            "source": None if self._made_source is None else self._made_source.status(),
        }

    def count(self) -> None:
        """Update the metrics of received records and of the open rolls."""
        self._landings.count(self._metrics)

    def interrupt(self) -> None:
        """End every wait of a sink; records that are not committed stay with the broker."""
        for landing in self._landings.running():
            landing.pipeline.interrupt()

    async def _run(self) -> None:
        await self._find()
        source = cast(ShareableSource, self._make_source(self, self._cluster))
        if not getattr(source, "shared", False):
            raise PipelineFailed(f"the sources of {source.system} cannot be shared by several datasets", 78)
        self._dealer = Dealer(source.logs, self._budget.limit // DEAL_SHARE, self._deliver)
        self._start_source(source, self._held_bytes)
        self._begin(self._look_after())
        await self._work()
        self._landings.refuse_stopped(each_must_land=self._until_end or self._bounded)

    # --- for ``watch_end``

    @property
    def queued(self) -> bool:
        """True while chunks wait for a sink."""
        if self._dealer is not None:
            self._dealer.flush()
        return any(each.pipeline.queued for each in self._landings.running())

    @property
    def holds_records(self) -> bool:
        """True while received records are not committed."""
        return any(each.pipeline.holds_records for each in self._landings.running())

    @property
    def assigning(self) -> bool:
        """True while assigned logs of a dataset that lands have no committed first position."""
        return any(each.pipeline.assigning for each in self._landings.running() if not each.pipeline.awaits)

    def has_stopped(self, index: int) -> bool:
        """Return True if the log of this index, or its dataset, has stopped, or its topic was empty."""
        landing = self._landing_of(index)
        if landing.pipeline is not None:
            return landing.pipeline.has_stopped(index)
        return landing.error is not None or landing.empty

    def commit_soon(self, reason: str) -> None:
        """Request commits of the records taken so far."""
        if self._dealer is not None:
            self._dealer.flush()
        for landing in self._landings.running():
            landing.pipeline.commit_soon(reason)

    def refresh_soon(self) -> None:
        """Request that Coverage is read again: other instances may land into these datasets."""
        for landing in self._landings.running():
            landing.pipeline.refresh_soon()

    # --- for the pipelines of datasets: see ``landing._Shared``

    @property
    def source(self) -> ShareableSource:
        """The source of all topics."""
        assert self._made_source is not None, "datasets are opened for logs of the source"
        return self._made_source

    def landed(self, landing: Landing, coverage: Coverage) -> None:
        """Acknowledge what has landed in one dataset."""
        landing.slow = False
        self.coverage.update(coverage)
        self.source.landed(self.coverage, landing.indexes)

    def let_go(self, landing: Landing) -> None:
        """Have the logs of a dataset assigned again; until then no records of theirs arrive."""
        if not self._draining:
            self.source.void(landing.indexes)
            self._deal.flush()

    def resume(self) -> None:
        """Read again, if chunks leave room for more."""
        if self._full and self._queued < self._budget.limit // QUEUE_SHARE:
            self._full = False
            self.source.resume()

    def check(self) -> Level:
        """Check the budget."""
        return self._budget.check()

    def count_landing(self, landing: Landing) -> None:
        """Bring the part of one dataset in the sums up to date."""
        queued, held = landing.counted
        pipeline = landing.pipeline
        landing.counted = (0, 0) if pipeline is None else (pipeline.queued_bytes, pipeline.held_bytes)
        self._queued += landing.counted[0] - queued
        self._held += landing.counted[1] - held

    def _held_bytes(self) -> int:
        return self._held

    # --- datasets

    async def _find(self) -> None:
        """Find the datasets that exist, and what has landed in them; an error that may pass is tried again."""
        backoff = Backoff()
        while True:
            try:
                found = await in_thread(self._places.find, FIND_S, "the datasets of all topics")
                break
            except (FastwireError, OSError, TimeoutError) as exc:
                if self._draining or self._until_end:
                    raise PipelineFailed(f"the datasets cannot be listed: {exc}") from exc
                self._waiting = f"the datasets cannot be listed: {exc}"
                delay = backoff.failed(log, "the datasets cannot be listed, retrying", exc, warn=True)
            await wait_for_set(self._wake, delay)
            self._wake.clear()
        self._waiting = None
        self._take_found(found)

    def _take_found(self, found: Found) -> None:
        self._cluster = found.cluster
        self.coverage.update(found.coverage)
        for line in found.errors:
            log.error("a dataset cannot be read", pipeline=self.name, why=line)
        log.info("datasets found", pipeline=self.name, datasets=found.datasets, logs=len(found.coverage))

    def _know_logs(self) -> None:
        """Note the logs that the source has found since the last call, by their topics."""
        logs = self.source.logs
        for index in range(self._known_logs, len(logs)):
            topic = logs[index].topic
            landing = self._landings.get(topic)
            if landing is None:
                figures = PipelineFigures(cast(PipelineMetrics, LandingMetrics(self._metrics)), self._clock)
                figures.freshness = self._freshness
                landing = self._landings[topic] = Landing(topic, self._places.name(topic), figures, self._clock)
            landing.indexes.append(index)
        self._known_logs = len(logs)

    def _landing_of(self, index: int) -> Landing:
        self._know_logs()
        return self._landings[self.source.logs[index].topic]

    def _by_landing(self, indexes: Iterable[int]) -> Iterable[tuple[Landing, list[int]]]:
        found: dict[str, tuple[Landing, list[int]]] = {}
        for index in indexes:
            landing = self._landing_of(index)
            found.setdefault(landing.topic, (landing, []))[1].append(index)
        return found.values()

    def _start(self, landing: Landing) -> None:
        """Start the pipeline of a dataset, or note why it cannot land."""
        try:
            self._places.check(landing.topic)
            if landing.sink is None:
                landing.sink = self._places.make_sink(landing.topic)
        except FastwireError as exc:
            self._note_failure(landing, exc)
            return
        landing.pipeline = LandingPipeline(
            f"{self.name}/{landing.name}",
            lambda events, cluster: cast(Source, SharedSource.of_dataset(self, landing, cluster, self._cluster)),
            landing.sink,
            cast(Budget, LandingBudget(self, landing)),
            cast(PipelineMetrics, LandingMetrics(self._metrics)),
            self._policy,
            create=self._create,
            drain_timeout_s=self._drain_timeout_s,
            clock=self._clock,
            workers=self._workers,
            figures=landing.figures,
        )
        if self._until_end:
            landing.pipeline.end_whole()
        landing.pipeline.is_in_force = self.source.holds
        if self._until_end or self._bounded:
            landing.pipeline.look_for_first(None)
        landing.error = None
        landing.empty = False
        landing.task = asyncio.create_task(landing.pipeline.run(), name=landing.pipeline.name)
        landing.task.add_done_callback(lambda task: self._ended(landing, task))
        landing.pipeline.on_assigned(list(landing.assigned.values()))

    def _ended(self, landing: Landing, task: "asyncio.Task[None]") -> None:
        """Note that the pipeline of a dataset has ended."""
        error = None if task.cancelled() else task.exception()
        pipeline, landing.pipeline = landing.pipeline, None
        landing.task = None
        landing.stopped_logs = {} if pipeline is None else pipeline.parts.stopped
        landing.empty = pipeline is not None and bool(pipeline.awaits)
        self.count_landing(landing)
        if isinstance(error, Exception):
            if not isinstance(error, FastwireError):
                task.get_loop().call_exception_handler(
                    {"message": "a dataset failed", "exception": error, "task": task}
                )
            over = pipeline is not None and all(map(pipeline.has_stopped, landing.indexes))
            self._note_failure(landing, error, again=not over)
        self._wake.set()

    def _note_failure(self, landing: Landing, error: Exception, *, again: bool = True) -> None:
        again = again and not (self._draining or self._until_end or self._bounded)
        landing.failed(error, again=again, pipeline=self.name)
        self._wake.set()

    def _deliver(self, topic: str, chunk: Chunk) -> None:
        landing = self._landings[topic]
        if landing.pipeline is None:
            chunk.release()  # not landed, so the broker keeps it
            return
        landing.pipeline.on_chunk(chunk)
        self.count_landing(landing)

    @property
    def _deal(self) -> Dealer:
        assert self._dealer is not None, "the source calls after its start"
        return self._dealer

    # --- the worker

    async def _work(self) -> None:
        while True:
            if self._failure is not None:
                await self._save_what_can_be()
                raise self._failure
            if self.state == "starting" and any(each.pipeline.state == "running" for each in self._landings.running()):
                self._state("running")
            if self._draining and not any(True for _ in self._landings.running()):
                return
            self._wake.clear()
            await wait_for_set(self._wake, LOOK_S)

    async def _save_what_can_be(self) -> None:
        """Have all datasets commit what they have received."""
        self.drain("failure")
        if tasks := [each.task for each in self._landings.running() if each.task is not None]:
            await asyncio.wait(tasks)

    async def _look_after(self) -> None:
        """Watch over the datasets: slow and large ones, idle ones, and those that are to be tried again."""
        while True:
            await asyncio.sleep(LOOK_S)
            now = self._clock()
            self._workers.look()
            if self._queued:
                for slow in self._landings.slow(now, SLOW_S):
                    self._pause(slow)
                self.resume()
            if self._held > self._budget.limit // HOLD_SHARE:
                self._landings.end_largest(self._held // 3)
            if now - self._rested_at >= REST_S:
                self._rested_at = now
                self._landings.rest(now, MOST_OPEN)
            if not self._draining:
                for landing in self._landings.due(now):
                    self._start(landing)

    def _pause(self, landing: Running) -> None:
        """Pause the partitions of a dataset whose sink does not take what has arrived, and drop that."""
        if not landing.slow:
            log.warning(
                "a dataset is slow: its partitions are paused until it has committed",
                pipeline=self.name,
                topic=landing.topic,
                why=landing.pipeline.waits_for,
            )
        landing.slow = True
        self.let_go(landing)
        landing.pipeline.give_back("a slow dataset")
        self.count_landing(landing)

    async def _close(self) -> None:
        self._draining = True
        for landing in self._landings.running():
            landing.pipeline.drain("end")
        if tasks := [each.task for each in self._landings.running() if each.task is not None]:
            await asyncio.wait(tasks)
        if self._dealer is not None:
            self._dealer.drop()
        try:
            await self._close_source()
        finally:
            self._budget.uncount(self._held_bytes)
            self._workers.end()
            self.count()
