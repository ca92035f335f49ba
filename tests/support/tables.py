"""Small rolls of numbered rows in Parquet, for tests of datasets that are published in a table."""

import io
import os
import pickle
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from fastwire.coverage import Coverage
from fastwire_daemon.dataset.staging import StagedFile
from fastwire_daemon.dataset.storage.bucket import Bucket
from fastwire_daemon.dataset.storage.disk import Disk
from fastwire_daemon.dataset.writer import DatasetWriter
from tests.support import rolls
from tests.support.source_tree import ROOT

__all__ = ["assert_landed", "land", "numbers", "rows_by_duckdb", "stage", "stage_columns", "writer"]


def writer(
    path: Path,
    reached: Callable[[str], None] = lambda step: None,
    medium: Disk | Bucket | None = None,
    *,
    hasty: bool = False,
    **changes: Any,
) -> DatasetWriter:
    settings = {"columns": ("value", "offset"), "extension": "parquet", "table": "delta"} | changes
    return DatasetWriter(path, rolls.options(**settings), medium, reached, hasty=hasty)


def stage(writer: DatasetWriter, numbers: Sequence[int], directory: str = "", **more: pa.Array) -> StagedFile:
    """A staged file with one row for each number, and columns besides."""
    columns = {"value": pa.array([b"%09d" % n for n in numbers]), "offset": pa.array(numbers, pa.int64()), **more}
    return stage_columns(writer, columns, directory)


def stage_columns(writer: DatasetWriter, columns: Mapping[str, pa.Array], directory: str = "") -> StagedFile:
    """A staged file with these columns."""
    staged = writer.stage(directory)
    table = pa.table(dict(columns))
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    staged.file.write(buffer.getvalue())
    staged.rows = table.num_rows
    return staged


def land(writer: DatasetWriter, start: int, end: int, partition: int | str = 0, directory: str = "") -> Coverage:
    """Commit entries ``start`` + 1 to ``end``, whose rows are these numbers, in one file."""
    files = [stage(writer, range(start + 1, end + 1), directory)]
    return writer.commit(files, [rolls.span(start, end, partition)])


def numbers(path: Path | str, **options: str) -> list[int]:
    """The numbers in the table by the format's own library, in ascending order."""
    table = DeltaTable(str(path), storage_options=options or None)
    return sorted(table.to_pyarrow_table(columns=["offset"])["offset"].to_pylist())


READER = """
import importlib, pickle, sys
from pathlib import Path
import duckdb
path, columns, function, *extensions = sys.argv[1:]
connection = duckdb.connect(config={"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"})
connection.execute("SET enable_progress_bar = false")
for name in extensions:
    (folder,) = importlib.import_module(f"duckdb_extension_{name}").__path__
    (extension,) = Path(folder).rglob(f"{name}.duckdb_extension")
    connection.execute(f"LOAD '{extension}'")
rows = connection.execute(f"SELECT {columns} FROM {function}('{path}')").fetchall()
sys.stdout.buffer.write(pickle.dumps(rows))
"""
READERS = {"delta": ("delta_scan", "delta"), "iceberg": ("iceberg_scan", "avro", "httpfs", "iceberg")}


def rows_by_duckdb(path: Path | str, columns: str, table: str = "delta") -> list[tuple[Any, ...]]:
    """Return the rows of a table by DuckDB with its own reader of the format; of Iceberg ``path`` is its metadata.

    It runs in a process of its own, because that reader exists for an older DuckDB than the product uses.
    """
    done = subprocess.run(
        [sys.executable, "-c", READER, str(path), columns, *READERS[table]],
        env={**os.environ, "PYTHONPATH": str(ROOT / "build" / "delta")},
        capture_output=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stderr[-2000:].decode()}\n(make build/delta/.made installs the reader)"
    rows: list[tuple[Any, ...]] = pickle.loads(done.stdout)
    return rows


def assert_landed(path: Path, wanted: Sequence[int]) -> None:
    """The table has each number once, by the format's own library and by DuckDB."""
    assert numbers(path) == list(wanted)
    assert Counter(number for (number,) in rows_by_duckdb(path, '"offset"')) == Counter(wanted)
