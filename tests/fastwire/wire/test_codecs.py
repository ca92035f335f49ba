"""Decompression through the scanner: every codec as its writers write it, and what it does not do on a peer's word."""

import random
import struct
import zlib

import pytest
import zstandard
from crc32c import crc32c

from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.format.payload import Compression, Record, compress, encode_batch_entry, encode_payload
from fastwire.reason import Reason
from fastwire.wire.pool import Pool
from tests.support.pulsar.frames import CONSUMER, Seen, feed, message_frame, oracle, scanner

TIME = 1_700_000_000_000
CODECS = [codec for codec in Compression if codec is not Compression.NONE]
MIB = 1 << 20


def frame(codec: int, stored: bytes, size: int, entry: int = 0) -> bytes:
    """One message whose payload is ``stored`` and is said to become ``size`` bytes."""
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=TIME, uncompressed_size=size)
    metadata.MergeFromString(b"\x40" + bytes([codec]))
    if codec > 4:  # the generated code puts a number that it does not know aside, and writes it again
        assert metadata.SerializeToString().endswith(b"\x40" + bytes([codec]))
    return message_frame(encode_payload(metadata, stored), entry=entry)


def give(codec: int, stored: bytes, size: int, pool: Pool | None = None) -> Seen:
    to, slots = scanner(pool)
    seen = feed(to, frame(codec, stored, size))
    assert slots.debited(CONSUMER) == 1
    assert len(seen.rows) + len(seen.dead_letters) == 1
    return seen


def reason(codec: int, stored: bytes, size: int) -> str:
    seen = give(codec, stored, size)
    assert seen.rows == []
    return seen.dead_letters[0].reason


# The same eight bytes as each official writer stores them (Pulsar 28).
FASTWIRE = {
    "zlib, Java": (2, "789c4a4b2c2e29cf2c4a05000000ffff"),
    "lz4": (1, "806661737477697265"),
    "snappy": (4, "081c6661737477697265"),
    "zstd": (3, "28b52ffd20084100006661737477697265"),
}


@pytest.mark.parametrize("writer", FASTWIRE)
def test_golden_streams(writer: str) -> None:
    codec, stored = FASTWIRE[writer]
    assert [row["value"] for row in give(codec, bytes.fromhex(stored), 8).rows] == [b"fastwire"]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("size", [1, 2, 100, 65_535, 65_536, 1_000_000, 6_000_000])
def test_sizes(codec: Compression, size: int) -> None:
    rng = random.Random(size)
    value = (rng.randbytes(size // 8 + 1) + bytes(size))[:size]
    assert [row["value"] for row in give(codec, compress(codec, value), size).rows] == [value]


@pytest.mark.parametrize("codec", Compression)
def test_an_empty_payload(codec: Compression) -> None:
    assert [row["value"] for row in give(codec, b"", 0).rows] == [b""]
    # With a size of 0 nobody looks at the rest.
    assert [row["value"] for row in give(codec, compress(codec, b"") if codec else b"", 0).rows] == [b""]


@pytest.mark.parametrize("codec", [5, 99])
@pytest.mark.parametrize("size", [0, 8])
def test_an_unknown_codec(codec: int, size: int) -> None:
    assert reason(codec, b"12345678", size) == f"DecompressionError: unknown codec {codec}"


def test_without_compression_the_size_means_nothing() -> None:
    assert [row["value"] for row in give(0, b"abc", 99).rows] == [b"abc"]


@pytest.mark.parametrize("level", [0, 1, 9])
@pytest.mark.parametrize("end", ["whole", "sync flush", "no checksum", "half"])
def test_zlib_streams_with_and_without_an_end(level: int, end: str) -> None:
    value = b"fastwire " * 1000
    stream = zlib.compressobj(level)
    body = stream.compress(value)
    if end == "sync flush":
        body += stream.flush(zlib.Z_SYNC_FLUSH)
    else:
        body += stream.flush()
    if end == "no checksum":
        body = body[:-4]
    if end == "half":
        assert reason(2, body[: len(body) // 2], len(value)).startswith("DecompressionError: gave ")
    else:
        assert [row["value"] for row in give(2, body, len(value)).rows] == [value]


def test_zlib_with_a_wrong_checksum_at_its_end() -> None:
    value = b"fastwire " * 1000
    body = zlib.compress(value)[:-1] + b"\x00"
    assert reason(2, body, len(value)).startswith("DecompressionError: ")


def test_zstd_without_a_content_size() -> None:
    value = random.Random(1).randbytes(5000) * 3
    stream = zstandard.ZstdCompressor(write_content_size=False).compressobj()
    body = stream.compress(value) + stream.flush()
    assert zstandard.frame_content_size(body) == -1
    assert [row["value"] for row in give(3, body, len(value)).rows] == [value]
    assert reason(3, body, len(value) - 1).startswith("DecompressionError: ")
    assert reason(3, body, len(value) + 1).startswith("DecompressionError: ")


@pytest.mark.parametrize("size", [1, 255, 256, 257, 65_535 + 256, 65_536 + 256, 1 << 20])
@pytest.mark.parametrize("checksum", [True, False])
def test_every_form_of_a_zstd_header(size: int, checksum: bool) -> None:
    body = zstandard.ZstdCompressor(write_checksum=checksum).compress(bytes(size))
    assert [len(row["value"]) for row in give(3, body, size).rows] == [size]
    assert reason(3, body, size + 1) == f"DecompressionError: no zstd frame of {size + 1} bytes"


@pytest.mark.parametrize("codec", CODECS)
def test_the_announced_size_must_be_exact(codec: Compression) -> None:
    value = b"fastwire" * 100
    stored = compress(codec, value)
    for size in (1, len(value) - 1, len(value) + 1, len(value) * 2):
        assert reason(codec, stored, size).startswith("DecompressionError: "), size


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("value", [b"x", b"fastwire" * 20, bytes(3000)], ids=["one", "text", "zeros"])
def test_every_truncation(codec: Compression, value: bytes) -> None:
    stored = compress(codec, value)
    to, slots = scanner()
    for cut in range(len(stored)):
        seen = feed(to, frame(codec, stored[:cut], len(value)))
        if seen.rows:  # a zlib stream may lack its end
            assert codec is Compression.ZLIB and cut >= len(stored) - 5
            assert seen.rows[0]["value"] == value
        else:
            assert len(seen.dead_letters) == 1
        slots.void_staged(CONSUMER)


@pytest.mark.parametrize("codec", CODECS)
def test_garbage(codec: Compression) -> None:
    rng = random.Random(codec)
    to, slots = scanner()
    for _ in range(300):
        size = rng.choice([1, 10, 1000])
        seen = feed(to, frame(codec, rng.randbytes(rng.randrange(60)), size))
        assert all(len(row["value"]) == size for row in seen.rows)
        slots.void_staged(CONSUMER)
    # The scanner's contexts and scratch are none the worse for it.
    value = rng.randbytes(5000)
    assert feed(to, frame(codec, compress(codec, value), 5000)).rows[0]["value"] == value


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("size", [0x7FFFFFFF, 0xFFFFFFFF])
def test_sizes_that_no_codec_reaches(codec: Compression, size: int) -> None:
    assert reason(codec, compress(codec, b"x"), size).startswith(f"UncompressedSizeCorruption: announces {size} bytes")


@pytest.mark.parametrize("codec", CODECS)
def test_an_entry_becomes_an_eighth_of_the_budget_at_most(codec: Compression) -> None:
    pool = Pool(64 * MIB)
    to, _ = scanner(pool)
    idle = pool.used
    for size, rows in ((8 * MIB, 1), (8 * MIB + 1, 0)):
        stored = compress(codec, bytes(size))
        seen = feed(to, frame(codec, stored, size, entry=size))
        assert len(seen.rows) == rows, size
    assert seen.dead_letters[0].damage is Reason.TOO_LARGE
    assert f"decompresses to {size} bytes, and one entry may to {8 * MIB}" in seen.dead_letters[0].reason
    assert "daemon.memory" in seen.dead_letters[0].reason
    seen.dead_letters.clear()
    to.drop_chunk()
    assert pool.used == idle


@pytest.mark.parametrize("codec", CODECS)
def test_a_size_that_the_stored_bytes_cannot_become(codec: Compression) -> None:
    pool = Pool(1 << 30)
    to, _ = scanner(pool)
    before = pool.peak
    seen = feed(to, frame(codec, compress(codec, b"x" * 20), 100 * MIB))
    assert seen.rows == []
    assert seen.dead_letters[0].reason.startswith("UncompressedSizeCorruption: announces 104857600 bytes")
    assert pool.peak < before + MIB


def test_an_lz4_bomb_that_ends_early_takes_no_more_than_its_ratio() -> None:
    pool = Pool(1 << 30)
    to, _ = scanner(pool)
    before = pool.peak
    stored = b"\x1fa\x01\x00" + b"\xff" * 50_000  # one literal, and a match whose length does not end
    seen = feed(to, frame(1, stored, 10_000_000))
    assert seen.rows == []
    assert pool.peak <= before + 16 * MIB
    assert pool.used == before, "the scratch of a damaged entry stayed"


def test_a_zstd_frame_whose_header_lies() -> None:
    value = bytes(1000)
    body = bytearray(zstandard.ZstdCompressor().compress(value))
    assert body[4] == 0x60  # single segment, content size of two bytes
    for claimed in (999, 1001, 65_000):
        body[5:7] = struct.pack("<H", claimed - 256)
        assert reason(3, bytes(body), claimed).startswith("DecompressionError: ")
        assert reason(3, bytes(body), 1000) == "DecompressionError: no zstd frame of 1000 bytes"


def test_zstd_content_sizes_that_are_no_sizes() -> None:
    for claimed in ((1 << 64) - 1, (1 << 64) - 2, 1 << 63, (1 << 63) + 8):
        body = b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", claimed) + b"\x41\x00\x00fastwire"
        assert reason(3, body, 8).startswith("DecompressionError: ")


def test_two_zstd_frames_are_not_one_payload() -> None:
    body = zstandard.ZstdCompressor().compress(b"fastwire")
    assert reason(3, body + body, 16).startswith("DecompressionError: ")
    assert reason(3, body + body, 8).startswith("DecompressionError: ")


def test_a_large_entry_gives_its_scratch_back() -> None:
    pool = Pool(1 << 30)
    to, _ = scanner(pool)
    idle = pool.used
    for codec in CODECS:
        value = bytes(20 * MIB)
        assert len(give(codec, compress(codec, value), len(value), pool).rows[0]["value"]) == len(value)
    feed(to, frame(1, compress(Compression.LZ4, bytes(20 * MIB)), 20 * MIB))
    assert pool.used == idle


def test_codecs_alternate_on_one_connection() -> None:
    rng = random.Random(9)
    frames = []
    for entry in range(60):
        codec = rng.choice(list(Compression))
        records = [Record(value=rng.randbytes(rng.randrange(50))) for _ in range(rng.randrange(1, 200))]
        body = encode_batch_entry(
            records,
            producer_name="p",
            sequence_id=entry,
            publish_time=TIME,
            compression=codec,
            open_ended=rng.random() < 0.5,
        ).body
        frames.append(message_frame(body, entry=entry))
    to, _ = scanner()
    assert feed(to, b"".join(frames)).rows == [row for one in frames for row in oracle(one)]


# --- CRC-32C


def test_the_checksum_covers_everything_behind_it() -> None:
    entry = encode_batch_entry([Record(value=b"abc", key="k")], producer_name="p", sequence_id=0, publish_time=TIME)
    good = message_frame(entry.body)
    start = len(good) - len(entry.body)
    to, slots = scanner()
    for place in range(start + 2, len(good)):
        for bit in (1, 0x80):
            bad = bytearray(good)
            bad[place] ^= bit
            seen = feed(to, bytes(bad))
            assert (seen.rows, [letter.reason[:16] for letter in seen.dead_letters]) == ([], ["ChecksumMismatch"])
            slots.void_staged(CONSUMER)


def test_sums_of_all_sizes_are_the_packages_sums() -> None:
    """Small sums are ours, large ones the package's: the same ones for every size, and a wrong one is seen."""
    rng = random.Random(11)
    to, slots = scanner(columns=frozenset({"value"}))
    for size in [*range(64), *range(64, 1400, 3), 4095, 32_767, 32_768, 100_000]:
        metadata = pb.MessageMetadata(producer_name="p", sequence_id=size, publish_time=TIME).SerializeToString()
        covered = len(metadata).to_bytes(4, "big") + metadata + rng.randbytes(size)
        good = crc32c(covered)
        for sum_, rows in ((good, 1), (good ^ 1 << rng.randrange(32), 0)):
            seen = feed(to, message_frame(b"\x0e\x01" + sum_.to_bytes(4, "big") + covered))
            assert (len(seen.rows), len(seen.dead_letters)) == (rows, 1 - rows), size
            slots.void_staged(CONSUMER)


def test_broker_entry_metadata_is_not_covered() -> None:
    entry = encode_batch_entry([Record(value=b"abc")], producer_name="p", sequence_id=0, publish_time=TIME)
    for inside in (b"", b"\x08\x01", b"\xff" * 7):
        frame = message_frame(b"\x0e\x02" + len(inside).to_bytes(4, "big") + inside + entry.body)
        to, _ = scanner()
        assert len(feed(to, frame).rows) == 1
    bad = message_frame(b"\x0e\x02\x00\x00\x00\x00" + entry.body[:-1] + b"\x00")
    to, _ = scanner()
    assert feed(to, bad).dead_letters[0].reason.startswith("ChecksumMismatch")
    beyond = message_frame(b"\x0e\x02\x7f\xff\xff\xff" + entry.body)
    to, _ = scanner()
    assert feed(to, beyond).dead_letters[0].reason.startswith("MetadataError: broker entry metadata of 2147483647")


def test_no_checksum_is_legal() -> None:
    entry = encode_batch_entry(
        [Record(value=b"abc")], producer_name="p", sequence_id=0, publish_time=TIME, checksum=False
    )
    to, _ = scanner()
    assert [row["value"] for row in feed(to, message_frame(entry.body)).rows] == [b"abc"]


@pytest.mark.parametrize("end", [b"\0", b"more", zlib.compress(b"another")])
def test_bytes_behind_a_zlib_stream_are_not_dropped_in_silence(end: bytes) -> None:
    assert reason(2, zlib.compress(b"fastwire") + end, 8).startswith("DecompressionError")
