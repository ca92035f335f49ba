"""The three file formats: what was given comes out again, in every reader; and what the files look like inside."""

import base64
import gzip
import io
import json
import math
import random
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest
import zstandard

from fastwire.pulsar.columns import ROW
from fastwire_daemon.encoders.arrow import ArrowEncoder
from fastwire_daemon.encoders.base import Compression, Encoder, EncoderOptions, Outlet, parse_compression
from fastwire_daemon.encoders.jsonl import JsonlEncoder
from fastwire_daemon.encoders.parquet import ParquetEncoder
from tests.support.pulsar.arrow_types import TYPES

ENCODERS: dict[str, type[Encoder]] = {"parquet": ParquetEncoder, "arrow": ArrowEncoder, "jsonl": JsonlEncoder}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NULLABLE = {column.name: column.nullable for column in ROW.columns}
SCHEMA = pa.schema([pa.field(name, kind, NULLABLE[name]) for name, kind in TYPES.items()])


def some_rows(count: int, seed: int) -> list[dict[str, Any]]:
    """Rows with every awkward thing a topic can hold; topics and producers differ from seed to seed."""
    rng = random.Random(seed)
    values = [None, b"", b"plain", '{"é": "\\"\n\x01"}'.encode(), b"\xff\xfe\x00", b"\xc0\x80", b"x" * 5000]
    return [
        {
            "key": rng.choice(values),
            "value": rng.choice(values),
            "topic": f"persistent://public/default/{seed}-{rng.randrange(3)}",
            "partition": rng.randrange(-1, 4),
            "offset": rng.choice([0, i, 2**63 - 1]),
            "timestamp": EPOCH + timedelta(microseconds=rng.randrange(0, 2**51)),
            "timestampType": 0,
            "headers": rng.choice([None, [], [{"key": "a", "value": b"\x00\xff"}, {"key": "ä", "value": None}]]),
            "ledger": rng.randrange(2**40),
            "batchIndex": i % 10 - 1,
            "eventTime": rng.choice([None, EPOCH + timedelta(microseconds=1)]),
            "producer": f"standalone-{seed}-{i % 2}",
            "sequenceId": -(2**63) if i == 7 else i,
            "orderingKey": rng.choice(values),
            "schemaVersion": rng.choice([None, bytes(8)]),
            "redeliveryCount": i % 3,
        }
        for i in range(count)
    ]


def batch_of(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


def options(encoder: type[Encoder], compression: str | None = None, **changes: Any) -> EncoderOptions:
    return EncoderOptions(
        compression=parse_compression(compression, encoder.compressions), columns=ROW.columns, **changes
    )


def encode(
    encoder: type[Encoder], batches: list[pa.RecordBatch], compression: str | None = None, **changes: int
) -> bytes:
    file = io.BytesIO()
    writer = encoder(file, batches[0].schema, options(encoder, compression, **changes))
    for batch in batches:
        writer.write(batch)
    writer.finish()
    assert not file.closed
    assert writer.pending_bytes == 0
    assert writer.rows == sum(batch.num_rows for batch in batches)
    return file.getvalue()


# What each reader makes of a file, brought to the one form of ``some_rows``.


def from_json(line: bytes) -> dict[str, Any]:
    def as_bytes(cell: Any) -> bytes | None:
        if isinstance(cell, dict):
            assert list(cell) == ["base64"]
            return base64.b64decode(cell["base64"], validate=True)
        return None if cell is None else str(cell).encode()

    row: dict[str, Any] = json.loads(line)
    for name in ("key", "value", "orderingKey", "schemaVersion"):
        row[name] = as_bytes(row[name])
    for name in ("timestamp", "eventTime"):
        row[name] = None if row[name] is None else datetime.fromisoformat(row[name])
    if row["headers"] is not None:
        row["headers"] = [{"key": h["key"], "value": as_bytes(h["value"])} for h in row["headers"]]
    return row


def read_back(reader: str, path: Path) -> list[dict[str, Any]]:
    kind = path.name.split(".")[1]
    if kind == "jsonl":
        data = path.read_bytes()
        data = {".gz": gzip.decompress, ".zst": zstd_decompress}.get(path.suffix, bytes)(data)
        return [from_json(line) for line in data.splitlines()]
    if reader == "polars":
        frame = pl.read_parquet(path) if kind == "parquet" else pl.read_ipc(path)
        return frame.to_dicts()
    if reader == "duckdb":
        connection = duckdb.connect()
        connection.execute("SET TimeZone = 'UTC'")
        found = rows_of(connection.read_parquet(str(path)).to_arrow_table())
        return [{**row, **{n: row[n] and row[n].astimezone(UTC) for n in ("timestamp", "eventTime")}} for row in found]
    if kind == "parquet":
        return rows_of(pq.read_table(path))
    with pa.ipc.open_file(path) as file:
        return rows_of(file.read_all())


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def zstd_decompress(data: bytes) -> bytes:
    return zstandard.ZstdDecompressor().decompressobj().decompress(data)


@pytest.mark.parametrize(
    ("name", "compression"),
    [(name, codec) for name, encoder in ENCODERS.items() for codec in encoder.compressions],
)
def test_every_reader_finds_every_cell(name: str, compression: str, tmp_path: Path) -> None:
    rows = [row for seed in range(3) for row in some_rows(200, seed)]
    batches = [batch_of(rows[:200]), batch_of(rows[200:201]), batch_of(rows[200:]).slice(1)]
    encoder = ENCODERS[name]
    path = tmp_path / f"f.{encoder.extension}{encoder.compressions[compression]}"
    path.write_bytes(encode(encoder, batches, compression, row_group_rows=250))
    readers = {"parquet": ("pyarrow", "polars", "duckdb"), "arrow": ("pyarrow", "polars"), "jsonl": ("json",)}[name]
    for reader in readers:
        assert read_back(reader, path) == rows, reader


@pytest.mark.parametrize("compression", ["none", "gzip", "zstd"])
def test_duckdb_and_polars_read_json_lines(compression: str, tmp_path: Path) -> None:
    rows = some_rows(300, 1)
    path = tmp_path / f"f.jsonl{JsonlEncoder.compressions[compression]}"
    path.write_bytes(encode(JsonlEncoder, [batch_of(rows)], compression))
    offsets = [row["offset"] for row in rows]
    assert [row[0] for row in duckdb.connect().execute(f"SELECT \"offset\" FROM '{path}'").fetchall()] == offsets
    assert pl.scan_ndjson(path).select("offset").collect()["offset"].to_list() == offsets


# Parquet


def test_parquet_row_groups_end_at_rows_or_bytes() -> None:
    batches = [batch_of(some_rows(100, 1)).select(["offset", "value"])] * 10
    file = pq.ParquetFile(io.BytesIO(encode(ParquetEncoder, batches, row_group_rows=400)))
    assert [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)] == [400, 400, 200]
    third = math.ceil(batches[0].nbytes * 3)
    file = pq.ParquetFile(io.BytesIO(encode(ParquetEncoder, batches, row_group_bytes=third)))
    assert [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)] == [300, 300, 300, 100]


@pytest.mark.parametrize("encoder", [ParquetEncoder, ArrowEncoder])
def test_a_batch_of_large_values_is_written_alone_and_at_once(encoder: type[ParquetEncoder | ArrowEncoder]) -> None:
    small = pa.record_batch({"value": pa.array([b"v"], pa.binary())})
    large = pa.record_batch({"value": pa.array([bytes(17 << 20)], pa.binary())})
    file = io.BytesIO()
    writer = encoder(file, small.schema, options(encoder))
    pending = []
    for batch in (small, large, large, small):
        writer.write(batch)
        pending.append(writer.pending_bytes > 0)
    assert pending == [True, False, False, True]
    writer.finish()
    if encoder is ParquetEncoder:
        assert pq.ParquetFile(io.BytesIO(file.getvalue())).num_row_groups == 4


def test_parquet_pending_bytes_and_flush() -> None:
    file = io.BytesIO()
    writer = ParquetEncoder(file, SCHEMA, options(ParquetEncoder))
    batch = batch_of(some_rows(100, 1))
    writer.write(batch)
    writer.write(batch)
    assert (writer.rows, writer.pending_bytes) == (200, 2 * batch.get_total_buffer_size())
    writer.flush()
    writer.flush()
    assert writer.pending_bytes == 0
    writer.finish()
    assert pq.ParquetFile(io.BytesIO(file.getvalue())).num_row_groups == 1


def test_parquet_columns_are_stored_as_the_schema_table_says() -> None:
    batches = [batch_of(some_rows(500, 1)), batch_of(some_rows(500, 2))]
    file = pq.ParquetFile(io.BytesIO(encode(ParquetEncoder, batches)))
    group = file.metadata.row_group(0)
    found = {group.column(i).path_in_schema: group.column(i) for i in range(group.num_columns)}
    for column in ROW.columns:
        if column.role == "list":
            continue
        chunk = found[column.name]
        if column.role == "constant":
            # A dictionary and nothing else: data pages that fell back would show as PLAIN beside it.
            assert chunk.has_dictionary_page, column.name
            assert set(chunk.encodings) <= {"PLAIN", "RLE", "RLE_DICTIONARY"}, column.name
        elif column.role == "counter":
            assert "DELTA_BINARY_PACKED" in chunk.encodings, column.name
        else:
            text = column.name in ("key", "value", "orderingKey")  # they repeat in these rows
            assert chunk.has_dictionary_page is text, column.name
        if column.name in ("topic", "producer"):
            assert chunk.total_uncompressed_size < 4 * group.num_rows, "some pages are not dictionary-encoded"
        assert chunk.statistics.has_min_max == column.stats, column.name
        assert chunk.statistics.has_null_count, column.name
        assert chunk.compression == "ZSTD"
    assert b"ARROW:schema" not in (file.metadata.metadata or {})
    assert {str(f.type) for f in file.schema_arrow if "ime" in f.name and f.name != "timestampType"} == {
        "timestamp[us, tz=UTC]"
    }
    required = {name for name, nullable in NULLABLE.items() if not nullable}
    leaves = [file.schema.column(i) for i in range(len(file.schema))]
    assert {leaf.name for leaf in leaves if leaf.max_definition_level == 0} == required


def test_parquet_dictionary_values_may_repeat() -> None:
    topic = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, 1], pa.int32()), pa.array(["a", "a", "b"]))
    batch = pa.record_batch({"topic": topic})
    for batches in ([batch], [batch, batch.slice(2)]):
        expected = [row["topic"] for part in batches for row in part.to_pylist()]
        assert pq.read_table(io.BytesIO(encode(ParquetEncoder, batches)))["topic"].to_pylist() == expected


# Arrow


def test_arrow_puts_small_batches_together_and_leaves_large_ones() -> None:
    small = batch_of(some_rows(100, 1)).select(["offset", "topic"])
    with pa.ipc.open_file(encode(ArrowEncoder, [small] * 10, row_group_rows=500)) as file:
        assert [file.get_batch(i).num_rows for i in range(file.num_record_batches)] == [500, 500]
    with pa.ipc.open_file(encode(ArrowEncoder, [small] * 3, row_group_rows=100)) as file:
        assert [file.get_batch(i).num_rows for i in range(file.num_record_batches)] == [100, 100, 100]
        assert file.schema.field("topic").type == pa.string()


# Files that fail or wait


class FailingFile(io.RawIOBase):
    """Raises at the first write after ``good`` bytes; counts what comes later."""

    def __init__(self, good: int) -> None:
        self.good = good
        self.failed = 0

    def write(self, data: Any, /) -> int:
        size = len(data)
        self.good -= size
        if self.good < 0:
            self.failed += 1
            raise OSError(5, "the disk is gone")
        return size


@pytest.mark.parametrize("name", ENCODERS)
@pytest.mark.parametrize("good", [0, 5_000])
def test_after_a_failed_write_nothing_touches_the_file(name: str, good: int) -> None:
    file = FailingFile(good)
    encoder = ENCODERS[name]
    batch = batch_of(some_rows(300, 1))

    def write_until_it_fails() -> None:
        writer = encoder(file, batch.schema, options(encoder, "none"))
        for _ in range(20):
            writer.write(batch)
            writer.flush()
        writer.finish()

    with pytest.raises(OSError, match="the disk is gone"):
        write_until_it_fails()
    assert file.failed == 1
    assert not file.closed


@pytest.mark.parametrize("name", ENCODERS)
def test_a_write_that_waits_does_not_stop_other_threads(name: str) -> None:
    waiting, go_on = threading.Event(), threading.Event()

    class SlowFile(io.BytesIO):
        def write(self, data: Any, /) -> int:
            waiting.set()
            assert go_on.wait(30)
            return super().write(data)

    rows = some_rows(50, 1)
    file = SlowFile()

    def work() -> None:
        writer = ENCODERS[name](file, SCHEMA, options(ENCODERS[name]))
        writer.write(batch_of(rows))
        writer.finish()

    thread = threading.Thread(target=work)
    thread.start()
    assert waiting.wait(30)
    go_on.set()
    thread.join(30)
    assert file.getvalue()


def test_outlet_writes_all_and_is_deaf_once_cut() -> None:
    class ShortFile(io.BytesIO):
        def write(self, data: Any, /) -> int:
            return super().write(bytes(data)[:3])

    file = ShortFile()
    outlet = Outlet(file)
    assert outlet.write(b"0123456789") == 10
    assert (file.getvalue(), outlet.written) == (b"0123456789", 10)
    outlet.close()
    assert not file.closed
    outlet.cut()
    assert outlet.write(b"more") == 4
    assert (file.getvalue(), outlet.written) == (b"0123456789", 10)


# Compression names


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, Compression("zstd", 1)),
        ("zstd", Compression("zstd", 1)),
        ("zstd:22", Compression("zstd", 22)),
        ("gzip", Compression("gzip", None)),
        ("gzip:9", Compression("gzip", 9)),
        ("none", Compression("none", None)),
    ],
)
def test_compression_text(text: str | None, expected: Compression) -> None:
    assert parse_compression(text, ParquetEncoder.compressions) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("brotli", "unknown compression 'brotli'; this encoder takes zstd, lz4, snappy, gzip, none"),
        ("", "unknown compression ''; this encoder takes zstd, lz4, snappy, gzip, none"),
        ("lz4:3", "compression 'lz4' has no levels"),
        ("zstd:", "zstd has levels 1 to 22, not ''"),
        ("zstd:0", "zstd has levels 1 to 22, not '0'"),
        ("gzip:10", "gzip has levels 1 to 9, not '10'"),
        ("zstd:-1", "zstd has levels 1 to 22, not '-1'"),
    ],
)
def test_compression_text_that_is_wrong(text: str, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_compression(text, ParquetEncoder.compressions)
    assert str(caught.value) == message
