"""Size limits of chunks, and no allocation for counts and sizes on a peer's word alone."""

import random

import pytest
import zstandard
from crc32c import crc32c

from fastwire.columns.scan import Stop
from fastwire.errors import ProtocolError
from fastwire.position import Position, Span
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.format.payload import (
    Compression,
    Record,
    encode_batch_entry,
    encode_payload,
    encode_single_entry,
)
from fastwire.reason import Reason
from fastwire.wire.pool import Pool
from tests.support import golden
from tests.support.pulsar.connection_scene import Wire
from tests.support.pulsar.frames import CONSUMER, LOG, Seen, drain, feed, message_frame, put, scanner

PING = golden.load("pulsar_e09_ping")
TIME = 1_700_000_000_000
MIB = 1 << 20


def batch(values: list[bytes], compression: Compression = Compression.NONE) -> bytes:
    records = [Record(value=value, key=f"k{place}") for place, value in enumerate(values)]
    return encode_batch_entry(
        records, producer_name="p", sequence_id=0, publish_time=TIME, compression=compression
    ).body


def single(value: bytes) -> bytes:
    return encode_single_entry(Record(value=value), producer_name="p", sequence_id=1, publish_time=TIME).body


# --- how large a chunk gets


def test_a_chunk_closes_at_16384_rows() -> None:
    to, slots = scanner()
    frames = [message_frame(batch([b"x"] * 1000, compression=Compression.LZ4), entry=entry) for entry in range(33)]
    seen = feed(to, b"".join(frames))
    assert seen.chunk_rows == [16_000, 16_000, 1_000]
    assert slots.debited(CONSUMER) == 33_000
    ends = [Position(12, 15), Position(12, 31), Position(12, 32)]
    assert seen.spans == [
        Span(LOG, start, end, rows)
        for start, end, rows in zip([Position(-1, -1), *ends], ends, seen.chunk_rows, strict=False)
    ]


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.ZSTD])
def test_a_chunk_closes_at_4_mib(compression: Compression) -> None:
    to, _ = scanner()
    value = random.Random(1).randbytes(200_000)
    frames = [message_frame(batch([value] * 5, compression=compression), entry=entry) for entry in range(9)]
    assert feed(to, b"".join(frames)).chunk_rows == [20, 20, 5]


def test_keys_and_headers_fill_a_chunk_too() -> None:
    pool = Pool(1 << 30)
    to, _ = scanner(pool)
    record = Record(value=b"", key="k" * 100_000, properties=[("p", "v" * 100_000)], ordering_key=b"o" * 100_000)
    seen = Seen()
    for entry in range(64):
        sent = encode_single_entry(record, producer_name=f"{entry}" * 10_000, sequence_id=1, publish_time=TIME)
        feed(to, message_frame(sent.body, entry=entry), seen=seen, close=False)
    assert 3 < len(seen.chunk_rows) < 8
    assert pool.peak < 32 * MIB


def test_a_batch_larger_than_a_chunk_comes_whole() -> None:
    to, _ = scanner()
    before = message_frame(batch([b"a"]), entry=1)
    large = message_frame(batch([b"b"] * 20_000), entry=2)
    assert feed(to, before + large + message_frame(batch([b"c"]), entry=3)).chunk_rows == [1, 20_000, 1]


def test_100_000_tiny_messages_in_one_entry() -> None:
    pool = Pool(1 << 30)
    to, slots = scanner(pool, columns=frozenset({"key", "batchIndex"}))
    seen = feed(to, message_frame(batch([b""] * 100_000, compression=Compression.ZSTD)))
    assert [row["batchIndex"] for row in seen.rows] == list(range(100_000))
    assert seen.rows[-1]["key"] == b"k99999"
    assert slots.debited(CONSUMER) == 100_000
    assert pool.peak < 40 * MIB


def test_messages_of_5_mib() -> None:
    pool = Pool(1 << 30)
    to, _ = scanner(pool)
    idle = pool.used
    rng = random.Random(3)
    values = [rng.randbytes(5 * MIB) for _ in range(3)]
    data = b"".join(message_frame(single(value), entry=entry) for entry, value in enumerate(values))
    data += PING
    seen = feed(to, data, range(0, len(data), 300_000))
    assert [row["value"] for row in seen.rows] == values
    assert seen.chunk_rows == [1, 1, 1]
    to.get_buffer()
    assert pool.used == idle, "the receive buffer did not shrink back"
    assert pool.peak <= 40 * MIB


def test_output_of_one_read_is_capped() -> None:
    to, slots = scanner()
    frame = [message_frame(batch([bytes(MIB)], compression=Compression.ZSTD), entry=entry) for entry in range(20)]
    put(to, b"".join(frame))
    seen = Seen()
    drain(to, seen)
    seen.take(to.take_chunk())
    assert seen.stops.count(Stop.OUTPUT_CAP) == 2
    assert [row["offset"] for row in seen.rows] == list(range(20))
    assert slots.debited(CONSUMER) == 20


# --- hostile counts: nothing is allocated on a peer's word


@pytest.mark.parametrize("count", [2, 524_288, 524_289, 0x7FFFFFFF])
def test_num_messages_beyond_the_block(count: int) -> None:
    pool = Pool(1 << 30)
    to, slots = scanner(pool)
    feed(to, message_frame(batch([b"x"]), entry=0))
    before = pool.peak
    entry = encode_batch_entry(
        [Record(value=b"x")],
        producer_name="p",
        sequence_id=0,
        publish_time=TIME,
        metadata=pb.MessageMetadata(num_messages_in_batch=5),
    )
    at = entry.body.index(b"\x58\x01")
    metadata = entry.body[10:at] + bytes(pb.MessageMetadata(num_messages_in_batch=count).SerializePartialToString())
    covered = len(metadata).to_bytes(4, "big") + metadata + entry.body[at + 2 :]
    body = b"\x0e\x01" + crc32c(covered).to_bytes(4, "big") + covered
    seen = feed(to, message_frame(body, entry=1))
    assert seen.rows == []
    assert [letter.damage for letter in seen.dead_letters] == [Reason.METADATA if count > 524_288 else Reason.BATCH]
    assert slots.debited(CONSUMER) == 1 + count
    assert pool.peak <= before + 4 * MIB


@pytest.mark.parametrize("count", [-1, -(1 << 31)])
def test_a_negative_number_of_messages(count: int) -> None:
    to, slots = scanner()
    entry = encode_batch_entry([Record(value=b"x")], producer_name="p", sequence_id=0, publish_time=TIME)
    metadata = pb.MessageMetadata(
        producer_name="p", sequence_id=0, publish_time=TIME, num_messages_in_batch=count
    ).SerializeToString()
    body = len(metadata).to_bytes(4, "big") + metadata + entry.body[-10:]
    seen = feed(to, message_frame(body))
    assert [letter.reason for letter in seen.dead_letters] == [f"MetadataError: num_messages_in_batch is {count}"]
    assert slots.debited(CONSUMER) == 1


def test_a_zstd_bomb_of_tiny_messages_is_a_dead_letter() -> None:
    pool = Pool(1 << 30)
    to, _ = scanner(pool)
    count = 10_000_000
    block = zstandard.ZstdCompressor().compress(b"\x00\x00\x00\x02\x18\x00" * count)
    metadata = pb.MessageMetadata(
        producer_name="p",
        sequence_id=0,
        publish_time=TIME,
        num_messages_in_batch=count,
        compression=pb.ZSTD,
        uncompressed_size=6 * count,
    ).SerializeToString()
    before = pool.peak
    seen = feed(to, message_frame(len(metadata).to_bytes(4, "big") + metadata + block))
    assert seen.rows == []
    assert seen.dead_letters[0].reason.endswith(f"num_messages_in_batch is {count}, the limit is 524288")
    assert pool.peak < before + MIB


def test_a_forged_schema_version_is_not_copied_a_million_times() -> None:
    pool = Pool(1 << 30)
    to, _ = scanner(pool)
    metadata = pb.MessageMetadata(
        producer_name="p",
        sequence_id=0,
        publish_time=TIME,
        num_messages_in_batch=100_000,
        schema_version=bytes(1 << 20),
    ).SerializeToString()
    block = b"\x00\x00\x00\x02\x18\x00" * 100_000
    seen = feed(to, message_frame(len(metadata).to_bytes(4, "big") + metadata + block))
    assert seen.rows == []
    assert seen.dead_letters[0].reason.startswith("BatchDeSerializeError")
    assert pool.peak < 32 * MIB


def test_headers_take_a_quarter_of_the_budget_in_columns_at_most() -> None:
    pool = Pool(32 * MIB)
    to, slots = scanner(pool, buffer_bytes=1 << 16)
    idle = pool.used
    small = single(b"v")

    def headers(count: int) -> bytes:
        head = pb.SingleMessageMetadata(payload_size=0).SerializeToString() + b"\x0a\x04\x0a\0\x12\0" * count
        metadata = pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=TIME, num_messages_in_batch=1)
        block = len(head).to_bytes(4, "big") + head
        metadata.compression, metadata.uncompressed_size = pb.ZSTD, len(block)
        return encode_payload(metadata, zstandard.ZstdCompressor().compress(block))

    frames = [
        message_frame(body, entry=at) for at, body in enumerate((small, headers(200_000), headers(600_000), small))
    ]
    seen = feed(to, b"".join(frames))
    assert [row["offset"] for row in seen.rows] == [0, 1, 3]
    assert len(seen.rows[1]["headers"]) == 200_000
    (letter,) = seen.dead_letters
    assert letter.position == Position(12, 2) and letter.damage is Reason.TOO_LARGE
    assert f"more than {8 * MIB} bytes in columns" in letter.reason and "daemon.memory" in letter.reason
    assert slots.debited(CONSUMER) == 4
    assert pool.peak < idle + 15 * MIB  # what decompression gave, and a quarter of the budget


@pytest.mark.parametrize("on_corrupt", ["dead_letter", "stop"])
def test_an_entry_larger_than_a_quarter_of_the_budget_is_rejected_before_it_is_received(on_corrupt: str) -> None:
    """Its bytes are passed over: a dead letter of it could not be held. The frames behind it are read."""
    pool = Pool(64 * MIB)
    to, slots = scanner(pool, consumers=(7, 8), max_message_size=100 * MIB, on_corrupt=on_corrupt)
    assert to.max_message_size == 100 * MIB
    large = message_frame(single(bytes(17 * MIB)), consumer=7, entry=1)
    small = [message_frame(single(b"v"), consumer=consumer, entry=entry) for consumer, entry in ((7, 0), (8, 0))]
    seen = feed(to, small[0] + large[:5], close=False)
    seen = feed(to, large[5:40], close=False, seen=seen)
    seen = feed(to, large[40:] + small[1], seen=seen)
    assert [(row["partition"], row["offset"]) for row in seen.rows] == [(0, 0), (1, 0)]
    assert seen.dead_letters == []
    (cold,) = seen.cold
    assert (cold.consumer_id, cold.position, cold.payload) == (7, Position(12, 1), b"")
    assert cold.reason is Reason.FRAME
    assert (
        f"{len(large) - 4} bytes in one piece are more than {16 * MIB}" in cold.detail
        and "daemon.memory" in cold.detail
    )
    assert slots.staged_position(7) == Position(12, 0)
    assert pool.peak < 4 * MIB
    assert to.buffered == 0


def test_an_entry_that_is_too_large_for_another_consumer_is_passed_over() -> None:
    to, _ = scanner(Pool(64 * MIB), max_message_size=100 * MIB)
    large = message_frame(single(bytes(17 * MIB)), consumer=99)
    seen = feed(to, large + message_frame(single(b"v")))
    assert len(seen.rows) == 1 and seen.cold == [] and to.dropped_frames == 1


def test_a_command_larger_than_a_quarter_of_the_budget_ends_the_connection() -> None:
    """Whatever the broker announces; nothing is allocated for it."""
    pool = Pool(64 * MIB)
    to, _ = scanner(pool, max_message_size=100 * MIB)
    with pytest.raises(ProtocolError, match=rf"{20 * MIB} bytes in one piece are more than {16 * MIB}.*daemon\.memory"):
        feed(to, (20 * MIB).to_bytes(4, "big") + (20 * MIB - 4).to_bytes(4, "big") + bytes(60))
    to, _ = scanner(Pool(64 * MIB), max_message_size=100 * MIB)
    with pytest.raises(ProtocolError, match="commandSize"):
        feed(to, (20 * MIB).to_bytes(4, "big") * 2 + bytes(60))
    assert pool.peak < 4 * MIB
    frame = message_frame(single(bytes(5 * MIB)))
    small, _ = scanner(Pool(8 * MIB))
    feed(small, frame)


@pytest.mark.parametrize("count", [100_000, 100_001, 0xFFFFFFFF])
def test_a_topic_has_no_more_partitions_than_can_be_read(count: int) -> None:
    wire = Wire()
    wire.ready()
    request = wire.connection.partitioned_metadata("persistent://public/default/t", 0.0)
    answer = pb.CommandPartitionedTopicMetadataResponse(partitions=count, request_id=request)
    kind = pb.BaseCommand.PARTITIONED_METADATA_RESPONSE
    if count == 100_000:
        wire.say(kind, partitionMetadataResponse=answer)
        return
    with pytest.raises(ProtocolError, match=f"{count} of a topic, the limit is 100000"):
        wire.say(kind, partitionMetadataResponse=answer)


def test_a_command_takes_a_32nd_of_the_budget_at_most() -> None:
    """A list of topics takes up to 13 times its bytes as objects."""
    kind = pb.BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE
    wire = Wire(pool=Pool(64 * MIB))
    wire.ready()

    def say(count: int) -> None:
        listed = pb.CommandGetTopicsOfNamespaceResponse(request_id=7, topics=["persistent://a/b/c" * 2] * count)
        wire.say(kind, getTopicsOfNamespaceResponse=listed)

    say(50_000)
    with pytest.raises(ProtocolError, match=rf"the memory budget \(daemon.memory\) allows {2 * MIB}"):
        say(60_000)
