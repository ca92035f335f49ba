"""Landed Parquet against what was sent: every column of every row, by three independent readers."""

from operator import itemgetter
from pathlib import Path
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tests.real.matrix import SentRecord

MOMENT = pa.timestamp("us", tz="UTC")

# The row as plain readers see it; order and types are a contract with them.
ROW = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", MOMENT, nullable=False),
        pa.field("timestampType", pa.int32(), nullable=False),
        pa.field("headers", pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))),
        pa.field("ledger", pa.int64(), nullable=False),
        pa.field("batchIndex", pa.int32(), nullable=False),
        pa.field("eventTime", MOMENT),
        pa.field("producer", pa.string(), nullable=False),
        pa.field("sequenceId", pa.int64(), nullable=False),
        pa.field("orderingKey", pa.binary()),
        pa.field("schemaVersion", pa.binary()),
        pa.field("redeliveryCount", pa.int32(), nullable=False),
    ]
)
IDENTITY = ("topic", "partition", "ledger", "offset", "batchIndex")


def data_files(path: Path) -> list[Path]:
    """The visible Parquet files of a dataset, in log order."""
    return sorted(path.rglob("*.parquet"), key=lambda file: file.name)


def landed_table(path: Path) -> pa.Table:
    """All rows that pyarrow finds, sorted by identity; the schema of every file is checked on the way."""
    tables = []
    for file in data_files(path):
        table = pq.read_table(file, partitioning=None)
        for expected in ROW:
            found = table.schema.field(expected.name)
            assert _same(found.type, expected.type), f"{file.name}: {expected.name} is {found.type}"
        assert table.schema.names == ROW.names, file.name
        # Fields that are never null say so in the file; how a list's inner field is called does not matter.
        tables.append(table.cast(pa.schema([field.with_nullable(True) for field in ROW])))
    if not tables:
        return ROW.empty_table()
    return _sorted(pa.concat_tables(tables))


def _same(found: pa.DataType, expected: pa.DataType) -> bool:
    """Return whether two types hold the same values under the same names, inner nullability aside."""
    if pa.types.is_list(expected):
        return pa.types.is_list(found) and _same(found.value_type, expected.value_type)
    if pa.types.is_struct(expected):
        return (
            pa.types.is_struct(found)
            and [field.name for field in found] == [field.name for field in expected]
            and all(_same(mine.type, other.type) for mine, other in zip(found, expected, strict=True))
        )
    return bool(found == expected)


def _sorted(table: pa.Table) -> pa.Table:
    return table.sort_by([(name, "ascending") for name in IDENTITY]).combine_chunks()


def assert_landed(path: Path, sent: list[SentRecord]) -> None:
    """The folder holds exactly the rows of ``sent``, in every column; a failure names row, column and both values."""
    rows = _rows(landed_table(path))
    expected = {record.identity: record for record in sent}
    assert len(expected) == len(sent), "the sent records have no identity of their own"
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        identity = tuple(row[name] for name in IDENTITY)
        assert identity not in found, f"landed twice: {identity}"
        found[identity] = row
    missing, strange = expected.keys() - found.keys(), found.keys() - expected.keys()
    assert not missing, f"{len(missing)} are missing, the first {_some(missing, expected)}"
    assert not strange, f"{len(strange)} were never sent, the first {sorted(strange)[:3]}"
    moments = [record.timestamp for record in sent if record.timestamp is not None]
    for identity, record in expected.items():
        row = found[identity]
        for column, value in record.row().items():
            if column == "timestamp" and value is None:
                assert min(moments) * 1000 <= row[column] <= max(moments) * 1000
                continue
            if column == "headers" and record.case != "raw" and row[column]:
                # The official client keeps properties in a hash table and sends them in its order.
                row[column].sort(key=itemgetter("key"))
            assert row[column] == value, (
                f"{record.case}, {identity}: {column} is {_short(row[column])}, sent was {_short(value)}"
            )


def assert_readers_agree(path: Path) -> None:
    """DuckDB and Polars, listing the folder by themselves, see the very rows that pyarrow sees."""
    pattern = f"{path}/**/*.parquet"
    ours = landed_table(path)
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        columns = ", ".join(f'"{name}"' for name in ROW.names)
        theirs = connection.sql(
            f"SELECT {columns} FROM read_parquet('{pattern}', hive_partitioning = false)"
        ).to_arrow_table()
    _assert_same(ours, theirs, "DuckDB")
    frame = polars.scan_parquet(pattern, hive_partitioning=False).select(ROW.names).collect()
    _assert_same(ours, frame.to_arrow(), "Polars")


def _assert_same(ours: pa.Table, theirs: pa.Table, reader: str) -> None:
    # Readers choose wide or view types of their own for text and bytes; the values are what must agree.
    theirs = _sorted(theirs.cast(pa.schema([field.with_nullable(True) for field in ROW])))
    assert ours.num_rows == theirs.num_rows, f"{reader} sees {theirs.num_rows} rows, pyarrow {ours.num_rows}"
    for name in ROW.names:
        mine, other = ours.column(name), theirs.column(name)
        assert mine.null_count == other.null_count, f"{reader}: nulls in {name}"
        assert mine.cast(other.type).equals(other), f"{reader}: {name} differs"


def _rows(table: pa.Table) -> list[dict[str, Any]]:
    for name in ("timestamp", "eventTime"):
        index = table.schema.get_field_index(name)
        table = table.set_column(index, name, pc.cast(table.column(name), pa.int64()))
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def _some(missing: set[Any], expected: dict[Any, SentRecord]) -> list[tuple[str, Any]]:
    return [(expected[identity].case, identity) for identity in sorted(missing)[:3]]


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) < 200 else f"{text[:100]}… ({len(text)} characters)"
