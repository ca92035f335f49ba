"""The record before the position says whether a log is still the one that was read (spec: kafka 13)."""

import random
from dataclasses import replace
from typing import Any

import pytest

from fastwire.kafka.producing.payload import Compression, Record, encode_batch
from fastwire.position import Position
from tests.fastwire.kafka.test_damage import FIRST, LOGS, damaged, single, value, wrapper
from tests.support.kafka.golden import Reading, StoredLog, fetch_response
from tests.support.kafka.markers import encode_marker

T = 1_700_000_000_000
RECORDS = [Record(key=b"k", value=b"row %d" % row, timestamp=T + row) for row in range(5)]
SHAPES = {
    "plain": RECORDS,
    "null key": [replace(one, key=None) for one in RECORDS],
    "tombstone": [*RECORDS[:4], replace(RECORDS[4], value=None)],
    "headers": [replace(one, headers=(("h", b"v"),)) for one in RECORDS],
    "one": RECORDS[:1],
}
MORE = encode_batch([Record(value=b"more", timestamp=T)], base_offset=5)


def marker(offset: int) -> bytes:
    return encode_marker(commit=True, producer_id=7, producer_epoch=0, timestamp=T, base_offset=offset)


def witness_of(*batches: bytes) -> int:
    reading = Reading()
    reading.read(fetch_response(b"".join(batches)))
    (span,) = reading.spans
    assert span.witness is not None
    return span.witness


def looking_back(
    witness: int | None, *batches: bytes, offset: int = 5, committed: bool = False, **more: Any
) -> Reading:
    """Read batches from the record before ``offset`` on, which has landed."""
    one = Reading(committed=committed)
    one.slots.attach(0, Position(offset, 0), 1, witness)
    assert one.slots.fetch_offset(0) == offset - (witness is not None)
    one.read(fetch_response(b"".join(batches), **more))
    return one


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.GZIP, Compression.LZ4])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_record_before_the_position_is_compared(shape: str, compression: Compression) -> None:
    records = SHAPES[shape]
    end = len(records)
    more = encode_batch([Record(value=b"more", timestamp=T)], base_offset=end)
    witness = witness_of(encode_batch(records, compression=compression))
    last = records[-1]
    # It is known by its time, key and value, whatever batch it is in.
    for same in (encode_batch(records), encode_batch([last], base_offset=end - 1, compression=compression)):
        one = looking_back(witness, same, more, offset=end)
        assert (one.corrupt, one.dead_letters, [row["value"] for row in one.rows]) == ([], [], [b"more"])
        assert one.slots.fetch_offset(0) == end + 1
    others = [
        replace(last, value=b"another"), replace(last, value=b""), replace(last, key=b"other"), replace(last, key=b""),
        replace(last, timestamp=T - 1),
    ]  # fmt: skip
    for other in others:
        one = looking_back(witness, encode_batch([*records[:-1], other], compression=compression), more, offset=end)
        assert one.rows == []
        (found,) = one.corrupt
        assert (found.position.a, found.replaced) == (end, True), other


def test_a_position_within_a_batch() -> None:
    first = Reading()
    first.slots.end_at(0, 3)
    first.read(fetch_response(encode_batch(RECORDS)))
    assert [(span.end.a, span.witness) for span in first.spans] == [(3, None)]
    witness = witness_of(encode_batch(RECORDS[:3]))
    one = looking_back(witness, encode_batch(RECORDS), MORE, offset=3)
    assert (one.corrupt, one.rows, one.slots.fetch_offset(0)) == ([], [], 3)  # they are requested from there
    one.read(fetch_response(encode_batch(RECORDS) + MORE, correlation_id=2))
    assert (one.corrupt, [row["offset"] for row in one.rows]) == ([], [3, 4, 5])
    other = [*RECORDS[:2], replace(RECORDS[2], value=b"another"), *RECORDS[3:]]
    assert [one.replaced for one in looking_back(witness, encode_batch(other), offset=3).corrupt] == [True]


def test_a_record_that_a_compaction_has_removed_is_not_compared() -> None:
    """The batches that come are requested again from the position on: a first offset may lie."""
    for there in (MORE, encode_batch(RECORDS[:3]) + MORE):
        one = looking_back(1, there)
        assert (one.corrupt, one.rows, one.slots.fetch_offset(0)) == ([], [], 5)
        one.read(fetch_response(MORE, correlation_id=2))
        assert (one.corrupt, [row["offset"] for row in one.rows]) == ([], [5])


def test_damage_before_the_position_becomes_no_dead_letter_again() -> None:
    damaged = bytearray(encode_batch(RECORDS))
    damaged[-1] ^= 1
    one = looking_back(1, bytes(damaged), MORE)
    assert (one.corrupt, one.dead_letters, one.rows) == ([], [], [])
    assert one.slots.fetch_offset(0) == 5  # the next request begins at the position
    one.read(fetch_response(MORE, correlation_id=2))
    assert (one.dead_letters, [row["offset"] for row in one.rows]) == ([], [5])
    torn = looking_back(1, bytes(damaged[:-5]))
    assert (torn.corrupt, torn.dead_letters, torn.slots.fetch_offset(0)) == ([], [], 5)


def test_an_overlap_with_the_next_batch_is_damage_and_no_other_log() -> None:
    witness = witness_of(encode_batch(RECORDS))
    flipped = encode_batch(RECORDS, base_offset=1)
    one = looking_back(witness, flipped, MORE)
    assert not any(found.replaced for found in one.corrupt)


def test_the_marker_of_another_log_is_another_record() -> None:
    one = looking_back(witness_of(encode_batch(RECORDS)), marker(4))
    assert [found.replaced for found in one.corrupt] == [True]


def test_what_is_looked_back_at_leaves_open_transactions_as_they_are() -> None:
    """The batch before the position is of a transaction that goes on behind it, and is aborted."""
    began = encode_batch(RECORDS, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    goes_on = encode_batch(
        [Record(value=b"aborted", timestamp=T)],
        base_offset=5, producer_id=7, producer_epoch=0, base_sequence=5, transactional=True,
    )  # fmt: skip
    witness = witness_of(encode_batch(RECORDS))
    aborted = [{"producer_id": 7, "first_offset": 0}]
    one = looking_back(witness, began, goes_on, committed=True, aborted_transactions=aborted, last_stable_offset=6)
    assert (one.corrupt, one.rows, one.slots.position(0).a) == ([], [], 6)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("shape", ["single", "wrapper"])
def test_older_formats(magic: int, shape: str) -> None:
    base, end, body = single(4, magic) if shape == "single" else wrapper(0, 5, magic)
    reading = Reading(offset=base)
    reading.read(fetch_response(body))
    (span,) = reading.spans
    assert (span.end.a, span.witness is not None) == (end, True)
    more = single(5, magic)[2]
    one = looking_back(span.witness, body, more)
    assert (one.corrupt, [row["offset"] for row in one.rows]) == ([], [5])
    one = looking_back((span.witness or 0) ^ 1, body, more)
    assert ([found.replaced for found in one.corrupt], one.rows) == ([True], [])


def test_a_running_reader_compares_what_it_has_read_itself() -> None:
    one = Reading()
    one.read(fetch_response(encode_batch(RECORDS)))
    one.slots.look_back(0)
    assert one.slots.fetch_offset(0) == 4
    other = encode_batch([replace(RECORDS[-1], value=b"another")], base_offset=4)
    one.read(fetch_response(other + MORE, correlation_id=2))
    assert ([found.replaced for found in one.corrupt], len(one.rows)) == ([True], 5)


def test_a_marker_at_the_end_of_a_span_leaves_no_witness() -> None:
    reading = Reading()
    reading.read(fetch_response(encode_batch(RECORDS) + marker(5)))
    assert [(span.end.a, span.witness) for span in reading.spans] == [(6, None)]


@pytest.mark.parametrize("room", [1, 300, 1 << 20])
@pytest.mark.parametrize("name", LOGS)
def test_damage_beside_the_position_loses_nothing_of_what_follows(name: str, room: int) -> None:
    """A start at the end of each batch: what lies behind it lands, whatever has happened to the one before."""
    log, dice = LOGS[name], random.Random(f"{name} {room}")
    for which, (_, end, body) in enumerate(log[:-1]):
        first = Reading()
        StoredLog(log[: which + 1]).read(first, room)
        witness = first.spans[-1].witness
        assert (first.spans[-1].end.a, witness is not None) == (end, True)
        behind = [(offset, value(offset)) for base, last, _ in log[which + 1 :] for offset in range(base, last)]
        for at in (None, *dice.sample(range(len(body)), min(len(body), 40))):
            stored = StoredLog(log) if at is None else damaged(log, which, at, 1 << dice.randrange(8))
            one = Reading()
            one.slots.attach(0, first.slots.position(0), 1, witness)
            stored.read(one, room)
            where = f"byte {at} of batch {which}"
            if at is not None and any(found.replaced for found in one.corrupt):
                assert at in FIRST, where  # nothing but a checksum tells damage from another record
                assert one.rows == [], where
                continue
            assert [(row["offset"], row["value"]) for row in one.rows] == behind, where
            assert (one.corrupt, one.dead_letters) == ([], []), where
