"""Positions of TubeMQ: the offset at which a GET began and the messages taken since, written as ``84+17``.

Messages have no offset of their own (spec: tubemq 1, 12). A reader registers at the offset and leaves out so many
messages.
"""

import re
from collections.abc import Sequence

from fastwire.position import Position, Positions

ENTRY_BYTES = 28
"""Size of the entry of one message in the index of its store, in which offsets count (spec: tubemq 1)."""


class _TubeMQPositions(Positions):
    """Positions of a partition: two of them compare only if they count from the same offset."""

    system = "tubemq"
    pattern = re.compile(r"([0-9]{1,19})(?:\+([0-9]{1,19}))?")
    form = "offset or offset+messages, for example 84 or 84+17"
    ordered = False
    number_columns = ("offset", "row")

    def format(self, position: Position) -> str:
        return f"{position.a}+{position.b}" if position.b else str(position.a)

    def read(self, match: re.Match[str]) -> Position:
        return Position(int(match[1]), int(match[2] or 0))

    def of_row(self, numbers: Sequence[int]) -> Position:
        """Return the position behind the row with this number in its GET."""
        offset, row = numbers
        return Position(offset, row + 1)

    def precedes(self, one: Position, other: Position) -> bool:
        """Return whether both count from the same offset, and ``one`` counts fewer messages."""
        return one.a == other.a and one.b < other.b

    def passed(self, cursor: Position, end: Position) -> bool:
        """Return whether the Broker has the whole GET of ``end`` as confirmed, and maybe more."""
        return cursor.a > end.a


POSITIONS = _TubeMQPositions()
