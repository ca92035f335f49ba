"""All datasets of a fan-out: which run, which have stopped, and what is told of them together."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

from ...runtime.health import MOST_SHOWN, StopReason
from ...runtime.logs import get_logger
from ...runtime.metrics import PipelineMetrics
from ..failure import PipelineFailed
from ..impairments import MOST_NAMED
from ..sinkfailures import EMPTY_LOOK_S
from .landing import Landing, LandingPipeline

log = get_logger("pipeline")

NEVER = (0.0, 0.0)
EMPTY_SHARE_S = 0.3  # a look takes some milliseconds: for topics without a record, together, about 1 % of a core
TOLD = 20  # stopped datasets that the status names


class Running(Landing):
    """A landing whose pipeline runs, for the type checker."""

    pipeline: LandingPipeline


class Landings(dict[str, Landing]):
    """The datasets by topic."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting: set[Landing] = set()  # whose sinks wait, as last logged
        self._told_empty: set[Landing] = set()
        self._empty = 0  # as last counted

    def running(self) -> Iterator[Running]:
        """Yield the datasets whose pipelines run."""
        return iter(cast("list[Running]", [each for each in self.values() if each.pipeline is not None]))

    def busy(self) -> list[Running]:
        """Return those of the running datasets that may have something to tell: most have nothing to do."""
        return [each for each in self.running() if not each.pipeline.quiet or each.pipeline.parts.any]

    def halted(self) -> list[Landing]:
        """Return the datasets that are stopped."""
        return [each for each in self.values() if each.error is not None]

    def refuse_stopped(self, *, each_must_land: bool) -> None:
        """Raise PipelineFailed if each dataset must land and some are stopped, or if all are."""
        stopped = self.halted()
        if not stopped or not (each_must_land or len(stopped) == len(self)):
            return
        whys = [f"{each.topic}: {each.error}" for each in stopped]
        more = f"; and {len(whys) - TOLD} more" if len(whys) > TOLD else ""
        codes = {each.exit_code for each in stopped}
        raise PipelineFailed(
            f"{len(whys)} of {len(self)} datasets have stopped: {'; '.join(whys[:TOLD])}{more}",
            codes.pop() if len(codes) == 1 else 1,
        )

    def stage_ns(self, of_source: Mapping[str, int]) -> Counter[str]:
        """Return the time by stage, in nanoseconds: that of the source, and of all sinks together."""
        spent = Counter(of_source)
        for landing in self.values():
            spent.update(getattr(landing.sink, "stage_ns", {}))
        return spent

    def due(self, now: float) -> list[Landing]:
        """Return the stopped datasets that are to be tried again."""
        halted = (each for each in self.values() if each.retry_at is not None)
        return [each for each in halted if now >= (each.retry_at or 0.0) and each.assigned and each.pipeline is None]

    def slow(self, now: float, slow_s: float) -> list[Running]:
        """Return the datasets whose chunks wait for a call of the sink that has taken ``slow_s`` seconds."""
        return [each for each in self.running() if each.pipeline.queued and each.pipeline.call_s(now) >= slow_s]

    def end_largest(self, nbytes: int) -> None:
        """End the rolls that hold most memory early, until they hold ``nbytes``."""
        for landing in sorted(self.running(), key=lambda each: each.counted[1], reverse=True):
            if nbytes <= 0:
                return
            nbytes -= landing.counted[1]
            landing.pipeline.commit_soon("memory")

    def rest(self, now: float, most_open: int) -> None:
        """While more than ``most_open`` sinks are open, close those without work for longest, at the last call too.

        End the oldest rolls early if more than so many have something to do.
        """
        there = [landing for landing in self.running() if landing.pipeline.is_open]
        idle = [landing for landing in there if landing.pipeline.is_idle]
        # One that has just been opened, or has committed, waits for its next records: they may be on their way.
        long_idle = [landing for landing in idle if landing.pipeline.quiet]
        for landing in idle:
            landing.pipeline.quiet = True
        if len(there) <= most_open:
            return
        long_idle.sort(key=lambda each: each.figures.last_commit_at or NEVER)
        for landing in long_idle[: len(there) - most_open]:
            landing.pipeline.rest()
        busy = list(set(there).difference(idle))
        busy.sort(key=lambda each: now if each.pipeline.began_at is None else each.pipeline.began_at)
        for oldest in busy[: max(0, len(busy) - most_open)]:
            oldest.pipeline.commit_soon("many datasets")

    def common(self, why: Callable[[LandingPipeline], str | None]) -> str | None:
        """Return the first reason if there is one for each dataset that runs, else None: one at rest has none."""
        first = None
        for landing in self.running():
            found = why(landing.pipeline)
            if found is None:
                return None
            first = first or f"{landing.name}: {found}"
        return first

    def tell_waits(self, pipeline: str) -> None:
        """Log which sinks of ``pipeline`` have begun to wait since the last call, and which wait no more."""
        for landing in {*self.busy(), *self._waiting}:
            why = None if landing.pipeline is None else landing.pipeline.waiting
            if why is None and landing in self._waiting:
                self._waiting.discard(landing)
                log.info("a dataset waits no more", pipeline=pipeline, topic=landing.topic, dataset=landing.name)
            elif why is not None and landing not in self._waiting:
                self._waiting.add(landing)
                log.error(
                    "a dataset waits: none of its records is lost or acknowledged, and the others go on",
                    pipeline=pipeline,
                    topic=landing.topic,
                    dataset=landing.name,
                    why=why,
                )

    def impairments(self) -> list[str]:
        """Return sentences about the datasets that do not land, or not all of what they should."""
        said = []
        if stopped := self.halted():
            said.append(self._counted(len(stopped), "stopped", f"{stopped[0].topic}: {stopped[0].error}"))
        if hurt := [(each, whys) for each in self.busy() if (whys := each.pipeline.impairments)]:
            landing, whys = hurt[0]
            said.append(self._counted(len(hurt), "degraded", f"{landing.topic}: {'; '.join(whys)}"))
        return said

    def _counted(self, count: int, what: str, first: str) -> str:
        return f"{count} of {len(self)} datasets {'is' if count == 1 else 'are'} {what}: {first}"

    @property
    def stopped(self) -> dict[int, str]:
        """The logs that are stopped, alone or with their datasets, and why."""
        whys = {index: str(each.error) for each in self.halted() for index in each.indexes}
        for landing in self.values():
            stopped = landing.stopped_logs if landing.pipeline is None else landing.pipeline.parts.stopped
            whys |= {index: str(error) for index, error in stopped.items()}
        return whys

    def look(self, waiting: Mapping[str, Mapping[int, str]], metrics: PipelineMetrics, pipeline: str) -> None:
        """Note the logs that cannot be read, by topic, and set the metrics of what does not land, and of states.

        ``pipeline`` is the name for log lines.
        """
        reasons: Counter[StopReason] = Counter()
        unreadable = 0
        for landing in self.running():
            its = waiting.get(landing.topic)
            if its is None and not landing.pipeline.parts.any:
                continue
            landing.pipeline.look_at(its or {})
            parts = landing.pipeline.parts
            reasons.update(each.reason for each in parts.stopped.values())
            unreadable += len(parts.unreadable)
        metrics.stopped(reasons)
        metrics.unreadable(unreadable)
        states = self.states()
        metrics.datasets(states)
        self._follow_empty(states["empty"], pipeline)

    def _follow_empty(self, empty: int, pipeline: str) -> None:
        """Have topics without a record looked at the less often the more there are; log that there are new ones."""
        if not empty and not self._empty:
            return
        waiting = [each for each in self.running() if each.pipeline.awaits]
        for landing in waiting:
            landing.pipeline.look_for_first(max(EMPTY_LOOK_S, empty * EMPTY_SHARE_S))
        new = [each for each in waiting if each not in self._told_empty]
        if new and empty == self._empty:  # not while more are being found
            self._told_empty |= set(new)
            log.info(
                "topics have no record yet: the dataset of each begins with its first one",
                pipeline=pipeline,
                topics=len(new),
                names=[each.topic for each in new[:MOST_NAMED]],
            )
        self._empty = empty

    def count(self, metrics: PipelineMetrics) -> None:
        """Set the metrics of received records, and of the open rolls together."""
        rows = nbytes = 0
        for landing in self.busy():
            landing.pipeline.count()
            size = landing.pipeline.roll_size
            rows, nbytes = rows + size[0], nbytes + size[1]
        metrics.roll(rows, nbytes)

    def states(self) -> Counter[str]:
        """Return the number of datasets by state."""
        return Counter(each.state for each in self.values())

    def status(self) -> dict[str, Any]:
        """Return what the status page has of the datasets, as plain values."""
        sizes = [each.pipeline.roll_size for each in self.running()]
        unpublished = ((each.name, getattr(each.sink, "unpublished", "")) for each in self.running())
        return {
            "roll": {"rows": sum(rows for rows, _ in sizes), "bytes": sum(nbytes for _, nbytes in sizes)},
            "queued_chunks": sum(each.pipeline.queued_chunks for each in self.running()),
            "unpublished": "; ".join(f"{name}: {why}" for name, why in unpublished if why),
            **self._partitions(),
            "stopped_datasets": {each.topic: each.error for each in self.halted()[:TOLD]},
            "dataset_states": dict(self.states()),
            "datasets": {topic: each.status() for topic, each in self.items()},
        }

    def _partitions(self) -> dict[str, dict[str, str]]:
        """Return the partitions of all datasets with their reasons, as in the status of a pipeline."""
        together: dict[str, dict[str, str]] = {}
        for landing in self.running():
            for kind, whys in landing.pipeline.parts.status().items():
                known = together.setdefault(kind, {})
                known |= dict(list(whys.items())[: max(0, MOST_SHOWN - len(known))])
        return together or {"stopped_partitions": {}, "recreated_partitions": {}, "unreadable_partitions": {}}
