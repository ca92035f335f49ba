"""Entries to rows: whatever a producer may write, in whatever order of fields, beside the oracle; and lazy views."""

import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastwire.errors import ProtocolError
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.columns import ROW
from fastwire.pulsar.format.payload import (
    Compression,
    Record,
    compress,
    encode_batch,
    encode_batch_entry,
    encode_payload,
    encode_single_entry,
)
from fastwire.pulsar.reading.batch import Message, MessageBatch
from fastwire.wire.frame import Frame
from fastwire.wire.pool import Pool
from fastwire.wire.writer import encode_varint
from tests.support.pulsar.frames import CONSUMER, feed, message_frame, oracle, scanner, words
from tests.support.times import LAST_MILLI, nearest_millis

TIME = 1_700_000_000_000
COLUMNS = ROW.names
U64 = st.integers(0, (1 << 64) - 1)
BYTES = st.one_of(st.binary(max_size=40), st.binary(min_size=120, max_size=300))
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
KEYS = TEXT | st.sampled_from(
    ["", "a2V5", "a2V5PQ==", "a2V5PQ", "a2V-_-8", "+/+/", "=", "===", "a", "ab=c", "a2 V5", "é2V5"]
)

RECORDS = st.builds(
    Record,
    value=st.none() | BYTES,
    key=st.none() | KEYS,
    key_is_base64=st.booleans(),
    null_key=st.booleans(),
    ordering_key=st.none() | BYTES,
    properties=st.lists(st.tuples(TEXT, TEXT), max_size=4),
    event_time=st.one_of(st.just(0), st.integers(1, 1 << 41), U64),
    sequence_id=st.none() | U64,
)
ELEMENTS = st.builds(
    lambda record, gone: Record(
        value=None if gone and record.value is None else b"" if gone else record.value,
        key=record.key,
        key_is_base64=record.key_is_base64,
        null_key=record.null_key,
        ordering_key=record.ordering_key,
        properties=record.properties,
        event_time=record.event_time,
        sequence_id=record.sequence_id,
        compacted_out=gone,
    ),
    RECORDS,
    st.sampled_from([False] * 6 + [True]),
)
OUTER = st.builds(
    pb.MessageMetadata,
    schema_version=st.none() | st.binary(max_size=10),
    replicated_from=st.none() | TEXT,
    highest_sequence_id=st.none() | st.integers(0, 1 << 40),
    txnid_least_bits=st.none() | U64,
    deliver_at_time=st.none() | st.integers(0, 1 << 40),
)


@st.composite
def message_frames(draw: st.DrawFn) -> list[bytes]:
    """A few entries of one consumer, batched and not."""
    frames = []
    for entry in range(draw(st.integers(1, 4))):
        options: dict[str, Any] = {
            "producer_name": draw(st.sampled_from(["", "p", "producer-ü", "p" * 300])),
            "sequence_id": draw(st.sampled_from([0, 5, (1 << 64) - 100])),
            "publish_time": draw(st.sampled_from([0, TIME, LAST_MILLI, LAST_MILLI + 1, (1 << 64) - 1])),
            "compression": draw(st.sampled_from(Compression)),
            "open_ended": draw(st.booleans()),
            "checksum": draw(st.booleans()),
            "metadata": draw(OUTER),
        }
        ack_set: list[int] = []
        if draw(st.booleans()):
            records = draw(st.lists(ELEMENTS, max_size=6))
            body = encode_batch_entry(records, **options).body
            if records and draw(st.integers(0, 3)) == 0:
                ack_set = words(draw(st.sets(st.integers(0, len(records) - 1))))
        else:
            body = encode_single_entry(draw(RECORDS), **options).body
        redelivery = draw(st.sampled_from([0, 1, 0x7FFFFFFF]))
        frames.append(message_frame(body, entry=entry, redelivery=redelivery, ack_set=ack_set))
    return frames


@settings(max_examples=150)
@given(message_frames(), st.none() | st.frozensets(st.sampled_from(COLUMNS)), st.data())
def test_rows_are_what_the_oracle_says(
    frames: list[bytes], columns: frozenset[str] | None, data: st.DataObject
) -> None:
    pool = Pool(1 << 30)
    to, _ = scanner(pool, columns=columns, buffer_bytes=1 << 16)
    whole = b"".join(frames)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=5)))
    seen = feed(to, whole, cuts)
    assert not seen.dead_letters, seen.dead_letters
    wanted = [row for frame in frames for row in oracle(frame)]
    names = [name for name in COLUMNS if columns is None or name in columns]
    assert seen.rows == [{name: row[name] for name in names} for row in wanted]
    assert sum(span.rows for span in seen.spans) == len(wanted)
    del to
    assert pool.used == 0


@pytest.mark.parametrize("column", COLUMNS)
def test_each_column_alone(column: str) -> None:
    records = [
        Record(
            value=b"%d" % place if place % 3 else None,
            key=f"k{place}" if place % 2 else None,
            ordering_key=b"o" if place % 5 == 0 else None,
            properties=[("a", "b")] * (place % 3),
            event_time=place,
        )
        for place in range(50)
    ]
    metadata = pb.MessageMetadata(schema_version=b"\0\1")
    body = encode_batch_entry(records, producer_name="p", sequence_id=3, publish_time=TIME, metadata=metadata).body
    frame = message_frame(body, redelivery=2)
    to, _ = scanner(columns=frozenset({column}))
    assert feed(to, frame).rows == [{column: row[column]} for row in oracle(frame)]


def test_no_column_at_all_still_counts() -> None:
    to, _ = scanner(columns=frozenset())
    body = encode_batch_entry([Record(value=b"x")] * 3, producer_name="p", sequence_id=0, publish_time=TIME).body
    seen = feed(to, message_frame(body))
    assert seen.rows == [{}] * 3
    assert seen.spans[0].rows == 3


@pytest.mark.parametrize("count", [2, 3, 50])
@pytest.mark.parametrize("compression", [Compression.NONE, Compression.ZLIB])
def test_messages_that_the_metadata_does_not_announce(count: int, compression: Compression) -> None:
    """An entry that says that it holds one message and holds more is kept whole, instead of one row of it."""
    records = [Record(value=b"v%d" % number) for number in range(count)]
    block = encode_batch(records)
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=TIME, num_messages_in_batch=1)
    if compression is not Compression.NONE:
        metadata.compression, metadata.uncompressed_size = pb.ZLIB, len(block)
        block = compress(compression, block)
    to, _ = scanner()
    seen = feed(to, message_frame(encode_payload(metadata, block)))
    assert seen.rows == []
    assert len(seen.dead_letters) == 1
    assert seen.dead_letters[0].payload.endswith(block)


def test_columns_that_begin_late_and_end_early() -> None:
    """Nulls before and behind, over several entries and a grown arena."""
    rng = random.Random(5)
    frames = []
    for entry in range(40):
        records = [
            Record(
                value=None if rng.random() < 0.1 else rng.randbytes(rng.randrange(30)),
                key="key" if 10 < entry < 20 else None,
                ordering_key=b"o" if entry == 30 and place == 5 else None,
                properties=[("p", "v")] * 3 if entry == 39 and place > 900 else (),
                event_time=TIME + place if entry % 7 == 0 else 0,
            )
            for place in range(1000 if entry > 37 else 600)
        ]
        body = encode_batch_entry(records, producer_name=f"p{entry % 3}", sequence_id=entry, publish_time=TIME).body
        frames.append(message_frame(body, entry=entry))
    to, _ = scanner()
    seen = feed(to, b"".join(frames))
    assert seen.rows == [row for frame in frames for row in oracle(frame)]


@pytest.mark.parametrize("valid", [*range(20), 63, 64, 65])
def test_the_first_null_of_a_column_comes_at_any_row(valid: int) -> None:
    """Validity is written from the first null on, and for all that came before it at once."""
    full = Record(value=b"v", key="k", ordering_key=b"o", event_time=1, properties=[("p", "v")])
    records = [full] * valid + [Record(value=None)] + [full] * 9
    frames = []
    for entry, part in enumerate((records[: valid // 2], records[valid // 2 :], [Record(value=None)] * 2)):
        sent = encode_batch_entry(part, producer_name="p", sequence_id=entry, publish_time=TIME)
        frames.append(message_frame(sent.body, entry=entry))
    to, _ = scanner()
    assert feed(to, b"".join(frames)).rows == [row for frame in frames for row in oracle(frame)]


PLAIN = Record(value=b"v" * 20, key="key")
ODD = (
    Record(value=None),
    Record(value=b"no key"),
    Record(value=b"", key=""),
    Record(value=b"v", key="k" * 127),
    Record(value=b"v", key="k" * 128),
    Record(value=b"v" * 513, key="key"),
    Record(value=b"v" * 20_000, key="key"),
    Record(value=b"v", key="key", properties=[("p", "v")]),
    Record(value=b"v", key="key", event_time=7),
    Record(value=b"v", key="key", ordering_key=b"o"),
)


@pytest.mark.parametrize("columns", [None, {"key", "value"}, {"value"}, {"key", "batchIndex", "sequenceId"}])
@pytest.mark.parametrize("every", [1, 2, 9, 30])
@pytest.mark.parametrize("odd", ODD)
def test_odd_messages_among_plain_ones(odd: Record, every: int, columns: set[str] | None) -> None:
    """Plain ones have a way of their own; it is left and taken again within a batch, with numbers of any width."""
    records = [
        replace(odd if place % every == every - 1 else PLAIN, sequence_id=1 << place if place < 64 else None)
        for place in range(80)
    ]
    frames = []
    for entry in range(2):
        sent = encode_batch_entry(records[entry:], producer_name="p", sequence_id=3, publish_time=TIME)
        frames.append(message_frame(sent.body, entry=entry))
    to, _ = scanner(columns=None if columns is None else frozenset(columns))
    wanted = [row for frame in frames for row in oracle(frame)]
    names = [name for name in COLUMNS if columns is None or name in columns]
    assert feed(to, b"".join(frames)).rows == [{name: row[name] for name in names} for row in wanted]


def test_an_arena_that_grows_within_a_batch() -> None:
    records = [Record(value=b"v", key="k" if place > 16_000 else None, event_time=place % 2) for place in range(50_000)]
    frame = message_frame(encode_batch_entry(records, producer_name="p", sequence_id=0, publish_time=TIME).body)
    to, _ = scanner()
    assert feed(to, frame).rows == oracle(frame)


# --- protobuf as others write it


def test_fields_in_any_order_repeated_and_unknown() -> None:
    """The last of a repeated field wins; what is not known is skipped, groups included."""
    unknown = b"".join(
        (
            b"\xa0\x06\x01",  # 100, varint
            b"\xa1\x06" + bytes(8),  # 100, 8 bytes
            b"\xa2\x06\x03abc",  # 100, bytes
            b"\xa5\x06" + bytes(4),  # 100, 4 bytes
            b"\xa3\x06\x08\x01\xab\x06\xac\x06\x12\x01z\xa4\x06",  # 100, a group with a group in it
        )
    )
    single = unknown + b"\x40\x09" + b"\x12\x01a" + unknown + b"\x18\x05" + b"\x12\x01b" + b"\x18\x02" + unknown
    block = len(single).to_bytes(4, "big") + single + b"xy"
    metadata = (
        b"\x58\x09"
        + unknown
        + b"\x18\x01"
        + b"\x10\x07"
        + b"\x0a\x01q"
        + b"\x0a\x01p"
        + unknown
        + b"\x58\x01"
        + b"\x18\x02"
    )
    body = len(metadata).to_bytes(4, "big") + metadata + block
    frame = message_frame(body)
    to, _ = scanner()
    seen = feed(to, frame)
    assert seen.rows == oracle(frame)
    row = seen.rows[0]
    assert (row["key"], row["value"], row["sequenceId"], row["producer"], row["timestamp"]) == (
        b"b",
        b"xy",
        9,
        "p",
        2000,
    )


def test_numbers_in_more_bytes_than_they_need() -> None:
    single = b"\x18\x82\x80\x80\x00" + b"\x92\x80\x00\x01k"
    block = len(single).to_bytes(4, "big") + single + b"xy"
    metadata = (
        pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1).SerializeToString() + b"\x58\x81\x00"
    )
    frame = message_frame(len(metadata).to_bytes(4, "big") + metadata + block)
    to, _ = scanner()
    assert [(row["key"], row["value"]) for row in feed(to, frame).rows] == [(b"k", b"xy")]


def test_bytes_behind_the_last_message_make_a_dead_letter() -> None:
    block = encode_batch([Record(value=b"a")]) + b"rest"
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1, num_messages_in_batch=1)
    to, _ = scanner()
    seen = feed(to, message_frame(encode_payload(metadata, block)))
    assert seen.rows == []
    assert seen.dead_letters[0].payload.endswith(block)


def test_a_sequence_id_that_is_missing() -> None:
    block = b"\x00\x00\x00\x02\x18\x00" * 3
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=40, publish_time=1, num_messages_in_batch=3)
    to, _ = scanner()
    seen = feed(to, message_frame(encode_payload(metadata, block)))
    assert [row["sequenceId"] for row in seen.rows] == [40, 41, 42]


@pytest.mark.parametrize(
    ("milli", "micros", "unfit"),
    [
        (1, 1000, 0),
        (253402300799999 + 1, 253402300800000 * 1000, 0),  # the year 10,000
        (1_700_000_000_000_000, 1_700_000_000_000_000_000, 0),  # microseconds where milliseconds belong
        (LAST_MILLI, LAST_MILLI * 1000, 0),
        (LAST_MILLI + 1, LAST_MILLI * 1000, 2),
        ((1 << 63) - 1, LAST_MILLI * 1000, 2),
        ((1 << 64) - 1000, -1_000_000, 0),  # as Java reads the number
        (1 << 63, -LAST_MILLI * 1000, 2),
    ],
)
@pytest.mark.parametrize("batched", [False, True])
def test_times_land_as_they_are_or_are_counted(milli: int, micros: int, unfit: int, batched: bool) -> None:
    assert nearest_millis(milli) == micros
    record = Record(value=b"", event_time=milli)
    encode = partial(encode_batch_entry, [record]) if batched else partial(encode_single_entry, record)
    entry = encode(producer_name="p", sequence_id=0, publish_time=milli)
    to, _ = scanner()
    seen = feed(to, message_frame(entry.body))
    assert [(row["timestamp"], row["eventTime"]) for row in seen.rows] == [(micros, micros)]
    assert seen.unfit_times == unfit


# --- damage: all rows of an entry or none, and the columns go on


def damaged_blocks() -> list[tuple[str, bytes, int]]:
    """Batch blocks that end badly after good messages, with what they claim to hold."""
    rich = [
        Record(
            value=b"v" * place,
            key=f"k{place}",
            ordering_key=b"o",
            properties=[("a", "1"), ("b", "2")],
            event_time=place,
        )
        for place in range(1, 4)
    ]
    good = encode_batch(rich)
    return [
        ("one message too few", good, 4),
        ("a size beyond the block", good + b"\x00\x00\x00\x09\x18\x00", 4),
        ("a negative size", good + b"\xff\xff\xff\xff\x18\x00", 4),
        ("a value beyond the block", good + b"\x00\x00\x00\x02\x18\x05abcd", 4),
        ("a negative value size", good + b"\x00\x00\x00\x0b\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 4),
        ("no value size", good + b"\x00\x00\x00\x03\x12\x01k", 4),
        ("a property without a value", good + b"\x00\x00\x00\x07\x0a\x03\x0a\x01a\x18\x00", 4),
        ("a property without a key", good + b"\x00\x00\x00\x07\x0a\x03\x12\x01a\x18\x00", 4),
        ("a property cut off", good + b"\x00\x00\x00\x07\x0a\x03\x0a\x09a\x18\x00", 4),
        ("a key beyond its message", good + b"\x00\x00\x00\x05\x12\x09k\x18\x00", 4),
        ("a field of no type", good + b"\x00\x00\x00\x04\x0f\x00\x18\x00", 4),
        ("an endless number", good + b"\x00\x00\x00\x0c\x18" + b"\xff" * 11, 4),
        ("a group without an end", good + b"\x00\x00\x00\x04\x0b\x08\x01\x18", 4),
    ]


@pytest.mark.parametrize(
    ("block", "count"), [case[1:] for case in damaged_blocks()], ids=[case[0] for case in damaged_blocks()]
)
def test_a_damaged_batch_leaves_nothing_behind(block: bytes, count: int) -> None:
    good = encode_batch_entry(
        [Record(value=b"g", key="k", properties=[("x", "y")]), Record(value=None)],
        producer_name="p",
        sequence_id=0,
        publish_time=TIME,
    ).body
    metadata = pb.MessageMetadata(
        producer_name="bad", sequence_id=0, publish_time=TIME, num_messages_in_batch=count, schema_version=b"12345678"
    )
    bad = encode_payload(metadata, block)
    frames = [message_frame(body, entry=entry) for entry, body in enumerate([good, bad, good, bad, bad, good])]
    to, slots = scanner()
    seen = feed(to, b"".join(frames))
    assert seen.rows == [row for entry in (0, 2, 5) for row in oracle(frames[entry])]
    assert [letter.position.b for letter in seen.dead_letters] == [1, 3, 4]
    assert all(letter.reason.startswith("BatchDeSerializeError: ") for letter in seen.dead_letters)
    assert [letter.payload for letter in seen.dead_letters] == [bad] * 3
    assert [letter.rows for letter in seen.dead_letters] == [count] * 3
    assert slots.debited(CONSUMER) == 3 * 2 + 3 * count
    if block.endswith(b"\x00\x00\x00\x09\x18\x00"):
        assert seen.dead_letters[0].reason.endswith("length 9 is negative or beyond the frame")
    # Dead letters are covered like rows.
    assert [(span.end.b, span.rows) for span in seen.spans] == [(5, 6)]


def test_every_truncation_of_a_block_is_noticed() -> None:
    records = [
        Record(value=b"v" * place, key="k", ordering_key=b"o", properties=[("a", "1")], event_time=9)
        for place in range(4)
    ]
    block = encode_batch(records)
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=TIME, num_messages_in_batch=4)
    good = message_frame(encode_payload(metadata, block))
    to, slots = scanner()
    for cut in range(len(block)):
        seen = feed(to, message_frame(encode_payload(metadata, block[:cut])))
        assert ([len(seen.rows), len(seen.dead_letters)]) == [0, 1], cut
        slots.void_staged(CONSUMER)
    assert feed(to, good).rows == oracle(good)


def test_every_truncation_of_the_metadata_is_noticed() -> None:
    metadata = pb.MessageMetadata(
        producer_name="p",
        sequence_id=0,
        publish_time=TIME,
        properties=[pb.KeyValue(key="a", value="b")],
        partition_key="k",
        ordering_key=b"o",
        schema_version=b"s",
        event_time=5,
    ).SerializeToString()
    to, slots = scanner()
    for cut in range(len(metadata)):
        frame = message_frame(cut.to_bytes(4, "big") + metadata[:cut])
        seen = feed(to, frame)
        assert len(seen.rows) + len(seen.dead_letters) == 1
        if seen.rows:  # cut between two fields: the required ones stand first
            assert seen.rows == oracle(frame)
        slots.void_staged(CONSUMER)
        # Of a size that it does not have.
        seen = feed(to, message_frame(len(metadata).to_bytes(4, "big") + metadata[:cut]))
        assert (seen.rows, len(seen.dead_letters)) == ([], 1)
        slots.void_staged(CONSUMER)


@pytest.mark.parametrize("tail", range(10))
def test_a_frame_that_ends_in_its_headers(tail: int) -> None:
    whole = b"\x0e\x02\x00\x00\x00\x02\x08\x01\x0e\x01"
    to, _ = scanner()
    seen = feed(to, message_frame(whole[:tail]))
    assert (seen.rows, len(seen.dead_letters)) == ([], 1)


def test_text_that_is_no_utf8_is_a_dead_letter() -> None:
    for name in (b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82", b"aaaaaaa\x80"):
        metadata = b"\x0a%c%b\x10\x00\x18\x00" % (len(name), name)
        to, _ = scanner()
        seen = feed(to, message_frame(len(metadata).to_bytes(4, "big") + metadata + b"x"))
        assert (seen.rows, [letter.reason for letter in seen.dead_letters]) == (
            [],
            ["BatchDeSerializeError: the producer's name is not UTF-8"],
        )
        # Without the column nobody looks.
        to, _ = scanner(columns=frozenset({"value"}))
        assert len(feed(to, message_frame(len(metadata).to_bytes(4, "big") + metadata + b"x")).rows) == 1


@given(st.binary(max_size=24))
def test_utf8_is_what_python_says(text: bytes) -> None:
    metadata = b"\x0a%c%b\x10\x00\x18\x00" % (len(text), text)
    to, _ = scanner(columns=frozenset({"producer"}), buffer_bytes=1 << 16)
    seen = feed(to, message_frame(len(metadata).to_bytes(4, "big") + metadata))
    try:
        assert seen.rows == [{"producer": text.decode()}]
    except UnicodeDecodeError:
        assert (seen.rows, len(seen.dead_letters)) == ([], 1)


@given(st.binary(max_size=24))
def test_a_property_that_is_no_utf8_is_read_as_others_read_it(key: bytes) -> None:
    pair = b"\x0a%c%b\x12\x01v" % (len(key), key)
    metadata = b"\x0a\x01p\x10\x00\x18\x00\x22%c%b" % (len(pair), pair)
    to, _ = scanner(columns=frozenset({"headers"}), buffer_bytes=1 << 16)
    seen = feed(to, message_frame(len(metadata).to_bytes(4, "big") + metadata))
    assert seen.dead_letters == []
    assert seen.rows == [{"headers": [(key.decode(errors="replace"), b"v")]}]


# --- lazy views


def views(block: bytes, count: int) -> list[Message]:
    return list(MessageBatch(block, count))


@given(st.lists(ELEMENTS, max_size=8))
def test_views_say_what_the_block_holds(records: list[Record]) -> None:
    block = encode_batch(records, 100)
    messages = views(block, len(records))
    assert len(MessageBatch(block, len(records))) == len(records)
    metadata = pb.MessageMetadata(
        producer_name="p", sequence_id=100, publish_time=0, num_messages_in_batch=len(records)
    )
    rows = {row["batchIndex"]: row for row in oracle(message_frame(encode_payload(metadata, block)))}
    for index, (message, record) in enumerate(zip(messages, records, strict=True)):
        assert message.batch_index == index
        assert message.compacted_out == record.compacted_out
        assert message.value == record.value
        assert message.ordering_key == record.ordering_key
        assert message.properties == list(record.properties)
        assert message.event_time == record.event_time
        assert message.sequence_id == (100 + index if record.sequence_id is None else record.sequence_id)
        if not record.compacted_out:
            assert message.key == rows[index]["key"]


def test_a_view_keeps_the_buffer() -> None:
    block = bytearray(encode_batch([Record(value=b"one"), Record(value=b"two", key="k")]))
    first, second = MessageBatch(block, 2)
    with pytest.raises(BufferError):
        block.append(0)
    del first
    with pytest.raises(BufferError):
        block.append(0)
    assert (second.value, second.key) == (b"two", b"k")
    del second
    block.append(0)


def test_views_share_a_frame_and_can_be_iterated_again() -> None:
    frame = Frame(encode_batch([Record(value=b"x")] * 3))
    batch = MessageBatch(frame, 3)
    assert [m.value for m in batch] == [m.value for m in batch] == [b"x"] * 3
    assert batch.count == 3


def test_the_end_of_a_damaged_block_is_an_error_at_the_message() -> None:
    block = encode_batch([Record(value=b"x")] * 3)
    for cut in range(len(block)):
        iterator = iter(MessageBatch(block[:cut], 3))
        for _ in range(cut * 3 // len(block)):
            next(iterator)
        with pytest.raises(ProtocolError, match=f"message {cut * 3 // len(block)} of the batch at byte"):
            next(iterator)


def test_misuse_of_views() -> None:
    with pytest.raises(ValueError, match="negative"):
        MessageBatch(b"", -1)
    with pytest.raises(TypeError):
        MessageBatch("text", 1)  # type: ignore[arg-type]
    assert views(b"", 0) == []
    bare = Message()
    assert (bare.value, bare.key, bare.properties, bare.ordering_key) == (b"", None, [], None)


def test_property_text_that_is_no_utf8_is_shown_as_it_can_be() -> None:
    single = b"\x18\x00\x0a\x05\x0a\x01\xff\x12\x00"
    (message,) = views(len(single).to_bytes(4, "big") + single, 1)
    assert message.properties == [("\ufffd", "")]


def test_a_damaged_property_of_a_view() -> None:
    single = b"\x18\x00\x0a\x03\x0a\x09a"
    (message,) = views(len(single).to_bytes(4, "big") + single, 1)
    with pytest.raises(ProtocolError, match="KeyValue"):
        _ = message.properties


SOURCES: dict[str, Callable[[bytes], Any]] = {
    "bytes": bytes,
    "bytearray": bytearray,
    "memoryview": memoryview,
    "arrow": pa.py_buffer,
}


@pytest.mark.parametrize("source", SOURCES)
def test_views_over_any_buffer(source: str) -> None:
    block = encode_batch([Record(value=encode_varint(5))])
    (message,) = MessageBatch(SOURCES[source](block), 1)
    assert message.value == b"\x05"
