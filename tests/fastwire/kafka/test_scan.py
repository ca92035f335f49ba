"""Fetch responses to rows: what brokers and clients wrote, cut anywhere, damaged anywhere."""

import hashlib
import json
import random
from datetime import UTC, datetime
from typing import Any

import pytest

from fastwire.errors import ProtocolError
from fastwire.kafka.producing.payload import Compression, Record, encode_batch, encode_block_batch, encode_records
from fastwire.position import Position
from fastwire.wire.pool import Pool
from tests.support.kafka.golden import GOLDEN, Reading, StoredLog, described, digest, fetch_response, golden, names
from tests.support.scanned import Row
from tests.support.times import LAST_MILLI, micros_of, nearest_millis

RECORDS = names("records")
FETCHES = names("fetch")
MALFORMED: dict[str, dict[str, Any]] = {
    one["name"]: one for one in json.loads((GOLDEN / "malformed" / "expected.json").read_text())
}


# Where a log begins whose first batch is not at offset 0: a hole before one batch or two is not believed at once.
BEGIN = {
    "crafted-control-commit-abort": 10,
    "crafted-control-unknown-type": 12,
    "crafted-empty-batch": 200,
    "crafted-high-offsets": 1 << 40,
    "crafted-legacy-v0-lz4-broken-checksum": 500,
    "crafted-legacy-v0-lz4-good-checksum": 500,
    "crafted-legacy-v1-compacted-wrapper": 1002,
    "crafted-legacy-v1-relative-offsets": 1000,
}


def stored(name: str, reading: Reading) -> list[Row]:
    """The rows of stored batches that are a whole log."""
    data = golden("records", name)
    if name != "crafted-offset-gap":  # its last batch is behind a hole, so the broker is asked about it
        return reading.read(fetch_response(data))
    size = 12 + int.from_bytes(data[8:12])
    return StoredLog([(100, 116, data[:size]), (120, 121, data[size:])]).read(reading)


def visible(description: dict[str, Any]) -> list[dict[str, Any]]:
    """The records of a description that are rows: all but those of control batches."""
    return [one for batch in description["batches"] if not batch.get("control") for one in batch["records"]]


def same_bytes(wanted: Any, found: bytes | None) -> bool:
    if isinstance(wanted, dict):
        found = found or b""
        return len(found) == int(wanted["len"]) and hashlib.sha256(found).hexdigest() == str(wanted["sha256"])
    return bool((None if wanted is None else bytes.fromhex(wanted)) == found)


def assert_rows(wanted: list[dict[str, Any]], rows: list[Row]) -> None:
    assert [one["offset"] for one in wanted] == [row["offset"] for row in rows]
    for one, row in zip(wanted, rows, strict=True):
        if one["timestamp"] == -1:
            assert row["timestamp"] is None, one
        else:
            assert int(row["timestamp"].timestamp() * 1000) == one["timestamp"], one
        assert same_bytes(one["key"], row["key"])
        assert same_bytes(one["value"], row["value"])
        headers = [(header["key"].encode(), header["value"]) for header in row["headers"] or []]
        assert len(headers) == len(one["headers"])
        for (key, value), (wanted_key, wanted_value) in zip(headers, one["headers"], strict=True):
            assert key.hex() == wanted_key
            assert same_bytes(wanted_value, value)


def with_records(description: dict[str, Any]) -> bool:
    return all("records" in batch for batch in description["batches"])


@pytest.mark.parametrize("name", RECORDS)
def test_stored_records(name: str) -> None:
    said = described("records", name)
    reading = Reading(offset=BEGIN.get(name, 0))
    rows = stored(name, reading)
    assert reading.dead_letters == []
    assert reading.corrupt == []
    if with_records(said):
        assert_rows(visible(said), rows)
    else:
        assert len(rows) == said["total_records"]
        assert digest(rows) == said["records_digest"]
    assert {row["topic"] for row in rows} <= {"t"}
    assert sum(span.rows for span in reading.spans) == len(rows)


@pytest.mark.parametrize("name", [name for name in RECORDS if "legacy" not in name])
def test_the_next_offset_comes_from_the_head_of_the_last_batch(name: str) -> None:
    last = described("records", name)["batches"][-1]
    if "last_offset_delta" not in last:
        return
    reading = Reading(offset=BEGIN.get(name, 0))
    stored(name, reading)
    end = last["base_offset"] + last["last_offset_delta"] + 1
    assert reading.slots.position(0) == Position(end, last["partition_leader_epoch"])
    assert reading.spans[-1].end == reading.slots.position(0)
    assert reading.spans[0].start == Position(BEGIN.get(name, 0), -1)


def keys_of(said: dict[str, Any]) -> tuple[str, bytes]:
    (answer,) = said["body"]["responses"]
    return answer.get("topic", "t"), bytes.fromhex(answer.get("topic_id", "00" * 16))


@pytest.mark.parametrize("name", FETCHES)
def test_fetch_responses(name: str) -> None:
    said = described("fetch", name)
    if len(said["body"]["responses"]) != 1:
        pytest.fail("a description with several topics wants a test of its own")
    topic, topic_id = keys_of(said)
    partitions = {one["partition_index"]: one for one in said["body"]["responses"][0]["partitions"]}
    reading = Reading(max(partitions) + 1, topic=topic, version=said["version"], topic_id=topic_id)
    rows = reading.read(golden("fetch", name))
    (fetched,) = reading.fetched
    assert fetched.correlation_id == said["correlation_id"]
    assert fetched.unknown == 0
    for index, one in partitions.items():
        result = reading.slots.result(index)
        assert result.error == one["error_code"]
        assert result.high_watermark == one["high_watermark"]
        assert result.log_start == one.get("log_start_offset", -1)
        records = one["records"] or {"size": 0}
        assert result.received == records["size"]
        mine = [row for row in rows if row["partition"] == index]
        if "transactions" not in name and records["size"]:
            assert len(mine) == records["total_records"]
            assert digest(mine) == records["records_digest"]


def transaction(name: str, committed: bool) -> list[int]:
    said = described("fetch", name)
    topic, topic_id = keys_of(said)
    reading = Reading(topic=topic, version=said["version"], topic_id=topic_id, committed=committed)
    return [row["offset"] for row in reading.read(golden("fetch", name))]


def test_aborted_transactions_are_not_delivered() -> None:
    wanted = json.loads((GOLDEN / "fetch" / "transactions-committed-v12.visible.json").read_text())["visible"]
    assert transaction("transactions-committed-v12", True) == [one["offset"] for one in wanted]
    assert len(transaction("transactions-committed-v12", False)) > len(wanted)


def test_a_span_covers_what_was_aborted() -> None:
    said = described("fetch", "transactions-committed-v12")
    reading = Reading(topic="gv-txn-21", committed=True)
    rows = reading.read(golden("fetch", "transactions-committed-v12"))
    (span,) = reading.spans
    assert span.end.a == said["body"]["responses"][0]["partitions"][0]["last_stable_offset"]
    assert span.rows == len(rows) < span.end.a


def test_records_before_the_asked_offset_are_dropped() -> None:
    said = described("fetch", "mid-batch-offset-v12")
    topic, _ = keys_of(said)
    reading = Reading(topic=topic, offset=12)
    rows = reading.read(golden("fetch", "mid-batch-offset-v12"))
    assert rows[0]["offset"] == 12
    assert reading.spans[0].start == Position(12, -1)


@pytest.mark.parametrize("name", ["legacy-v0-none", "legacy-v1-gzip", "java-none", "mixed-codecs", "java-zstd"])
def test_records_behind_an_end_are_dropped(name: str) -> None:
    """Every end of every format, within a batch or a wrapper or between them: rows and spans stop there."""
    frame = fetch_response(golden("records", name))
    offsets = [row["offset"] for row in Reading().read(frame)]
    for until in range(offsets[-1] + 2):
        reading = Reading()
        reading.slots.end_at(0, until)
        assert [row["offset"] for row in reading.read(frame)] == [offset for offset in offsets if offset < until]
        assert all(span.end.a <= until for span in reading.spans)
        assert reading.slots.position(0).a == until


def test_tags_say_where_logs_part_and_who_leads() -> None:
    diverging = bytes.fromhex(
        "000000550000000a00000000000000000000 0002 0e67762d65702d32312d39346434 02 00000000 0000 0000000000000007"
        "0000000000000007 0000000000000000 00 ffffffff 01 01000d00000000000000000000000400 0000".replace(" ", "")
    )
    reading = Reading(topic="gv-ep-21-94d4")
    assert reading.read(diverging) == []
    assert reading.slots.result(0).diverging == 4
    hints = bytes.fromhex(
        "0000006a 0000000c 00 00000000 0000 00000000 02 8618d147f3d54255ae69631bb76f8edd 02 00000000 004a"
        "ffffffffffffffff ffffffffffffffff ffffffffffffffff 00 ffffffff 01 01 01 09 00000001 00000002 00 00"
        "01 00 15 02 00000001 0a 3132372e302e302e31 00004c24 00 00".replace(" ", "")
    )
    reading = Reading(version=16, topic_id=bytes.fromhex("8618d147f3d54255ae69631bb76f8edd"))
    reading.read(hints)
    result = reading.slots.result(0)
    assert (result.error, result.leader, result.leader_epoch) == (74, 1, 2)
    assert reading.fetched[0].nodes == ((1, "127.0.0.1", 19492),)


CHUNKED = ["mixed-codecs", "transactions", "legacy-v1-gzip", "crafted-legacy-then-v2", "truncated-tail-17-bytes"]


@pytest.mark.parametrize("name", CHUNKED)
def test_every_cut_gives_the_same(name: str) -> None:
    frame = fetch_response(golden("records", name), version=16)
    whole = Reading(version=16).read(frame)
    for cut in range(1, len(frame), 1 if len(frame) < 1000 else 7):
        reading = Reading(version=16)
        assert reading.read(frame, [cut]) == whole, cut
        assert len(reading.fetched) == 1
    reading = Reading(version=16)
    assert reading.read(frame, range(len(frame))) == whole


def test_batches_are_decoded_before_the_response_is_whole() -> None:
    records = golden("records", "mixed-codecs")
    frame = fetch_response(records)
    reading = Reading()
    reading.plan()
    reading.feed(frame[: len(frame) // 2])
    assert reading.scanner.open_rows > 10
    assert reading.scanner.buffered < 2000
    reading.feed(frame[len(frame) // 2 :])
    reading.take()
    assert len(reading.rows) == 84


@pytest.mark.parametrize("name", sorted(MALFORMED))
@pytest.mark.parametrize("on_corrupt", ["dead_letter", "stop"])
def test_malformed_records(name: str, on_corrupt: str) -> None:
    reading = Reading(on_corrupt=on_corrupt)
    before = reading.scanner.open_rows
    bad = golden("malformed", name)
    first = int.from_bytes(bad[:8])
    sound = encode_batch([Record(value=b"sound")] * 2, base_offset=first + 5)
    rows = StoredLog([(first, first + 5, bad), (first + 5, first + 7, sound)]).read(reading)
    if MALFORMED[name]["expect"] == "ok":
        assert rows
        assert not reading.dead_letters
        assert not reading.corrupt
        return
    assert len(reading.dead_letters) + len(reading.corrupt) == 1
    if on_corrupt == "stop":
        assert reading.dead_letters == []
    if reading.corrupt:
        assert reading.slots.session(0) == 0
    else:
        assert [row["value"] for row in rows] == [b"sound"] * 2
        assert reading.dead_letters[0].position.a in (first + 1, first + 5)
    assert before == 0


def test_a_bomb_stays_within_the_limits() -> None:
    pool = Pool(1 << 28)
    reading = Reading(pool=pool)
    reading.read(fetch_response(golden("malformed", "zstd-bomb-50mb")))
    assert len(reading.dead_letters) == 1
    assert pool.peak <= 1 << 28
    assert pool.used < 8 << 20


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.LZ4])
def test_a_chunk_ends_before_it_is_too_large(compression: Compression) -> None:
    """Also where a batch says nothing of what it becomes: another block for one batch more would be half empty."""
    records = [Record(value=b"." * 8000, timestamp=1)] * 50
    stored = [encode_batch(records, base_offset=50 * number, compression=compression) for number in range(12)]
    reading = Reading()
    reading.read(fetch_response(b"".join(stored)))
    assert [(span.start.a, span.end.a) for span in reading.spans] == [(0, 500), (500, 600)]


def test_what_lies_beyond_the_log_is_not_believed() -> None:
    damaged = bytearray(golden("records", "java-none"))
    damaged[5] = 1  # of the first offset, which the sum does not cover
    reading = Reading()
    assert StoredLog([(0, 40, bytes(damaged))]).read(reading) == []
    assert reading.dead_letters[0].position == reading.spans[0].end == Position(40, -1)


def test_a_partition_that_was_given_up_gets_nothing() -> None:
    frame = fetch_response(golden("records", "java-none"))
    reading = Reading()
    reading.plan()
    reading.slots.attach(0, Position(0, -1), 2)
    reading.feed(frame)
    reading.take()
    assert reading.rows == []
    assert (reading.fetched[0].answered, reading.fetched[0].unknown) == ((), 0)
    reading.slots.attach(0, Position(0, -1), 1)
    assert len(reading.read(frame)) == 40


def test_limited_rows_end_with_a_batch() -> None:
    reading = Reading()
    reading.slots.limit_rows(20)
    ends = [one["base_offset"] + one["record_count"] for one in described("records", "mixed-codecs")["batches"]]
    rows = reading.read(fetch_response(golden("records", "mixed-codecs")))
    assert len(rows) == next(end for end in ends if end >= 20) < ends[-1]
    assert reading.slots.position(0).a == len(rows)


def test_responses_that_are_no_fetch_are_handed_out() -> None:
    reading = Reading()
    cold = bytes.fromhex("0000000a000000090000000000aa")
    reading.feed(cold + cold, [3, 9, 17])
    assert reading.responses == [cold[4:], cold[4:]]


@pytest.mark.parametrize("size", [-1, 0, 3, 0x7FFFFFFF])
def test_sizes_that_are_none(size: int) -> None:
    with pytest.raises(ProtocolError, match="size at byte 0"):
        Reading().feed((size & 0xFFFFFFFF).to_bytes(4) + bytes(60))


def test_truncated_responses_are_protocol_errors() -> None:
    frame = fetch_response(golden("records", "crafted-offset-gap"), version=16)
    for size in range(8, len(frame)):
        cut = (size - 4).to_bytes(4) + frame[4:size]
        reading = Reading(version=16)
        with pytest.raises(ProtocolError):
            reading.read(cut)


def test_mutated_responses_give_rows_letters_or_protocol_errors() -> None:
    dice = random.Random(5)
    sources = [fetch_response(golden("records", name), version=16) for name in CHUNKED]
    pool = Pool(1 << 28)
    for _ in range(3000):
        frame = bytearray(dice.choice(sources))
        for _ in range(dice.randint(1, 4)):
            frame[dice.randrange(8, len(frame))] = dice.choice((0, 1, 0x7F, 0x80, 0xFF, dice.randrange(256)))
        reading = Reading(version=16, pool=pool, on_corrupt=dice.choice(("dead_letter", "stop")))
        try:
            reading.read(bytes(frame), sorted(dice.sample(range(8, len(frame)), 2)))
        except ProtocolError:
            continue
        offsets = [row["offset"] for row in reading.rows]
        assert offsets == sorted(set(offsets))
        assert sum(span.rows for span in reading.spans) == len(offsets)
    assert pool.peak < 1 << 28


@pytest.mark.parametrize("appended", [0, 8])
def test_records_without_a_time(appended: int) -> None:
    """-1 is none (spec: kafka 6), and no moment of 1969; rows with a time stand beside it."""
    records = [Record(value=b"%d" % number, timestamp=-1 if number % 3 else 1000 + number) for number in range(30)]
    block = encode_records(records, -1)
    timeless = encode_block_batch(block, 30, base_timestamp=-1, attributes=appended, max_timestamp=-1)
    reading = Reading()
    rows = reading.read(fetch_response(timeless))
    for number, row in enumerate(rows):
        wanted = None if appended or number % 3 else datetime.fromtimestamp((1000 + number) / 1000, UTC)
        assert row["timestamp"] == wanted
    assert len(rows) == 30


@pytest.mark.parametrize("rows", [1, 30])  # a loop of its own takes runs of plain records
@pytest.mark.parametrize(
    ("milli", "unfit"),
    [
        (253402300800000, 0),  # the year 10,000
        (1_700_000_000_000_000, 0),  # microseconds where milliseconds belong
        (-1000, 0),
        (-62135596800001, 0),  # before the year 1
        (LAST_MILLI, 0),
        (-LAST_MILLI, 0),
        (LAST_MILLI + 1, 1),
        ((1 << 63) - 1, 1),
        (-(1 << 63), 1),
    ],
)
def test_times_land_as_they_are_or_are_counted(milli: int, unfit: int, rows: int) -> None:
    reading = Reading()
    found = reading.read(fetch_response(encode_batch([Record(value=b"v", key=b"k", timestamp=milli)] * rows)))
    assert [micros_of(row["timestamp"]) for row in found] == [nearest_millis(milli)] * rows
    assert reading.unfit_times == unfit * rows


def test_times_of_a_damaged_batch_are_not_counted() -> None:
    batch = encode_batch([Record(value=b"v", timestamp=(1 << 63) - 1)] * 3)
    damaged = encode_block_batch(batch[61:] + b"x", 3, base_timestamp=(1 << 63) - 1, last_offset_delta=2)
    reading = Reading()
    assert reading.read(fetch_response(damaged + encode_batch([Record(value=b"v")], base_offset=3)))
    assert reading.unfit_times == 0


def test_a_damaged_batch_leaves_no_nulls_behind() -> None:
    timeless = bytearray(encode_batch([Record(value=b"v", timestamp=-1)] * 3))
    damaged = encode_block_batch(bytes(timeless[61:]) + b"x", 3, base_timestamp=-1, last_offset_delta=2)
    sound = encode_batch([Record(value=b"v", timestamp=5)] * 4, base_offset=3)
    rows = Reading().read(fetch_response(damaged + sound))
    assert [int(row["timestamp"].timestamp() * 1000) for row in rows] == [5] * 4
