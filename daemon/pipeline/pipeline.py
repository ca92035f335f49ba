"""A pipeline from a source to a sink: it bounds memory, decides when to commit, and acknowledges only landed records.

Exactly-once rests on one order: rows go into the roll, the roll is committed, Coverage grows, and only then does the
source acknowledge. The sink's blocking calls run on one thread of the pipeline; everything else runs on the event loop.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any, cast

from fastwire.columns.chunk import Chunk, marker_chunk
from fastwire.position import Position

from ..runtime.budget import Budget
from ..runtime.errors import Diverged, LogRefusedError, NoRecordYet, SinkDoneError, SinkFailedError, Superseded
from ..runtime.health import HUNG_AFTER_S, Health, health_of
from ..runtime.logs import get_logger
from ..runtime.metrics import PipelineMetrics
from ..runtime.tasks import wait_for_set
from ..sinks.base import Sink
from ..sinks.thread import SinkThread
from ..sinks.workers import Workers
from ..systems.base import LimitedSource
from ..systems.source import Assignment, LogStopped, Source, SourceFailed
from .base import BasePipeline, SourceFactory
from .failure import PipelineFailed, drained_without_commit
from .figures import PipelineFigures
from .firstposition import refuse_lost_dataset, tell_first_positions
from .impairments import Impairments, starved
from .roll import Roll, RollPolicy
from .sinkfailures import EMPTY_LOOK_S, SinkFailures
from .stages import stage_figures
from .until_end import unpublished

SINK_LIMIT_S = 30.0  # a run until the end gives up a sink that fails for so long
QUEUED_CHUNKS = 2  # a deeper queue only makes memory cold

log = get_logger("pipeline")


class Pipeline(BasePipeline[Source]):
    """Moves the records of one source into one sink until it is drained, fails, or reaches its end.

    Of many pipelines that share a source, each has the ``workers`` that run the calls of its sink, and ``figures`` that
    outlive it.
    """

    _say = staticmethod(log.info)  # of what each pipeline does all the time

    def __init__(
        self,
        name: str,
        make_source: SourceFactory,
        sink: Sink,
        budget: Budget,
        metrics: PipelineMetrics,
        policy: RollPolicy,
        *,
        workers: Workers | None = None,
        figures: PipelineFigures | None = None,
        **options: Any,
    ) -> None:
        super().__init__(name, make_source, budget, metrics, policy, **options)
        self._sink = SinkThread(sink, name, workers)
        self._roll = Roll(policy)
        self.figures = figures or PipelineFigures(metrics, self._clock)
        self._chunks: deque[Chunk] = deque()
        self._writing = False  # the sink has a chunk that the roll does not count yet
        self._assigned: list[Assignment] = []
        self._stale = False  # Coverage is to be read again
        self._floors: dict[int, Position] = {}
        self._commit_reason: str | None = None
        self._diverged = ""  # why the roll must not land
        self.parts = Impairments(name, metrics)  # those that do not land while the others do
        self._sink_open = False
        self._existed = True
        self._sink_failures = SinkFailures(
            name,
            metrics,
            self._wake,
            lambda: self._draining or self._failure is not None,
            self._clock,
            SINK_LIMIT_S if self._until_end else None,
            None if self._until_end or self._bounded else EMPTY_LOOK_S,
        )
        self._stages: dict[str, Any] | None = None  # the last ones

    # --- events of the source: on the loop's thread, never blocking

    def on_chunk(self, chunk: Chunk) -> bool:
        """See ``SourceEvents.on_chunk``. While draining the chunk is dropped."""
        if self._draining:
            chunk.release()  # not landed, so the broker keeps it
            return False
        self._chunks.append(chunk)
        self._budget.arrived(chunk.nbytes)
        self.figures.received(chunk)
        if self._max_records is not None and self.figures.rows_received >= self._max_records:
            self.drain("max-records")
        self._wake.set()
        return len(self._chunks) < QUEUED_CHUNKS

    def on_assigned(self, assignments: Sequence[Assignment]) -> None:
        """See ``SourceEvents.on_assigned``."""
        self._assigned.extend(assignments)
        self._wake.set()

    def on_revoked(self, indexes: Sequence[int], reason: str) -> None:
        """See ``SourceEvents.on_revoked``: commit now."""
        if self.holds_records:
            self._ask_commit(f"revoked: {reason}")

    def on_diverged(self, index: int, reason: str) -> None:
        """See ``SourceEvents.on_diverged``: the open roll must not be committed."""
        self._diverged = self._diverged or reason
        self._wake.set()

    def on_stalled(self, index: int, unacked: int, reason: str) -> None:
        """See ``SourceEvents.on_stalled``: commit now, and end later rolls earlier."""
        self._roll.limit_unacked(unacked)
        self.parts.stall(index, unacked, reason)
        self._ask_commit("unacknowledged limit")

    def on_floor(self, index: int, floor: Position) -> None:
        """See ``SourceEvents.on_floor``."""
        self._floors[index] = floor
        self._wake.set()

    def on_stopped(self, index: int, error: LogStopped) -> None:
        """See ``SourceEvents.on_stopped``; the pipeline fails when every log has stopped."""
        self.parts.stop(index, error, self._clock())
        if self.parts.all_stopped:
            self._fail(SourceFailed(f"every partition has stopped; the last one: {error}"))

    # --- for the service

    def drain(self, reason: str) -> None:
        """Take no more records, commit and ack those that were taken, and let ``run`` return."""
        if not self._draining:
            self._draining = True
            self._state("draining")
            self._say("draining", pipeline=self.name, reason=reason)
            self._wake.set()

    @property
    def ready(self) -> bool:
        """True while the broker is connected, and logs are granted or this instance stands by for another one."""
        source = self._made_source
        if source is None or source.unreachable_since is not None:
            return source is None and bool(self.awaits)
        return self.state == "running" or (self.state == "starting" and source.standing_by)

    @property
    def waiting(self) -> str | None:
        """The reason why the sink waits, as text; None while it does not wait."""
        return self._sink_failures.waiting or self._sink.waiting

    @property
    def waits_for(self) -> str | None:
        """As ``waiting``, and also what a call of the sink has taken long for."""
        return self._sink_failures.waiting or self._sink.waits_for

    @property
    def awaits(self) -> str:
        """A sentence while the topics have no record that a new dataset could begin with, else ""."""
        return self._sink_failures.awaits

    def hung_s(self, now: float) -> float:
        """See ``SinkThread.hung_s``; ``now`` is the event loop's time."""
        return 0.0 if self._sink_failures.waiting else self._sink.hung_s(now)

    @property
    def impairments(self) -> list[str]:
        """Sentences about what does not land, although the pipeline has neither failed nor ended."""
        source = None if self.state in ("failed", "ended") else self._made_source
        return [*self.parts.sentences(source, self.waits_for, self._sink.unpublished), *starved(self._budget)]

    @property
    def health(self) -> Health:
        """The health of this pipeline now; one that has ended is ready, for its end."""
        hung = self.hung_s(asyncio.get_running_loop().time()) >= HUNG_AFTER_S
        return health_of(hung=hung, ready=self.ready or self.state == "ended", impaired=bool(self.impairments))

    def look(self) -> None:
        """Note what does not land, and log it again now and then; to be called about once a second."""
        source = self._made_source
        self.parts.look({} if source is None else source.waiting(), self._clock())
        self._metrics.health(self.health)
        self.figures.freshness.look(None if source is None else source.backlog)

    def stages(self) -> dict[str, Any]:
        """Return the time spent by stage since the first record: see ``stages.stage_figures``."""
        if self._stages is not None:
            return self._stages
        if self.figures.first_row_at is None or self._made_source is None:
            return {}
        seconds = self._clock() - self.figures.first_row_at[0]
        times = {**self._source.stage_ns, **self._sink.stage_ns}
        return stage_figures(times, self.figures.rows_received, seconds, sink_waits=self.waits_for is not None)

    def status(self) -> dict[str, Any]:
        """Return this pipeline's part of ``/status``, as plain values."""
        return {
            "state": self.state,
            "health": self.health,
            "degraded": self.impairments,
            "exactly_once": self._sink.exactly_once,
            "error": self.error,
            **self.figures.status(),
            "roll": {"rows": self._roll.rows, "bytes": self._sink.staged_bytes},
            "queued_chunks": len(self._chunks),
            "waiting": self.waits_for,
            "awaits": self.awaits or None,
            "unpublished": self._sink.unpublished,
            "stages": self.stages(),
            **self.parts.status(),
            "source": self._made_source.status() if self._made_source is not None else None,
        }

    async def _run(self) -> None:
        if not await self._open():
            return
        source = self._make_source(self, self._cluster)
        if getattr(self._sink.sink, "follows_group", False):
            cast(LimitedSource, source).follows_group = True
        self.parts.logs = source.logs
        self.parts.own = getattr(source, "indexes", None)
        starting = self._start_source(source, self._sink.unpooled_bytes)
        try:
            await self._work()
        finally:
            starting.cancel()
        await self._finish()
        if self._until_end or self._bounded:
            await self._refuse_incomplete()

    async def _refuse_incomplete(self) -> None:
        """Raise PipelineFailed if some of what the run had to land has not, or is in no table."""
        if why := [*self.parts.reasons, *await unpublished(self._sink)]:
            raise PipelineFailed("; ".join(why))

    @property
    def _source(self) -> Source:
        assert self._made_source is not None, "the source is made after the sink has been opened"
        return self._made_source

    # --- for ``watch_end``

    @property
    def queued(self) -> bool:
        """True while chunks wait for the sink."""
        return bool(self._chunks)

    @property
    def assigning(self) -> bool:
        """True while assigned logs have no committed first position."""
        return bool(self._assigned)

    def has_stopped(self, index: int) -> bool:
        """Return True if the log of this index was stopped."""
        return index in self.parts

    def commit_soon(self, reason: str) -> None:
        """Request a commit of the records taken so far, if there are any."""
        if self.holds_records:
            self._ask_commit(reason)

    def refresh_soon(self) -> None:
        """Request that Coverage is read again: another instance may land into this dataset."""
        self._stale = True
        self._wake.set()

    # --- the worker: all calls of the sink, one after the other

    async def _work(self) -> None:
        while True:
            if self._failure is not None:
                await self._save_what_can_be()
                raise self._failure
            try:
                await self._step()
            except (Superseded, SinkFailedError, Diverged) as exc:
                await self._recover(exc)
                if self._draining:
                    return
                continue
            if self._draining and not self._chunks and not self._diverged:
                return
            if not self._pending():
                self._wake.clear()
                looks = self._roll.next_look(self._clock()), self._sink.next_look()
                await wait_for_set(self._wake, min((each for each in looks if each is not None), default=None))

    def _pending(self) -> bool:
        asked = self._assigned or self._floors or self._commit_reason or self._diverged or self._stale
        return bool(self._chunks or asked or self._failure)

    async def _step(self) -> None:
        if self._diverged:
            await self._drop_diverged()
        if self._chunks:
            await self._write(self._chunks.popleft())
        if self._floors:
            await self._settle()
        # A requested commit covers all records received before the request, so the queue is written first.
        reason = self._roll.due(self._sink.staged_bytes, self._clock()) or self._sink.must_end
        if not self._chunks:
            reason = self._commit_reason or reason
            self._commit_reason = None
        if self._diverged:
            return
        if reason and not self._roll.empty:
            await self._commit(reason)
        if self._stale or self._sink.publish_again(self._clock()):
            await self._refresh()
        if self._assigned and not self._chunks and not self._draining:
            await self._assign()

    async def _drop_diverged(self) -> None:
        """Drop received records that the broker has lost: they must not be committed. Raises Diverged."""
        reason, self._diverged = self._diverged, ""
        if self._sink.logged is not None:
            raise Diverged(reason)
        # A sink without a log cannot take back the records that it has written.
        if not self._roll.empty:
            await self._commit("diverged")
        self._source.void()
        self._drop_chunks()

    async def _write(self, chunk: Chunk) -> None:
        rows, newest = chunk.rows, chunk.newest_time()
        self._writing = True
        try:
            await self._sink.write(chunk)
            self._roll.wrote(rows, chunk.dead_letters, self._clock(), newest)
        finally:
            self._writing = False
            chunk.release()
            del chunk
        self._budget.check()
        if len(self._chunks) < QUEUED_CHUNKS:
            self._source.resume()

    async def _commit(self, reason: str) -> None:
        rows = self._roll.rows
        started = self._clock()
        self.coverage = await self._sink.run(self._sink.sink.commit)
        seconds = self._clock() - started
        self.figures.dead_letter_reasons.update(self._sink.tell_dead_letters(self._roll.dead_letter_sums, self.name))
        self._sink_failures.committed(rows)
        newest = self._roll.newest_time
        rows = self.figures.committed(rows, self._sink.published, seconds, reason, self._sink.decoded, newest)
        self._roll.restart()
        self.count()
        self._budget.check()
        self._say("committed", pipeline=self.name, rows=rows, seconds=round(seconds, 3), reason=reason)
        self._source.landed(self.coverage)

    async def _settle(self) -> None:
        by_index, self._floors = self._floors, {}
        sink = self._sink.logged
        if sink is not None:
            floors = {self._source.logs[index]: floor for index, floor in by_index.items()}
            await self._sink.run(sink.raise_floors, floors)

    async def _assign(self) -> None:
        """Take on assigned logs: refresh Coverage, commit the first positions of new logs, and request records."""
        # Logs that the sink has refused are not requested; the source does not assign logs that it has stopped.
        asked = len(self._assigned)
        if await self._take_on([each for each in self._assigned if each.index not in self.parts]):
            del self._assigned[:asked]  # until then they are in force; the source does not assign them again

    async def _refresh(self) -> None:
        self._stale = False
        sink = self._sink.logged
        if sink is not None:
            self.coverage = await self._sink.run(sink.refresh)

    async def _take_on(self, assignments: list[Assignment]) -> bool:
        """Return False if the records that were received before must be dropped first."""
        claim = getattr(self._sink.logged, "claim", None)
        if claim is not None:
            if not self._roll.empty:
                await self._commit("assigned")
            cursors = {each.log: each.cursor if each.progress else None for each in assignments}
            await self._sink.run(claim, cursors, self._source.cluster_id)
        await self._refresh()
        sink = self._sink.logged
        if sink is not None:
            if not self._existed:
                if not self._create:
                    refuse_lost_dataset(assignments, self.coverage, self._source.system)
                if not sink.exists:
                    await self._sink.run(sink.create_dataset)
            identify = getattr(sink, "identify", None)
            if identify is not None:
                await self._sink.run(identify, self._source.cluster_id)
        firsts = await self._source.resolve(assignments, self.coverage)
        if self._diverged:
            return False  # the roll must not land with these first positions
        if firsts:
            tell_first_positions(firsts, self.name)
            await self._write(marker_chunk([first.span for first in firsts]))
            await self._commit("first positions")
        self._source.grant(assignments, self.coverage)
        if self.state == "starting":
            self._state("running")
        return True

    # --- opening, starting over, ending

    async def _open(self) -> bool:
        """Open the sink; return False if the pipeline ends before there is a record for a new dataset."""
        return await self._sink_failures.opened(self._open_once, self._nothing_yet)

    def _nothing_yet(self, why: NoRecordYet) -> None:
        if not self.awaits:
            self._say("nothing to land yet", pipeline=self.name, why=str(why))
            self._state("running")

    async def _open_once(self) -> None:
        self.coverage = await self._sink.open()
        self._sink_open = True
        sink = self._sink.logged
        if sink is not None:
            self._existed = sink.exists
            if self._cluster not in (None, sink.cluster):
                raise PipelineFailed(
                    f"the dataset was created meanwhile for cluster {sink.cluster!r}, this pipeline uses"
                    f" {self._cluster!r}; restart it to use the dataset's name"
                )
            self._cluster = sink.cluster

    async def _recover(self, exc: Superseded | SinkFailedError | Diverged) -> None:
        """Drop the void roll, open the sink again to read what has landed, and let the broker send the rest again."""
        delay = 0.0
        incomplete = self._draining and isinstance(exc, SinkFailedError) and not isinstance(exc, SinkDoneError)
        refused = self.parts.refused_by(exc) if isinstance(exc, LogRefusedError) else {}
        for index, error in refused.items():
            self.on_stopped(index, error)
        if isinstance(exc, SinkDoneError):
            self.drain(str(exc))
        elif not refused:
            hopeless = self._sink_failures.ends(exc)
            delay = self._sink_failures.void(exc, retried=not (hopeless or self._draining))
            if hopeless:
                raise PipelineFailed(f"the sink does not work: {exc}") from exc
        if not self._draining:
            # This comes first: after it no chunk arrives until a grant.
            self._source.void()
            for index, error in refused.items():
                self._source.stop(index, str(error))  # so that its backlog counts on
        self._drop_chunks()
        self._roll.restart()
        if incomplete:
            raise drained_without_commit(exc) from exc
        if self._draining:
            return
        self._commit_reason = None
        self._diverged = ""  # the records that it was about are dropped
        self._budget.check()
        self.count()
        if delay:
            await self._sink_failures.wait(delay, exc)
        if self._draining:
            return
        if not await self._open():
            self.drain("the topics are empty")
            return
        self._source.landed(self.coverage)
        self._source.resume()

    async def _save_what_can_be(self) -> None:
        """Commit the records of a source that has failed, unless the broker has lost some of them."""
        if self._diverged:
            return
        try:
            while self._chunks:
                await self._write(self._chunks.popleft())
            if not self._roll.empty:
                await self._commit("failure")
        except (Superseded, SinkFailedError) as exc:
            self._sink_failures.void(exc, retried=False)

    async def _finish(self) -> None:
        if not self._roll.empty:
            try:
                await self._commit("shutdown")
            except (Superseded, SinkFailedError) as exc:
                self._sink_failures.void(exc, retried=False)
                if not isinstance(exc, Superseded | SinkDoneError):
                    raise drained_without_commit(exc) from exc

    async def _close(self) -> None:
        self._draining = True
        self._stages = self.stages()  # sink and source lose their times when they close
        try:
            await self._close_source()
        finally:
            self._drop_chunks()
            self._budget.uncount(self._sink.unpooled_bytes)
            if self._sink_open:
                await self._sink.run(self._sink.sink.close)
            self._sink.shutdown()
            self.count()
            self._metrics.health(self.health)

    # --- details

    def count(self) -> None:
        """Update the metrics of received records and of the open roll: a few times a second, not per chunk."""
        self.figures.tell(self._sink.changed_times)
        self._metrics.roll(self._roll.rows, self._sink.staged_bytes)

    def interrupt(self) -> None:
        """End a wait of the sink, such as one for disk space; records that are not committed stay with the broker."""
        self._sink.interrupt()

    @property
    def holds_records(self) -> bool:
        """True while received records are not committed."""
        return not self._roll.empty or bool(self._chunks) or self._writing

    def _ask_commit(self, reason: str) -> None:
        self._commit_reason = self._commit_reason or reason
        self._wake.set()

    def _drop_chunks(self) -> None:
        while self._chunks:
            self._chunks.popleft().release()
