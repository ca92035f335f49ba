"""Records of batches against a decoder in Python that is as slow as it is plain; and the LZ4 frames around them."""

import random

import lz4.frame
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fastwire.kafka.producing.payload import (
    Compression,
    Record,
    compress,
    encode_batch,
    encode_block_batch,
    encode_records,
)
from tests.support.kafka.golden import Reading, fetch_response

TIME = 1_700_000_000_000
LZ4 = 3
HIGHEST = 1 << 40
Row = tuple[int, int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]


class DamagedError(Exception):
    """The block is none."""


class Block:
    """Reads one."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, size: int) -> bytes:
        if not 0 <= size <= len(self.data) - self.at:
            raise DamagedError
        self.at += size
        return self.data[self.at - size : self.at]

    def varint(self) -> int:
        raw = shift = 0
        while True:
            (byte,) = self.take(1)
            if shift == 63 and byte > 1:
                raise DamagedError
            raw |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return raw >> 1 ^ -(raw & 1)

    def blob(self) -> bytes | None:
        size = self.varint()
        if size < -1:
            raise DamagedError
        return None if size == -1 else self.take(size)


def decode(data: bytes, count: int, offsets: int) -> list[Row]:
    """The rows of a block, whose batch covers so many offsets. Raises DamagedError or UnicodeDecodeError."""
    block, found, last = Block(data), list[Row](), -1
    for _ in range(count):
        one = Block(block.take(block.varint()))
        one.take(1)
        milli, delta = TIME + one.varint(), one.varint()
        if not last < delta < offsets:
            raise DamagedError
        last = delta
        key, value = one.blob(), one.blob()
        headers = []
        names = one.varint()
        if not 0 <= names <= len(one.data):
            raise DamagedError
        for _ in range(names):
            name = one.blob()
            if name is None:
                raise DamagedError
            headers.append((name.decode(), one.blob()))
        if one.at != len(one.data):
            raise DamagedError
        found.append((delta, milli, key, value, headers))
    if block.at != len(data):
        raise DamagedError
    return found


def rows(reading: Reading) -> list[Row]:
    return [
        (
            row["offset"],
            int(row["timestamp"].timestamp() * 1000),
            row["key"],
            row["value"],
            [(one["key"], one["value"]) for one in row["headers"] or []],
        )
        for row in reading.rows
    ]


def read(*batches: bytes) -> Reading:
    reading = Reading()
    reading.read(fetch_response(b"".join(batches)))
    return reading


sizes = st.one_of(st.integers(0, 70), st.sampled_from((63, 64, 511, 512, 513, 8191, 8192, 8200)))
cells = st.one_of(st.none(), sizes.map(lambda size: bytes(i * 7 & 0xFF for i in range(size))))
headers = st.lists(st.tuples(st.text(max_size=4), st.one_of(st.none(), st.binary(max_size=4))), max_size=2)
plain = st.lists(st.builds(Record, key=st.just(b"key-1"), value=sizes.map(bytes), timestamp=st.just(TIME)), max_size=40)
mixed = st.lists(
    st.builds(Record, key=cells, value=cells, headers=headers, timestamp=st.integers(TIME - 9, TIME + (1 << 36))),
    max_size=40,
)


@given(st.lists(st.one_of(plain, mixed).filter(bool), min_size=1, max_size=4), st.sampled_from(Compression))
@example([[Record(key=None, value=b"v" * 100, timestamp=TIME)] * 200] * 2, Compression.NONE)
@example([[Record(key=b"k" * 63, value=b"v" * 8191, timestamp=TIME)] * 20] * 2, Compression.NONE)
def test_any_mixture_of_records(groups: list[list[Record]], codec: Compression) -> None:
    wanted: list[Row] = []
    batches = []
    for group in groups:
        batches.append(encode_batch(group, base_offset=len(wanted), compression=codec))
        for record in group:
            row = (len(wanted), record.timestamp, record.key, record.value, list(record.headers))
            wanted.append(row)
    reading = read(*batches)
    assert reading.dead_letters == []
    assert rows(reading) == wanted


def test_mutated_blocks_with_sound_sums_are_read_as_the_plain_decoder_does() -> None:
    dice = random.Random(11)
    accepted = refused = 0
    for _ in range(2500):
        records = [
            Record(
                key=dice.choice((None, b"k", b"key-%d" % place)),
                value=bytes(dice.randrange(40)),
                headers=[("n", b"v")] if dice.random() < 0.05 else [],
                timestamp=TIME + dice.randrange(200),
            )
            for place in range(dice.randint(1, 12))
        ]
        block = bytearray(encode_records(records, TIME))
        for _ in range(dice.randint(0, 2)):
            block[dice.randrange(len(block))] = dice.choice((0, 1, 2, 3, 0x7F, 0x80, 0x81, 0xFF, dice.randrange(256)))
        count = len(records) + dice.choice((0, 0, 0, 1, -1))
        offsets = max(count, 1) + dice.choice((0, 0, 3))
        batch = encode_block_batch(bytes(block), count, base_timestamp=TIME, last_offset_delta=offsets - 1)
        reading = read(batch)
        try:
            wanted = decode(bytes(block), count, offsets) if count else []
        except (DamagedError, UnicodeDecodeError):
            refused += 1
            assert (reading.rows, len(reading.dead_letters)) == ([], 1)
            continue
        if any(abs(milli - TIME) > HIGHEST for _, milli, *_ in wanted):
            continue  # beyond what a datetime shows
        accepted += 1
        assert reading.dead_letters == []
        assert rows(reading) == wanted
    assert accepted > 300
    assert refused > 300


def inflated(frame: bytes) -> Reading:
    """Return the result for a batch of one record whose block is ``frame``."""
    return read(encode_block_batch(frame, 1, base_timestamp=TIME, attributes=LZ4))


@pytest.mark.parametrize("size", [0, 1, 100, 65_000, 65_536, 200_000])
@pytest.mark.parametrize("random_bytes", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"store_size": True},
        {"content_checksum": True},
        {"block_checksum": True},
        {"block_linked": True},
        {"block_size": lz4.frame.BLOCKSIZE_MAX4MB},
    ],
    ids=lambda options: "".join(options) or "java",
)
def test_lz4_frames_of_every_kind(size: int, random_bytes: bool, options: dict[str, object]) -> None:
    value = random.Random(size).randbytes(size) if random_bytes else b"line of text " * (size // 13)
    plain = {"block_size": lz4.frame.BLOCKSIZE_MAX64KB, "block_linked": False, "store_size": False}
    reading = inflated(
        lz4.frame.compress(encode_records([Record(value=value, timestamp=TIME)], TIME), **plain | options)
    )
    assert [row["value"] for row in reading.rows] == [value]


def test_every_truncation_of_an_lz4_frame() -> None:
    frame = compress(Compression.LZ4, encode_records([Record(value=b"a line " * 30, timestamp=TIME)], TIME))
    assert len(inflated(frame).rows) == 1
    for cut in range(len(frame)):
        assert len(inflated(frame[:cut]).dead_letters) == 1


def test_mutated_lz4_frames_give_what_the_package_gives() -> None:
    dice = random.Random(3)
    block = encode_records([Record(value=dice.randbytes(70_000) + bytes(70_000), timestamp=TIME)], TIME)
    frame = compress(Compression.LZ4, block)
    sizes = [7, 8, 9, 10, 11 + int.from_bytes(frame[7:10], "little")]
    same = 0
    for _ in range(400):
        mutated = bytearray(frame)
        where = dice.choice((dice.randrange(len(frame)), dice.choice(sizes), dice.randrange(70_000, len(frame))))
        mutated[where] = dice.choice((0, 1, 0x40, 0x7F, 0x80, 0xFF, mutated[where] ^ 1))
        reading = inflated(bytes(mutated))
        try:
            wanted = [row[3] for row in decode(lz4.frame.decompress(bytes(mutated)), 1, 1)]
        except (RuntimeError, EOFError, DamagedError):
            assert (reading.rows, len(reading.dead_letters)) == ([], 1)
            continue
        assert [row["value"] for row in reading.rows] == wanted
        same += 1
    assert same > 50
