"""Numbered bundles of TANK for tests, and the bundles of a chunk."""

from collections.abc import Iterator

from fastwire.errors import ProtocolError
from fastwire.tank.format.message import PayloadReader
from fastwire.tank.producing.bundle import BundleHead, encode_values, read_head

__all__ = ["bundle", "bundles", "split_bundles"]


def bundle(number: int, rows: int = 10, size: int = 0, compress: bool | None = False) -> bytes:
    """Bundle ``number`` of a partition: message ``i`` of it has the value ``number:i``, of second ``number``."""
    values = [b"%d:%d" % (number, row) + b"." * size for row in range(rows)]
    return encode_values(values, 1_700_000_000_000 + number * 1000, compress=compress)


def bundles(first: int, count: int, rows: int = 10, size: int = 0) -> list[bytes]:
    return [bundle(number, rows, size) for number in range(first, first + count)]


def split_bundles(chunk: bytes, base: int) -> Iterator[BundleHead]:
    """Read the headers of the bundles of a chunk; ``base`` is the sequence of the first one. Raises ProtocolError."""
    r = PayloadReader(chunk, "chunk")
    while r.left:
        size = r.varint()
        if size > r.left:
            raise ProtocolError("chunk", r.at, size, r.left)
        head = read_head(chunk, r.at, r.at + size, base)
        r.take(size)
        base = head.next_sequence
        yield head
