"""One way from a source into a sink: bounds memory, decides when to commit, and acks only what is durable.

The order is always the same and everything rests on it: rows go into the roll, the roll is committed, Coverage grows,
and only then does the source hear of it and acknowledge. The sink's blocking calls run on one thread of the pipeline;
everything else happens on the event loop.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from time import process_time
from typing import Any

from fastwire.columns.chunk import Chunk, marker_chunk
from fastwire.errors import FastwireError
from fastwire.position import Coverage, Position, Span

from .backoff import Backoff
from .beginning import refuse_lost_dataset, tell_first_positions
from .budget import Budget
from .errors import (
    DatasetError,
    DatasetMismatchError,
    Diverged,
    FencedError,
    SinkDoneError,
    SinkFailedError,
    Superseded,
)
from .logs import get_logger
from .metrics import PipelineMetrics, PipelineState
from .roll import Roll, RollPolicy
from .sinks.base import LoggedSink, Sink
from .sinks.thread import SinkThread
from .sources.base import Assignment, LogStopped, Source, SourceEvents, SourceFailed
from .stages import stage_figures
from .until_end import watch_end

__all__ = ["Pipeline", "PipelineFailed"]

QUEUED_CHUNKS = 2  # a deeper queue only makes memory cold

log = get_logger("pipeline")
SourceFactory = Callable[[SourceEvents, str | None], Source]
"""Makes the source of a pipeline from its events and the cluster's name (None: the sink has no log that fixes one)."""


class PipelineFailed(FastwireError):  # noqa: N818 - what happened to the pipeline; its cause is chained
    """The pipeline cannot go on. ``exit_code`` is what a process that runs only this one should end with."""

    def __init__(self, message: str, exit_code: int = 1) -> None:
        self.exit_code = exit_code
        super().__init__(message)


class Pipeline:
    """Moves the records of one source into one sink until it is drained, fails, or reaches its end.

    ``until_end`` ends it when everything that the broker held at the start has landed, ``create`` allows a new dataset
    for a subscription that has progress already. ``note`` is called after each commit.
    """

    def __init__(
        self,
        name: str,
        make_source: "SourceFactory",
        sink: Sink,
        budget: Budget,
        metrics: PipelineMetrics,
        policy: RollPolicy,
        *,
        until_end: bool = False,
        max_records: int | None = None,
        create: bool = False,
        drain_timeout_s: float = 30.0,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.name = name
        self.coverage = Coverage()
        self.state: PipelineState = "starting"
        self.error: str | None = None
        self.rows_received = 0
        self.bytes_received = 0
        self.chunks_received = 0
        self.rows_committed = 0
        self.commits = 0
        self.published = (0, 0)  # files and their bytes
        self.first_row_at: tuple[float, float] | None = None  # the pipeline's clock, CPU seconds of the process
        self.last_commit_at: tuple[float, float] | None = None
        self._make_source = make_source
        self._made_source: Source | None = None
        self._cluster: str | None = None
        self._sink = SinkThread(sink, name)
        # Asked once: such a check of a protocol costs more than a chunk's decoding.
        self._logged: LoggedSink | None = sink if isinstance(sink, LoggedSink) else None
        self._budget = budget
        self._metrics = metrics
        self._roll = Roll(policy)
        self._until_end = until_end
        self._max_records = max_records
        self._create = create
        self._drain_timeout_s = drain_timeout_s
        self._clock = clock or asyncio.get_running_loop().time
        self._chunks: deque[Chunk] = deque()
        self._assigned: list[Assignment] = []
        self._settled: dict[int, Position] = {}
        self._uncommitted: list[Span] = []
        self._commit_reason: str | None = None
        self._diverged = ""  # why the roll must not land
        self._failure: BaseException | None = None
        self._stopped_logs: dict[int, str] = {}
        self._draining = False
        self._sink_open = False
        self._existed = True
        self._wake = asyncio.Event()
        self._stages: dict[str, Any] | None = None  # the last ones
        self._counted = (0, 0, 0)  # rows, bytes and chunks that the metrics have

    # --- what the source tells us; on the loop's thread, never blocking

    def on_chunk(self, chunk: Chunk) -> bool:
        if self._draining:
            chunk.release()  # not landed, so the broker keeps it
            return False
        if self.first_row_at is None and chunk.rows:
            self.first_row_at = (self._clock(), process_time())
        self._chunks.append(chunk)
        self.rows_received += chunk.rows
        self.bytes_received += chunk.payload_bytes
        self.chunks_received += 1
        if chunk.diverted:
            self._metrics.diverted(len(chunk.diverted))
        if self._max_records is not None and self.rows_received >= self._max_records:
            self.drain("max-records")
        self._wake.set()
        return len(self._chunks) < QUEUED_CHUNKS

    def on_assigned(self, assignments: Sequence[Assignment]) -> None:
        self._assigned.extend(assignments)
        self._wake.set()

    def on_revoked(self, indexes: Sequence[int], reason: str) -> None:
        if not self._roll.empty or self._chunks:
            self._ask_commit(f"revoked: {reason}")

    def on_diverged(self, index: int, reason: str) -> None:
        self._diverged = self._diverged or reason
        self._wake.set()

    def on_stalled(self, index: int, unacked: int, reason: str) -> None:
        self._roll.limit_unacked(unacked)
        self._metrics.stalled(reason)
        log.warning(
            "the broker delivers no more until records are acknowledged: committing now, and earlier from here on",
            pipeline=self.name,
            topic=self._source.logs[index].topic,
            partition=self._source.logs[index].partition,
            unacknowledged=unacked,
            setting=reason,
        )
        self._ask_commit("unacknowledged limit")

    def on_settled(self, index: int, floor: Position) -> None:
        self._settled[index] = floor
        self._wake.set()

    def on_stopped(self, index: int, error: LogStopped) -> None:
        stopped = self._source.logs[index]
        log.error(str(error), pipeline=self.name, topic=stopped.topic, partition=stopped.partition)
        self._stopped_logs[index] = str(error)
        if len(self._stopped_logs) == len(self._source.logs):
            self._fail(SourceFailed(f"every partition has stopped; the last one: {error}"))

    def on_failed(self, error: SourceFailed) -> None:
        self._fail(error)

    # --- from the service

    def drain(self, reason: str) -> None:
        """Stop taking records, commit and ack what was taken, and let ``run`` return."""
        if not self._draining:
            self._draining = True
            self._state("draining")
            log.info("draining", pipeline=self.name, reason=reason)
            self._wake.set()

    @property
    def ready(self) -> bool:
        """Whether records flow, or would if there were any."""
        return self.state == "running" and self._source.unreachable_since is None

    @property
    def waiting(self) -> str | None:
        """What holds the sink up, in words; None if nothing does."""
        sink = self._logged
        return sink.waiting if sink is not None else None

    def hung_s(self, now: float) -> float:
        """How long the sink's running call has taken without a reason that is known, in seconds."""
        since = self._sink.busy_since
        return now - since if since is not None and self.waiting is None else 0.0

    def stages(self) -> dict[str, Any]:
        """Where the time went since the first record: see ``stages.stage_figures``."""
        if self._stages is not None:
            return self._stages
        if self.first_row_at is None or self._made_source is None:
            return {}
        sink = self._logged
        done = sink.stage_ns if sink is not None else {"sink": self._sink.busy_ns}
        seconds = self._clock() - self.first_row_at[0]
        return stage_figures({**self._source.stage_ns, **done}, self.rows_received, seconds)

    def status(self) -> dict[str, Any]:
        """What ``/status`` shows of this pipeline."""
        return {
            "state": self.state,
            "error": self.error,
            "rows_received": self.rows_received,
            "rows_committed": self.rows_committed,
            "commits": self.commits,
            "roll": {"rows": self._roll.rows, "bytes": self._staged_bytes()},
            "queued_chunks": len(self._chunks),
            "waiting": self.waiting,
            "stages": self.stages(),
            "stopped_partitions": {
                f"{self._source.logs[index].topic} {self._source.logs[index].partition}": why
                for index, why in self._stopped_logs.items()
            },
            "source": self._made_source.status() if self._made_source is not None else None,
        }

    async def run(self) -> None:
        """Run until drained. Raises PipelineFailed, after having committed what was taken where that is possible."""
        watch: asyncio.Task[None] | None = None
        try:
            await self._open()
            self._made_source = self._make_source(self, self._cluster)
            self._budget.watch(self._source.on_budget)
            starting = asyncio.ensure_future(self._source.start(self.coverage))
            starting.add_done_callback(self._background_ended)
            try:
                if self._until_end:
                    watch = asyncio.create_task(watch_end(self, self._source, starting))
                    watch.add_done_callback(self._background_ended)
                await self._work()
            finally:
                starting.cancel()
            await self._finish()
            if self._until_end and self._stopped_logs:
                raise PipelineFailed("; ".join(self._stopped_logs.values()))
            self._state("stopped")
        except PipelineFailed as exc:
            self._broken(exc)
            raise
        except DatasetMismatchError as exc:
            raise self._broken(PipelineFailed(str(exc), 78)) from exc
        except SourceFailed as exc:
            raise self._broken(PipelineFailed(str(exc), 78 if exc.configuration else 1)) from exc
        except DatasetError as exc:
            raise self._broken(PipelineFailed(str(exc))) from exc
        finally:
            if watch is not None:
                watch.cancel()
            await self._close()

    @property
    def _source(self) -> Source:
        assert self._made_source is not None, "the source is made after the sink has been opened"
        return self._made_source

    def abandon(self) -> None:
        """Let go of the sink's thread without waiting for it; the process is about to end."""
        self._sink.shutdown()

    # --- for whoever waits for the end

    @property
    def is_draining(self) -> bool:
        """Whether nothing more is taken."""
        return self._draining

    @property
    def queued(self) -> bool:
        """Whether something waits to be written."""
        return bool(self._chunks)

    def has_stopped(self, index: int) -> bool:
        """Whether this log was given up."""
        return index in self._stopped_logs

    def commit_soon(self, reason: str) -> None:
        """Commit what there is, if there is anything."""
        if not self._roll.empty:
            self._ask_commit(reason)

    # --- the worker: everything that touches the sink, one thing after the other

    async def _work(self) -> None:
        while True:
            if self._failure is not None:
                await self._save_what_can_be()
                raise self._failure
            try:
                await self._step()
            except (Superseded, SinkFailedError, Diverged) as exc:
                if isinstance(exc, SinkDoneError):
                    self.drain(str(exc))
                else:
                    self._tell_void(exc)
                    if self._is_hopeless(exc):
                        raise PipelineFailed(f"the sink does not work: {exc}") from exc
                if self._draining:
                    # Nothing is lost: it was not acknowledged either.
                    self._drop_chunks()
                    self._roll.restart()
                    return
                await self._start_over()
                continue
            if self._draining and not self._chunks and not self._diverged:
                return
            if not self._pending():
                self._wake.clear()
                await self._sleep(self._roll.next_look(self._clock()))

    def _pending(self) -> bool:
        asked = self._assigned or self._settled or self._commit_reason or self._diverged
        return bool(self._chunks or asked or self._failure)

    async def _sleep(self, timeout: float | None) -> None:
        # asyncio.timeout around the wait takes half as long again, and there is a wait behind nearly every chunk.
        timer = None if timeout is None else asyncio.get_running_loop().call_later(timeout, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            if timer is not None:
                timer.cancel()

    async def _step(self) -> None:
        if self._diverged:
            await self._drop_diverged()
        if self._chunks:
            await self._write(self._chunks.popleft())
        if self._settled:
            await self._settle()
        # A commit that was asked for covers what had been received then: the queue goes first.
        reason = self._roll.due(self._staged_bytes(), self._clock()) or self._out_of_files()
        if not self._chunks:
            reason = self._commit_reason or reason
            self._commit_reason = None
        if self._diverged:
            return
        if reason and not self._roll.empty:
            await self._commit(reason)
        if self._assigned and not self._chunks and not self._draining:
            await self._assign()

    async def _drop_diverged(self) -> None:
        """Some of what was received is not the broker's any more: it must not land. Raises Diverged."""
        reason, self._diverged = self._diverged, ""
        if self._logged is not None:
            raise Diverged(reason)
        # What a sink without a log was given cannot be taken back.
        if not self._roll.empty:
            await self._commit("diverged")
        self._source.void()
        self._drop_chunks()

    async def _write(self, chunk: Chunk) -> None:
        rows, diverted = chunk.rows, len(chunk.diverted)
        try:
            await self._sink.write(chunk)
        finally:
            chunk.release()
            del chunk
        self._roll.wrote(rows, diverted, self._clock())
        self._weigh()
        if len(self._chunks) < QUEUED_CHUNKS:
            self._source.resume()

    async def _commit(self, reason: str) -> None:
        rows = self._roll.rows
        started = self._clock()
        self.coverage = await self._sink.run(self._sink.sink.commit)
        seconds = self._clock() - started
        self._roll.restart()
        self.rows_committed += rows
        self.commits += 1
        self.last_commit_at = (self._clock(), process_time())
        published = self._published()
        self._metrics.committed(seconds, rows, published[0] - self.published[0], published[1] - self.published[1])
        self.published = published
        self.count()
        self._weigh()
        log.info("committed", pipeline=self.name, rows=rows, seconds=round(seconds, 3), reason=reason)
        self._source.landed(self.coverage)

    async def _settle(self) -> None:
        settled, self._settled = self._settled, {}
        sink = self._logged
        if sink is not None:
            floors = {self._source.logs[index]: floor for index, floor in settled.items()}
            await self._sink.run(sink.settle, floors)

    async def _assign(self) -> None:
        """Logs became ours: learn what others have landed, fix where new ones begin, and ask for records."""
        assignments, self._assigned = self._assigned, []
        try:
            await self._take_on(assignments)
        except (Superseded, SinkFailedError):
            self._assigned = assignments + self._assigned  # still offered, and nobody offers them again
            raise

    async def _take_on(self, assignments: list[Assignment]) -> None:
        sink = self._logged
        if sink is not None:
            self.coverage = await self._sink.run(sink.refresh)
            if not self._existed:
                if not self._create:
                    refuse_lost_dataset(assignments, self.coverage, self._source.system)
                if not sink.exists:
                    await self._sink.run(sink.create_dataset)
        firsts = await self._source.resolve(assignments, self.coverage)
        if self._diverged:
            self._assigned = assignments + self._assigned  # the roll must not land with what is fixed here
            return
        if firsts:
            tell_first_positions(firsts, self.name)
            await self._write(marker_chunk([first.span for first in firsts]))
            await self._commit("first positions")
        self._source.grant(assignments, self.coverage)
        if self.state == "starting":
            self._state("running")

    # --- opening, starting over, ending

    async def _open(self) -> None:
        """Open the sink, again and again where that may help."""
        backoff = Backoff(first_s=0.5, most_s=30.0)
        while True:
            try:
                self.coverage = await self._sink.run(self._sink.sink.open)
            except (SinkFailedError, Superseded, OSError) as exc:
                if self._draining or self._is_hopeless(exc):
                    raise PipelineFailed(f"the sink cannot be opened: {exc}") from exc
                delay = backoff.next()
                log.error("the sink cannot be opened", pipeline=self.name, why=str(exc), retry_in_s=round(delay, 1))
                self._wake.clear()
                await self._sleep(delay)  # a drain ends it early
                continue
            self._sink_open = True
            sink = self._logged
            if sink is not None:
                self._existed = sink.exists
                if self._cluster not in (None, sink.cluster):
                    raise PipelineFailed(
                        f"the dataset was created meanwhile, for cluster {sink.cluster!r} instead of {self._cluster!r};"
                        " starting again takes its name"
                    )
                self._cluster = sink.cluster
            return

    def _is_hopeless(self, exc: Exception) -> bool:
        """Before the first record was asked for, a sink that fails is one that was set up wrong: say so and end.

        Later it is tried for ever, because what has worked may work again. Other writers are no failure at any time.
        """
        return self.state == "starting" and not isinstance(exc, Superseded | FencedError | Diverged)

    async def _start_over(self) -> None:
        """The roll is void: forget it, learn what is durable, and let the broker send the rest again."""
        # First of all: after this call no chunk comes until a grant.
        self._source.void()
        self._drop_chunks()
        self._roll.restart()
        self._commit_reason = None
        self._diverged = ""  # whatever it was about is dropped
        self.count()
        await self._open()
        self._source.landed(self.coverage)
        self._source.resume()

    async def _save_what_can_be(self) -> None:
        """The source is lost; what it has given is not, unless the broker has lost that, too."""
        if self._diverged:
            return
        try:
            while self._chunks:
                await self._write(self._chunks.popleft())
            if not self._roll.empty:
                await self._commit("failure")
        except (Superseded, SinkFailedError) as exc:
            self._tell_void(exc)

    async def _finish(self) -> None:
        if not self._roll.empty:
            try:
                await self._commit("shutdown")
            except (Superseded, SinkFailedError) as exc:
                self._tell_void(exc)

    async def _close(self) -> None:
        self._draining = True
        self._stages = self.stages()  # sink and source forget theirs with what they close
        try:
            if self._made_source is not None:
                self._budget.unwatch(self._source.on_budget)
                await self._source.close(self._drain_timeout_s)
        finally:
            self._drop_chunks()
            self._budget.charge(self, 0)
            if self._sink_open:
                await self._sink.run(self._sink.sink.close)
            self._sink.shutdown()
            self.count()

    # --- small change

    def count(self) -> None:
        """Bring the metrics up to date: now and then, for even a counter costs much beside a chunk."""
        now = self.rows_received, self.bytes_received, self.chunks_received
        rows, payload, chunks = (new - old for new, old in zip(now, self._counted, strict=True))
        self._counted = now
        if chunks:
            self._metrics.received(rows, payload, chunks)
        self._metrics.roll(self._roll.rows, self._staged_bytes())

    def _background_ended(self, task: "asyncio.Future[None]") -> None:
        if not task.cancelled() and (exc := task.exception()) is not None:
            self._fail(exc)

    def _tell_void(self, exc: Superseded | SinkFailedError | Diverged) -> None:
        if isinstance(exc, Diverged):
            log.error(
                "the broker has lost records that had not landed: the roll is dropped, and read again",
                pipeline=self.name,
                why=str(exc),
            )
        elif isinstance(exc, Superseded):
            self._metrics.superseded()
            log.warning("another writer was faster; its rows stand, ours are dropped", pipeline=self.name, why=str(exc))
        else:
            self._metrics.sink_failed()
            log.error("the sink failed; what was not committed is read again", pipeline=self.name, why=str(exc))

    def interrupt(self) -> None:
        """End a wait of the sink, for room on its disk say; what is not committed stays the broker's."""
        sink = self._logged
        if sink is not None:
            sink.interrupt()

    def _fail(self, error: BaseException) -> None:
        if self._failure is None:
            self._failure = error
        self._wake.set()

    def _ask_commit(self, reason: str) -> None:
        self._commit_reason = self._commit_reason or reason
        self._wake.set()

    def _drop_chunks(self) -> None:
        while self._chunks:
            self._chunks.popleft().release()

    def _staged_bytes(self) -> int:
        sink = self._logged
        return sink.staged_bytes if sink is not None else 0

    def _weigh(self) -> None:
        """The sink has let go of something, or has taken something: look at the budget."""
        sink = self._logged
        if sink is not None:
            self._budget.charge(self, sink.unpooled_bytes)
        self._budget.check()

    def _published(self) -> tuple[int, int]:
        sink = self._logged
        return (sink.committed_files, sink.committed_bytes) if sink is not None else (0, 0)

    def _out_of_files(self) -> str | None:
        sink = self._logged
        return "open files" if sink is not None and sink.too_many_files else None

    def _state(self, state: PipelineState) -> None:
        self.state = state
        self._metrics.state(state)

    def _broken(self, exc: PipelineFailed) -> PipelineFailed:
        self.error = str(exc)
        self._state("failed")
        return exc
