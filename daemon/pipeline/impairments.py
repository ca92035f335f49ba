"""The parts of a pipeline that do not land while the others do: partitions that are stopped or cannot be read."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from fastwire.position import Log

from ..runtime.budget import Budget
from ..runtime.errors import LogRefusedError
from ..runtime.health import MOST_SHOWN
from ..runtime.logs import get_logger
from ..runtime.metrics import PipelineMetrics
from ..systems.source import LogStopped, Source

TELL_AGAIN_S = 600.0
UNREADABLE_S = 30.0  # leaders move often: a partition that cannot be read for a shorter time is no impairment
MOST_NAMED = 5  # partitions in a log line

log = get_logger("pipeline")


def unreachable(source: Source | None) -> Iterator[str]:
    """Yield the sentence that no broker of a running ``source`` is reachable, if so."""
    if source is not None and source.unreachable_since is not None:
        yield f"no broker is reachable: {source.unreachable_because or 'none has answered yet'}"


def starved(budget: Budget) -> Iterator[str]:
    """Yield the sentence that memory which does not come back keeps everything from being read, if so."""
    if budget.held_s >= UNREADABLE_S:
        yield (
            f"nothing has been read for {budget.held_s:,.0f} s: {budget.used:,} of {budget.limit:,} bytes of the "
            "memory budget are in use and do not come back (a sink that waits, or a plug-in that keeps records?)"
        )


class Impairments:
    """The stopped and the unreadable partitions of one pipeline, by index in ``logs``, which are those of its source.

    A partition whose topic was made again is not stopped: another log has its place, and is read.
    """

    def __init__(self, pipeline: str, metrics: PipelineMetrics) -> None:
        self.logs: Sequence[Log] = ()
        self.own: Sequence[int] | None = None
        """The indexes of the pipeline's own logs; None: all of ``logs``."""
        self._pipeline = pipeline
        self._metrics = metrics
        self._stopped: dict[int, LogStopped] = {}
        self._unreadable_since: dict[int, float] = {}
        self._unreadable: dict[int, str] = {}
        self._tell_at = float("inf")

    def __contains__(self, index: int) -> bool:
        return index in self._stopped

    def stall(self, index: int, unacked: int, reason: str) -> None:
        """Note that the broker delivers no more of a log until records are acknowledged; ``reason`` is its setting."""
        self._metrics.stalls[reason].inc()
        log.warning(
            "the broker has stopped delivery until records are acknowledged: committing now, and earlier from now on",
            pipeline=self._pipeline,
            topic=self.logs[index].topic,
            partition=self.logs[index].partition,
            unacknowledged=unacked,
            setting=reason,
        )

    @property
    def all_stopped(self) -> bool:
        """True if no log is left to read."""
        return len(self._stopped) == self._count

    @property
    def _count(self) -> int:
        return len(self.logs if self.own is None else self.own)

    def left(self) -> Iterator[tuple[int, Log]]:
        """Yield the logs that are not stopped, by index."""
        own = range(len(self.logs)) if self.own is None else tuple(self.own)
        return ((index, self.logs[index]) for index in own if index not in self._stopped)

    def refused_by(self, error: LogRefusedError) -> dict[int, LogStopped]:
        """Return why logs that are not stopped must be, because the sink can never write them."""
        again = (
            "it is stopped until the pipeline starts again, by a reload of a changed configuration or by a restart, "
            "and records that are not committed stay with the broker"
        )
        return {
            index: LogStopped(f"{each} cannot be written: {error}; {again}", error.reason)
            for index, each in self.left()
            if error.concerns(each)
        }

    @property
    def stopped(self) -> dict[int, LogStopped]:
        """The partitions that are stopped."""
        return {index: error for index, error in self._stopped.items() if error.reason != "recreated"}

    @property
    def any(self) -> bool:
        """True if some partition has stopped or could not be read at the last look."""
        return bool(self._stopped or self._unreadable_since)

    @property
    def unreadable(self) -> Mapping[int, str]:
        """The partitions that cannot be read, with the reason."""
        return self._unreadable

    @property
    def reasons(self) -> list[str]:
        """The reasons for which logs were not read to their end, with those whose topic was made again."""
        return [str(error) for error in self._stopped.values()]

    def stop(self, index: int, error: LogStopped, now: float) -> None:
        """Note and log that a partition has stopped at ``now``, in seconds of the caller's clock."""
        if index in self._stopped:
            return
        stopped = self.logs[index]
        self._stopped[index] = error
        if error.reason != "recreated":
            log.error(
                str(error),
                pipeline=self._pipeline,
                topic=stopped.topic,
                partition=stopped.partition,
                reason=error.reason,
            )
            self._tell_at = min(self._tell_at, now + TELL_AGAIN_S)
        self._metrics.stopped(Counter(each.reason for each in self.stopped.values()))

    def look(self, waiting: Mapping[int, str], now: float) -> None:
        """Note the partitions that cannot be read at ``now``, with the reason; log again and again what is stopped."""
        self._unreadable_since = {index: self._unreadable_since.get(index, now) for index in waiting}
        self._unreadable = {
            index: waiting[index] for index, since in self._unreadable_since.items() if now - since >= UNREADABLE_S
        }
        self._metrics.unreadable(len(self._unreadable))
        if now >= self._tell_at:
            self._tell_at = now + TELL_AGAIN_S
            stopped = self.stopped
            log.error(
                "partitions are still stopped: their records do not land, and the broker's retention deletes them",
                pipeline=self._pipeline,
                stopped=len(stopped),
                partitions=[str(self.logs[index]) for index in stopped][:MOST_NAMED],
                why=str(next(iter(stopped.values()))),
            )

    def sentences(self, source: Source | None, waits_for: str | None, unpublished: str) -> Iterator[str]:
        """Yield what does not land, for people: of a running ``source``, and of a sink, with what it waits for."""
        yield from unreachable(source)
        if stopped := len(self.stopped):
            yield f"{stopped} of {self._count} partitions {'is' if stopped == 1 else 'are'} stopped"
        if unreadable := len(self._unreadable):
            yield f"{unreadable} of {self._count} partitions cannot be read at the moment"
        if waits_for:
            yield f"the sink waits: {waits_for}"
        if unpublished:
            yield f"what lands is not in the table: {unpublished}"

    def status(self) -> dict[str, dict[str, str]]:
        """Return the partitions with their reasons, for the status."""
        stopped = self.stopped
        again = {index: str(error) for index, error in self._stopped.items() if index not in stopped}
        return {
            "stopped_partitions": self._named({index: str(error) for index, error in stopped.items()}),
            "recreated_partitions": self._named(again),
            "unreadable_partitions": self._named(self._unreadable),
        }

    def _named(self, whys: Mapping[int, str]) -> dict[str, str]:
        shown = list(whys.items())[:MOST_SHOWN]
        return {f"{self.logs[index].topic} {self.logs[index].partition}": why for index, why in shown}
