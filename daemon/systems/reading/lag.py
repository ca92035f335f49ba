"""The lag of a source as its brokers report it, for the metrics and the status page."""

import asyncio
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from fastwire.position import Log, Position, format_position, positions_of

from ...runtime.metrics import PipelineMetrics
from ...runtime.rates import LagHistory
from .silence import Silence
from .stage import StagedPartition

LEAST_S = 0.06  # the shortest interval, per log: a thousand logs every 15 s would cost an idle daemon too much CPU
MOST_SHOWN = 100  # logs on the status page, those with the largest backlog; only theirs have a history


@dataclass(frozen=True, slots=True)
class LogLag:
    """A broker's report of one log: ``head`` is the position of its newest record, ``done`` the acknowledged position.

    ``backlog`` is the number of entries after ``done``.
    """

    backlog: int
    head: Position | None
    done: Position | None
    more: Mapping[str, Any] = field(default_factory=dict)
    """More fields for the status page."""


class SourceLike(Protocol):
    """The attributes of a source that the lag needs."""

    system: str

    @property
    def logs(self) -> Sequence[Log]:
        """See ``Source.logs``."""

    @property
    def partitions(self) -> Sequence[StagedPartition]:
        """The partitions, by log index."""

    def position(self, index: int) -> Position | None:
        """See ``Source.position``."""

    def run(self, work: Any, name: str) -> "asyncio.Task[None]":
        """See ``ClusteredSource.run``."""


class Lag(ABC):
    """Polls the brokers about every log that a source reads or has stopped, every ``poll_s`` seconds.

    With many logs it does so less often.

    A log without an answer is unknown and left out of the sums; if all are unknown, no lag is reported.
    """

    _source: SourceLike

    def __init__(self, source: SourceLike, metrics: PipelineMetrics | None, poll_s: float) -> None:
        self._source = source
        self._metrics = metrics
        self._poll_s = poll_s
        self._lags: dict[int, LogLag] = {}  # by index of the log
        self._silence = Silence()
        self._histories: dict[int, LagHistory] = {}  # of the logs that are shown
        self._asked_at = 0.0
        self._task: asyncio.Task[None] | None = None

    @abstractmethod
    async def _ask(self) -> dict[int, LogLag]:
        """Return the brokers' reports of the logs that count, by log index."""

    def _growth(self, before: Position, after: Position) -> int:
        """Return the entries by which the end of a log has grown, or a number that is 0 only if it has not."""
        return max(0, after.a - before.a)

    def look(self, now: float) -> None:
        """Start a poll if one is due; ``now`` is the event loop's time."""
        source = self._source
        if self._task is not None and not self._task.done():
            return
        if not any(partition.counts for partition in source.partitions):
            self._take({})  # logs that other consumers read are in their reports
        elif not self._asked_at or now - self._asked_at >= max(self._poll_s, len(source.partitions) * LEAST_S):
            self._asked_at = now
            self._task = source.run(self._ask_and_take(), "lag")

    def status(self, now: float) -> dict[str, Any] | None:
        """Return the lag and the logs with the largest backlog; None if no log is known."""
        if not self._lags:
            return None
        return {
            "asked_s_ago": round(now - self._asked_at, 1),
            "backlog_entries": self.backlog,
            "behind_logs": self._behind(),
            "known_logs": len(self._lags),
            "silent_topics": self._silence.status(now),
            "logs": {str(self._source.logs[index]): self._shown(index, now) for index in self._largest()},
        }

    def _largest(self) -> list[int]:
        """Return the logs with the largest backlog; of equal ones, those that have a history."""
        return sorted(self._lags, key=lambda index: (-self._lags[index].backlog, index not in self._histories))[
            :MOST_SHOWN
        ]

    def _remember(self) -> None:
        """Note the backlog of the logs with the largest ones, and forget the histories of all others."""
        self._histories = {index: self._histories.get(index) or LagHistory() for index in self._largest()}
        for index, history in self._histories.items():
            history.add(self._lags[index].backlog, self._asked_at)

    def close(self) -> None:
        """Report no lag any more."""
        self._take({})

    async def _ask_and_take(self) -> None:
        self._take(await self._ask())

    def _take(self, lags: dict[int, LogLag]) -> None:
        before, self._lags = self._lags, lags
        self._follow_topics(before)
        if lags:
            self._remember()
        if self._metrics is None:
            return
        if lags:
            self._metrics.lag(self.backlog or 0, self._behind(), self._silence.count)
        elif before:
            self._metrics.lag_unknown()

    def _follow_topics(self, before: Mapping[int, LogLag]) -> None:
        """Note by how much the ends of the logs have grown."""
        logs: dict[str, set[int]] = {}
        growth: Counter[str] = Counter()
        for index, lag in self._lags.items():
            topic, known = self._source.logs[index].topic, before.get(index)
            logs.setdefault(topic, set()).add(index)
            if known is not None and lag.head is not None and lag.head != known.head:
                growth[topic] += 1 if known.head is None else self._growth(known.head, lag.head)
        self._silence.add({topic: frozenset(known) for topic, known in logs.items()}, growth, self._asked_at)

    @property
    def backlog(self) -> int | None:
        """The entries that brokers hold and that are not acknowledged; None if no broker has said it."""
        return sum(lag.backlog for lag in self._lags.values()) if self._lags else None

    def _behind(self) -> int:
        return sum(self._is_behind(index, lag) for index, lag in self._lags.items())

    def _is_behind(self, index: int, lag: LogLag) -> bool:
        """Return True if the broker holds a record that is neither received here nor acknowledged by another consumer.

        A stopped log is not behind: it is not read.
        """
        head = lag.head
        if not self._source.partitions[index].granted:
            return False
        if not positions_of(self._source.system).ordered:
            return lag.backlog > 0
        if head is None or (lag.done is not None and lag.done >= head):
            return False
        received = self._source.position(index)
        return received is None or received < head

    def _shown(self, index: int, now: float) -> dict[str, Any]:
        lag, history = self._lags[index], self._histories[index].status(now)
        places = {"head": lag.head, "received": self._source.position(index), "cursor": lag.done}
        texts = {name: None if at is None else format_position(self._source.system, at) for name, at in places.items()}
        return {"backlog_entries": lag.backlog, **lag.more, **texts, "lag_history": history}
