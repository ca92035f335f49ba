"""Batches of a few kilobytes that become as much as is asked for."""

import struct

from crc32c import crc32c

from fastwire.kafka.producing.payload import Compression, Record, compress, encode_batch
from fastwire.wire.writer import encode_zigzag


def value_of(size: int, codec: Compression, base: int = 0) -> bytes:
    """A batch that decompresses to ``size`` bytes."""
    record = Record(value=bytes(size - 15), timestamp=1)
    plain = encode_batch([record])
    record = Record(value=bytes(size - 15 - (len(plain) - 61 - size)), timestamp=1)
    assert len(encode_batch([record])) == 61 + size
    return encode_batch([record], compression=codec, base_offset=base)


def headers_of(count: int, base: int = 0) -> bytes:
    """A record with ``count`` empty headers."""
    record = b"\0\0\0\x01\0" + encode_zigzag(count) + b"\0\x01" * count
    sample = bytearray(encode_batch([Record(value=b"")], compression=Compression.ZSTD, base_offset=base)[:61])
    block = compress(Compression.ZSTD, encode_zigzag(len(record)) + record)
    sample[8:12] = struct.pack(">i", 49 + len(block))
    covered = bytes(sample[21:]) + block
    sample[17:21] = struct.pack(">I", crc32c(covered))
    return bytes(sample) + block
