"""The partitions of the topics that are read, as topics and partitions come and go."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, MutableSequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from fastwire.coverage import Coverage
from fastwire.grammar import NamePattern
from fastwire.position import Log

from .earlier import EarlierLogs
from .pulled import PulledPartition
from .stage import Stage

MISSING_S = 5.0  # a topic that was just created is not known everywhere at once, nor all of them to a new broker

P = TypeVar("P", bound=PulledPartition[Any])


@dataclass(slots=True)
class Changes(Generic[P]):
    """Changes of the metadata: new partitions, those replaced by another log, and those deleted with their topics."""

    added: list[P] = field(default_factory=list)
    replaced: list[P] = field(default_factory=list)
    gone: list[P] = field(default_factory=list)


class Topics(ABC, Generic[P]):
    """The partitions of the topics that are read; ``logs`` and ``partitions`` are filled by log index.

    Either topics are named, and a missing one is a failure at first, or ``pattern`` chooses among all topics of the
    cluster, and they may come and go. ``names`` are those that were there at the last look.
    """

    def __init__(
        self,
        names: tuple[str, ...],
        pattern: NamePattern | None,
        cluster: str,
        logs: MutableSequence[Log],
        partitions: MutableSequence[P],
    ) -> None:
        self.names = names
        self._pattern = pattern
        self._cluster_name = cluster
        self._logs = logs
        self._partitions = partitions
        self._earlier = EarlierLogs()
        self._latest: dict[tuple[str, int], P] = {}

    def learn(self, coverage: Coverage) -> None:
        """Note the logs in ``coverage``, which earlier runs have read."""
        self._earlier = EarlierLogs(
            (self._as_found(log) for log in coverage.logs() if log.cluster == self._cluster_name),
            None if self._pattern is None else self._pattern.matches,
        )

    def _as_found(self, log: Log) -> Log:
        """Return the log that the cluster has for a log in Coverage."""
        return log

    @property
    def in_doubt(self) -> bool:
        """True if a topic may be deleted: the metadata should be requested again soon."""
        return False

    @abstractmethod
    async def ask(self) -> None:
        """Bring the metadata up to date. Raises FastwireError."""

    @abstractmethod
    def check(self, *, patient: bool) -> None:
        """Raise the error of a named topic; SourceFailed for a missing one, unless ``patient``."""

    @abstractmethod
    def described(self) -> list[tuple[str, int]]:
        """Return each topic that is there with the number of its partitions."""

    def known(self) -> frozenset[str]:
        """Return the topics of which an earlier run has landed records."""
        return self._earlier.topics

    def compare(self, coverage: Coverage, now: float, *, first: bool = False) -> Changes[P]:
        """Compare the metadata with the known partitions, and return the changes. ``now`` is the loop's time."""
        changes: Changes[P] = Changes()
        if self._pattern is not None:
            self.names = self._matching(self._pattern, now)
            there = frozenset(self.names)
            changes.gone += [one for one in self._latest.values() if one.place[0] not in there and not one.over]
        for name in self.names:
            for number in self._numbers(name):
                self._take_in(name, number, coverage, changes, first=first)
        return changes

    def take(self, place: tuple[str, int]) -> P:
        """Return the partition at ``place`` of the metadata, to be read whatever was found of it before."""
        if (known := self._latest.get(place)) is not None and known.over:
            del self._latest[place]
        self._take_in(*place, Coverage(), Changes(), first=True)
        return self._latest[place]

    @abstractmethod
    def _matching(self, pattern: NamePattern, now: float) -> tuple[str, ...]:
        """Return the topics of the cluster that match ``pattern``."""

    @abstractmethod
    def _numbers(self, name: str) -> Iterable[int]:
        """Return the numbers of a topic's partitions, in ascending order; none if the topic is missing."""

    @abstractmethod
    def _take_in(self, name: str, number: int, coverage: Coverage, changes: Changes[P], *, first: bool) -> None:
        """Compare one partition of the metadata with the known one."""

    def _keep(self, known: P, changes: Changes[P]) -> None:
        """Go on with a partition that is the known one, also if its topic was gone."""
        if known.stage is Stage.GONE:
            known.move(Stage.IDLE)
            changes.added.append(known)

    def _is_late(self, log: Log, *, first: bool) -> bool:
        """Return True if a new log was added since an earlier run, or since the ``first`` comparison of this one."""
        return not first or self._earlier.is_late(self._as_found(log))

    def _add(self, partition: P) -> P:
        self._logs.append(partition.log)
        self._partitions.append(partition)
        self._latest[partition.place] = partition
        return partition
