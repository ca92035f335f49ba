"""Chunks: rows, spans and dead letters of one connection; their merged spans; their lives as Arrow columns."""

import gc
import subprocess
import sys
import threading
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastwire.columns.chunk import Chunk, DeadLetter, SpanAccumulator, marker_chunk
from fastwire.columns.layout import RowLayout
from fastwire.columns.schema import Storage, StoredColumn
from fastwire.position import Gap, Log, Position, Span
from fastwire.pulsar.columns import ROW
from fastwire.pulsar.format.payload import Record, encode_batch_entry
from fastwire.pulsar.reading.scan import Scanner
from fastwire.pulsar.reading.slot import SlotTable
from fastwire.reason import Reason
from fastwire.wire.pool import Pool
from tests.support.pulsar.arrow_types import TYPES
from tests.support.pulsar.frames import CONSUMER, LOG, feed, message_frame, oracle, rows_of, scanner

RECORDS = [
    Record(
        value=b"v%d" % place if place % 5 else None,
        key=f"k{place}" if place % 2 else None,
        ordering_key=b"o" if place % 3 == 0 else None,
        properties=[("name", f"{place}")] * (place % 3),
        event_time=place,
    )
    for place in range(100)
]
FRAME = message_frame(encode_batch_entry(RECORDS, producer_name="p", sequence_id=0, publish_time=1).body, entry=5)


def a_chunk(pool: Pool | None = None) -> Chunk:
    to, _ = scanner(pool)
    feed(to, FRAME, close=False)
    chunk = to.take_chunk()
    assert chunk is not None
    return chunk


# --- the row


def test_the_arrow_schema_is_the_row_of_the_design() -> None:
    schema = pa.schema(a_chunk())
    assert schema.names == list(ROW.names) == list(TYPES)
    for column in ROW.columns:
        field = schema.field(column.name)
        assert field.type == TYPES[column.name], column.name
        assert field.nullable == column.nullable, column.name
    assert pa.record_batch(a_chunk()).schema == schema


def test_masks() -> None:
    assert ROW.mask() == (1 << len(ROW.columns)) - 1
    assert ROW.mask(frozenset()) == 0
    assert ROW.mask(frozenset({"value", "key"})) == 0b11
    with pytest.raises(ValueError, match="pulsar records have no column broker, colour"):
        ROW.mask(frozenset({"colour", "broker", "key"}))


def test_only_columns_that_are_built_take_memory() -> None:
    """An arena for all columns of Pulsar takes 2 MiB, one for a column alone a fraction of it."""

    def taken(columns: frozenset[str] | None) -> int:
        to, _ = scanner(columns=columns)
        feed(to, FRAME, close=False)
        chunk = to.take_chunk()
        assert chunk is not None and chunk.rows == 100
        return chunk.nbytes

    alone = {name: taken(frozenset({name})) for name in ROW.names}
    assert max(alone.values()) < taken(None) // 4, alone


def test_a_system_brings_columns_of_its_own() -> None:
    own = (StoredColumn("broker", "constant", storage="int32"), StoredColumn("seen", "counter", storage="rare time"))
    row = RowLayout("some", offset="counter", timestamp="counter", own=own)
    assert row.names == (*ROW.names[:8], "broker", "seen")
    assert row.mask({"broker", "seen", "key"}) == 0b11_0000_0001
    assert [column.nullable for column in row.columns[-2:]] == [False, True]
    with pytest.raises(ValueError, match="some records have no column ledger"):
        row.mask({"ledger"})


@pytest.mark.parametrize(
    ("storage", "count"), [("bytes", 5), ("strings", 3), ("rare time", 3), ("int32", 25), ("topic", 1), ("headers", 1)]
)
def test_a_row_has_limits(storage: Storage, count: int) -> None:
    own = [StoredColumn(f"c{number}", "plain", storage=storage) for number in range(count)]
    with pytest.raises(ValueError, match=r"^some: "):
        RowLayout("some", offset="counter", timestamp="counter", own=own)
    RowLayout("some", offset="counter", timestamp="counter", own=own[:-1])


def test_a_schema_outlives_its_chunk() -> None:
    capsule = a_chunk().__arrow_c_schema__()
    gc.collect()
    assert pa.schema(_Capsule(capsule)).names == list(ROW.names)


class _Capsule:
    def __init__(self, schema: object) -> None:
        self._schema = schema

    def __arrow_c_schema__(self) -> object:
        return self._schema


def test_a_chunk_says_what_it_holds() -> None:
    pool = Pool(1 << 30)
    idle = pool.used
    chunk = a_chunk(pool)
    assert chunk.rows == 100
    assert chunk.payload_bytes == sum(len(record.value or b"") for record in RECORDS)
    assert chunk.nbytes == pool.used - idle > 0
    assert chunk.dead_letters == []
    assert chunk.spans() == [Span(LOG, Position(-1, -1), Position(12, 5), 100)]
    assert chunk.runs() == [(0, 0, 100)]
    assert chunk.log(0) == LOG
    assert rows_of(chunk) == oracle(FRAME)


def test_the_same_memory_is_handed_out_each_time() -> None:
    chunk = a_chunk()
    one, two = pa.record_batch(chunk), pa.record_batch(chunk)
    assert one == two
    for name in one.schema.names:
        addresses = [[buffer and buffer.address for buffer in batch[name].buffers()] for batch in (one, two)]
        assert addresses[0] == addresses[1], name


def test_a_chunk_without_rows_is_a_batch_without_rows() -> None:
    """A loop over chunks needs no branch for those that hold only dead letters."""
    to, slots = scanner()
    damaged = FRAME[:-1] + b"\0"
    feed(to, damaged, close=False)
    chunk = to.take_chunk()
    assert chunk is not None
    assert (chunk.rows, chunk.payload_bytes, chunk.nbytes) == (0, 0, 0)
    (letter,) = chunk.dead_letters
    size = int.from_bytes(damaged[4:8], "big")
    assert letter == DeadLetter(LOG, Position(12, 5), letter.reason, damaged[8 + size :], 1, damage=Reason.CHECKSUM)
    assert chunk.spans() == [Span(LOG, Position(-1, -1), Position(12, 5), 0)]
    batch = pa.record_batch(chunk)
    batch.validate(full=True)
    assert batch.num_rows == 0
    assert batch.schema == pa.record_batch(a_chunk(Pool(1 << 30))).schema
    assert [batch[name].to_pylist() for name in batch.schema.names] == [[]] * len(batch.schema.names)
    chunk.release()
    del chunk
    assert batch.equals(pa.record_batch(batch))
    assert slots.debited(CONSUMER) == 1


def test_a_marker_has_spans_only() -> None:
    span = Span(LOG, Position(1, 2), Position(1, 2), 0, Gap(Position(3, -1), "retention"))
    chunk = marker_chunk([span])
    assert (chunk.rows, chunk.nbytes, chunk.runs(), chunk.dead_letters, chunk.spans()) == (0, 0, [], [], [span])
    batch = pa.record_batch(chunk)
    assert (batch.num_rows, batch.num_columns) == (0, 0)


# --- lives


def test_released_memory_goes_back_at_once() -> None:
    pool = Pool(1 << 30)
    chunk = a_chunk(pool)
    assert pool.used > 0
    chunk.release()
    chunk.release()
    assert (pool.used, chunk.nbytes, chunk.rows) == (0, 0, 100)
    assert chunk.spans()[0].rows == 100
    with pytest.raises(ValueError, match="was released"):
        chunk.__arrow_c_array__()
    assert pa.schema(chunk).names == list(TYPES)


def test_dead_letters_count_in_the_budget_until_their_chunk_goes() -> None:
    pool = Pool(1 << 30)
    to, _ = scanner(pool)
    size = 3 << 20
    feed(to, message_frame(b"\x0e\x01" + bytes(4 + size)), close=False)  # a sum that is not that of its bytes
    idle = pool.used
    assert to.has_open and idle > size
    chunk = to.take_chunk()
    assert chunk is not None and len(chunk.dead_letters) == 1 and chunk.dead_letter_bytes > size
    chunk.release()
    assert pool.used == idle
    held = chunk.dead_letter_bytes
    del chunk
    assert pool.used == idle - held


def test_a_chunk_that_is_dropped_gives_back_too() -> None:
    pool = Pool(1 << 30)
    chunk = a_chunk(pool)
    del chunk
    assert pool.used == 0


def test_capsules_that_nobody_imports() -> None:
    pool = Pool(1 << 30)
    chunk = a_chunk(pool)
    capsules = chunk.__arrow_c_array__()
    chunk.release()
    assert pool.used > 0
    del capsules
    assert pool.used == 0


@pytest.mark.parametrize("column", ROW.names)
def test_any_column_keeps_the_memory(column: str) -> None:
    pool = Pool(1 << 30)
    chunk = a_chunk(pool)
    wanted = [row[column] for row in oracle(FRAME)]
    kept = pa.record_batch(chunk)[column]
    chunk.release()
    del chunk
    gc.collect()
    assert pool.used > 0
    junk = a_chunk(pool)  # would write over memory that came back too early
    if pa.types.is_timestamp(kept.type):
        assert kept.cast(pa.int64()).to_pylist() == wanted
    elif column != "headers":
        assert kept.to_pylist() == wanted
    kept.validate(full=True)
    del junk, kept
    gc.collect()
    assert pool.used == 0


def test_children_may_be_taken_apart() -> None:
    pool = Pool(1 << 30)
    chunk = a_chunk(pool)
    batch = pa.record_batch(chunk)
    pieces = [
        batch.slice(10, 5)["value"],
        batch["headers"].slice(50).flatten(),
        batch["headers"].values.field("key"),
        batch["topic"].dictionary,
        batch["value"][1],
        batch["partition"],
    ]
    chunk.release()
    del batch, chunk
    gc.collect()
    assert pieces[0].to_pylist() == [row["value"] for row in oracle(FRAME)][10:15]
    assert pieces[3].to_pylist() == [LOG.topic]
    assert pieces[4].as_py() == b"v1"
    while pieces:
        assert pool.used > 0
        pieces.pop()
        gc.collect()
    assert pool.used == 0


def test_consumers_may_release_on_other_threads() -> None:
    pool = Pool(1 << 30)
    for _ in range(20):
        chunk = a_chunk(pool)
        batches = [pa.record_batch(chunk) for _ in range(8)]
        chunk.release()
        columns = [[batch[name] for name in ("key", "headers", "producer")] for batch in batches]
        del batches, chunk
        barrier = threading.Barrier(8)

        def drop(mine: list[pa.Array], barrier: threading.Barrier = barrier) -> None:
            barrier.wait()
            mine.clear()

        threads = [threading.Thread(target=drop, args=(mine,)) for mine in columns]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert pool.used == 0


def test_arrow_computes_on_the_columns() -> None:
    batch = pa.record_batch(a_chunk())
    table = pa.Table.from_batches([batch, batch]).unify_dictionaries()
    assert table.filter(pc.field("batchIndex") < 10).num_rows == 20
    assert batch.take(pa.array([99, 0]))["batchIndex"].to_pylist() == [99, 0]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch.slice(7, 20))
    assert pa.ipc.open_stream(sink.getvalue()).read_all().to_batches()[0] == batch.slice(7, 20)


def test_the_interpreter_ends_in_silence() -> None:
    """Columns alive at exit are released by plain C, after everything of Python is gone."""
    code = f"""
import sys, threading
import pyarrow as pa
sys.path.insert(0, {str(sys.path[0])!r})
from fastwire.columns.chunk import marker_chunk
from fastwire.position import Log
from fastwire.pulsar.reading.scan import Scanner
from fastwire.pulsar.reading.slot import SlotTable
from fastwire.wire.pool import Pool
frame = bytes.fromhex({FRAME.hex()!r})
pool = Pool(1 << 30)
slots = SlotTable([Log("pulsar", "c", "t", "0")])
slots.add(7, 0, ordered=True)
slots.attach(7, 1)
to = Scanner(slots, pool, 1)
view = to.get_buffer()
view[:len(frame)] = frame
to.received(len(frame))
to.scan()
chunk = to.take_chunk()
sys.batch = pa.record_batch(chunk)
sys.column = sys.batch["value"]
sys.chunk = chunk
sys.capsules = chunk.__arrow_c_array__()
sys.view = view
sys.cycle = [to, pool]
sys.cycle.append(sys.cycle)
threading.Thread(target=lambda batch=pa.record_batch(chunk): None, daemon=True).start()
"""
    done = subprocess.run([sys.executable, "-X", "dev", "-c", code], capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


# --- merged spans

LOGS = [Log("pulsar", "c", "persistent://a/b/t", str(number)) for number in range(3)]


def test_spans_of_many_chunks_become_one() -> None:
    to, _ = scanner()
    merged = SpanAccumulator()
    body = encode_batch_entry([Record(value=b"x")] * 2, producer_name="p", sequence_id=0, publish_time=1).body
    for entry in range(50):
        feed(to, message_frame(body, entry=entry), close=False)
        chunk = to.take_chunk()
        assert chunk is not None
        merged.add(chunk)
        chunk.release()
    assert merged.rows == 100
    assert merged.take() == [Span(LOG, Position(-1, -1), Position(12, 49), 100)]
    assert (merged.rows, merged.take()) == (0, [])


@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1), st.integers(1, 3)), min_size=1, max_size=6), max_size=8
    ),
    st.booleans(),
    st.data(),
)
def test_merged_spans_cover_the_same(
    chunks: list[list[tuple[int, int, int]]], ordered: bool, data: st.DataObject
) -> None:
    """Whatever the order of logs: the sum per log is what the chunks said one by one, and nothing adjacent is left."""
    slots = SlotTable(LOGS)
    for number in range(3):
        slots.add(number, number, ordered=ordered)
        slots.attach(number, 1)
    to = Scanner(slots, Pool(1 << 30), 1, columns=frozenset({"value"}), buffer_bytes=1 << 16)
    merged = SpanAccumulator()
    at = [0, 0, 0]
    single: list[Span] = []
    for parts in chunks:
        for log, skip, rows in parts:
            at[log] += 1 + skip
            body = encode_batch_entry([Record(value=b"")] * rows, producer_name="p", sequence_id=0, publish_time=1).body
            feed(to, message_frame(body, consumer=log, entry=at[log]), close=False)
        chunk = to.take_chunk()
        assert chunk is not None
        single += chunk.spans()
        merged.add(chunk)
    total = merged.rows
    spans = merged.take()
    assert sum(span.rows for span in spans) == total == sum(span.rows for span in single)
    for one in LOGS:
        mine = [span for span in spans if span.log == one]
        assert all(a.end != b.start for a, b in pairwise(mine))
        covered = {e for s in single if s.log == one for e in range(s.start.b + 1, s.end.b + 1)}
        assert {e for s in mine for e in range(s.start.b + 1, s.end.b + 1)} == covered
        if ordered:
            assert len(mine) <= 1


def test_markers_are_kept_beside_rows() -> None:
    first = Span(LOG, Position(1, 0), Position(1, 0), 0)
    merged = SpanAccumulator()
    merged.add(marker_chunk([first]))
    merged.add(a_chunk())
    merged.add(marker_chunk([first]))
    assert merged.take() == [first, first, Span(LOG, Position(-1, -1), Position(12, 5), 100)]


def test_chunks_of_two_tables() -> None:
    merged = SpanAccumulator()
    merged.add(a_chunk())
    merged.add(a_chunk())
    assert merged.rows == 200
    assert [span.rows for span in merged.take()] == [100, 100]


def test_only_chunks_are_taken() -> None:
    with pytest.raises(TypeError):
        SpanAccumulator().add(None)  # type: ignore[arg-type]
