"""What Coverage means for a Pulsar consumer: what to cut, what to acknowledge, what the broker has skipped."""

from collections.abc import Iterable
from typing import NamedTuple

from fastwire.position import PULSAR_EARLIEST, Coverage, Log, Position

from ..base import LogStopped

__all__ = ["MOST_INTERVALS", "Landed", "declared_gap", "landed_of", "newly_landed"]

MOST_INTERVALS = 64  # above it the broker is asked for what is settled


class Landed(NamedTuple):
    """``floor``: everything up to it is settled. ``runs``: (ledger, first, last) of what has landed above it."""

    floor: Position
    runs: tuple[tuple[int, int, int], ...]


def landed_of(coverage: Coverage, log: Log, cursor: Position | None, *, ordered: bool) -> Landed:
    """What has landed of a log that Coverage knows.

    Read in order a log has one interval. Several are left over from a shared subscription: then what the broker's
    ``cursor`` has passed is settled, and if that does not close the holes, LogStopped says so.
    """
    start = coverage.start(log) or PULSAR_EARLIEST
    intervals = coverage.intervals(log)
    if not intervals:
        return Landed(start, ())
    floor, above = start, intervals
    if intervals[0][0] <= start:
        floor, above = intervals[0][1], intervals[1:]
    if not above:
        return Landed(floor, ())
    if not ordered:
        return Landed(floor, tuple((end.a, begin.b + 1, end.b) for begin, end in above))
    if cursor is None or cursor < above[-1][0]:
        raise LogStopped(
            f"{log}: it was read by a shared subscription, and records between what has landed are not confirmed yet; "
            "go on with that subscription_type until they are"
        )
    return Landed(above[-1][1], ())


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
