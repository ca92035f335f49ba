"""What Coverage means for a Pulsar consumer: what to cut, what to acknowledge, what the broker has skipped."""

from collections.abc import Iterable
from typing import NamedTuple

from fastwire.position import PULSAR_EARLIEST, Coverage, Log, Position

__all__ = ["MOST_INTERVALS", "Landed", "declared_gap", "landed_of", "newly_landed"]

MOST_INTERVALS = 64  # above it the broker is asked for what is settled


class Landed(NamedTuple):
    """``floor``: everything up to it is settled. ``above``: (after, up to) of what has landed beyond."""

    floor: Position
    above: tuple[tuple[Position, Position], ...]

    @property
    def runs(self) -> list[tuple[int, int, int]]:
        """What has landed above within one ledger, as (ledger, first, last)."""
        return [(end.a, begin.b + 1, end.b) for begin, end in self.above if begin.a == end.a]

    @property
    def across(self) -> list[tuple[Position, Position]]:
        """What has landed above from one ledger into another, which only reading in order does."""
        return [(begin, end) for begin, end in self.above if begin.a != end.a]


def landed_of(coverage: Coverage, log: Log, cursor: Position | None, *, ordered: bool) -> Landed:
    """What has landed of a log that Coverage knows.

    Holes are parts of chunked messages that are not complete, or what a shared subscription has not got yet: the broker
    sends both again. Read in order, what its ``cursor`` has passed is settled, whatever it was.
    """
    start = coverage.start(log) or PULSAR_EARLIEST
    intervals = coverage.intervals(log)
    floor, passed = start, 0
    for begin, end in intervals:
        if begin > floor and not (ordered and cursor is not None and cursor >= begin):
            break
        floor = max(floor, end)
        passed += 1
    return Landed(floor, intervals[passed:])


def declared_gap(base: Position, cursor: Position) -> bool:
    """Whether the broker has confirmed entries behind ``base``, which then never come.

    A cursor at the start of a later ledger confirms nothing by itself: brokers put it there when a ledger is full.
    """
    if cursor.a == base.a:
        return cursor.b > base.b
    return cursor.a > base.a and cursor.b >= 0


def newly_landed(
    received: Iterable[tuple[int, int, int, bool]], coverage: Coverage, log: Log
) -> list[tuple[int, int, int]]:
    """What of the entries that were ``received`` (ledger, first, last, known to have landed) has landed since."""
    runs = []
    intervals = coverage.intervals(log)
    for ledger, first, last, landed in received:
        if landed:
            continue
        for begin, end in intervals:
            low, high = first, last
            if begin.a > ledger or end.a < ledger:
                continue
            if begin.a == ledger:
                low = max(low, begin.b + 1)
            if end.a == ledger:
                high = min(high, end.b)
            if low <= high:
                runs.append((ledger, low, high))
    return runs
