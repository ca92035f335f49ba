"""Memory by size class: what is out, what is kept, and what goes back to the system."""

import gc
import threading

import pyarrow as pa
import pytest

from fastwire.pulsar.format.payload import Record, encode_batch_entry
from fastwire.wire.pool import Pool
from fastwire.wire.receive import ReceiveBuffer
from tests.support.pulsar.frames import feed, message_frame, scanner

MIB = 1 << 20
BODY = encode_batch_entry([Record(value=b"x")], producer_name="p", sequence_id=0, publish_time=1).body


def come_and_go(pool: Pool, *sizes: int) -> None:
    """Blocks of these sizes, out at one time, and back."""
    buffers = [ReceiveBuffer(pool, size) for size in sizes]
    buffers.clear()


@pytest.mark.parametrize("limit", [0, -1])
def test_a_budget_is_positive(limit: int) -> None:
    with pytest.raises(ValueError, match="limit must be positive"):
        Pool(limit)


def test_blocks_are_counted_by_their_class() -> None:
    pool = Pool(64 * MIB)
    assert (pool.used, pool.peak, pool.kept, pool.limit) == (0, 0, 0, 64 * MIB)
    small = ReceiveBuffer(pool, 100_000)
    assert pool.used == 131_072
    large = ReceiveBuffer(pool, 3 * MIB)
    assert pool.used == pool.peak == 131_072 + 4 * MIB
    del small
    assert (pool.used, pool.kept) == (4 * MIB, 131_072)
    del large
    assert (pool.used, pool.kept, pool.peak) == (0, 4 * MIB + 131_072, 4 * MIB + 131_072)


def test_blocks_come_back_into_use() -> None:
    pool = Pool(64 * MIB)
    for _ in range(10):
        buffer = ReceiveBuffer(pool, MIB)
        assert pool.kept == 0
        del buffer
        assert pool.kept == MIB


def test_classes_are_not_mixed() -> None:
    pool = Pool(64 * MIB)
    come_and_go(pool, MIB, 2 * MIB, 4 * MIB)
    assert pool.kept == 7 * MIB
    buffer = ReceiveBuffer(pool, 2 * MIB)
    view = buffer.writable()
    assert len(view) == 2 * MIB
    view[:] = bytes(len(view))  # all of it is there
    assert pool.kept == 5 * MIB


def test_trim_gives_the_largest_back_first() -> None:
    pool = Pool(64 * MIB)
    come_and_go(pool, MIB, MIB, 2 * MIB, 4 * MIB)
    assert pool.kept == 8 * MIB
    pool.trim(2 * MIB)
    assert pool.kept == 2 * MIB
    pool.trim()
    assert pool.kept == 0


def test_the_pool_never_refuses_and_keeps_nothing_above_its_limit() -> None:
    pool = Pool(4 * MIB)
    buffers = [ReceiveBuffer(pool, MIB) for _ in range(8)]
    assert pool.used == 8 * MIB
    for left in range(7, -1, -1):
        buffers.pop()
        assert pool.used + pool.kept <= max(pool.limit, left * MIB)
    assert (pool.used, pool.kept) == (0, 4 * MIB)


def test_kept_blocks_of_other_classes_make_room() -> None:
    pool = Pool(4 * MIB)
    come_and_go(pool, MIB, MIB, MIB, MIB)
    assert pool.kept == 4 * MIB
    large = ReceiveBuffer(pool, 3 * MIB)
    assert (pool.used, pool.kept) == (4 * MIB, 0)
    del large


def test_an_absurd_size_is_no_memory() -> None:
    with pytest.raises(MemoryError):
        ReceiveBuffer(Pool(MIB), 1 << 40)
    with pytest.raises(MemoryError):
        ReceiveBuffer(Pool(MIB), -1)


def test_the_memory_outlives_the_pool() -> None:
    pool = Pool(64 * MIB)
    to, slots = scanner(pool)
    feed(to, message_frame(BODY), close=False)
    chunk = to.take_chunk()
    assert chunk is not None
    batch = pa.record_batch(chunk)
    del chunk, to, slots, pool
    gc.collect()
    assert batch["value"].to_pylist() == [b"x"]
    del batch


def test_blocks_come_back_on_any_thread() -> None:
    pool = Pool(1024 * MIB)  # beyond the budget a scanner gives its chunk away
    to, _ = scanner(pool)
    idle = pool.used
    batches = []
    for entry in range(200):
        feed(to, message_frame(BODY, entry=entry), close=False)
        chunk = to.take_chunk()
        assert chunk is not None
        batches.append(pa.record_batch(chunk))
        chunk.release()

    def drop(mine: list[pa.RecordBatch]) -> None:
        while mine:
            mine.pop()

    threads = [threading.Thread(target=drop, args=(batches[start::4],)) for start in range(4)]
    batches.clear()
    for thread in threads:
        thread.start()
    for entry in range(200, 400):  # takes while they give
        feed(to, message_frame(BODY, entry=entry))
    for thread in threads:
        thread.join()
    assert pool.used == idle
