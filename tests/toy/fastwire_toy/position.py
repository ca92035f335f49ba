"""Positions of the toy system: the number of the next record."""

from fastwire.position import NumberPositions

POSITIONS = NumberPositions("toy", "an offset, for example 1234")
