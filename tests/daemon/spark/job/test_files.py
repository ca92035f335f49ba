"""Landed files as tasks of a job read them, and the encodings of those that they write."""

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fastwire_daemon.spark.job.files import PATH, LandedFiles
from fastwire_daemon.spark.job.split import Pieces
from fastwire_daemon.spark.job.task import FileLayout, write_rows
from fastwire_daemon.spark.source.rows import arrow_schema

COLUMNS = ("key", "value", "topic", "offset", "headers", "timestamp", "producer")


def whole() -> Pieces:
    """Return pieces that are all good."""

    def pieces(batch: pa.RecordBatch) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
        yield batch, batch.slice(0, 0)

    return pieces


def files(*paths: Path) -> pa.RecordBatch:
    return pa.record_batch({PATH: [f"file:{path}" for path in paths]})


@pytest.mark.parametrize("folder", ["t=a%2Fb/p=0", "ä b#c", "."])
def test_rows_have_the_types_of_spark_and_their_order(tmp_path: Path, folder: str) -> None:
    place = tmp_path / folder
    place.mkdir(parents=True, exist_ok=True)
    rows = 40_000
    first = pa.table(
        {
            "offset": pa.array(range(rows)),
            "value": pa.array([b"%d" % number for number in range(rows)]),
            "topic": pa.array(["t"] * rows).dictionary_encode(),
            "timestamp": pa.array(range(rows), pa.timestamp("us", "UTC")),
            "headers": pa.array([[{"key": "h", "value": b"v"}]] * rows),
        }
    )
    pq.write_table(first, place / "1.parquet")
    pq.write_table(pa.table({"producer": ["p"], "other": [1]}), place / "2.parquet")
    pieces = pickle.loads(pickle.dumps(LandedFiles(whole, COLUMNS))).open()
    found = [good for good, _ in pieces(files(place / "1.parquet", place / "2.parquet"))]
    assert {batch.schema for batch in found} == {arrow_schema(COLUMNS)}
    assert max(batch.num_rows for batch in found) < rows
    table = pa.Table.from_batches(found)
    assert table.column("value").to_pylist() == [*first.column("value").to_pylist(), None]
    assert table.column("headers")[0].as_py() == [{"key": "h", "value": b"v"}]
    assert table.slice(rows).to_pylist() == [dict.fromkeys(COLUMNS) | {"producer": "p"}]


def test_rows_are_told_apart_by_file_and_ordinal(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("000000000007-0.parquet", "000000000007-1.parquet")]
    for path in paths:
        pq.write_table(pa.table({"value": [b"v"] * 20_000}), path)

    def halves() -> Pieces:
        def pieces(batch: pa.RecordBatch) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
            yield batch.slice(0, 10_000), batch.slice(10_000)

        return pieces

    found = [*LandedFiles(halves, ("value",), numbered=True).open()(files(*paths))]
    assert {tuple(bad.schema.names) for _, bad in found} == {("value",)}
    rows = [tuple(row.values())[1:] for good, _ in found for row in good.to_pylist()]
    assert len({*rows}) == len(rows) and {file for file, _ in rows} == {7 << 20, 7 << 20 | 1}
    assert {row for _, row in rows} == {*range(10_000), *range(16_384, 20_000)}


def test_encodings_follow_the_first_rows(tmp_path: Path) -> None:
    """A dictionary is for values that repeat; numbers and times that do not are written as differences."""
    rows = 5_000
    columns: dict[str, Any] = {
        "serial": pa.array(range(rows)),
        "at": pa.array(range(rows), pa.timestamp("us", "UTC")),
        "note": pa.array([f"{number:032x}" for number in range(rows)]),
        "city": pa.array([f"city {number % 7}" for number in range(rows)]),
        "number": pa.array([number % 7 for number in range(rows)]),
        "share": pa.array([number / 7 for number in range(rows)]),
        "right": pa.array([True, False] * (rows // 2)),
        "value": pa.array([b"v"] * rows),
        "nothing": pa.nulls(rows, pa.string()),
    }
    batch = pa.record_batch(columns)
    layout = FileLayout(f"{tmp_path}/", (), "zstd")
    (report,) = write_rows(layout, layout, whole)(iter([batch]))
    path = tmp_path / report.column("name")[0].as_py()
    assert pq.read_table(path).to_pydict() == batch.to_pydict()
    group = pq.ParquetFile(path).metadata.row_group(0)
    encodings = {group.column(at).path_in_schema: set(group.column(at).encodings) for at in range(len(columns))}
    assert {name for name, kinds in encodings.items() if "DELTA_BINARY_PACKED" in kinds} == {"serial", "at"}
    assert {name for name, kinds in encodings.items() if "RLE_DICTIONARY" in kinds} == {
        "city",
        "number",
        "value",
    }  # a column of nulls has no values
