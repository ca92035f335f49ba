"""First offsets are under no checksum: after damage one is believed only if something confirms it (spec: kafka 6)."""

import pytest

from fastwire.kafka.producing.payload import Record, encode_batch
from tests.fuzz.hunt import found, kept
from tests.fuzz.kafka_log import run_block, run_case
from tests.support.kafka.damaged_log import IndexedLog
from tests.support.kafka.golden import Reading, StoredLog, fetch_response

ROWS = 5


def batch(base: int, rows: int = ROWS) -> tuple[int, int, bytes]:
    records = [Record(value=b"row %d" % (base + row), timestamp=1_700_000_000_000) for row in range(rows)]
    return base, base + rows, encode_batch(records, base_offset=base)


def stored(count: int = 40) -> StoredLog:
    return StoredLog(batch(base) for base in range(0, count * ROWS, ROWS))


def harm(log: StoredLog, which: int, at: int, mask: int) -> bytes:
    first, end, body = log.batches[which]
    changed = body[:at] + bytes((body[at] ^ mask,)) + body[at + 1 :]
    log.batches[which] = first, end, changed
    return changed


@pytest.mark.parametrize("room", [400, 1000, 1 << 20])
@pytest.mark.parametrize("mask", [1, 2, 4, 8, 32, 64, 128])
def test_a_first_offset_that_lies_behind_a_damaged_batch(room: int, mask: int) -> None:
    log = stored()
    dead_letters = [harm(log, 1, 70, 1), harm(log, 2, 7, mask)]
    reading = Reading()
    log.read(reading, room)
    assert [row["value"] for row in reading.rows] == [b"row %d" % offset for offset in [*range(5), *range(15, 200)]]
    assert [row["offset"] for row in reading.rows] == [*range(5), *range(15, 200)]
    assert [letter.payload for letter in reading.dead_letters] == dead_letters
    assert [(letter.start.a, letter.position.a) for letter in reading.dead_letters] == [(5, 15)] * 2


@pytest.mark.parametrize("room", [400, 1000, 1 << 20])
@pytest.mark.parametrize("mask", [32, 64, 128])
def test_neighbours_that_lie_by_the_same_bit(room: int, mask: int) -> None:
    log = stored()
    dead_letters = [harm(log, 1, 7, mask), harm(log, 2, 7, mask)]
    reading = Reading()
    log.read(reading, room)
    assert [row["offset"] for row in reading.rows] == [*range(5), *range(15, 200)]
    assert {letter.payload for letter in reading.dead_letters} >= set(dead_letters)


def test_neighbours_that_lie_and_rise_beyond_the_end_of_a_compacted_log() -> None:
    """The first of them would take the rows up to its offset with it."""
    log = StoredLog(batch(base, 1) for base in (0, 2, 3, 4, 6, 33, 40, 146))
    dead_letters = [harm(log, 1, 7, 64), harm(log, 2, 3, 64), harm(log, 3, 0, 64)]
    reading = Reading()
    log.read(reading)
    assert [row["value"] for row in reading.rows] == [b"row %d" % offset for offset in (0, 6, 33, 40, 146)]
    assert [row["offset"] for row in reading.rows] == [0, 6, 33, 40, 146]
    assert [letter.payload for letter in reading.dead_letters] == dead_letters


def test_a_broker_that_believes_heads_proves_no_place_that_a_damaged_batch_needs() -> None:
    log = IndexedLog([batch(base, 1) for base in range(3)], 2)
    dead_letters = [harm(log, 0, 7, 1), harm(log, 1, 70, 1)]  # the first one claims the offset of the second
    reading = Reading()
    log.read(reading)
    assert [row["offset"] for row in reading.rows] == [2]
    assert [letter.payload for letter in reading.dead_letters] == dead_letters


@pytest.mark.parametrize("rows", [1, ROWS])
@pytest.mark.parametrize("begin", range(2, 6))
@pytest.mark.parametrize("later", [1, 2])
def test_what_comes_while_the_end_of_a_damaged_batch_is_searched_for(rows: int, begin: int, later: int) -> None:
    """It follows the damage: it is read, and is no dead letter beside that."""
    whole = [batch(0), batch(ROWS), batch(2 * ROWS, rows), *(batch(2 * ROWS + rows + at, 1) for at in range(2))]
    log = StoredLog(whole)
    dead_letters = [harm(log, 1, 70, 1)]
    if later == 2:
        dead_letters.append(harm(log, 2, 70, 1))
    whole = log.batches
    reading = Reading()
    for number in range(1, 30):
        log.batches = whole[: 2 if number < begin else min(3 + number - begin, 5)]
        log.end = log.batches[-1][1]
        if reading.slots.position(0).a == whole[-1][1]:
            break
        records = log.answer(reading.slots.fetch_offset(0), reading.slots.fetch_bytes(0, 1 << 20))
        reading.read(fetch_response(records, correlation_id=number, high_watermark=log.end))
    assert [letter.payload for letter in reading.dead_letters] == dead_letters
    sound = {0, 2, 3, 4} - ({2} if later == 2 else set())
    assert [row["offset"] for row in reading.rows] == [at for one in sorted(sound) for at in range(*whole[one][:2])]


@pytest.mark.parametrize("block", range(10))
def test_damage_anywhere_in_pairs(block: int) -> None:
    reached = run_block(block, 0, 200)
    assert min(reached[what] for what in ("rows", "letters", "stops")) > 0, reached


@pytest.mark.parametrize("name", found("log"))
def test_what_fuzzing_has_found(name: str) -> None:
    run_case(kept(name))
