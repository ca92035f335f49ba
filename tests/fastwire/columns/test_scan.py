"""Rows that a scanner holds between two reads: none that wait for more, once memory is scarce."""

import pytest

from fastwire.columns.scan import CHUNK_FULL, NEED_BYTES, OUTPUT_CAP
from fastwire.pulsar.format.payload import Compression, Record, encode_batch_entry
from fastwire.wire.pool import Pool
from fastwire.wire.receive import ReceiveBuffer
from tests.support.pulsar.frames import message_frame, put, scanner

MIB = 1 << 20


def frame(size: int, entry: int = 0, codec: Compression = Compression.ZSTD) -> bytes:
    """An entry with one value of ``size`` bytes, which is small on the wire."""
    records = [Record(value=bytes(size))]
    body = encode_batch_entry(records, producer_name="p", sequence_id=entry, publish_time=1, compression=codec).body
    return message_frame(body, entry=entry)


@pytest.mark.parametrize(("size", "stop"), [(4 * MIB - 100, NEED_BYTES), (4 * MIB + 1, CHUNK_FULL)])
def test_a_chunk_over_its_size_does_not_wait_for_the_next_record(size: int, stop: int) -> None:
    to, _ = scanner(Pool(64 * MIB))
    put(to, frame(size))
    assert to.scan() == stop
    chunk = to.take_chunk()
    assert chunk is not None
    assert chunk.rows == 1
    assert to.scan() == NEED_BYTES


def test_beyond_the_budget_no_chunk_waits() -> None:
    pool = Pool(64 * MIB)
    to, _ = scanner(pool)
    put(to, frame(100))
    assert to.scan() == NEED_BYTES
    others = ReceiveBuffer(pool, 64 * MIB)
    put(to, frame(100, 1))
    assert to.scan() == CHUNK_FULL
    chunk = to.take_chunk()
    assert chunk is not None
    assert chunk.rows == 2
    assert to.scan() == NEED_BYTES  # there is nothing to give away
    del others, chunk
    put(to, frame(100, 2))
    assert to.scan() == NEED_BYTES


def test_a_turn_ends_with_a_share_of_a_small_budget() -> None:
    to, _ = scanner(Pool(32 * MIB))
    put(to, frame(MIB + 1) + frame(MIB + 1, 1) + frame(MIB + 1, 2))
    assert to.scan() == OUTPUT_CAP
    assert to.open_rows == 2
    to.resume()
    assert to.scan() == NEED_BYTES
    assert to.open_rows == 3


def test_an_idle_connection_keeps_no_decompressed_bytes() -> None:
    pool = Pool(64 * MIB)
    to, _ = scanner(pool)
    put(to, frame(4 * MIB - 100, codec=Compression.LZ4))
    assert to.scan() == NEED_BYTES
    to.drop_chunk()
    to.rest()
    assert pool.used > 4 * MIB  # something came since the last one
    to.rest()
    assert pool.used == 0
