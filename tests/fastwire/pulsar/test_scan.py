"""Frames of one connection: golden ones field by field, cut anywhere, in any parts, broken, and in any order."""

import gc
import random

import pytest

from fastwire.columns.scan import ChunkScanner, Stop
from fastwire.errors import ProtocolError
from fastwire.position import Log, Position, Span
from fastwire.pulsar.format.payload import Compression, Record, encode_batch_entry, encode_single_entry
from fastwire.pulsar.reading.scan import Scanner
from fastwire.pulsar.reading.slot import SlotTable
from fastwire.wire.pool import Pool
from tests.support import golden
from tests.support.pulsar.frames import (
    CONSUMER,
    LOG,
    Seen,
    command_frame,
    drain,
    feed,
    message_frame,
    oracle,
    put,
    rows_of,
    scanner,
)
from tests.support.waiting import eventually

PING = golden.load("pulsar_e09_ping")
TIME = 1_700_000_000_000
MIB = 1 << 20


def batch(values: list[bytes], sequence: int = 0, compression: Compression = Compression.NONE) -> bytes:
    records = [Record(value=value, key=f"k{place}") for place, value in enumerate(values)]
    return encode_batch_entry(
        records, producer_name="p", sequence_id=sequence, publish_time=TIME, compression=compression
    ).body


def single(value: bytes, key: str | None = None) -> bytes:
    return encode_single_entry(Record(value=value, key=key), producer_name="p", sequence_id=1, publish_time=TIME).body


def a_stream() -> bytes:
    """Entries of all kinds and commands, in wire order."""
    return b"".join(
        (
            golden.load("pulsar_e06_message"),
            PING,
            golden.load("pulsar_e07_message_batch"),
            message_frame(batch([b"", b"a" * 90, b"b"], compression=Compression.ZSTD), entry=36),
            golden.load("pulsar_e02_connected"),
            message_frame(single(b""), ledger=13),
        )
    )


# --- golden frames


def test_golden_single_message() -> None:
    to, slots = scanner()
    seen = feed(to, golden.load("pulsar_e06_message"))
    assert seen.rows == [
        {
            "key": b"k",
            "value": b"hello",
            "topic": "persistent://public/default/ev",
            "partition": 0,
            "offset": 34,
            "timestamp": 1_700_000_000_000_000,
            "timestampType": 0,
            "headers": [("a", b"1")],
            "ledger": 12,
            "batchIndex": -1,
            "eventTime": None,
            "producer": "p-0",
            "sequenceId": 3,
            "orderingKey": None,
            "schemaVersion": None,
            "redeliveryCount": 0,
        }
    ]
    assert seen.spans == [Span(LOG, Position(-1, -1), Position(12, 34), 1)]
    assert seen.runs == [(0, 0, 1)]
    assert slots.debited(CONSUMER) == 1
    assert slots.last_position(CONSUMER) == Position(12, 34)
    assert slots.largest_entry(CONSUMER) == 5
    assert slots.take_dirty() == [CONSUMER]
    assert slots.take_dirty() == []
    assert (to.frames, to.entries, to.rows, to.received_bytes, to.buffered) == (1, 1, 1, 64, 0)


def test_golden_batch_with_broker_entry_metadata_and_ack_set() -> None:
    to, slots = scanner()
    seen = feed(to, golden.load("pulsar_e07_message_batch"))
    constant = {
        "topic": "persistent://public/default/ev",
        "partition": 0,
        "offset": 35,
        "timestamp": 1_700_000_000_500_000,
        "timestampType": 0,
        "headers": None,
        "ledger": 12,
        "eventTime": None,
        "producer": "p-1",
        "orderingKey": None,
        "schemaVersion": None,
        "redeliveryCount": 1,
    }
    assert seen.rows == [
        constant | {"key": b"x", "value": b"one", "batchIndex": 0, "sequenceId": 10},
        constant | {"key": None, "value": b"three", "batchIndex": 2, "sequenceId": 12},
    ]
    assert seen.spans == [Span(LOG, Position(-1, -1), Position(12, 35), 2)]
    assert to.redelivered == 1
    assert slots.debited(CONSUMER) == 2  # element 1 was acknowledged before: never debited


@pytest.mark.parametrize("name", ["pulsar_e06_message", "pulsar_e07_message_batch"])
def test_the_oracle_agrees_with_the_golden_frames(name: str) -> None:
    to, _ = scanner()
    assert feed(to, golden.load(name)).rows == oracle(golden.load(name))


@pytest.mark.parametrize("name", [name for name in golden.names("pulsar_") if "_message" not in name])
def test_other_golden_frames_are_commands(name: str) -> None:
    frame = golden.load(name)
    size = int.from_bytes(frame[4:8], "big")
    to, _ = scanner()
    assert feed(to, frame).commands == [frame[8 : 8 + size]]


# --- cut anywhere


@pytest.mark.parametrize("name", golden.names("pulsar_"))
def test_truncation_at_every_byte(name: str) -> None:
    frame = golden.load(name)
    to, _ = scanner()
    whole = feed(to, frame)
    for cut in range(len(frame)):
        to, _ = scanner()
        put(to, frame[:cut])
        assert Stop(to.scan()) is Stop.NEED_BYTES
        assert to.take_chunk() is None
        assert to.buffered == cut
        again = feed(to, frame[cut:])
        assert (again.rows, again.commands, again.spans) == (whole.rows, whole.commands, whole.spans)


def test_truncation_of_a_large_frame() -> None:
    rng = random.Random(7)
    frame = message_frame(batch([rng.randbytes(rng.randrange(400)) for _ in range(500)]))
    head = 8 + int.from_bytes(frame[4:8], "big")
    places = {*range(64), *range(head - 2, head + 48), *range(len(frame) - 64, len(frame))}
    places.update(rng.randrange(len(frame)) for _ in range(1000))
    whole = oracle(frame)
    to, slots = scanner(columns=frozenset(("value", "batchIndex")))
    for cut in sorted(places):
        put(to, frame[:cut])
        assert Stop(to.scan()) is Stop.NEED_BYTES
        assert not to.has_open
        put(to, frame[cut:])
        assert Stop(to.scan()) is Stop.NEED_BYTES
        chunk = to.take_chunk()
        assert chunk is not None
        if cut % 16 == 0:
            assert [row["value"] for row in rows_of(chunk)] == [row["value"] for row in whole]
        assert chunk.rows == len(whole)
        slots.void_staged(CONSUMER)


def test_all_splits_in_two() -> None:
    data = a_stream()
    to, slots = scanner()
    whole = feed(to, data)
    assert (len(whole.rows), len(whole.commands)) == (7, 2)
    for cut in range(len(data) + 1):
        to, slots = scanner()
        seen = feed(to, data, [cut])
        assert (seen.rows, seen.commands, seen.spans) == (whole.rows, whole.commands, whole.spans)
        assert slots.debited(CONSUMER) == 7


def test_one_byte_at_a_time() -> None:
    data = a_stream()
    whole = feed(scanner()[0], data)
    seen = feed(scanner()[0], data, range(1, len(data)))
    assert (seen.rows, seen.commands, seen.spans) == (whole.rows, whole.commands, whole.spans)


def test_200_seeded_chunkings() -> None:
    data = a_stream()
    whole = feed(scanner()[0], data)
    for seed in range(200):
        rng = random.Random(seed)
        cuts = sorted(rng.randrange(len(data)) for _ in range(rng.randrange(1, 30)))
        seen = feed(scanner()[0], data, cuts)
        assert (seen.rows, seen.commands, seen.spans) == (whole.rows, whole.commands, whole.spans), seed


# --- broken framing


def broken(data: bytes) -> tuple[str, Pool]:
    pool = Pool(1 << 30)
    to, _ = scanner(pool)
    before = pool.peak
    put(to, data)
    with pytest.raises(ProtocolError) as caught:
        drain(to, Seen())
    with pytest.raises(ProtocolError):  # it stays broken
        to.scan()
    assert pool.peak == before, "memory was taken on a peer's word"
    return str(caught.value), pool


@pytest.mark.parametrize("total", [0, 3])
def test_total_size_below_the_least(total: int) -> None:
    text, _ = broken(total.to_bytes(4, "big") + bytes(4))
    assert text == f"totalSize at byte 0: {total} is not within 4 and 5253120"


@pytest.mark.parametrize("total", [5 * MIB + 10_241, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF])
def test_total_size_above_the_limit(total: int) -> None:
    text, _ = broken(total.to_bytes(4, "big") + bytes(4))
    assert text == f"totalSize at byte 0: {total} is not within 4 and 5253120"


@pytest.mark.parametrize("command", [7, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF])
def test_command_size_beyond_the_frame(command: int) -> None:
    text, _ = broken((10).to_bytes(4, "big") + command.to_bytes(4, "big"))
    assert text == f"commandSize at byte 4: needs {command} bytes, 6 present"


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("08", "BaseCommand at byte 9: needs 1 bytes, 0 present"),
        ("0809 4a05 0807", "BaseCommand at byte 12: length 5 is negative or beyond the frame"),
        ("0809 4affffffffffffffffff01", "BaseCommand at byte 21: length 2147483647 is negative or beyond the frame"),
        ("0809 ffffffffffffffffff7f", "BaseCommand at byte 10: varint does not fit 64 bits"),
        ("0f 00", "BaseCommand at byte 9: wire type 7 does not fit the field"),
        ("0809", "BaseCommand.message at byte 8: is missing in a MESSAGE"),
        ("0809 4a00", "CommandMessage at byte 12: required field 1 is missing"),
        ("0809 4a02 0807", "CommandMessage at byte 14: required field 2 is missing"),
        ("0809 4a06 0807 1202 0801", "CommandMessage at byte 18: required field 2 is missing"),
        ("0809 4a06 0807 1202 1001", "CommandMessage at byte 18: required field 1 is missing"),
        ("0809 4a04 0807 1209", "CommandMessage at byte 16: length 9 is negative or beyond the frame"),
        ("0809 4a08 0807 1204 0801 18ff", "CommandMessage at byte 19: needs 2 bytes, 1 present"),
    ],
)
def test_a_command_that_is_no_protobuf(command: str, text: str) -> None:
    assert broken(command_frame(bytes.fromhex(command)))[0] == text


def test_the_frame_limit_is_the_announced_size_and_ten_kib() -> None:
    to, slots = scanner(max_message_size=1000)
    assert to.max_message_size == 1000
    frame = message_frame(single(bytes(11_000)))
    room = 1000 + 10_240 - (len(frame) - 4)
    assert feed(to, message_frame(single(bytes(11_000 + room)))).rows
    slots.void_staged(CONSUMER)
    put(to, message_frame(single(bytes(11_000 + room + 1))))
    with pytest.raises(ProtocolError, match="totalSize at byte 0: 11241 is not within 4 and 11240"):
        to.scan()
    to.max_message_size = 1001
    assert Stop(to.scan()) is Stop.NEED_BYTES
    for size in (0, -1, 1 << 31):
        with pytest.raises(ValueError, match="out of range"):
            to.max_message_size = size


# --- commands between messages


def test_wire_order_is_kept() -> None:
    to, _ = scanner()
    put(to, message_frame(single(b"1"), entry=1) + PING + message_frame(single(b"2"), entry=2))
    assert Stop(to.scan()) is Stop.FOUND
    assert to.open_rows == 1
    assert to.take_found() == PING[8:]
    assert to.take_found() is None
    assert Stop(to.scan()) is Stop.NEED_BYTES
    assert to.open_rows == 2


def test_unknown_commands_are_counted_and_skipped() -> None:
    to, _ = scanner()
    unknown = command_frame(bytes.fromhex("0852 9205020801"))  # type 82
    negative = command_frame(bytes.fromhex("08ffffffffffffffffff01"))
    assert feed(to, unknown + negative + golden.load("pulsar_e06_message")).commands == []
    assert (to.unknown_commands, to.rows) == (2, 1)


def test_a_command_without_a_type_is_handed_out() -> None:
    to, _ = scanner()
    assert feed(to, command_frame(b"")).commands == [b""]


def test_the_type_may_stand_behind_the_message() -> None:
    frame = golden.load("pulsar_e06_message")
    swapped = frame[:8] + frame[10:22] + frame[8:10] + frame[22:]
    to, _ = scanner()
    assert feed(to, swapped).rows == oracle(frame)


# --- whose frame it is


def test_frames_of_unknown_consumers_are_dropped() -> None:
    to, slots = scanner()
    assert feed(to, message_frame(single(b"x"), consumer=8) + message_frame(single(b"x"), consumer=1 << 60)).rows == []
    assert (to.dropped_frames, to.frames) == (2, 2)
    assert slots.take_dirty() == []


def test_frames_of_another_connection_are_dropped() -> None:
    pool = Pool(1 << 30)
    to, slots = scanner(pool)
    other = Scanner(slots, pool, 2)
    frame = golden.load("pulsar_e06_message")
    assert feed(other, frame).rows == []
    slots.attach(CONSUMER, 2)
    assert feed(to, frame).rows == []
    assert len(feed(other, frame).rows) == 1
    slots.detach(CONSUMER)
    assert feed(other, message_frame(single(b"x"), entry=99)).rows == []
    assert slots.debited(CONSUMER) == 1


def test_partitions_and_topics_share_a_chunk() -> None:
    logs = [Log("pulsar", "c", "persistent://a/b/one", "0"), Log("pulsar", "c", "persistent://a/b/zwei-ß", "-1")]
    slots = SlotTable(logs)
    for index in (0, 1):
        slots.add(index, index, ordered=True)
        slots.attach(index, 1)
    to = Scanner(slots, Pool(1 << 30), 1)
    data = b"".join(
        message_frame(single(bytes([count])), consumer=consumer, entry=count)
        for count, consumer in enumerate([0, 0, 1, 1, 1, 0])
    )
    seen = feed(to, data)
    assert [(row["topic"], row["partition"]) for row in seen.rows] == [
        *[(logs[0].topic, 0)] * 2,
        *[(logs[1].topic, -1)] * 3,
        (logs[0].topic, 0),
    ]
    assert seen.runs == [(0, 0, 2), (1, 2, 3), (0, 5, 1)]
    assert seen.spans == [
        Span(logs[0], Position(-1, -1), Position(12, 5), 3),
        Span(logs[1], Position(-1, -1), Position(12, 4), 3),
    ]


# --- the caller's limits and choices


def test_limit_rows_ends_with_an_entry() -> None:
    to, slots = scanner()
    slots.limit_rows(5)
    seen = feed(to, b"".join(message_frame(batch([b"x"] * 3), entry=entry) for entry in range(4)))
    assert len(seen.rows) == 6
    assert to.dropped_frames == 2
    assert slots.debited(CONSUMER) == 6
    assert seen.spans[-1].end == Position(12, 1)
    slots.limit_rows(1)
    assert len(feed(to, message_frame(batch([b"x"] * 3), entry=2)).rows) == 3
    with pytest.raises(ValueError, match="negative"):
        slots.limit_rows(-1)


def test_damaged_entries_stop_the_scan_when_the_caller_wants_that() -> None:
    to, slots = scanner(on_corrupt="stop")
    frame = bytearray(golden.load("pulsar_e06_message"))
    frame[-1] ^= 1
    seen = feed(to, bytes(frame))
    assert (seen.rows, seen.dead_letters, seen.spans) == ([], [], [])
    (cold,) = seen.cold
    assert (cold.consumer_id, cold.log, cold.ledger, cold.entry) == (CONSUMER, LOG, 12, 34)
    assert (cold.reason, cold.permits, cold.redelivery_count) == ("ChecksumMismatch", 1, 0)
    assert cold.detail == "CRC-32C is not 0x1c5f3a20"
    assert cold.payload == bytes(frame[22:])
    assert repr(cold) == (
        "ColdEntry(persistent://public/default/ev 0 12:34 ChecksumMismatch: CRC-32C is not 0x1c5f3a20)"
    )
    assert slots.debited(CONSUMER) == 1
    assert to.take_found() is None
    # It was not covered: it may come again, and be decoded then.
    assert len(feed(to, golden.load("pulsar_e06_message")).rows) == 1


def test_arguments_are_checked() -> None:
    slots = SlotTable([])
    with pytest.raises(ValueError, match="on_corrupt is 'later'"):
        Scanner(slots, Pool(1 << 30), 1, on_corrupt="later")
    with pytest.raises(ValueError, match="start at 1"):
        Scanner(slots, Pool(1 << 30), 0)
    with pytest.raises(ValueError, match="no column colour"):
        Scanner(slots, Pool(1 << 30), 1, columns=frozenset({"colour", "key"}))
    with pytest.raises(TypeError, match="of its own"):
        ChunkScanner()


def test_drop_chunk_forgets_the_open_chunk() -> None:
    pool = Pool(1 << 30)
    to, slots = scanner(pool)
    idle = pool.used
    feed(to, golden.load("pulsar_e06_message"), close=False)
    assert to.has_open
    to.drop_chunk()
    assert not to.has_open
    assert to.take_chunk() is None
    assert pool.used == idle
    slots.void_staged(CONSUMER)
    assert len(feed(to, golden.load("pulsar_e06_message")).rows) == 1


def test_everything_goes_back_to_the_pool() -> None:
    pool = Pool(1 << 30)
    to, _ = scanner(pool)
    seen = feed(to, a_stream())
    assert len(seen.rows) == 7
    del to
    assert pool.used == 0


def test_a_scanner_in_a_cycle_is_collected() -> None:
    pool = Pool(1 << 30)

    class Owner:
        scanner: Scanner
        buffer: memoryview
        me: "Owner"

    for _ in range(3):
        owner = Owner()
        owner.scanner = scanner(pool)[0]
        owner.buffer = owner.scanner.get_buffer()
        owner.me = owner
        feed(owner.scanner, golden.load("pulsar_e06_message"), close=False)
        gc.collect()
        del owner
        # While another thread looks for garbage, as one of an earlier test may, a call of collect() does nothing.
        eventually(lambda: gc.collect() >= 0 and pool.used == 0, "the scanner is collected")
