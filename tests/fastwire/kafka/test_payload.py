"""Record batches that we write, as our reader and the golden bytes know them."""

from typing import Any

import lz4.frame
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastwire.errors import CorruptEntryError
from fastwire.kafka.producing.payload import (
    BATCH_HEADER,
    Compression,
    Record,
    compress,
    encode_batch,
    encode_block_batch,
    encode_records,
    encode_values,
    place_batch,
    split_batches,
)
from tests.support.kafka.golden import Reading, fetch_response
from tests.support.kafka.markers import encode_marker

TIME = 1_700_000_000_000
TWO_RECORDS = bytes.fromhex(
    "00000000000000000000004d0000000002b9c29bff0000000000010000018bcfe568000000018bcfe56805"
    "ffffffffffffffffffffffffffff0000000228000000046b310a68656c6c6f040268023102"
    "6e010c000a0201010 0".replace(" ", "")
)
ABORT = bytes.fromhex(
    "000000000000000200000042000000000 21f29587100300000000 00000018bcfe5680a0000018bcfe5680a00000000000010920003"
    "ffffffff00000001200000000800000000 0c00000000000000".replace(" ", "")
)


def test_the_golden_batch() -> None:
    records = [
        Record(key=b"k1", value=b"hello", headers=[("h", b"1"), ("n", None)], timestamp=TIME),
        Record(value=None, timestamp=TIME + 5),
    ]
    assert encode_batch(records, leader_epoch=0) == TWO_RECORDS


def test_the_golden_marker() -> None:
    made = encode_marker(
        commit=False, producer_id=4242, producer_epoch=3, timestamp=TIME + 10, base_offset=2, leader_epoch=0
    )
    assert made == ABORT


def rows(batch: bytes, **partition: Any) -> list[dict[str, Any]]:
    reading = Reading(offset=int.from_bytes(batch[:8]))
    found = reading.read(fetch_response(batch, **partition))
    assert reading.dead_letters == []
    assert reading.corrupt == []
    return found


@pytest.mark.parametrize("codec", Compression)
def test_every_codec_is_read_again(codec: Compression) -> None:
    records = [
        Record(
            key=None if n % 3 else b"k%d" % n,
            value=None if n % 5 == 4 else b"%d " % n * (n * 17),
            headers=[("a", b"x"), ("", None)] if n % 2 else [],
            timestamp=TIME + 1000 - n,
        )
        for n in range(100)
    ]
    found = rows(encode_batch(records, compression=codec, base_offset=7))
    assert [row["offset"] for row in found] == list(range(7, 107))
    for row, record in zip(found, records, strict=True):
        assert (row["key"], row["value"]) == (record.key, record.value)
        assert int(row["timestamp"].timestamp() * 1000) == record.timestamp
        headers = [(one["key"], one["value"]) for one in row["headers"] or []]
        assert headers == list(record.headers)


def test_lz4_is_what_java_reads() -> None:
    block = bytes(range(256)) * 1024
    made = compress(Compression.LZ4, block)
    assert made[:6].hex() == "04224d186040"
    assert lz4.frame.decompress(made) == block


@given(st.lists(st.tuples(st.binary(max_size=200), st.binary(max_size=80)), max_size=200))
def test_plain_values_are_the_same_bytes(pairs: list[tuple[bytes, bytes]]) -> None:
    keys, values = [key for key, _ in pairs], [value for _, value in pairs]
    assert encode_values(values, keys) == encode_records(
        [Record(key=key, value=value, timestamp=TIME) for key, value in pairs], TIME
    )
    assert encode_values(values) == encode_records([Record(value=value, timestamp=TIME) for value in values], TIME)


def test_as_many_keys_as_values() -> None:
    with pytest.raises(ValueError, match="1 keys for 2 values"):
        encode_values([b"a", b"b"], [b"k"])


def test_holes_and_append_time() -> None:
    records = [Record(value=b"a", timestamp=TIME, offset_delta=3), Record(value=b"b", timestamp=TIME, offset_delta=9)]
    batch = encode_batch(records, append_time=TIME + 77)
    found = rows(batch)
    assert [row["offset"] for row in found] == [3, 9]
    assert {int(row["timestamp"].timestamp() * 1000) for row in found} == {TIME + 77}
    (head,) = split_batches(batch)
    assert (head.count, head.base_offset + head.last_offset_delta) == (2, 9)


def test_heads_of_several_batches() -> None:
    one = encode_block_batch(
        encode_values([b"a", b"b"]),
        2,
        base_timestamp=TIME,
        producer_id=11,
        producer_epoch=2,
        base_sequence=40,
        compression=Compression.ZSTD,
    )
    placed = place_batch(one, 500, 6)
    first, second = split_batches(placed + ABORT)
    assert (first.start, first.end, second.start) == (0, len(one), len(one))
    assert (first.base_offset, first.last_offset_delta, first.leader_epoch) == (500, 1, 6)
    assert (first.producer_id, first.producer_epoch, first.base_sequence) == (11, 2, 40)
    assert first.compression == Compression.ZSTD
    assert not first.control
    assert second.control
    assert second.transactional
    assert [row["offset"] for row in rows(placed)] == [500, 501]


@pytest.mark.parametrize(
    ("damaged", "text"),
    [
        (TWO_RECORDS[:40], "a batch of 40 bytes"),
        (TWO_RECORDS[:-1], "a batch of 89 bytes, 88 present"),
        (TWO_RECORDS[:16] + b"\1" + TWO_RECORDS[17:], "magic 1"),
        (TWO_RECORDS[:8] + bytes(4) + TWO_RECORDS[12:], "a batch of 12 bytes"),
        (TWO_RECORDS[:-1] + b"\1", "the batch says b9c29bff"),
    ],
)
def test_damage_is_named(damaged: bytes, text: str) -> None:
    assert len(TWO_RECORDS) == BATCH_HEADER + 28
    with pytest.raises(CorruptEntryError, match=text):
        list(split_batches(damaged))
