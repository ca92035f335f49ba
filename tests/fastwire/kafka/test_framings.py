"""Compressed blocks as Java's clients read them, though few writers make them: nothing of them is a dead letter."""

import gzip
import struct

import cramjam
import lz4.frame
import pytest
from crc32c import crc32c

from fastwire.kafka.producing.payload import Record, encode_batch
from tests.support.kafka.golden import Reading, fetch_response

VALUES = [b"v%03d-" % number + b"abc" * 50 for number in range(20)]


def block() -> bytes:
    return encode_batch([Record(value=value, timestamp=1) for value in VALUES])[61:]


def batch(codec: int, data: bytes) -> bytes:
    plain = encode_batch([Record(value=value, timestamp=1) for value in VALUES])
    body = struct.pack(">h", codec) + plain[23:61] + data
    return plain[:8] + struct.pack(">i", len(body) + 9) + plain[12:17] + struct.pack(">I", crc32c(body)) + body


def xerial(*chunks: bytes) -> bytes:
    out = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
    for chunk in chunks:
        stored = bytes(cramjam.snappy.compress_raw(chunk))
        out += struct.pack(">i", len(stored)) + stored
    return out


WHOLE = block()
HALF = len(WHOLE) // 2
FIRST, SECOND = WHOLE[:HALF], WHOLE[HALF:]
LINKED = lz4.frame.compress(WHOLE, block_linked=True, content_checksum=True, block_checksum=True)
READ = {
    "gzip, zeros behind": (1, gzip.compress(WHOLE) + bytes(8)),
    "gzip, two members, zeros behind": (1, gzip.compress(FIRST) + gzip.compress(SECOND) + bytes(3)),
    "snappy, two streams": (2, xerial(FIRST) + xerial(SECOND)),
    "snappy, an empty stream first": (2, xerial() + xerial(WHOLE)),
    "lz4, bytes behind": (3, lz4.frame.compress(WHOLE, block_linked=False, store_size=False) + bytes(4)),
    "lz4, one byte behind": (3, lz4.frame.compress(WHOLE, block_linked=False, store_size=False) + b"x"),
    "lz4 with sums, bytes behind": (3, LINKED + bytes(9)),
}


@pytest.mark.parametrize("name", READ)
def test_framings_that_java_reads(name: str) -> None:
    reading = Reading()
    reading.read(fetch_response(batch(*READ[name])))
    assert reading.dead_letters == []
    assert [row["value"] for row in reading.rows] == VALUES


REFUSED = {
    "gzip, cut in its second member": (1, gzip.compress(FIRST) + gzip.compress(SECOND)[:-9]),
    "gzip, a wrong sum, zeros behind": (1, gzip.compress(WHOLE)[:-8] + bytes(16)),
    "gzip, half of the records": (1, gzip.compress(FIRST) + bytes(8)),
    "snappy, a head that is cut": (2, xerial(WHOLE) + b"\x82SNAPPY\0"),
    "lz4, half of the records": (3, lz4.frame.compress(FIRST) + bytes(4)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_framings_that_lack_something(name: str) -> None:
    reading = Reading()
    reading.read(fetch_response(batch(*REFUSED[name])))
    assert reading.rows == []
    (letter,) = reading.dead_letters
    assert letter.rows == len(VALUES)
