"""The message before the position: what has landed is compared with what the leader has there now."""

from dataclasses import replace

import pytest

from fastwire.position import Position
from fastwire.tank.format.error import PartitionStatus
from fastwire.tank.format.message import MessageType, encode_frame
from fastwire.tank.producing.bundle import Message, encode_bundle, encode_values
from fastwire.tank.protocol.consume import PartitionAnswer, encode_consume_answer
from tests.fastwire.tank.test_scan import T, answer, chunk_of, reading, values
from tests.support.tank.golden import Reading

SHAPES = {
    "plain": [Message(value=b"v%d" % at * 20, timestamp=T + at) for at in range(1, 6)],
    "one time": [Message(value=b"v%d" % at * 20, timestamp=T) for at in range(1, 6)],
    "keys": [Message(value=b"v%d" % at, key=b"k%d" % at, timestamp=T + at) for at in range(1, 6)],
    "some keys": [Message(value=b"v%d" % at, key=b"k" if at % 2 else None, timestamp=T) for at in range(1, 6)],
    "empty": [Message(value=b"", timestamp=T + at) for at in range(1, 6)],
}


def numbered(messages: list[Message]) -> list[Message]:
    return [replace(one, sequence=at) for at, one in enumerate(messages, 1)]


def looking_back(witness: int | None, *bundles: bytes, sequence: int = 6, status: int = 0, base: int = 5) -> Reading:
    """Read bundles from the message before ``sequence`` on, which has landed."""
    one = reading(sequence)
    one.slots.attach(0, Position(sequence, 0), 1, witness)
    assert one.slots.fetch_sequence(0) == sequence - 1
    one.read(answer(chunk_of(*bundles), base=base, status=status))
    return one


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_message_before_the_position_is_compared(shape: str, compress: bool) -> None:
    messages = SHAPES[shape]
    first = reading()
    first.read(answer(chunk_of(encode_bundle(messages, compress=compress))))
    witness = first.spans[0].witness
    assert witness is not None
    # It is known by its time, key and value, whatever bundle it is in.
    alone = encode_bundle(messages[-1:], compress=compress)
    sparse = encode_bundle(numbered(messages)[-1:], sparse=True)
    more = encode_values([b"more"], T)
    for bundles, base in (((encode_bundle(messages), more), 1), ((alone, more), 5), ((sparse, more), -1)):
        status = PartitionStatus.OK if base > 0 else PartitionStatus.OK_SPARSE
        one = looking_back(witness, *bundles, base=max(base, 0), status=status)
        assert (one.corrupt, [row["value"] for row in one.rows]) == ([], [b"more"])
        assert one.slots.fetch_sequence(0) == 7
    last = messages[-1]
    for other in (
        replace(last, value=last.value + b"."), replace(last, key=b"other"), replace(last, timestamp=T - 1),
    ):  # fmt: skip
        one = looking_back(witness, encode_bundle([other], compress=compress), more)
        assert one.rows == []
        (found,) = one.corrupt
        assert (found.position, found.replaced) == (Position(6, 0), True)


def test_what_is_compared_and_followed_by_nothing_is_no_lack_of_progress() -> None:
    first = reading()
    first.read(answer(chunk_of(encode_values(values(5), T))))
    one = looking_back(first.spans[0].witness, encode_values(values(5)[-1:], T))
    assert (one.corrupt, one.rows, one.slots.result(0).stuck) == ([], [], False)


def test_a_message_that_a_compaction_has_removed_is_not_compared() -> None:
    later = encode_bundle([Message(value=b"later", sequence=9)], sparse=True)
    one = looking_back(1, later, status=PartitionStatus.OK_SPARSE, base=0)
    assert (one.corrupt, [row["offset"] for row in one.rows]) == ([], [9])
    hole = encode_bundle([Message(value=b"a", sequence=4), Message(value=b"b", sequence=7)], sparse=True)
    one = looking_back(1, hole, status=PartitionStatus.OK_SPARSE, base=0)
    assert (one.corrupt, [row["offset"] for row in one.rows]) == ([], [7])


def test_a_damaged_bundle_that_has_landed_becomes_no_dead_letter_again() -> None:
    damaged = b"\x09" + b"\xff" * 30  # two messages, and no snappy
    one = looking_back(1, damaged, encode_values([b"a"], T), base=4)
    assert (one.corrupt, one.dead_letters, [row["offset"] for row in one.rows]) == ([], [], [6])


def test_a_span_that_ends_within_a_bundle_is_known_by_its_own_last_message() -> None:
    bundle = encode_values(values(5), T)
    first = reading()
    first.read(answer(chunk_of(bundle), high_watermark=3))
    (span,) = first.spans
    assert span.end == Position(4, 0)
    one = looking_back(span.witness, bundle, sequence=4, base=1)
    assert (one.corrupt, [row["offset"] for row in one.rows]) == ([], [4, 5])


def test_a_dead_letter_at_the_end_of_a_span_leaves_no_witness() -> None:
    first = reading()
    first.read(answer(chunk_of(encode_values(values(2), T), b"\x09" + b"\xff" * 30)))
    assert [(span.end, span.witness) for span in first.spans] == [(Position(5, 0), None)]


def test_a_running_reader_compares_what_it_has_read_itself() -> None:
    one = reading()
    one.read(answer(chunk_of(encode_values(values(3), T))))
    one.slots.look_back(0)
    assert one.slots.fetch_sequence(0) == 3
    one.read(answer(chunk_of(encode_values([b"other", b"more"], T)), base=3))
    assert ([found.replaced for found in one.corrupt], len(one.rows)) == ([True], 3)


def test_a_position_before_the_log_is_not_compared() -> None:
    one = reading(6)
    one.slots.attach(0, Position(6, 0), 1, 1)
    part = PartitionAnswer(0, PartitionStatus.BOUNDARY, 1, 9, b"", first=6)
    one.read(encode_frame(MessageType.CONSUME, encode_consume_answer(1, [("t", 1, [part])])))
    assert one.slots.fetch_sequence(0) == 6
