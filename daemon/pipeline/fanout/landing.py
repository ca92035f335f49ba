"""One dataset of a fan-out: its pipeline, which shares the source with others, and what outlives that pipeline."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

from fastwire.coverage import Coverage
from fastwire.errors import FastwireError
from fastwire.position import Log, Position

from ...net.backoff import Backoff
from ...runtime.budget import Level
from ...runtime.errors import DatasetMismatchError, NoRecordYet, SinkFailedError
from ...runtime.health import Health, StopReason
from ...runtime.logs import get_logger
from ...runtime.metrics import PipelineMetrics, PipelineState
from ...sinks.base import Sink
from ...systems.source import Assignment, First, LogStopped, ShareableSource
from ..failure import failure_of
from ..figures import PipelineFigures
from ..pipeline import SINK_LIMIT_S, Pipeline

log = get_logger("pipeline")

FIRST_S, MOST_S = 5.0, 300.0  # pauses before a dataset that has failed is tried again


class LandingPipeline(Pipeline):
    """The pipeline of one of many datasets."""

    _say = staticmethod(log.debug)  # thousands of datasets commit once a minute
    _has_own_source = False  # what its calls make the source log is of the fan-out, not of this topic
    _whole = False
    _may_rest = _was_empty = False
    is_in_force: Callable[[Assignment], bool]
    """Returns True while an assignment is in force."""
    at_rest = False
    """True while the sink is closed because there is nothing to do."""
    quiet = False
    """True while there has been nothing to do since the last look, and so nothing new to tell."""

    def give_back(self, reason: str) -> None:
        """Drop the chunks that the sink has not taken, and commit the roll: their logs will be assigned again."""
        self._drop_chunks()
        self.commit_soon(reason)

    @property
    def is_idle(self) -> bool:
        """True while the sink is open and there is nothing to do."""
        busy = self._pending() or not self._roll.empty or self.waits_for
        return self._sink_open and not (busy or self._sink.unpublished or self._sink.publishing)

    def look_for_first(self, longest_s: float | None) -> None:
        """Look for the first record of an empty topic after so many seconds at most; None: it is an end."""
        self._sink_failures.look_s = longest_s

    def _nothing_yet(self, why: NoRecordYet) -> None:
        self.quiet = self._was_empty = True
        super()._nothing_yet(why)
        if not self._is_assigned:
            self.look_for_first(None)

    @property
    def _is_assigned(self) -> bool:
        """True while some partition is read here; others read it, or its topic is deleted."""
        return any(map(self.is_in_force, self._assigned))

    async def _open_once(self) -> None:
        self.quiet = False
        if self._was_empty and not self._sink_open and not self._is_assigned:
            raise NoRecordYet("no partition is assigned")
        await super()._open_once()

    def rest(self) -> bool:
        """Close the sink until there is something to do; return False without an effect if there is now."""
        if not self.is_idle:
            return False
        self._may_rest = True
        self._wake.set()
        return True

    async def _step(self) -> None:
        if not self._sink_open and not self._pending():
            return
        self.quiet = False
        if not self._sink_open:
            await self._open_again()
        await super()._step()
        if self._may_rest and not self._pending() and self._roll.empty and not self._draining:
            self._sink_open = False
            self.at_rest = self.quiet = True
            await self._sink.run(self._sink.sink.close)
        self._may_rest = False

    async def _open_again(self) -> None:
        """Open the sink that was closed to rest. Raises SinkFailedError, Superseded.

        A failure is one of an open sink: what has arrived for it is dropped and its logs are given up until it opens,
        or their records would fill the memory of all datasets.
        """
        self.at_rest = False
        try:
            await self._open_once()
        except OSError as exc:
            raise SinkFailedError(str(exc)) from exc
        self._source.landed(self.coverage)

    async def _save_what_can_be(self) -> None:
        if self._sink_open:
            await super()._save_what_can_be()

    @property
    def is_open(self) -> bool:
        """True while the sink is open."""
        return self._sink_open

    @property
    def impairments(self) -> list[str]:
        """As those of a pipeline, without what is of the source that all datasets share."""
        why, unpublished = self.waits_for, self._sink.unpublished
        if not (why or unpublished or self.parts.any):
            return []  # so it is for thousands, once a second
        return list(self.parts.sentences(None, why, unpublished))

    @property
    def began_at(self) -> float | None:
        """The loop's time at which the open roll began; None without one."""
        return None if self._roll.empty else self._roll.first_at

    @property
    def queued_bytes(self) -> int:
        """Memory of the chunks that wait for the sink."""
        return sum(chunk.nbytes for chunk in self._chunks)

    @property
    def held_bytes(self) -> int:
        """Memory beside the pool: chunks of their own memory that wait for the sink, and an estimate of the sink's."""
        return sum(chunk.nbytes for chunk in self._chunks if chunk.apart) + self._sink.unpooled_bytes()

    def call_s(self, now: float) -> float:
        """Return for how long the running call of the sink takes, in seconds; 0 without one."""
        since = self._sink.busy_since
        return 0.0 if since is None else now - since

    def look_at(self, waiting: Mapping[int, str]) -> None:
        """As ``look``, with the logs of the dataset that cannot be read."""
        self.parts.look(waiting, self._clock())

    @property
    def queued_chunks(self) -> int:
        """Chunks that wait for the sink."""
        return len(self._chunks)

    def end_whole(self) -> None:
        """Fail, as a pipeline with ``until_end`` does, if the sink fails for long or some records have not landed."""
        self._sink_failures.limit_s = SINK_LIMIT_S
        self._whole = True

    async def _finish(self) -> None:
        await super()._finish()
        if self._whole:
            await self._refuse_incomplete()

    @property
    def roll_size(self) -> tuple[int, int]:
        """Rows of the open roll, and bytes on disk."""
        return (0, 0) if self._roll.empty else (self._roll.rows, self._sink.staged_bytes)

    def count(self) -> None:
        """As that of a pipeline; the fan-out tells the sum of the open rolls."""
        self.figures.tell(self._sink.changed_times)


class Landing:
    """A topic and its dataset.

    ``sink`` is one object once the dataset has taken records: it knows which dataset that is (R14).
    """

    def __init__(self, topic: str, name: str, figures: PipelineFigures, clock: Callable[[], float]) -> None:
        self.topic = topic
        self.name = name
        self.figures = figures
        self.sink: Sink | None = None
        self.indexes: list[int] = []
        """Log indexes of the topic."""
        self.pipeline: LandingPipeline | None = None
        self.task: asyncio.Task[None] | None = None
        self.error: str | None = None
        """The reason why the dataset is stopped; None while it lands."""
        self.exit_code = 1
        self.empty = False
        """True if its pipeline has ended because the topic had no record."""
        self.retry_at: float | None = None
        """The time of the next attempt; None: none will help."""
        self.assigned: dict[int, Assignment] = {}
        """The last assignment of each log, for the next pipeline; those that are over have no effect."""
        self.stopped_logs: dict[int, LogStopped] = {}
        """Logs that had stopped when the last pipeline ended."""
        self.slow = False
        """True while its partitions are paused, because its commits take long."""
        self.counted = (0, 0)  # its part in the sums of the fan-out: queued and held bytes
        self._landed = False
        self._backoff = Backoff(first_s=FIRST_S, most_s=MOST_S)
        self._clock = clock

    @property
    def running(self) -> bool:
        """True while the pipeline of the dataset runs."""
        return self.pipeline is not None

    @property
    def state(self) -> str:
        """The state in a word: that of its pipeline, degraded, resting, slow, stopped or empty."""
        if self.pipeline is None:
            return "stopped" if self.error else "empty" if self.empty else "idle"
        if self.pipeline.awaits:
            return "empty"
        if self.slow:
            return "slow"
        if self.pipeline.at_rest and not self.pipeline.parts.any:
            return "resting"
        return "degraded" if self.pipeline.impairments else self.pipeline.state

    def failed(self, error: Exception, *, again: bool, pipeline: str) -> None:
        """Note and log that the dataset is stopped because of ``error``, and try ``again`` after a pause."""
        known = isinstance(error, FastwireError)
        self.error = str(error) if known else f"internal error: {type(error).__name__}: {error}"
        failure = failure_of(error)
        self.exit_code = 1 if failure is None else failure.exit_code
        self.retry_at = self._clock() + self._backoff.next() if again else None
        if not self._landed:
            self.sink = None  # an operator may put another dataset there
        pause = {} if self.retry_at is None else {"retry_in_s": round(self.retry_at - self._clock(), 1)}
        log.error(
            "a dataset has stopped: its records stay with the broker, and the others go on",
            pipeline=pipeline,
            topic=self.topic,
            dataset=self.name,
            why=self.error,
            **pause,
        )

    def lands(self) -> None:
        """Note that the dataset takes records."""
        self.error = self.retry_at = None
        self._landed = True
        self._backoff.reset()

    def status(self) -> dict[str, Any]:
        """Return plain values for the status page, in few words: there are thousands."""
        figures = self.figures
        told: dict[str, Any] = {
            "dataset": self.name,
            "state": self.state,
            "partitions": len(self.indexes),
            "rows_committed": figures.rows_committed,
            "commits": figures.commits,
        }
        if figures.dead_letters:
            told["dead_letters"] = figures.dead_letters
        if self.error:
            told["error"] = self.error
            told["retry_in_s"] = None if self.retry_at is None else round(max(0.0, self.retry_at - self._clock()), 1)
        elif self.pipeline is not None and self.pipeline.awaits:
            told["awaits"] = self.pipeline.awaits
        elif self.pipeline is not None and (why := self.pipeline.impairments):
            told["degraded"] = why
        return told


class _Shared(Protocol):
    """The fan-out, as its datasets need it."""

    coverage: Coverage

    @property
    def source(self) -> ShareableSource: ...
    def landed(self, landing: Landing, coverage: Coverage) -> None: ...
    def let_go(self, landing: Landing) -> None: ...
    def resume(self) -> None: ...
    def count_landing(self, landing: Landing) -> None: ...
    def check(self) -> Level: ...


class SharedSource:
    """The source of a fan-out as the pipeline of one dataset sees it: the contract of ``Source`` for its logs."""

    unreachable_because = ""
    offering = False
    stage_ns: Mapping[str, int] = {}

    def __init__(self, shared: _Shared, landing: Landing) -> None:
        self._shared = shared
        self._landing = landing
        self._source = shared.source
        self.system = self._source.system
        self.confirms = self._source.confirms

    @classmethod
    def of_dataset(cls, shared: _Shared, landing: Landing, cluster: str | None, expected: str | None) -> "SharedSource":
        """Return the source for a dataset that is open. Raises DatasetMismatchError for one that is another's.

        ``cluster`` is the name of its cluster, ``expected`` that of the others.
        """
        assert landing.pipeline is not None
        if cluster != expected:
            raise DatasetMismatchError(
                f"the dataset {landing.name} was created for cluster {cluster!r}, the others for {expected!r}: "
                "give this topic another name in sink.names, or put its dataset to another place"
            )
        others = {each.topic for each in landing.pipeline.coverage.logs()} - {landing.topic}
        if others:
            raise DatasetMismatchError(
                f"the dataset {landing.name} has records of {min(others)}, not of {landing.topic}: give one of the two "
                "topics another name in sink.names"
            )
        return cls(shared, landing)

    @property
    def logs(self) -> Sequence[Log]:
        """See ``Source.logs``: those of all topics."""
        return self._source.logs

    @property
    def indexes(self) -> Sequence[int]:
        """See ``Source.indexes``."""
        return self._landing.indexes

    @property
    def cluster_id(self) -> str:
        """See ``Source.cluster_id``."""
        return self._source.cluster_id

    async def start(self, coverage: Coverage) -> None:
        """Return at once: the source was started for all datasets."""
        self._shared.coverage.update(coverage)

    async def resolve(self, assignments: Sequence[Assignment], coverage: Coverage) -> list[First]:
        """See ``Source.resolve``."""
        return await self._source.resolve(assignments, coverage)

    def grant(self, assignments: Iterable[Assignment], coverage: Coverage) -> None:
        """See ``Source.grant``."""
        self._shared.coverage.update(coverage)
        self._landing.slow = False
        self._landing.lands()
        self._source.grant(assignments, self._shared.coverage)

    def landed(self, coverage: Coverage) -> None:
        """See ``Source.landed``."""
        self._shared.landed(self._landing, coverage)

    def void(self) -> None:
        """See ``Source.void``."""
        self._shared.let_go(self._landing)

    def resume(self) -> None:
        """See ``Source.resume``."""
        self._shared.resume()

    def on_budget(self, level: Level) -> None:
        """Do nothing: the source follows the budget."""

    def position(self, index: int) -> Position | None:
        """See ``Source.position``."""
        return self._source.position(index)

    async def heads(self) -> Mapping[int, Position]:
        """See ``Source.heads``."""
        return {index: head for index, head in (await self._source.heads()).items() if index in self.indexes}

    async def unfinished(self, heads: Mapping[int, Position], coverage: Coverage) -> Collection[int]:
        """See ``Source.unfinished``."""
        return await self._source.unfinished(heads, coverage)

    def waiting(self) -> Mapping[int, str]:
        """See ``Source.waiting``."""
        return {index: why for index, why in self._source.waiting().items() if index in self.indexes}

    def stop(self, index: int, why: str) -> None:
        """See ``Source.stop``."""
        self._source.stop(index, why)

    @property
    def standing_by(self) -> bool:
        """See ``Source.standing_by``."""
        return self._source.standing_by

    @property
    def unreachable_since(self) -> float | None:
        """See ``Source.unreachable_since``."""
        return self._source.unreachable_since

    def status(self) -> dict[str, Any]:
        """Return nothing: the fan-out tells of its source."""
        return {}

    async def close(self, timeout: float) -> None:
        """Give up the logs of the dataset: they are assigned again when it goes on."""
        self._shared.let_go(self._landing)


class LandingBudget:
    """The budget of the process as one of many pipelines sees it: its memory is counted by the fan-out."""

    def __init__(self, shared: _Shared, landing: Landing) -> None:
        self._shared = shared
        self._landing = landing

    def arrived(self, nbytes: int) -> None:
        """Do nothing: the fan-out has checked the budget."""

    def check(self) -> Level:
        """See ``Budget.check``."""
        self._shared.count_landing(self._landing)
        return self._shared.check()

    def count(self, held: Callable[[], int]) -> None:
        """Do nothing: see ``check``."""

    def uncount(self, held: Callable[[], int]) -> None:
        """Count the memory for the last time."""
        self._shared.count_landing(self._landing)

    def watch(self, watcher: Callable[[Level], None]) -> None:
        """Do nothing: the source of the fan-out watches."""

    def unwatch(self, watcher: Callable[[Level], None]) -> None:
        """Do nothing."""


class LandingMetrics:
    """The metrics of the fan-out without those that are of one pipeline: its state, its open roll."""

    def __init__(self, whole: PipelineMetrics) -> None:
        self._whole = whole

    def __getattr__(self, name: str) -> Any:
        return getattr(self._whole, name)

    def state(self, state: PipelineState) -> None:
        """Do nothing: the states of datasets are counted."""

    def health(self, health: Health) -> None:
        """Do nothing: the fan-out tells its own."""

    def stopped(self, reasons: Mapping[StopReason, int]) -> None:
        """Do nothing: the fan-out tells the sums."""

    def unreadable(self, partitions: int) -> None:
        """Do nothing: the fan-out tells the sum."""

    def roll(self, rows: int, file_bytes: int) -> None:
        """Do nothing: the fan-out tells the sum."""
