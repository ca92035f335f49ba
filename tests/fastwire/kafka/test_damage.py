"""Damaged batches among sound ones: nothing of them is believed, and nothing beside them is lost (spec: kafka 6, 9)."""

import random
import tracemalloc
from struct import pack
from zlib import compressobj, crc32

import pytest

from fastwire.kafka.producing.payload import Compression, Record, encode_batch
from fastwire.position import Position
from tests.support.kafka.damaged_log import IndexedLog
from tests.support.kafka.golden import Reading, StoredLog, fetch_response

FIRST = range(8)  # bytes of the first offset, which no sum covers
EPOCH = range(12, 16)  # the broker's own, under no sum: a wrong one costs no row
MAGIC_AT = 16


def value(offset: int) -> bytes:
    return b"row %d" % offset


def batch(base: int, rows: int, compression: Compression = Compression.NONE) -> tuple[int, int, bytes]:
    records = [Record(value=value(base + row), timestamp=1_700_000_000_000) for row in range(rows)]
    return base, base + rows, encode_batch(records, base_offset=base, compression=compression)


def message(offset: int, body: bytes, *, magic: int, codec: int = 0) -> bytes:
    rest = pack(">bb", magic, codec) + (pack(">q", 1_700_000_000_000) if magic else b"")
    rest += pack(">ii", -1, len(body)) + body
    return pack(">qiI", offset, 4 + len(rest), crc32(rest)) + rest


def wrapper(base: int, rows: int, magic: int) -> tuple[int, int, bytes]:
    gzip = compressobj(wbits=31)
    inner = b"".join(message(row if magic else base + row, value(base + row), magic=magic) for row in range(rows))
    return base, base + rows, message(base + rows - 1, gzip.compress(inner) + gzip.flush(), magic=magic, codec=1)


def single(offset: int, magic: int) -> tuple[int, int, bytes]:
    return offset, offset + 1, message(offset, value(offset), magic=magic)


LOGS = {
    "plain": [batch(10 * number, 10) for number in range(6)],
    "single records": [batch(number, 1) for number in range(9)],
    "compressed": [batch(10 * number, 10, Compression.GZIP) for number in range(5)],
    "uneven": [batch(0, 1), batch(1, 40), batch(41, 2), batch(43, 7), batch(50, 1), batch(51, 3)],
    "holes": [batch(0, 4), batch(9, 3), batch(12, 5), batch(30, 2), batch(64, 6)],
    "magic 0": [single(0, 0), wrapper(1, 5, 0), single(6, 0), wrapper(7, 3, 0), single(10, 0)],
    "magic 1": [wrapper(0, 6, 1), single(6, 1), wrapper(7, 3, 1), single(10, 1), wrapper(11, 2, 1)],
    "all formats": [wrapper(0, 4, 0), single(4, 1), wrapper(5, 3, 1), batch(8, 5), batch(13, 2, Compression.LZ4)],
}


def damaged(log: list[tuple[int, int, bytes]], which: int, at: int, mask: int) -> StoredLog:
    first, end, body = log[which]
    changed = bytearray(body)
    changed[at] ^= mask
    return StoredLog([*log[:which], (first, end, bytes(changed)), *log[which + 1 :]])


def assert_nothing_else_is_lost(log: list[tuple[int, int, bytes]], which: int, reading: Reading, at: int) -> None:
    """The damaged batch is one dead letter, or read where no damage can be seen; all others are rows."""
    where = f"byte {at} of batch {which}"
    rows = [(row["offset"], row["value"]) for row in reading.rows]
    harmed = set(range(*log[which][:2]))
    others = [(offset, value(offset)) for first, end, _ in log for offset in range(first, end) if offset not in harmed]
    assert [row for row in rows if row[0] not in harmed] == others, where
    assert reading.corrupt == [], where
    assert len(reading.dead_letters) == (0 if len(rows) > len(others) else 1), where
    if len(rows) > len(others):
        assert at in EPOCH or (at in FIRST and log[which][2][MAGIC_AT] == 0), where  # inner offsets are absolute
        assert rows == sorted([*others, *((offset, value(offset)) for offset in harmed)]), where
    at_position = Position(0, -1)
    for span in reading.spans:
        assert span.start == at_position, where
        at_position = span.end
    assert at_position.a == log[-1][1], where
    assert sum(span.rows for span in reading.spans) == len(rows), where


def harmful(name: str, body: bytes) -> list[int]:
    """The bytes to damage: not those by which a batch moves within a hole, which cannot be seen.

    Nor by which a message moves to where the next wrapper begins: only the last offset of that one is in sight.
    """
    seen = 6 if name == "holes" or body[MAGIC_AT] < 2 else 8
    return [at for at in range(len(body)) if at < seen or at >= 8]


@pytest.mark.parametrize("room", [1, 300, 1 << 20])
@pytest.mark.parametrize("name", LOGS)
def test_any_byte_of_any_batch(name: str, room: int) -> None:
    log, dice = LOGS[name], random.Random(f"{name} {room}")
    for which, (_, _, body) in enumerate(log[:-1]):
        ats = harmful(name, body)
        for at in ats if room == 300 else dice.sample(ats, min(len(ats), 40)):
            for mask in (1 << dice.randrange(8),) if room == 300 else (dice.randrange(1, 256),):
                reading = Reading()
                damaged(log, which, at, mask).read(reading, room)
                assert_nothing_else_is_lost(log, which, reading, at)


@pytest.mark.parametrize("name", ["plain", "uneven", "single records"])
def test_the_last_batch_of_the_log(name: str) -> None:
    """No later batch shows where it ended, but the log's end does."""
    log = LOGS[name]
    for at in range(MAGIC_AT, len(log[-1][2])):
        reading = Reading()
        damaged(log, len(log) - 1, at, 0x55).read(reading)
        assert_nothing_else_is_lost(log, len(log) - 1, reading, at)


class BelievingLog(StoredLog):
    """A broker that looks for offsets by what its damaged batches say."""

    def answer(self, offset: int, room: int) -> bytes:
        def last(body: bytes) -> int:
            return int.from_bytes(body[:8]) + int.from_bytes(body[23:27], signed=True)

        place = next((place for place, one in enumerate(self.batches) if last(one[2]) >= offset), len(self.batches))
        found = [body for _, _, body in self.batches[place:]]
        return b"".join(found)[: max(room, len(found[0]))] if found else b""


@pytest.mark.parametrize("room", [1, 1 << 20])
@pytest.mark.parametrize("which", [0, 2, 5])
@pytest.mark.parametrize("delta", [0, 3, 8, 10, 25, 73, 265, 1 << 20])
def test_a_last_offset_that_the_broker_believes_too(delta: int, which: int, room: int) -> None:
    log = LOGS["plain"]
    first, end, body = log[which]
    changed = body[:23] + delta.to_bytes(4, signed=True) + body[27:]
    reading = Reading()
    BelievingLog([*log[:which], (first, end, changed), *log[which + 1 :]]).read(reading, room)
    assert_nothing_else_is_lost(log, which, reading, 23)


def test_damage_on_the_way_is_read_again() -> None:
    """The same bytes come whole with the next answer: no record of them is lost."""
    log = LOGS["plain"]
    reading = Reading()
    broken = damaged(log, 3, 100, 1)
    broken.batches = broken.batches[:4]
    broken.end = log[-1][1]
    broken.read(reading, most=2)
    assert reading.slots.position(0).a == 30
    StoredLog(log).read(reading)
    assert [row["offset"] for row in reading.rows] == list(range(60))
    assert reading.dead_letters == []


class LogOnTheWay(StoredLog):
    """A batch is damaged on the way when it is first sent."""

    def __init__(self, log: list[tuple[int, int, bytes]], which: int, at: int) -> None:
        super().__init__(log)
        self._damage = [(log[which][2], damaged(log, which, at, 4).batches[which][2])]

    def answer(self, offset: int, room: int) -> bytes:
        answer = super().answer(offset, room)
        return answer.replace(*self._damage.pop()) if self._damage and self._damage[0][0] in answer else answer


@pytest.mark.parametrize("name", LOGS)
@pytest.mark.parametrize("at", [10, 14, 18, 22, 30])
def test_a_batch_that_was_damaged_on_the_way_is_no_dead_letter(name: str, at: int) -> None:
    """Also where compaction has left a hole before it: what comes in its place is the batch itself."""
    log = LOGS[name]
    for which in range(len(log)):
        reading = Reading()
        rows = LogOnTheWay(log, which, at).read(reading, room=1)
        assert [row["offset"] for row in rows] == [offset for first, end, _ in log for offset in range(first, end)]
        assert reading.dead_letters == []


def test_damage_behind_a_batch_whose_head_claims_what_follows_both() -> None:
    """The end of the first one is searched for; both become dead letters, whatever it claims."""
    ends = [(0, 7), (107, 119), (119, 128), (128, 135), (136, 142), (145, 156), (156, 161), (161, 171), (171, 175)]
    log = [batch(first, end - first) for first, end in [*ends, (176, 186)]]
    log[2] = damaged(log, 2, 100, 1).batches[2]
    log[1] = damaged(log, 1, 7, 107 ^ 165).batches[1]
    reading = Reading()
    rows = IndexedLog(log, 3).read(reading)
    assert [letter.payload for letter in reading.dead_letters] == [log[1][2], log[2][2]]
    assert [row["offset"] for row in rows] == [
        offset for first, end, _ in [log[0], *log[3:]] for offset in range(first, end)
    ]


def test_several_in_a_row() -> None:
    log = LOGS["plain"]
    for room in (1, 200, 1 << 20):
        stored = StoredLog(log)
        for which in (0, 2, 3, 5):
            stored.batches[which] = damaged(log, which, 70, 1).batches[which]
        reading = Reading()
        rows = stored.read(reading, room)
        assert [row["offset"] for row in rows] == [*range(10, 20), *range(40, 50)]
        assert [letter.payload for letter in reading.dead_letters] == [
            stored.batches[which][2] for which in (0, 2, 3, 5)
        ]


@pytest.mark.parametrize("at", [3, 10, 18, 26, 70])
def test_on_corrupt_stop_ends_before_the_damage(at: int) -> None:
    log = LOGS["plain"]
    for offset in (0, 25):
        reading = Reading(on_corrupt="stop", offset=offset)
        rows = damaged(log, 2, at, 0x40).read(reading)
        assert [row["offset"] for row in rows] == list(range(offset, 20))
        (corrupt,) = reading.corrupt
        assert corrupt.position.a == max(20, offset)
        assert reading.dead_letters == []


def test_reading_begins_within_a_damaged_batch() -> None:
    log = LOGS["plain"]
    for at in (26, 90):
        reading = Reading(offset=25)
        rows = damaged(log, 2, at, 2).read(reading)
        assert [row["offset"] for row in rows] == list(range(30, 60))
        (letter,) = reading.dead_letters
        assert (letter.start, letter.position) == (Position(25, -1), Position(30, -1))


def test_a_batch_that_a_broker_never_sends_whole() -> None:
    """A batch that is cut off may be sound: it is no dead letter."""
    reading = Reading()
    body = batch(0, 50)[2]
    StoredLog([(0, 50, body[:300])]).read(reading)
    assert reading.dead_letters == []
    assert reading.corrupt[0].position == Position(0, -1)


def test_a_wrapper_of_offset_0_has_a_span() -> None:
    inner = b"".join(message(row, value(row), magic=1) for row in range(4))
    gzip = compressobj(wbits=31)
    first = (0, 4, message(0, gzip.compress(inner) + gzip.flush(), magic=1, codec=1))
    for offset in (0, 2):
        reading = Reading(offset=offset)
        rows = StoredLog([first, wrapper(4, 3, 1)]).read(reading)
        assert [row["offset"] for row in rows] == list(range(offset, 7))
        (span,) = reading.spans
        assert (span.start.a, span.end.a, span.rows) == (offset, 7, 7 - offset)


def test_damaged_batches_of_one_answer_take_a_bounded_amount_of_memory() -> None:
    rows, log = 2000, []
    for base in range(0, 6 * rows, rows):
        body = bytearray(encode_batch([Record(value=bytes(1000))] * rows, base_offset=base))
        body[-1] ^= 1
        log.append((base, base + rows, bytes(body)))
    stored = StoredLog([*log, batch(6 * rows, 3)])
    reading = Reading()
    answer = fetch_response(stored.answer(0, 1 << 30), high_watermark=stored.end)
    tracemalloc.start()
    reading.read(answer)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 6 << 20 < len(answer)
    stored.read(reading, room=1 << 30)
    assert [letter.payload for letter in reading.dead_letters] == [body for _, _, body in log]
    assert [row["value"] for row in reading.rows] == [value(6 * rows + row) for row in range(3)]
    assert reading.slots.position(0).a == stored.end


def test_a_peer_that_sends_other_bytes_each_time_is_given_up() -> None:
    """Or all that it has sent for one position would be kept: what it does not send again may be lost."""
    body = bytearray(encode_batch([Record(value=bytes(1000))] * 400, base_offset=0))
    reading = Reading()
    tracemalloc.start()
    for number in range(1, 100):
        body[:8] = (number << 16).to_bytes(8)
        body[60:64] = number.to_bytes(4)
        reading.read(fetch_response(bytes(body), correlation_id=number, high_watermark=400))
        if reading.corrupt:
            break
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 7 << 20
    assert reading.corrupt[0].position == Position(0, -1)
    assert reading.dead_letters == []
