"""Files of the encoder, read by others: each cell, the schema, statistics, and what does not fit."""

import io
import random
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from fastparquet import ParquetFile
from hypothesis import given, settings
from hypothesis import strategies as st

from fastwire.parquet.codec import CODECS
from fastwire.parquet.errors import UnwritableError
from fastwire.parquet.file import ParquetWriter
from tests.fastwire.parquet.tables import DICTIONARIES, FLAT, batches_of, by_pyarrow, schema_of, written

PAGE = 1 << 20


def of_columns(cells: dict[str, Any], **more: Any) -> bytes:
    """A file of one batch."""
    batch = pa.record_batch(cells)
    return written([[batch]], batch.schema, **more)


def described(file: bytes) -> list[tuple[Any, ...]]:
    """Type, logical type and levels of each leaf in the footer."""
    schema = pq.ParquetFile(io.BytesIO(file)).schema
    return [
        (
            leaf.path, leaf.physical_type, str(leaf.logical_type), leaf.converted_type, leaf.max_definition_level,
            leaf.max_repetition_level, leaf.length, leaf.precision, leaf.scale,
        )
        for leaf in map(schema.column, range(len(schema)))
    ]  # fmt: skip


@settings(max_examples=150)
@given(st.integers(0, 2**32))
def test_random_tables_read_as_those_of_pyarrow(seed: int) -> None:
    """Cells, types and nulls; the schema of the footer; the same bytes for the same rows."""
    rng = random.Random(seed)
    schema = schema_of(rng)
    batches = batches_of(rng, schema)
    columns = {name: (rng.choice(["plain", "constant", "counter"]), rng.random() < 0.5) for name in schema.names}
    codec = rng.choice(list(CODECS))
    middle = rng.randint(0, len(batches))
    file = written([batches[:middle], batches[middle:]], schema, columns=columns, codec=codec)
    assert file == written([batches[:middle], batches[middle:]], schema, columns=columns, codec=codec)
    expected = by_pyarrow(pa.Table.from_batches(batches, schema))
    found = pq.read_table(io.BytesIO(file))
    assert found.equals(pq.read_table(io.BytesIO(expected)))
    assert described(file) == described(expected)


def test_files_that_are_written_at_one_time_share_nothing() -> None:
    """Memory goes from one file to the next, also from one that has failed; never to two of them at once."""
    rng = random.Random(11)
    row = pa.record_batch({"number": [1]})
    given = [(schema := schema_of(rng), batches_of(rng, schema), codec) for codec in CODECS for _ in range(4)]

    def file_of(rows: tuple[pa.Schema, list[pa.RecordBatch], str]) -> bytes:
        schema, batches, codec = rows
        failing = ParquetWriter(row.schema, failed, codec=codec)
        with pytest.raises(OSError, match="full"):
            failing.write_row_group([row])
        return written([[batch] for batch in batches], schema, codec=codec)

    def failed(data: bytes) -> None:
        if data != b"PAR1":
            raise OSError("full")

    alone = [file_of(rows) for rows in given]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(file_of, given * 8)) == alone * 8


@pytest.mark.parametrize("known", [("constant", True), ("plain", False)], ids=str)
def test_every_reader_finds_every_cell(tmp_path: Path, known: tuple[str, bool]) -> None:
    rng = random.Random(7)
    kinds = [kind for kind in (*FLAT, *DICTIONARIES) if not pa.types.is_null(kind) and not pa.types.is_decimal256(kind)]
    schema = pa.schema(
        [
            *(pa.field(f"c{at}", kind) for at, kind in enumerate(kinds)),
            pa.field("nested", pa.list_(pa.struct([pa.field("a", pa.int32()), pa.field("b", pa.list_(pa.string()))]))),
            pa.field("map", pa.map_(pa.string(), pa.float64())),
        ]
    )
    batches = [each for _ in range(4) for each in batches_of(rng, schema)]
    table = pa.Table.from_batches(batches, schema)
    path, reference = tmp_path / "ours.parquet", tmp_path / "reference.parquet"
    path.write_bytes(written([batches], schema, columns=dict.fromkeys(schema.names, known)))
    reference.write_bytes(by_pyarrow(table))
    with duckdb.connect() as database:
        rows = database.sql(f"select * from '{path}'").fetchall()
        assert len(rows) == table.num_rows
        assert rows == database.sql(f"select * from '{reference}'").fetchall()
    assert pl.read_parquet(path).equals(pl.read_parquet(reference), null_equal=True)


@pytest.mark.parametrize("codec", list(CODECS))
def test_fastparquet_finds_every_cell(codec: str) -> None:
    """A reader of its own, in Cython: what it makes of our file is what it makes of pyarrow's."""
    rows = range(3000)
    batch = pa.record_batch(
        {
            "counter": pa.array(rows),
            "constant": pa.array([7] * len(rows), pa.int32()),
            "null": pa.array([None if row % 7 == 0 else row / 3 for row in rows]),
            "word": pa.array([None if row % 5 == 0 else f"word {row % 13}" for row in rows]),
            "text": pa.array([f"text {row}" for row in rows]),
            "bytes": pa.array([bytes([row % 256]) * (row % 9) for row in rows]),
            "bool": pa.array([row % 3 == 0 for row in rows]),
            "time": pa.array([datetime(2026, 1, 1, second=row % 60, tzinfo=UTC) for row in rows]),
            "list": pa.array([list(range(row % 4)) for row in rows]),
            "dictionary": pa.array([f"key {row % 5}" for row in rows]).dictionary_encode(),
        }
    )
    known = {"counter": ("counter", True), "constant": ("constant", True)}
    ours = written([[batch], [batch, batch]], batch.schema, columns=known, codec=codec)
    theirs = by_pyarrow(pa.Table.from_batches([batch] * 3))
    found, expected = (ParquetFile(io.BytesIO(each)).to_pandas() for each in (ours, theirs))
    assert len(found) == 3 * len(rows)
    for name in batch.schema.names:
        assert found[name].astype(object).map(repr).equals(expected[name].astype(object).map(repr)), name


def test_files_become_a_delta_table_again(tmp_path: Path) -> None:
    """A library in Rust reads and rewrites them."""
    path = tmp_path / "ours.parquet"
    path.write_bytes(of_columns({"id": pa.array(range(3000)), "name": pa.array(["a", None, "ü"] * 1000)}))
    write_deltalake(tmp_path / "table", pq.read_table(path))
    assert DeltaTable(tmp_path / "table").to_pyarrow_table().num_rows == 3000


def statistics(file: bytes, column: int = 0) -> Any:
    return pq.ParquetFile(io.BytesIO(file)).metadata.row_group(0).column(column).statistics


@pytest.mark.parametrize(
    "array",
    [
        pa.array([5, -7, None, 3], pa.int32()),
        pa.array([2**63 - 1, -(2**63)], pa.int64()),
        pa.array([2**32 - 1, 1], pa.uint32()),
        pa.array([2**64 - 1, 1], pa.uint64()),
        pa.array([1.5, -2.5, float("nan")], pa.float64()),
        pa.array([1.5, -2.5], pa.float32()),
        pa.array([True, False, None]),
        pa.array(["b", "ä", "", None]),
        pa.array([b"\xff", b"\x00", b"\xff\x00"]),
        pa.array([Decimal("-1.50"), Decimal("1.25"), Decimal("0.00")], pa.decimal128(9, 2)),
        pa.array([datetime(2026, 1, 2, tzinfo=UTC), datetime(1969, 1, 2, tzinfo=UTC)], pa.timestamp("us", "UTC")),
        pa.array([b"0123", b"1234"], pa.binary(4)),
    ],
    ids=lambda array: str(array.type),
)
@pytest.mark.parametrize("role", ["plain", "constant", "counter"])
def test_statistics_are_those_of_pyarrow(array: pa.Array, role: str) -> None:
    found = statistics(of_columns({"x": array}, columns={"x": (role, True)}))
    expected = statistics(by_pyarrow(pa.table({"x": array})))
    assert (found.min, found.max, found.null_count) == (expected.min, expected.max, expected.null_count)


def test_zeros_of_both_signs_are_within_the_statistics() -> None:
    found = statistics(of_columns({"x": pa.array([0.0, 0.0])}, columns={"x": ("plain", True)}))
    assert str(found.min) == "-0.0"
    found = statistics(of_columns({"x": pa.array([-0.0])}, columns={"x": ("plain", True)}))
    assert str(found.max) == "0.0"


@pytest.mark.parametrize(
    ("value", "low", "high"),
    [
        ("a" * 64, "a" * 64, "a" * 64),
        ("a" * 65, "a" * 64, "a" * 63 + "b"),
        ("a" * 63 + "ä", "a" * 63, "a" * 62 + "b"),
        ("\U0010ffff" * 20, "\U0010ffff" * 16, None),
        ("a" + "\U0010ffff" * 20, "a" + "\U0010ffff" * 15, "b"),
        ("\ud7ff" * 30, "\ud7ff" * 21, "\ud7ff" * 20 + "\ue000"),
    ],
)
def test_long_texts_are_shortened_in_the_statistics(value: str, low: str, high: str | None) -> None:
    found = statistics(of_columns({"x": pa.array([value])}, columns={"x": ("plain", True)}))
    if high is None:  # the reader takes one end alone for none
        assert not found.has_min_max
    else:
        assert (found.min, found.max) == (low, high)
        assert low <= value <= high


def test_long_bytes_are_shortened_in_the_statistics() -> None:
    found = statistics(of_columns({"x": pa.array([b"a" * 63 + b"\xff\xff"])}, columns={"x": ("plain", True)}))
    assert (found.min, found.max) == (b"a" * 63 + b"\xff", b"a" * 62 + b"b")
    assert not statistics(of_columns({"x": pa.array([b"\xff" * 65])}, columns={"x": ("plain", True)})).has_min_max


def test_pages_have_a_mebibyte_and_records_are_whole() -> None:
    """Without compression each page is one write."""
    writes: list[int] = []
    lists = pa.array([[f"{at:050}{item:050}" for item in range(50)] for at in range(2000)])
    batch = pa.record_batch(
        {"value": pa.array([b"%0100d" % at for at in range(50_000)]), "number": pa.array(range(50_000))}
    )
    nested = pa.record_batch({"lists": lists})
    for each in (batch, nested):
        writer = ParquetWriter(each.schema, lambda data: writes.append(len(data)), codec="none")
        writer.write_row_group([each])
    assert max(writes) <= PAGE + 6000  # the end of a record
    assert sum(size > PAGE // 2 for size in writes) >= 13
    file = written([[nested]], nested.schema)
    assert pq.read_table(io.BytesIO(file))["lists"].combine_chunks().equals(lists)


def test_a_value_of_64_mib_is_a_page() -> None:
    large = b"\x01" * (64 << 20)
    found = pq.read_table(io.BytesIO(of_columns({"x": pa.array([b"", large, b"a"], pa.binary())})))["x"]
    assert [len(value.as_py()) for value in found] == [0, 64 << 20, 1]


def test_ten_thousand_columns() -> None:
    columns = {f"c{at}": pa.array([at, None], pa.int32()) for at in range(10_000)}
    table = pq.read_table(io.BytesIO(of_columns(columns)))
    assert table.num_columns == 10_000
    assert table["c9999"].to_pylist() == [9999, None]


def test_a_file_without_rows_has_its_schema() -> None:
    schema = pa.schema([pa.field("x", pa.int64(), nullable=False)], metadata={b"ignored": b""})
    empty = pa.RecordBatch.from_pylist([], schema=schema)
    assert written([], schema) == written([[empty], []], schema)
    assert pq.read_schema(io.BytesIO(written([], schema))).field("x") == schema.field("x")


def test_field_ids_and_metadata_are_kept() -> None:
    schema = pa.schema(
        [
            pa.field(
                "x",
                pa.list_(pa.field("element", pa.int32(), metadata={"PARQUET:field_id": "7"})),
                metadata={"PARQUET:field_id": "3"},
            )
        ]
    )
    file = io.BytesIO()
    writer = ParquetWriter(schema, file.write, metadata={b"key": b"value"})
    writer.close()
    found = pq.read_schema(io.BytesIO(file.getvalue()))
    assert found.field("x").metadata[b"PARQUET:field_id"] == b"3"
    assert found.field("x").type.value_field.metadata[b"PARQUET:field_id"] == b"7"
    assert pq.read_metadata(io.BytesIO(file.getvalue())).metadata[b"key"] == b"value"


def test_a_dictionary_that_hardly_repeats_is_none() -> None:
    few, many = pa.array(["a", "b"] * 5000), pa.array([str(at) for at in range(10_000)])
    for array, wanted in ((few, True), (many, False)):
        file = of_columns({"x": array.dictionary_encode()})
        chunk = pq.read_metadata(io.BytesIO(file)).row_group(0).column(0)
        assert chunk.has_dictionary_page is wanted
        assert pq.read_table(io.BytesIO(file))["x"].to_pylist() == array.to_pylist()


MANY = 1 << 20


@pytest.mark.parametrize(
    ("cells", "wanted"),
    [
        pytest.param(["", "a", "Zürich", "longer than eight bytes", None] * 400, True, id="few words"),
        pytest.param([f"word {at * at % 997}" for at in range(16_000)], True, id="many words, much repeated"),
        pytest.param([str(at) for at in range(4000)], False, id="none twice"),
        pytest.param([str(at // 3) for at in range(6000)], False, id="each three times"),
        pytest.param(["a"] * 2000 + [str(at) for at in range(8000)], False, id="repeated only at first"),
        pytest.param([str(at) for at in range(2000)] + ["a"] * 30_000, False, id="repeated only later"),
        pytest.param(["x" * 40_000 + str(at % 9) for at in range(99)], True, id="long words"),
        pytest.param([("a", "b")[at % 3 % 2] for at in range(MANY + 1)], False, id="more numbers than are held"),
        pytest.param(["a", "b", "c"], False, id="too few"),
    ],
)
@pytest.mark.parametrize("kind", [pa.string(), pa.binary()], ids=str)
def test_texts_that_repeat_become_a_dictionary(cells: list[str | None], wanted: bool, kind: pa.DataType) -> None:
    array = pa.array(cells, kind)
    batches = [pa.record_batch({"x": array.slice(at, 5000)}) for at in range(0, len(array), 5000)]
    file = written([batches], batches[0].schema, columns={"x": ("plain", True)})
    assert pq.read_metadata(io.BytesIO(file)).row_group(0).column(0).has_dictionary_page is wanted
    assert pq.read_table(io.BytesIO(file))["x"].combine_chunks().equals(array)
    found, expected = statistics(file), statistics(by_pyarrow(pa.table({"x": array})))
    assert found.null_count == expected.null_count
    assert not expected.has_min_max or (found.min, found.max) == (expected.min, expected.max)  # it has no long ones


def test_texts_have_an_encoding_that_every_reader_knows() -> None:
    """Iceberg's vectorised reader of Spark, before 1.11, reads no texts whose sizes lie before their bytes."""
    texts = pa.array([None if at % 7 == 0 else f"{at:016x}" for at in range(9000)])
    array = pa.record_batch({"x": texts, "y": texts.cast(pa.binary())})
    group = pq.read_metadata(io.BytesIO(written([[array]], array.schema))).row_group(0)
    assert {name for at in (0, 1) for name in group.column(at).encodings} <= {"PLAIN", "RLE", "RLE_DICTIONARY"}


def test_dictionaries_of_batches_become_one() -> None:
    batches = [
        pa.record_batch({"x": pa.array(words).dictionary_encode()})
        for words in (["a", "b", None], ["b", "c"], ["a"] * 20)
    ]
    file = written([batches], batches[0].schema)
    assert pq.read_table(io.BytesIO(file))["x"].to_pylist() == ["a", "b", None, "b", "c", *["a"] * 20]


def test_dictionaries_lie_inside_of_others() -> None:
    words = pa.DictionaryArray.from_arrays(pa.array([1, None, 0, 1], pa.int16()), pa.array(["a", "b"]))
    lists = pa.ListArray.from_arrays(pa.array([0, 2, 2, 4], pa.int32()), words)
    found = pq.read_table(io.BytesIO(of_columns({"x": lists})))["x"]
    assert found.to_pylist() == [["b", None], [], ["a", "b"]]


@pytest.mark.parametrize(
    "kind",
    [
        pa.map_(pa.string(), pa.string()),
        pa.list_(pa.field("element", pa.struct([pa.field("a", pa.int32(), nullable=False)]), nullable=False)),
        pa.large_list(pa.list_(pa.bool_())),
        pa.struct([pa.field("a", pa.list_(pa.large_string())), pa.field("b", pa.int64(), nullable=False)]),
    ],
    ids=str,
)
@pytest.mark.parametrize("nullable", [True, False])
def test_batches_without_a_value_in_a_nested_column_lie_between_others(kind: pa.DataType, nullable: bool) -> None:
    """All rows null, all lists empty, and both in one batch; slices of each."""
    rng = random.Random(3)
    schema = pa.schema([pa.field("x", kind, nullable=nullable)])
    some = next(batch.column(0).to_pylist() for batch in batches_of(rng, schema) if batch.num_rows)
    nothing: Any = {"a": None, "b": 0} if pa.types.is_struct(kind) else []
    null = None if nullable else nothing
    alone = [null] * 9, [nothing] * 9
    for order in (alone, (*alone, [null, nothing] * 5, [*some, null]), ([*some, nothing], [null] * 9, some)):
        batches = [pa.record_batch([pa.array(cells, kind)], schema=schema) for cells in order]
        batches += [each.slice(1, 3) for each in batches]
        table = pa.Table.from_batches(batches, schema)
        assert pq.read_table(io.BytesIO(written([batches], schema))).equals(
            pq.read_table(io.BytesIO(by_pyarrow(table)))
        )
        for batch in batches:  # a chunk of its own
            assert pq.read_table(io.BytesIO(written([[batch]], schema)))["x"].to_pylist() == batch["x"].to_pylist()


def test_what_does_not_fit_is_named() -> None:
    def refused(array: pa.Array, field: pa.Field) -> str:
        schema = pa.schema([field])
        batch = pa.RecordBatch.from_arrays([array], schema=schema)
        with pytest.raises(UnwritableError) as error:
            written([[batch]], schema)
        return str(error.value)

    duration, nanoseconds = pa.array([1], pa.duration("us")), pa.array([1], pa.timestamp("ns"))
    year_300000 = pa.array([2**63 - 1], pa.timestamp("s"))
    assert "column x has a value beyond the range" in refused(year_300000, pa.field("x", pa.timestamp("s")))
    assert "column x has the Arrow type 'tDu'" in refused(duration, pa.field("x", duration.type))
    assert "column x has the Arrow type 'tsn:'" in refused(nanoseconds, pa.field("x", nanoseconds.type))
    wide = pa.Array.from_buffers(pa.decimal128(3, 0), 1, [None, pa.py_buffer((10**9).to_bytes(16, "little"))])
    assert "column x has a value beyond the range" in refused(wide, pa.field("x", pa.decimal128(3, 0)))
    nulls = pa.Array.from_buffers(pa.int32(), 2, [pa.py_buffer(b"\x01"), pa.py_buffer(bytes(8))])
    assert "column x has nulls" in refused(nulls, pa.field("x", pa.int32(), nullable=False))
    broken = pa.DictionaryArray.from_arrays(pa.array([0, 9], pa.int32()), pa.array(["a"]), safe=False)
    assert "index beyond its dictionary" in refused(broken, pa.field("x", broken.type))


def test_a_batch_of_another_schema_is_refused() -> None:
    writer = ParquetWriter(pa.schema([("x", pa.int32())]), lambda data: None)
    with pytest.raises(UnwritableError, match="the column x of a batch has another type"):
        writer.write_row_group([pa.record_batch({"x": pa.array([1], pa.int64())})])
    with pytest.raises(UnwritableError, match="a batch has 2 columns, and the file 1"):
        writer.write_row_group([pa.record_batch({"x": pa.array([1], pa.int32()), "y": pa.array([1])})])
    with pytest.raises(ValueError, match="unknown codec 'brotli'"):
        ParquetWriter(pa.schema([("x", pa.int32())]), lambda data: None, codec="brotli")
