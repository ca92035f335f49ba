"""Numbered bundles of TANK for tests."""

from fastwire.tank.bundle import encode_values

__all__ = ["bundle", "bundles"]


def bundle(number: int, rows: int = 10, size: int = 0, compress: bool | None = False) -> bytes:
    """Bundle ``number`` of a partition: message ``i`` of it has the value ``number:i``, of second ``number``."""
    values = [b"%d:%d" % (number, row) + b"." * size for row in range(rows)]
    return encode_values(values, 1_700_000_000_000 + number * 1000, compress=compress)


def bundles(first: int, count: int, rows: int = 10, size: int = 0) -> list[bytes]:
    return [bundle(number, rows, size) for number in range(first, first + count)]
