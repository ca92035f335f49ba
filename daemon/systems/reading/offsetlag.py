"""Lag in offsets: from what has landed to the end of the log."""

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple, Protocol

from fastwire.errors import FastwireError
from fastwire.position import Position

from ...runtime.logs import get_logger
from .lag import Lag, LogLag, SourceLike
from .pulled import PulledPartition

log = get_logger("source")


class LogEnds(NamedTuple):
    """The offsets at which logs end, by topic and number, and the errors of those whose leader has not said it."""

    found: Mapping[tuple[str, int], int]
    failed: Mapping[tuple[str, int], FastwireError]


class OffsetSource(SourceLike, Protocol):
    """A source, as its lag sees it."""

    partitions: list[Any]

    async def ends(self, places: Collection[tuple[str, int]]) -> LogEnds:
        """Ask for the end of each log, as far as it can be read."""

    def landed_up_to(self, partition: Any) -> Position:
        """Return the end of the durable records of a partition; where it begins, without any."""


class OffsetLag(Lag):
    """Polls the ends of the logs."""

    _source: OffsetSource

    async def _ask(self) -> dict[int, LogLag]:
        source = self._source
        # Partitions that are read without a link have no known leader at the moment.
        read: dict[tuple[str, int], PulledPartition[Any]]
        read = {one.place: one for one in source.partitions if one.counts and (one.link or not one.granted)}
        ends = await source.ends(read.keys())
        for error in ends.failed.values():
            log.debug("cannot ask where a log ends", error=str(error))
        lags = {}
        for place, end in ends.found.items():
            one = read.get(place)
            if one is not None and one.counts:
                done = source.landed_up_to(one)
                lags[one.index] = LogLag(max(end - done.a, 0), one.before(end), done)
        return lags
