"""Ranges of offsets [S, E) of logs whose reader chooses the offset: the end of reading, and what counts as a loss.

Nothing is left behind at the broker, and any number of attempts may read the same range at the same time. The end is
reached when the *next* offset is E: there are holes, so the record at E - 1 may never come.
"""

from bisect import bisect_left
from collections.abc import Coroutine
from typing import Any, Generic, Protocol, TypeVar

import pyarrow as pa

from fastwire.columns.chunk import Chunk
from fastwire.errors import FastwireError
from fastwire.position import Position, format_position, parse_position

from .connections import RangeBook
from .options import Options
from .rangereader import RangeReader, ReadingRules
from .ranges import DataLossError, Range

__all__ = ["OffsetRangeReader", "Records", "UnreadableError", "fetch_bytes"]

B = TypeVar("B", bound=RangeBook[Any, Any])


def fetch_bytes(options: Options) -> int:
    """Return the largest size of a response with records, in bytes: the option ``fetchMaxBytes``."""
    found: int = options.own.get("fetchMaxBytes", 4 << 20)
    return found


class UnreadableError(DataLossError):
    """A log cannot be read further, as a cluster finds it, which does not know the range."""


class Records(Protocol):
    """The records of a partition from an offset on, read over one connection."""

    @property
    def position(self) -> Position:
        """The next offset."""

    async def news(self) -> bool:
        """Request records and wait a moment; return True if a response about the partition is complete.

        Raises LinkLost, UnreadableError, and the system's own errors of a partition.
        """

    def silence(self) -> str:
        """Describe a leader that sends no records."""

    def close(self) -> None:
        """End reading; what is in flight for this partition is refused when it comes."""


class OffsetRangeReader(RangeReader, Generic[B]):
    """A range of offsets. ``unit`` is the system's word for the records that are stored together."""

    unit = "batch"

    def __init__(self, cluster: B, part: Range, rules: ReadingRules) -> None:
        super().__init__(part, rules)
        self._cluster = cluster
        self._place = part.partition.topic, part.partition.index  # as requests name it

    async def _drain(self, records: Records, following: Coroutine[Any, Any, None]) -> FastwireError | None:
        """Run ``following``, pass on all that came, and close ``records``; return the error that has ended it."""
        failure: FastwireError | None = None
        try:
            try:
                await following
            except FastwireError as exc:
                failure = exc
            # What came is sound, whatever has ended the reading.
            for chunk in self._cluster.take_all():
                await self._hand_on(chunk)
        finally:
            records.close()
        if not isinstance(failure, UnreadableError):
            return failure
        # What cannot be read may lie behind the range.
        return None if self._at.a >= self._end.a else DataLossError(f"{self._part}: {failure}")

    async def _hand_on(self, chunk: Chunk) -> None:
        """Pass on the rows of ``chunk`` that belong to the range."""
        for letter in chunk.dead_letters:
            if letter.start is not None and letter.start.a < self._end.a:
                at = format_position(self._part.system, letter.position)
                self._lost(f"the {self.unit} before {at} cannot be decoded: {letter.reason}")
        if chunk.rows:
            batch = pa.record_batch(chunk)
            offsets = batch.column("offset")
            rows = chunk.rows
            if offsets[rows - 1].as_py() >= self._end.a:
                rows = bisect_left(range(rows), self._end.a, key=lambda row: offsets[row].as_py())
            if rows:
                await self._pass_on(batch.slice(0, rows))
        spans = chunk.spans()
        if spans:
            self._at = spans[-1].end

    def _begins_late(self, begin: int) -> None:
        """Go on at ``begin``, where the log begins now, behind ``_at``."""
        self._lost(f"the log begins at {begin}, behind {self._at.a}: what lay before was deleted")
        self._at = self._position(min(begin, self._end.a))

    def _falls_short(self, end: int) -> None:
        """End the range at ``end``, where the log ends."""
        self._lost(f"the log ends at {end}, before the range does")
        self._end = self._position(end)

    def _position(self, offset: int) -> Position:
        """Return the position of which no more than the offset is known."""
        return parse_position(self._part.system, str(offset))
