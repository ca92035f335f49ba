"""How far behind a source is, by the word of its brokers: for metrics and the status page."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from fastwire.position import Log, Position, format_position

from ..metrics import PipelineMetrics

__all__ = ["Lag", "Told"]

LEAST_S = 0.06  # a log: a thousand of them every 15 s would take more of a core than idling may
MOST_SHOWN = 100  # logs on the status page, those with the largest backlog


@dataclass(frozen=True, slots=True)
class Told:
    """What is known of one log: ``head`` is the position of its newest record, ``done`` what is confirmed."""

    backlog: int
    head: Position | None
    done: Position | None
    more: Mapping[str, Any] = field(default_factory=dict)
    """For the status page."""


class PartitionLike(Protocol):
    """A partition of any system."""

    index: int
    granted: bool


class SourceLike(Protocol):
    """A source of any system."""

    system: str

    @property
    def logs(self) -> Sequence[Log]: ...
    @property
    def partitions(self) -> Sequence[PartitionLike]: ...
    def position(self, index: int) -> Position | None: ...
    def run(self, work: Any, name: str) -> "asyncio.Task[None]": ...


class Lag(ABC):
    """Asks about every log that a source reads, ``poll_s`` (with many logs: more) after it was asked last.

    A log that was not answered for is unknown and not in the sums; with none known there is no lag to report at all.
    """

    _source: SourceLike

    def __init__(self, source: SourceLike, metrics: PipelineMetrics | None, poll_s: float) -> None:
        self._source = source
        self._metrics = metrics
        self._poll_s = poll_s
        self._told: dict[int, Told] = {}  # by index of the log
        self._asked_at = 0.0
        self._task: asyncio.Task[None] | None = None

    @abstractmethod
    async def _ask(self) -> dict[int, Told]:
        """What brokers say of the logs that are read, by their indexes."""

    def look(self, now: float) -> None:
        """Ask the brokers if it is time."""
        source = self._source
        if self._task is not None and not self._task.done():
            return
        if not any(partition.granted for partition in source.partitions):
            self._take({})  # what others read is theirs to report
        elif not self._asked_at or now - self._asked_at >= max(self._poll_s, len(source.partitions) * LEAST_S):
            self._asked_at = now
            self._task = source.run(self._ask_and_take(), "lag")

    def status(self, now: float) -> dict[str, Any] | None:
        """The lag, and the logs with the largest backlog; None if nothing is known."""
        if not self._told:
            return None
        largest = sorted(self._told.items(), key=lambda item: -item[1].backlog)[:MOST_SHOWN]
        return {
            "asked_s_ago": round(now - self._asked_at, 1),
            "backlog_entries": self._backlog(),
            "behind_logs": self._behind(),
            "known_logs": len(self._told),
            "logs": {str(self._source.logs[index]): self._shown(index, told) for index, told in largest},
        }

    def close(self) -> None:
        """Nothing is known any more."""
        self._take({})

    async def _ask_and_take(self) -> None:
        self._take(await self._ask())

    def _take(self, told: dict[int, Told]) -> None:
        before, self._told = self._told, told
        if self._metrics is None:
            return
        if told:
            self._metrics.lag(self._backlog(), self._behind())
        elif before:
            self._metrics.lag_unknown()

    def _backlog(self) -> int:
        return sum(told.backlog for told in self._told.values())

    def _behind(self) -> int:
        return sum(self._is_behind(index, told) for index, told in self._told.items())

    def _is_behind(self, index: int, told: Told) -> bool:
        """Whether the broker held a record that had not come to us, nor was confirmed by a peer."""
        head = told.head
        if head is None or (told.done is not None and told.done >= head):
            return False
        received = self._source.position(index)
        return received is None or received < head

    def _shown(self, index: int, told: Told) -> dict[str, Any]:
        places = {"head": told.head, "received": self._source.position(index), "cursor": told.done}
        texts = {name: None if at is None else format_position(self._source.system, at) for name, at in places.items()}
        return {"backlog_entries": told.backlog, **told.more, **texts}
