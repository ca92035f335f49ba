"""The lag of a TubeMQ source."""

from collections.abc import Sequence
from typing import Protocol

from fastwire.position import Position
from fastwire.tubemq.position import ENTRY_BYTES

from ...reading.lag import Lag, LogLag, SourceLike
from .partition import Partition


class _Source(SourceLike, Protocol):
    @property
    def partitions(self) -> Sequence[Partition]: ...


class FetchedLag(Lag):
    """The lag as the responses to GETs report it: Brokers are not asked.

    The lag of a stopped partition is that of its last GET, and does not grow.
    """

    _source: _Source

    def _growth(self, before: Position, after: Position) -> int:
        return super()._growth(before, after) // ENTRY_BYTES

    async def _ask(self) -> dict[int, LogLag]:
        return {
            one.index: LogLag(one.backlog, one.head, None, {"backlog_bytes": one.lag_bytes})
            for one in self._source.partitions
            if one.counts and one.backlog >= 0
        }
