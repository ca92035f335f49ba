"""Coverage of a Pulsar consumer: entries to drop, to acknowledge, and those that the broker has skipped."""

from collections.abc import Iterable
from typing import NamedTuple

from fastwire.coverage import Coverage
from fastwire.position import Log, Position
from fastwire.pulsar.position import PULSAR_EARLIEST

MOST_INTERVALS = 64  # above this number the broker is asked for its cursor
MOST_HOLES = 1000  # holes of a shared log that are remembered although the broker's cursor has passed them


class Landed(NamedTuple):
    """Landed entries. ``floor``: everything up to it is done with. ``above``: intervals (after, up to) beyond it."""

    floor: Position
    above: tuple[tuple[Position, Position], ...]

    @property
    def runs(self) -> list[tuple[int, int, int]]:
        """Return the landed intervals above within one ledger, as (ledger, first, last)."""
        return [(end.a, begin.b + 1, end.b) for begin, end in self.above if begin.a == end.a]

    @property
    def across(self) -> list[tuple[Position, Position]]:
        """Return the landed intervals above that span ledgers; they only come from reading in order."""
        return [(begin, end) for begin, end in self.above if begin.a != end.a]


def landed_of(coverage: Coverage, log: Log, cursor: Position | None, *, ordered: bool) -> Landed:
    """Return the landed entries of a log that Coverage knows.

    Holes are parts of chunked messages that are not complete, or what a shared subscription has not got yet: the broker
    sends both again. Read in order, what its ``cursor`` has passed is done with, whatever it was.
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


def skipped_holes(coverage: Coverage, log: Log, cursor: Position) -> list[tuple[Position, Position]]:
    """Return the holes before ``cursor`` with entries in them: skipped, expired, or acknowledged by another client.

    They come and land if the cursor is set back. Where one ledger ends and the next begins there may be nothing.
    """
    holes = coverage.holes(log)
    return [(low, high) for low, high in holes if low < cursor and (low.a == high.a or high.b >= 0)]


def declared_gap(base: Position, cursor: Position) -> bool:
    """Return the gap if another consumer has acknowledged entries behind ``base``, which it then never sends.

    A cursor at the start of a later ledger acknowledges nothing by itself: brokers put it there when a ledger is full.
    """
    if cursor.a == base.a:
        return cursor.b > base.b
    return cursor.a > base.a and cursor.b >= 0


def newly_landed(
    received: Iterable[tuple[int, int, int, bool]], coverage: Coverage, log: Log
) -> list[tuple[int, int, int]]:
    """Return the part of ``received`` (ledger, first, last, known to have landed) that has landed since."""
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
