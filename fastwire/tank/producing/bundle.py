"""Encoding of bundles, and reading them message by message (spec: tank 6).

The producer and the embedded broker use this module; ``fastwire.tank.reading.scan`` decodes what a consumer receives.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from struct import pack

import cramjam

from fastwire.errors import CorruptEntryError, ProtocolError
from fastwire.reason import Reason
from fastwire.tank.format.message import PayloadReader
from fastwire.wire.writer import encode_varint

COMPRESS_BYTES = 1024  # of keys and values: a larger bundle is compressed, as the reference client does
COMPRESS_COUNT = 512

_CODEC = 0x03
_COUNT = 0x3C
_SPARSE = 0x40
_EXTRA = 0x80
_SNAPPY = 1

_HAS_KEY = 1
_SAME_TIME = 2
_NEXT = 4

_KEYLESS = bytes((_SAME_TIME,))

_MOST_MILLIS = 253402300799999  # the end of the year 9999: a larger number is in microseconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message. A key of None differs from an empty one; ``sequence`` is read or, in sparse bundles, written."""

    value: bytes
    key: bytes | None = None
    timestamp: int = 0  # the number on the wire: milliseconds since 1970, by convention
    sequence: int = 0


@dataclass(frozen=True, slots=True)
class BundleHead:
    """The header of a bundle in a buffer: ``start`` is its flags byte, ``body`` its message set, ``end`` its end.

    ``first`` and ``last`` are the sequences; those of a bundle that is not sparse follow from ``base``.
    """

    start: int
    body: int
    end: int
    flags: int
    count: int
    first: int
    last: int

    @property
    def sparse(self) -> bool:
        """True if the bundle has sequences of its own."""
        return bool(self.flags & _SPARSE)

    @property
    def codec(self) -> int:
        """The codec's number: 0 none, 1 Snappy, others undefined."""
        return self.flags & _CODEC

    @property
    def next_sequence(self) -> int:
        """The sequence where a bundle after this one begins, unless it is sparse."""
        return self.last + 1


def encode_bundle(messages: Sequence[Message], *, compress: bool | None = None, sparse: bool = False) -> bytes:
    """Return one bundle; ``sparse`` writes the sequences, which must ascend. ``compress`` None: if it is worth it.

    Raises ValueError for no messages, or sequences that do not ascend.
    """
    if not messages:
        raise ValueError("a bundle has at least one message")
    parts: list[bytes] = []
    time: int | None = None
    previous = messages[0].sequence - 1
    for place, one in enumerate(messages):
        flags = (one.key is not None) | (_SAME_TIME if one.timestamp == time else 0)
        delta = b""
        if sparse and place > 0:
            if one.sequence <= previous:
                raise ValueError(f"sequence {one.sequence} follows {previous}")
            if one.sequence == previous + 1 and place < len(messages) - 1:
                flags |= _NEXT
            elif place < len(messages) - 1:
                delta = encode_varint(one.sequence - previous - 1)
        previous = one.sequence
        parts += (bytes((flags,)), delta)
        if one.timestamp != time:
            parts.append(pack("<Q", one.timestamp))
            time = one.timestamp
        if one.key is not None:
            parts += (bytes((len(one.key),)), one.key)
        parts += (encode_varint(len(one.value)), one.value)
    span = (messages[0].sequence, previous) if sparse else None
    size = sum(len(one.value) + len(one.key or b"") for one in messages)
    return encode_block(b"".join(parts), len(messages), size, compress=compress, span=span)


def encode_time(milli: int) -> int:
    """Return the number of a time in milliseconds, as a message has it.

    Times beyond the year 9999 are in microseconds, and those before 1970 the two's complement with 64 bits. Raises
    ValueError for a time that microseconds with 63 bits do not count.
    """
    if not -(1 << 63) <= milli * 1000 < 1 << 63:
        raise ValueError(f"a time of {milli} ms: TANK has room for 63 bits of microseconds")
    return milli * 1000 if milli > _MOST_MILLIS else milli & 0xFFFF_FFFF_FFFF_FFFF


def encode_values(values: Sequence[bytes], timestamp: int, *, compress: bool | None = None) -> bytes:
    """Return a bundle of messages without keys and with one timestamp, at a multiple of ``encode_bundle``'s speed."""
    sizes = {len(value): _KEYLESS + encode_varint(len(value)) for value in values}
    block = b"".join(part for value in values for part in (sizes[len(value)], value))
    block = b"\0" + pack("<Q", timestamp) + block[1:]
    return encode_block(block, len(values), sum(map(len, values)), compress=compress)


def encode_block(
    block: bytes, count: int, size: int, *, compress: bool | None = None, span: tuple[int, int] | None = None
) -> bytes:
    """Return a bundle around its encoded messages, ``count`` with keys and values of ``size`` bytes.

    ``span`` has the first and the last sequence of a sparse bundle.
    """
    if compress is None:
        compress = count > COMPRESS_COUNT or size > COMPRESS_BYTES
    flags = (_SNAPPY if compress else 0) | (_SPARSE if span else 0) | (count << 2 if count < 16 else 0)
    head = bytes((flags,))
    if count >= 16:
        head += encode_varint(count)
    if span is not None:
        head += pack("<Q", span[0])
        if count > 1:
            head += encode_varint(span[1] - span[0] - 1)
    return head + (bytes(cramjam.snappy.compress_raw(block)) if compress else block)


def read_head(data: bytes, start: int, end: int, base: int) -> BundleHead:
    """Read the header of the bundle from ``start`` to ``end``; ``base`` is its first sequence if it is not sparse.

    Raises ProtocolError if it is cut off, or has no messages.
    """
    r = PayloadReader(data[start : min(end, start + 24)], "bundle")
    flags = r.u8()
    count = (flags & _COUNT) >> 2 or r.varint()
    if count == 0:
        raise ProtocolError("bundle", start, detail="has no messages")
    first, last = base, base + count - 1
    if flags & _SPARSE:
        first = last = r.u64()
        if count != 1:
            last = first + r.varint() + 1
    return BundleHead(start, start + r.at, end, flags, count, first, last)


def read_messages(data: bytes, head: BundleHead) -> list[Message]:
    """Return the messages of a whole bundle. Raises CorruptEntryError or ProtocolError for a damaged one."""
    block = data[head.body : head.end]
    if head.codec > _SNAPPY or head.flags & _EXTRA:
        raise CorruptEntryError(Reason.MESSAGE, f"bundle flags {head.flags:#04x}")
    if head.codec == _SNAPPY:
        try:
            block = bytes(cramjam.snappy.decompress_raw(block))
        except cramjam.DecompressionError as exc:
            raise CorruptEntryError(Reason.DECOMPRESSION, str(exc)) from None
    r = PayloadReader(block, "bundle")
    found = []
    sequence, time = head.first - 1, 0
    for place in range(head.count):
        flags = r.u8()
        if not head.sparse or flags & _NEXT or place == 0:
            sequence += 1
        elif place == head.count - 1:
            sequence = head.last
        else:
            sequence += r.varint() + 1
        if not flags & _SAME_TIME:
            time = r.u64()
        key = r.take(r.u8()) if flags & _HAS_KEY else None
        found.append(Message(value=r.take(r.varint()), key=key, timestamp=time, sequence=sequence))
    r.end()
    return found
