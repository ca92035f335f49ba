"""Positions of TANK: the next sequence number, written as ``1234``."""

from fastwire.position import NumberPositions, OffsetPositions


class _TankPositions(OffsetPositions, NumberPositions):
    """Positions of a log by sequence number; ``b`` is 0."""


POSITIONS = _TankPositions("tank", "a sequence number, for example 1234")
