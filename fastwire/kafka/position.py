"""Positions of Kafka: the next offset and the leader epoch of the record before it, written as ``1234@5``."""

import re

from fastwire.position import OffsetPositions, Position


class _KafkaPositions(OffsetPositions):
    """Positions of a log by offset; ``b`` is the leader epoch, -1 and not written if it is unknown."""

    system = "kafka"
    pattern = re.compile(r"([0-9]{1,19})(?:@([0-9]{1,10}))?")
    form = "offset or offset@epoch, for example 1234 or 1234@5"

    def format(self, position: Position) -> str:
        return f"{position.a}@{position.b}" if position.b >= 0 else str(position.a)

    def read(self, match: re.Match[str]) -> Position:
        return Position(int(match[1]), -1 if match[2] is None else int(match[2]))

    def order(self, position: Position) -> tuple[int, int]:
        """Return the offset as the key; the epoch does not affect the order."""
        return position.a, 0


POSITIONS = _KafkaPositions()
