"""Ranges of offsets [S, E) of logs whose reader chooses the offset, with the same rows each time, read by the daemon.

Nothing is left behind at the broker, and any number of attempts may read the same range at the same time. The end is
reached when the *next* offset is E: there are holes, so the record at E - 1 may never come. What tells a loss:

* The topic of that name is another one by its id, where it has one.
* The leader's log ends before E, in the epoch in which E was planned, where it has epochs.
* S lies before the beginning of the log: retention was faster.
* Records that cannot be decoded, or that the broker does not deliver.

An answer without records tells nothing: a broker sends those to a reader above its quota, too, and while records are
fetched from tiered storage.
"""

import time
from typing import Any

import pyarrow as pa

from fastwire.columns.chunk import Chunk
from fastwire.coverage import Coverage
from fastwire.errors import FastwireError
from fastwire.position import Gap, Position, Span, Until, format_position, parse_position

from ...net.endpoint import LinkLost
from ...runtime.tasks import wait_for_set
from ...systems.reading.pulled import PulledPartition
from ...systems.source import Assignment, LogStopped, SourceFailed
from .offsetranges import EACH, DivergedError, OffsetRanges
from .options import Options
from .rangereader import RangeReader, ReadingRules, TryAgainError
from .ranges import DataLossError, Range

LOOK_S = 0.25  # between two looks at the clock
# A new leader may take a moment to say how far its log can be read, and a replica to follow its leader.
SHORT_S = 5.0

_UNREADABLE = ("undecodable", "unreadable")


def fetch_bytes(options: Options) -> int:
    """Return the largest size of a response with records, in bytes: the option ``fetchMaxBytes``."""
    found: int = options.own.get("fetchMaxBytes", 4 << 20)
    return found


class TopicGoneError(FastwireError):
    """There is no such topic, or it has no such partition."""


class OffsetRangeReader(RangeReader):
    """A range of offsets."""

    def __init__(self, ranges: OffsetRanges, part: Range, rules: ReadingRules) -> None:
        super().__init__(part, rules)
        self._ranges = ranges
        self._source = ranges.source
        self._witness: int | None = None

    def _is_missing(self, error: FastwireError) -> bool:
        return isinstance(error, TopicGoneError)

    def _is_for_good(self, error: FastwireError) -> bool:
        refused = isinstance(error, SourceFailed) or (isinstance(error, LogStopped) and error.reason == "refused")
        return refused or self._source.is_for_good(error)

    async def _found(self) -> PulledPartition[Any]:
        wanted = self._part.partition
        partition: PulledPartition[Any] | None = await self._source.find((wanted.topic, wanted.index))
        if partition is None:
            raise TopicGoneError(str(wanted))
        return partition

    async def _attempt(self) -> None:
        partition = await self._found()
        planned, now = self._part.incarnation, partition.log.incarnation
        if planned and now not in ("0", planned):
            self._lost("the topic was deleted and made again")
            return
        await self._check_end(partition, silent=False)
        if self._is_read:
            return
        failure: FastwireError | None = None
        self._ranges.begin(partition)
        try:
            try:
                await self._follow(partition)
            except DataLossError:
                raise
            except FastwireError as exc:
                failure = exc
            # What came is sound, whatever has ended the reading.
            for chunk in self._ranges.take_all():
                await self._hand_on(chunk)
        finally:
            self._ranges.leave(partition)
        if failure is not None and not self._is_read:  # what cannot be read may lie behind the range
            self._failed(failure, partition)

    @property
    def _is_read(self) -> bool:
        return self._at.a >= self._end.a

    async def _follow(self, partition: PulledPartition[Any]) -> None:
        """Read until the end of the range has come. Raises what ends the reading before that."""
        source, ranges, patience_s = self._source, self._ranges, self._rules.patience_s
        seen, since = self._at.a, time.monotonic()
        while not self._is_read:
            ranges.moved.clear()
            for chunk in ranges.take():
                await self._hand_on(chunk)
            if (assignment := ranges.take_assignment()) is not None:
                await self._begin(assignment)
                continue
            if partition.granted and source.has_ended(partition):
                return
            if ranges.failure is not None:
                raise ranges.failure
            now, at = time.monotonic(), source.position(partition.index) if partition.granted else None
            self._alive_at = max(self._alive_at, source.throttled_until)
            if at is not None and at.a > seen:
                seen, self._alive_at, since = at.a, now, now
            elif now - max(since, source.throttled_until) >= min(SHORT_S, patience_s):
                since = now
                if not source.leave_replica(partition):
                    await self._check_end(partition, silent=True)
            if now - self._alive_at >= patience_s:
                why = source.waiting().get(partition.index) or partition.error or "the leader sends no records"
                raise LinkLost(f"from {self._text(self._at)} on: {why}")
            await wait_for_set(ranges.moved, min(LOOK_S, patience_s))

    async def _begin(self, assignment: Assignment) -> None:
        """Find where the log begins now, and have records requested."""
        for first in await self._source.resolve([assignment], self._covered(assignment)):
            if first.span.gap is not None:
                self._skip(first.span.gap)
        if not self._is_read:
            self._source.grant([assignment], self._covered(assignment))

    def _covered(self, assignment: Assignment) -> Coverage:
        """Return a Coverage that ends where the reading does, and has the end of the range."""
        coverage = Coverage()
        at, until = self._at_offset(self._at.a), Until(self._end, EACH.run)
        coverage.add(Span(assignment.log, at, at, 0, witness=self._witness, until=until))
        return coverage

    async def _check_end(self, partition: PulledPartition[Any], *, silent: bool) -> None:
        """Ask the leader whether its log reaches the end of the range."""
        end = await self._source.falls_short(partition, self._end, silent=silent)
        if end is not None:
            self._falls_short(end)

    def _falls_short(self, end: int) -> None:
        """End the range at ``end``, where the log ends."""
        self._lost(f"the log ends at {end}, before the range does")
        self._end = self._at_offset(end)

    def _skip(self, gap: Gap) -> None:
        """Go on behind a gap."""
        self._lost(f"nothing from {self._text(self._at)} up to {self._text(gap.to)} can be read: {gap.reason}")
        self._at = min(gap.to, self._end)

    def _failed(self, error: FastwireError, partition: PulledPartition[Any]) -> None:
        """Raise the error for reading that has ended at ``_at`` with this one."""
        if isinstance(error, DivergedError):
            raise TryAgainError
        if isinstance(error, LogStopped):
            if error.reason == "lost" and 0 <= partition.end < self._at.a:
                self._falls_short(partition.end)
                return
            if error.reason in _UNREADABLE:
                raise DataLossError(f"{self._part}: {error}")
        raise error

    async def _hand_on(self, chunk: Chunk) -> None:
        """Pass on the rows of ``chunk``."""
        for letter in chunk.dead_letters:
            if letter.start is not None and letter.start.a < self._end.a:
                first, last = self._text(letter.start), self._text(letter.position)
                self._lost(f"the records from {first} up to {last} cannot be decoded: {letter.reason}")
        if chunk.rows:
            await self._pass_on(pa.record_batch(chunk))
        self._reached(chunk)

    def _reached(self, chunk: Chunk) -> None:
        if spans := chunk.spans():
            self._at = spans[-1].end

    def _text(self, position: Position) -> str:
        return format_position(self._part.system, position)

    def _at_offset(self, offset: int) -> Position:
        """Return the position of which no more than the offset is known."""
        return parse_position(self._part.system, str(offset))


class Look(OffsetRangeReader):
    """A few records for the driver: ``chunks``, once ``read`` has returned."""

    def __init__(self, ranges: OffsetRanges, part: Range, rules: ReadingRules, witness: int | None = None) -> None:
        super().__init__(ranges, part, rules)
        self.chunks: list[Chunk] = []
        self._witness = witness

    async def _hand_on(self, chunk: Chunk) -> None:
        self.chunks.append(chunk)
        self._reached(chunk)

    async def holds(self) -> bool:
        """Return False if the log has another record before the range than that of ``witness``, True if it has none."""
        try:
            partition = await self._found()
        except TopicGoneError:
            return True
        self._ranges.begin(partition)
        try:
            while not self._is_read:
                self._ranges.moved.clear()
                if (assignment := self._ranges.take_assignment()) is not None:
                    await self._begin(assignment)
                elif isinstance(error := self._ranges.failure, LogStopped) and error.reason == "lost":
                    return 0 <= partition.end < self._at.a
                elif error is not None:
                    raise error
                elif partition.answers:
                    break
                else:
                    await wait_for_set(self._ranges.moved, LOOK_S)
        finally:
            self._ranges.leave(partition)
        return True
