"""Consume answers to rows: cut anywhere, damaged anywhere, and every shape of a bundle."""

import random
from datetime import timedelta
from struct import pack

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastwire.errors import ProtocolError
from fastwire.position import Position
from fastwire.reason import Reason
from fastwire.tank.format.error import PartitionStatus
from fastwire.tank.format.message import MessageType, encode_frame
from fastwire.tank.producing.bundle import Message, encode_bundle, encode_time, encode_values, read_head, read_messages
from fastwire.tank.protocol.consume import PartitionAnswer, encode_consume_answer
from fastwire.wire.pool import Pool
from fastwire.wire.writer import encode_varint
from tests.support.tank.golden import Reading, asked_by, described, names, response
from tests.support.times import EPOCH, LAST_MILLI, micros_of

T = 1_700_000_000_000
CONSUME = [name for name in names("consume") if not name.startswith("bad_")]
SMALL = [name for name in CONSUME if len(response(name)) < 1000]


def chunk_of(*bundles: bytes) -> bytes:
    return b"".join(encode_varint(len(bundle)) + bundle for bundle in bundles)


def answer(
    chunk: bytes, *, base: int = 1, high_watermark: int = 1 << 40, status: int = 0, request_id: int = 1
) -> bytes:
    part = PartitionAnswer(0, status, base, high_watermark, chunk)
    return encode_frame(MessageType.CONSUME, encode_consume_answer(request_id, [("t", 1, [part])]))


def reading(sequence: int = 1, **settings: object) -> Reading:
    return Reading({("t", 0): sequence}, **settings)  # type: ignore[arg-type]


def values(count: int, size: int = 10) -> list[bytes]:
    return [str(number).encode().rjust(size, b".") for number in range(count)]


@pytest.mark.parametrize("name", SMALL)
def test_every_cut_gives_the_same(name: str) -> None:
    frame = response(name)
    asked = asked_by(described(name))
    whole = Reading(asked)
    whole.read(frame)
    for cut in range(1, len(frame)):
        cut_reading = Reading(asked)
        cut_reading.read(frame, [cut])
        assert (cut_reading.rows, cut_reading.fetched) == (whole.rows, whole.fetched), cut
    bytewise = Reading(asked)
    bytewise.read(frame, range(1, len(frame)))
    assert (bytewise.rows, bytewise.fetched) == (whole.rows, whole.fetched)
    assert [one for one in bytewise.spans if one.rows] == [one for one in whole.spans if one.rows]


@pytest.mark.parametrize("name", ["consume_all_plain", "consume_snappy", "consume_1mib_plain", "consume_sparse_snappy"])
def test_larger_answers_in_pieces(name: str) -> None:
    frame = response(name)
    asked = asked_by(described(name))
    whole = Reading(asked)
    whole.read(frame)
    for step in (997, 4096, 65_537):
        cut_reading = Reading(asked, buffer_bytes=1 << 16)
        cut_reading.read(frame, range(step, len(frame), step))
        assert cut_reading.rows == whole.rows


@pytest.mark.parametrize("name", SMALL)
def test_truncated_answers_are_protocol_errors(name: str) -> None:
    """With the length of the frame corrected: every shorter payload contradicts its own header."""
    frame = response(name)
    for size in range(5, len(frame)):
        cut = b"\x02" + pack("<I", size - 5) + frame[5:size]
        with pytest.raises(ProtocolError) as caught:
            Reading(asked_by(described(name))).read(cut + bytes(16))
        assert caught.value.offset >= 0, caught.value


def test_mutated_answers_give_rows_letters_or_protocol_errors() -> None:
    dice = random.Random(14)
    sources = [(response(name), asked_by(described(name))) for name in SMALL]
    pool = Pool(1 << 28)
    outcomes = {"rows": 0, "letters": 0, "corrupt": 0, "errors": 0}
    for _ in range(4000):
        source, asked = dice.choice(sources)
        frame = bytearray(source)
        for _ in range(dice.randint(1, 4)):
            frame[dice.randrange(5, len(frame))] = dice.choice((0, 1, 0x40, 0x7F, 0x80, 0xFF, dice.randrange(256)))
        one = Reading(asked, pool=pool)
        try:
            one.read(bytes(frame))
        except ProtocolError:
            outcomes["errors"] += 1
        outcomes["rows"] += bool(one.rows)
        outcomes["letters"] += bool(one.dead_letters)
        outcomes["corrupt"] += bool(one.corrupt)
        for key, index in one.index.items():
            position = one.slots.position(index).a
            rows = [row["offset"] for row in one.of(*key)]
            assert rows == sorted(set(rows))
            assert all(asked[key] <= sequence < position for sequence in rows)
    assert min(outcomes.values()) > 20, outcomes


# --- shapes of bundles


@pytest.mark.parametrize("count", [1, 2, 15, 16, 127, 128, 16_383, 16_384, 20_000])
@pytest.mark.parametrize("compress", [False, True])
def test_counts(count: int, compress: bool) -> None:
    one = reading()
    rows = one.read(answer(chunk_of(encode_values(values(count), T, compress=compress))))
    assert [row["offset"] for row in rows] == list(range(1, count + 1))
    assert [row["value"] for row in rows] == values(count)
    assert {row["timestamp"].timestamp() for row in rows} == {T / 1000}
    assert {(row["key"], row["headers"], row["timestampType"]) for row in rows} == {(None, None, 0)}
    assert one.slots.position(0) == Position(count + 1, 0) == one.spans[-1].end


def test_a_count_of_one_to_fifteen_may_be_a_varint() -> None:
    bundle = encode_values(values(3), T, compress=False)
    one = reading()
    rows = one.read(answer(chunk_of(b"\x00\x83\x00" + bundle[1:])))
    assert [row["value"] for row in rows] == values(3)


messages = st.lists(
    st.builds(
        lambda value, key, timestamp: Message(value=value, key=key, timestamp=timestamp),
        st.one_of(st.binary(max_size=40), st.sampled_from([b"", b"x" * 127, b"x" * 128, b"x" * 16_384])),
        st.one_of(st.none(), st.binary(max_size=255)),
        st.sampled_from([0, T, T + 1, T - 5]),
    ),
    min_size=1,
    max_size=40,
)


@settings(max_examples=150, deadline=None)
@given(
    messages, st.booleans(), st.lists(st.integers(0, 300), min_size=40, max_size=40), st.booleans(), st.integers(0, 60)
)
def test_any_bundle(written: list[Message], compress: bool, gaps: list[int], sparse: bool, drop: int) -> None:
    sequence = 7
    numbered = []
    for message, gap in zip(written, gaps, strict=False):
        numbered.append(Message(value=message.value, key=message.key, timestamp=message.timestamp, sequence=sequence))
        sequence += 1 + (gap // 100 * gap if sparse else 0)
    bundle = encode_bundle(numbered, compress=compress, sparse=sparse)
    assert read_messages(bundle, read_head(bundle, 0, len(bundle), 7)) == numbered
    one = reading(7 + drop)
    rows = one.read(answer(chunk_of(bundle), base=7))
    wanted = [message for message in numbered if message.sequence >= 7 + drop]
    assert [(row["offset"], row["value"], row["key"]) for row in rows] == [
        (message.sequence, message.value, message.key) for message in wanted
    ]
    assert [row["timestamp"].timestamp() for row in rows] == [message.timestamp / 1000 for message in wanted]
    assert one.dead_letters == []
    assert one.slots.position(0).a == max(numbered[-1].sequence + 1, 7 + drop)
    bytewise = reading(7 + drop)
    assert bytewise.read(answer(chunk_of(bundle), base=7), range(1, 40)) == rows


@pytest.mark.parametrize("rows", [1, 30])
@pytest.mark.parametrize(
    ("number", "micros", "unfit"),
    [
        (253402300799999, 253402300799999_000, 0),  # the end of the year 9999
        (253402300800000, 253402300800000, 0),  # in 1978: larger numbers are microseconds
        (1_700_000_000_000_001, 1_700_000_000_000_001, 0),
        (253402300799999_001, 253402300799999_001, 0),
        ((1 << 63) - 1, (1 << 63) - 1, 0),
        ((1 << 64) - 1000, -1_000_000, 0),  # milliseconds before 1970
        (1 << 63, -LAST_MILLI * 1000, 1),
    ],
)
def test_times_land_as_they_are_or_are_counted(number: int, micros: int, unfit: int, rows: int) -> None:
    one = reading()
    found = one.read(answer(chunk_of(encode_bundle([Message(value=b"", timestamp=number)] * rows))))
    assert [micros_of(row["timestamp"]) for row in found] == [micros] * rows
    assert one.unfit_times == unfit


def test_the_largest_number_is_no_time() -> None:
    bundle = encode_bundle([Message(value=b"", timestamp=time) for time in ((1 << 64) - 1, 0)])
    assert [row["timestamp"] for row in reading().read(answer(chunk_of(bundle)))] == [None, EPOCH]


def test_milliseconds_are_written_so_that_they_are_read() -> None:
    times = [0, 1, -1000, 253402300799999, 253402300800000, LAST_MILLI, -LAST_MILLI]
    bundle = encode_bundle([Message(value=b"", timestamp=encode_time(time)) for time in times])
    rows = reading().read(answer(chunk_of(bundle)))
    assert [micros_of(row["timestamp"]) for row in rows] == [time * 1000 for time in times]
    with pytest.raises(ValueError, match="a time of 9223372036854776 ms: TANK has room for 63 bits"):
        encode_time(LAST_MILLI + 1)


def test_a_first_message_without_a_timestamp_is_of_1970() -> None:
    rows = reading().read(answer(chunk_of(b"\x04\x02\x01a")))
    assert [row["timestamp"].timestamp() for row in rows] == [0]


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("keys", [None, b"k"])
def test_the_last_message_of_a_bundle_may_have_the_time_of_the_one_before(compress: bool, keys: bytes | None) -> None:
    """The messages before it are walked by the loop for plain ones, which has to leave their time."""
    times = [T, T, T + 1, T + 2, T + 2]
    sent = [Message(timestamp=time, key=keys, value=b"x" * 40) for time in times]
    read = reading()
    read.read(answer(chunk_of(encode_bundle(sent, compress=compress))))
    assert [(row["timestamp"] - EPOCH) // timedelta(milliseconds=1) for row in read.rows] == times


def test_sparse_bundles_number_the_next_one() -> None:
    sparse = encode_bundle([Message(value=b"a", sequence=5), Message(value=b"b", sequence=9)], sparse=True)
    plain = encode_values([b"c", b"d"], T)
    one = reading(0)
    rows = one.read(answer(chunk_of(sparse, plain), status=PartitionStatus.OK_SPARSE))
    assert [row["offset"] for row in rows] == [5, 9, 10, 11]
    assert one.spans[0].start == Position(0, 0)
    assert one.slots.position(0).a == 12


def test_a_sequence_in_the_hole_after_a_sparse_bundle_is_not_passed_over() -> None:
    sparse = encode_bundle([Message(value=b"a", sequence=5), Message(value=b"b", sequence=9)], sparse=True)
    one = reading(6)
    assert [row["offset"] for row in one.read(answer(chunk_of(sparse)))] == [9]
    assert one.slots.position(0).a == 10


def test_bundles_below_the_position_are_not_decompressed() -> None:
    """They may even be damaged: all that is read of them is the header."""
    below = b"\x09" + b"\xff" * 30
    one = reading(3)
    rows = one.read(answer(chunk_of(below, encode_values([b"a"], T))))
    assert [row["offset"] for row in rows] == [3]
    assert one.dead_letters == []


def test_messages_after_the_high_watermark_are_read_later() -> None:
    bundle = encode_values(values(10), T)
    for compress in (False, True):
        bundle = encode_values(values(10), T, compress=compress)
        one = reading()
        rows = one.read(answer(chunk_of(bundle, bundle), high_watermark=4))
        assert [row["offset"] for row in rows] == [1, 2, 3, 4]
        assert one.slots.position(0).a == 5
        rows = one.read(answer(chunk_of(bundle, bundle), high_watermark=12))
        assert [row["offset"] for row in rows] == list(range(1, 13))
        assert one.slots.result(0).stuck is False


@pytest.mark.parametrize("compress", [False, True])
def test_a_high_watermark_below_the_position_does_not_move_it_back(compress: bool) -> None:
    """A new leader may not know yet how far its log is committed; what was read before must not come again."""
    bundle = encode_values(values(10), T, compress=compress)
    one = reading(7)
    assert one.read(answer(chunk_of(bundle, bundle), high_watermark=4)) == []
    assert one.slots.position(0).a == 7
    assert (one.spans, one.slots.result(0).stuck) == ([], True)
    assert [row["offset"] for row in one.read(answer(chunk_of(bundle, bundle), high_watermark=8))] == [7, 8]


def test_no_progress_is_reported() -> None:
    one = reading(50)
    one.read(answer(chunk_of(encode_values(values(3), T))))
    assert one.slots.result(0).stuck
    assert one.slots.position(0).a == 50
    one.read(answer(b"", base=0))
    assert not one.slots.result(0).stuck


def test_complete_bundles_are_decoded_while_the_answer_comes() -> None:
    bundles = [encode_values(values(100, 100), T, compress=False) for _ in range(50)]
    frame = answer(chunk_of(*bundles))
    one = reading(buffer_bytes=1 << 16)
    one.plan(1)
    one.feed(frame[: len(frame) // 2])
    assert one.scanner.open_rows + len(one.rows) >= 2400
    assert one.scanner.buffered < len(bundles[0]) + 10
    one.feed(frame[len(frame) // 2 :])
    one.take()
    assert len(one.rows) == 5000


# --- what is damaged or too large


def damaged(bundle: bytes, reason: Reason, *, base: int = 1, rows_after: int = 2) -> None:
    """``bundle`` is a dead letter of as many messages as its header announces, and the one after it is read."""
    sound = encode_values([b"sound"] * 2, T)
    one = reading()
    rows = one.read(answer(chunk_of(bundle, sound), base=base))
    (letter,) = one.dead_letters
    assert (letter.damage, letter.payload, letter.start) == (reason, bundle, Position(1, 0))
    assert letter.rows == read_head(bundle, 0, len(bundle), base).count
    assert [row["value"] for row in rows] == [b"sound"] * rows_after
    assert rows[0]["offset"] == letter.position.a
    assert one.corrupt == []
    stopped = reading(on_corrupt="stop")
    assert stopped.read(answer(chunk_of(bundle, sound), base=base)) == []
    (corrupt,) = stopped.corrupt
    assert (corrupt.index, corrupt.position, corrupt.reason) == (0, Position(1, 0), reason)
    assert stopped.slots.session(0) == 0
    assert len(stopped.fetched) == 1


PLAIN = encode_values(values(3), T, compress=False)


@pytest.mark.parametrize(
    "bundle",
    [
        bytes((PLAIN[0] | 2,)) + PLAIN[1:],
        bytes((PLAIN[0] | 3,)) + PLAIN[1:],
        bytes((PLAIN[0] | 0x80,)) + PLAIN[1:],
        PLAIN[:-1],
        PLAIN + b"\0",
        bytes((4 << 2,)) + PLAIN[1:],
        bytes((2 << 2,)) + PLAIN[1:],
        PLAIN[:-11] + b"\x8a\x80\x80\x80\x80\x00" + PLAIN[-10:],
        b"\x04\x01",
        b"\x04\x03\xff",
    ],
    ids=["codec 2", "codec 3", "bit 7", "cut", "surplus", "more", "fewer", "long varint", "no time", "no key"],
)
def test_damaged_bundles(bundle: bytes) -> None:
    damaged(bundle, Reason.MESSAGE)


def test_damaged_sparse_bundles() -> None:
    three = [Message(value=b"a", sequence=2), Message(value=b"b", sequence=5), Message(value=b"c", sequence=9)]
    bundle = bytearray(encode_bundle(three, sparse=True))
    at = bundle.index(b"a") + 2
    assert bundle[at] == 2  # 2 + 2 + 1 = 5
    bundle[at] = 6  # 9, which is the last one's
    damaged(bytes(bundle), Reason.MESSAGE)


def test_snappy_that_announces_too_much() -> None:
    bomb = b"\x05" + encode_varint(1 << 31) + b"\0" * 100
    damaged(bomb, Reason.SIZE)
    damaged(b"\x05" + b"\xff" * 20, Reason.SIZE)
    damaged(b"\x05" + encode_varint(100) + b"\xff" * 50, Reason.DECOMPRESSION)


def test_bombs_stay_within_the_budget() -> None:
    pool = Pool(1 << 27)
    block = bytes(cramjam.snappy.compress_raw(b"\x02\x00" * (6 << 20)))  # 12 MiB of empty messages
    bomb = b"\x01" + encode_varint(6 << 20) + block
    one = reading(pool=pool)
    one.read(answer(chunk_of(bomb)))
    (letter,) = one.dead_letters
    assert letter.damage == Reason.TOO_LARGE
    large = b"\x05" + encode_varint(20 << 20) + bytes(1 << 20)
    one = reading(pool=pool)
    one.read(answer(chunk_of(large)))
    (letter,) = one.dead_letters
    assert letter.damage == Reason.TOO_LARGE
    assert pool.peak <= 1 << 27


def test_a_bundle_that_is_larger_than_the_buffer_may_be_detaches_its_partition() -> None:
    pool = Pool(1 << 24)
    one = reading(pool=pool)
    frame = answer(chunk_of(encode_values([b"x" * (9 << 20)], T, compress=False), encode_values([b"a"], T)))
    assert one.read(frame) == []
    (corrupt,) = one.corrupt
    assert corrupt.reason == Reason.TOO_LARGE
    assert "daemon.memory" in corrupt.detail
    assert len(one.fetched) == 1


@pytest.mark.parametrize(
    ("chunk", "status"),
    [
        (b"\x80\x80\x80\x80\x80\x00" + PLAIN, 0),
        (b"\xff\xff\xff\xff\x7f" + PLAIN, 0),
        (chunk_of(b"\x00\x00" + PLAIN[1:]), 0),
        (chunk_of(b"\x00"), 0),
        (chunk_of(b""), 0),
        (chunk_of(PLAIN), PartitionStatus.OK_SPARSE),
        (chunk_of(b"\x48" + b"\xff" * 9 + PLAIN), 0),
        (chunk_of(b"\x48\x01"), 0),
    ],
    ids=["six bytes", "no u32", "no count", "cut count", "empty", "no base", "sequence of 2^64", "cut header"],
)
@pytest.mark.parametrize("on_corrupt", ["dead_letter", "stop"])
def test_bundles_without_sequences_detach_their_partition(chunk: bytes, status: int, on_corrupt: str) -> None:
    one = reading(on_corrupt=on_corrupt)
    assert one.read(answer(chunk, status=status)) == []
    assert [corrupt.position for corrupt in one.corrupt] == [Position(1, 0)]
    assert one.dead_letters == []
    assert one.slots.session(0) == 0
    assert len(one.fetched) == 1
    one.slots.attach(0, Position(1, 0), 1)
    assert len(one.read(answer(chunk_of(PLAIN), request_id=2))) == 3


# --- answers


def test_other_partitions_do_not_suffer() -> None:
    parts = [
        PartitionAnswer(0, 0, 1, 99, chunk_of(b"")),
        PartitionAnswer(1, 0, 1, 99, chunk_of(PLAIN)),
        PartitionAnswer(2, PartitionStatus.NO_LEADER),
    ]
    frame = encode_frame(2, encode_consume_answer(1, [("t", 3, parts)]))
    one = Reading({("t", 0): 1, ("t", 1): 1, ("t", 2): 1})
    assert [row["partition"] for row in one.read(frame)] == [1] * 3
    assert len(one.corrupt) == 1
    assert one.slots.result(2).status == PartitionStatus.NO_LEADER
    assert one.fetched[0].answered == (0, 1, 2)


def test_answers_to_requests_given_up_are_passed_over() -> None:
    one = reading()
    one.feed(answer(chunk_of(PLAIN), request_id=99), range(1, 60))
    assert (one.rows, one.fetched) == ([], [])
    assert len(one.read(answer(chunk_of(PLAIN)))) == 3


def test_partitions_that_nobody_asked_for_are_counted() -> None:
    one = reading()
    one.plan(1)
    parts = [PartitionAnswer(5, 0, 1, 99, chunk_of(PLAIN)), PartitionAnswer(0, 0, 1, 99, chunk_of(PLAIN))]
    one.feed(encode_frame(2, encode_consume_answer(1, [("t", 2, parts), ("u", 1, None)])))
    one.take()
    assert (one.fetched[0].unknown, one.fetched[0].answered) == (1, (0,))
    assert len(one.rows) == 3


def test_a_partition_that_was_given_up_gets_nothing() -> None:
    one = reading()
    one.plan(1)
    one.slots.attach(0, Position(1, 0), 2)
    one.feed(answer(chunk_of(PLAIN)))
    one.take()
    assert (one.rows, one.fetched[0].answered) == ([], ())


def test_limited_rows_end_with_a_bundle() -> None:
    one = reading()
    one.slots.limit_rows(4)
    rows = one.read(answer(chunk_of(PLAIN, PLAIN, PLAIN)))
    assert len(rows) == 6
    assert one.slots.position(0).a == 7


def test_a_chunk_ends_before_it_is_too_large() -> None:
    one = reading()
    one.read(answer(chunk_of(*(encode_values(values(50, 8000), T, compress=False) for _ in range(12)))))
    assert [(span.start.a, span.end.a) for span in one.spans] == [(1, 501), (501, 601)]


def test_columns_that_nobody_wants() -> None:
    mixed = [Message(value=b"v", key=b"k" if place % 2 else None, timestamp=T + place) for place in range(20)]
    for columns in ({"offset"}, {"key", "value"}, {"value", "topic", "timestamp"}, {"partition"}):
        one = reading(columns=frozenset(columns))
        rows = one.read(answer(chunk_of(encode_bundle(mixed), PLAIN)))
        assert len(rows) == 23
        assert set(rows[0]) == columns


@pytest.mark.parametrize(
    ("frame", "what"),
    [
        (b"\x04\0\0\0\0", "message type"),
        (b"\x09\0\0\0\0", "message type"),
        (b"\x7f\0\0\0\0", "message type"),
        (b"\x02\x08\0\0\0" + bytes(8), "payload length"),
        (b"\x02\xff\xff\xff\xff" + b"\xff\xff\xff\x7f" + bytes(4), "header length"),
        (b"\x02\x20\0\0\0" + b"\x21\0\0\0" + bytes(4), "header length"),
        (b"\x0b\xff\xff\xff\xff", "payload length"),
        (b"\x02\x0d\0\0\0" + b"\x09\0\0\0\x01\0\0\0\0" + bytes(4), "header length"),
    ],
)  # fmt: skip
def test_frames_that_are_none(frame: bytes, what: str) -> None:
    one = reading()
    one.plan(1)
    with pytest.raises(ProtocolError, match=what):
        one.feed(frame)


def test_unknown_flags_of_a_partition() -> None:
    frame = bytearray(answer(b""))
    frame[9 + 4 + 1 + 2 + 1 + 2] = 0x33
    with pytest.raises(ProtocolError, match="partition flags at byte 19: 0x33 of partition 0"):
        reading().read(bytes(frame))
