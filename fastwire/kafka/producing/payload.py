"""Encoding of record batches of magic 2, and decoding of their headers (spec: kafka 6, 8).

``encode_batch`` takes records with all fields; ``encode_values`` takes plain values and is many times as fast. The
embedded broker and the producer use this module; ``fastwire.kafka.reading.scan`` decodes records.
"""

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from struct import Struct, pack

import cramjam
import lz4.frame
import zstandard
from crc32c import crc32c

from fastwire.errors import CorruptEntryError
from fastwire.reason import Reason
from fastwire.wire.writer import encode_zigzag

MAX_SEQUENCE = 0x7FFFFFFF
BATCH_HEADER = 61  # bytes before the records

_HEAD = Struct(">qiibIhiqqqhii")
_COVERED = Struct(">hiqqqhii")  # the fields between the checksum and the records
_COVERED_FROM = 21
_XERIAL = b"\x82SNAPPY\0" + pack(">ii", 1, 1)
_XERIAL_CHUNK = 32 << 10

_CODEC = 0x07
_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
"""The attribute of a batch of a transaction."""
_CONTROL = 0x20
ABORTED = TRANSACTIONAL | _CONTROL
"""The attributes of a batch with a marker that ends a transaction."""


class Compression(IntEnum):
    """Compression codecs by their wire number."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One record of a producer; None is null, which differs from empty."""

    value: bytes | None
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    timestamp: int = 0  # milliseconds since 1970
    offset_delta: int | None = None  # None: the index in the batch; other values leave holes, as compaction does


@dataclass(frozen=True, slots=True)
class BatchHead:
    """The header of one batch, and its first and last byte in the buffer it was read from."""

    start: int
    end: int
    base_offset: int
    leader_epoch: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int

    @property
    def compression(self) -> int:
        """The codec's number, possibly an unknown one."""
        return self.attributes & _CODEC

    @property
    def transactional(self) -> bool:
        """True for a batch of a transaction."""
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def control(self) -> bool:
        """True for a control batch, which has a marker instead of records."""
        return bool(self.attributes & _CONTROL)


def _gzip(data: bytes) -> bytes:
    stream = zlib.compressobj(wbits=31)
    return stream.compress(data) + stream.flush()


def _snappy(data: bytes) -> bytes:
    parts = [_XERIAL]
    for at in range(0, len(data), _XERIAL_CHUNK):
        block = bytes(cramjam.snappy.compress_raw(data[at : at + _XERIAL_CHUNK]))
        parts += (pack(">i", len(block)), block)
    return b"".join(parts)


def _lz4(data: bytes) -> bytes:
    # Java reads no linked blocks, and expects blocks of 64 KiB.
    return bytes(lz4.frame.compress(data, block_size=lz4.frame.BLOCKSIZE_MAX64KB, block_linked=False, store_size=False))


def _zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(level=3).compress(data)


_CODECS: dict[Compression, Callable[[bytes], bytes]] = {
    Compression.NONE: lambda data: data,
    Compression.GZIP: _gzip,
    Compression.SNAPPY: _snappy,
    Compression.LZ4: _lz4,
    Compression.ZSTD: _zstd,
}


def compress(codec: Compression, data: bytes) -> bytes:
    """Compress the records of a batch as the Java producer does (spec: kafka 8); snappy in xerial's frames."""
    return _CODECS[codec](data)


def _blob(value: bytes | None) -> bytes:
    return b"\x01" if value is None else encode_zigzag(len(value)) + value


def encode_records(records: Sequence[Record], base_timestamp: int) -> bytes:
    """Return the records of a batch as one uncompressed block; timestamps are relative to ``base_timestamp``."""
    parts: list[bytes] = []
    for place, record in enumerate(records):
        delta = place if record.offset_delta is None else record.offset_delta
        body = b"".join(
            (
                b"\0",
                encode_zigzag(record.timestamp - base_timestamp),
                encode_zigzag(delta),
                _blob(record.key),
                _blob(record.value),
                encode_zigzag(len(record.headers)),
                *(_blob(name.encode()) + _blob(value) for name, value in record.headers),
            )
        )
        parts += (encode_zigzag(len(body)), body)
    return b"".join(parts)


def encode_values(values: Sequence[bytes], keys: Sequence[bytes] | None = None) -> bytes:
    """Return the block of plain values, all with the base timestamp, with optional keys.

    The result equals ``encode_records`` for such records, at a multiple of its speed. ``keys`` is as long as
    ``values``.
    """
    if keys is not None and len(keys) != len(values):
        raise ValueError(f"{len(keys)} keys for {len(values)} values")
    parts: list[bytes] = []
    # The bytes other than the index and the value depend on key, value's length and length of the index only.
    shapes: dict[tuple[bytes | None, int, int], tuple[bytes, bytes]] = {}
    for place, value in enumerate(values):
        delta = encode_zigzag(place)
        key = None if keys is None else keys[place]
        shape = (key, len(value), len(delta))
        found = shapes.get(shape)
        if found is None:
            behind = _blob(key) + encode_zigzag(len(value))
            size = 2 + len(delta) + len(behind) + len(value) + 1
            found = shapes[shape] = (encode_zigzag(size) + b"\0\0", behind)
        parts += (found[0], delta, found[1], value, b"\0")
    return b"".join(parts)


def encode_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    compression: Compression = Compression.NONE,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    append_time: int | None = None,
) -> bytes:
    """Return one batch of at least one record; ``append_time`` (ms) makes it one of a topic with log-append time."""
    base = records[0].timestamp
    return encode_block_batch(
        encode_records(records, base),
        len(records),
        base_timestamp=base,
        max_timestamp=max(record.timestamp for record in records) if append_time is None else append_time,
        last_offset_delta=records[-1].offset_delta,
        base_offset=base_offset,
        compression=compression,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        attributes=(TRANSACTIONAL if transactional else 0) | (0 if append_time is None else _APPEND_TIME),
    )


def encode_block_batch(
    block: bytes,
    count: int,
    *,
    base_timestamp: int,
    max_timestamp: int | None = None,
    last_offset_delta: int | None = None,
    base_offset: int = 0,
    compression: Compression = Compression.NONE,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    attributes: int = 0,
) -> bytes:
    """Return one batch around an encoded block; ``count`` is not checked, and may include holes."""
    payload = compress(compression, block)
    covered = (
        _COVERED.pack(
            attributes | compression,
            count - 1 if last_offset_delta is None else last_offset_delta,
            base_timestamp,
            base_timestamp if max_timestamp is None else max_timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            count,
        )
        + payload
    )
    head = pack(">qiibI", base_offset, _COVERED_FROM - 12 + len(covered), leader_epoch, 2, crc32c(covered))
    return head + covered


def place_batch(batch: bytes, base_offset: int, leader_epoch: int) -> bytes:
    """Return a batch as a leader stores it: with offset and epoch, which the checksum does not cover."""
    return b"".join((pack(">q", base_offset), batch[8:12], pack(">i", leader_epoch), batch[16:]))


def split_batches(data: bytes) -> Iterator[BatchHead]:
    """Read the headers of whole batches and check their checksums, not their records.

    Raises CorruptEntryError at a batch that is truncated, damaged or not of magic 2.
    """
    at = 0
    while at < len(data):
        if len(data) - at < BATCH_HEADER:
            raise CorruptEntryError(Reason.MESSAGE, f"a batch of {len(data) - at} bytes")
        base, size, epoch, magic, crc, attributes, last, first_ms, max_ms, producer, producer_epoch, sequence, count = (
            _HEAD.unpack_from(data, at)
        )
        end = at + 12 + size
        if magic != 2:
            raise CorruptEntryError(Reason.MESSAGE, f"a batch of magic {magic}")
        if size < BATCH_HEADER - 12 or end > len(data):
            raise CorruptEntryError(Reason.MESSAGE, f"a batch of {12 + size} bytes, {len(data) - at} present")
        found = crc32c(memoryview(data)[at + _COVERED_FROM : end])
        if found != crc:
            raise CorruptEntryError(Reason.MESSAGE, f"the batch says {crc:08x}, its bytes give {found:08x}")
        yield BatchHead(
            at, end, base, epoch, attributes, last, first_ms, max_ms, producer, producer_epoch, sequence, count
        )
        at = end
