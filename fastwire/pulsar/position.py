"""Positions of Pulsar: ledger and entry of the last consumed entry, written as ``12:34``."""

import re
from collections.abc import Mapping

from fastwire.position import Position, Positions

# The wire form of the initial positions.
PULSAR_EARLIEST = Position(-1, -1)
PULSAR_LATEST = Position(0x7FFFFFFFFFFFFFFF, 0x7FFFFFFFFFFFFFFF)


class _PulsarPositions(Positions):
    system = "pulsar"
    pattern = re.compile(r"(-1|[0-9]{1,19}):(-1|[0-9]{1,19})")
    form = "ledger:entry, for example 12:34, or -1:-1"

    # Exclusive and Failover subscriptions read a log in order, Shared and Key_Shared do not; a log does not record its
    # type.
    chained = False
    number_columns = ("ledger", "offset")
    # A ledger is kept for ten minutes though it has more entries than the broker wants: up to 7,000 a second have room.
    sequence_columns = (("ledger", 30), ("offset", 22), ("batchIndex", 11))

    def format(self, position: Position) -> str:
        return f"{position.a}:{position.b}"

    def read(self, match: re.Match[str]) -> Position:
        return Position(int(match[1]), int(match[2]))

    def same_segment(self, one: Position, other: Position) -> bool:
        """Return whether both positions are in one ledger."""
        return one.a in (other.a, -1)

    def misplaced(self, low: Position, high: Position, found: Mapping[str, tuple[int, int]]) -> str | None:
        """Compare ledgers and entries of rows with the ends of their spans."""
        offsets, ledgers = found.get("offset"), found.get("ledger")
        if offsets is None:
            return None
        if ledgers is None:
            if low.a != high.a:
                return None
            ledgers = low.a, high.a
        first, last = (ledgers[0], offsets[0]), (ledgers[1], offsets[1])
        if ledgers[0] == ledgers[1]:
            outside = first <= low or last > high
        else:
            # Which offset belongs to which ledger is not known.
            outside = ledgers[0] < low.a or ledgers[1] > high.a
        if not outside:
            return ""
        return (
            f"has entries {first[0]}:{first[1]} to {last[0]}:{last[1]}, outside of {low.a}:{low.b} to {high.a}:{high.b}"
        )


POSITIONS = _PulsarPositions()
