"""Reads landed files in the tasks of a job, which costs less than Spark's own scan and the way to Python behind it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from ..source.rows import arrow_schema
from .split import Pieces

PATH = "path"
ORDINALS = ("__file", "__row")  # the number of a landed file in its dataset, and that of a row in it
_ROWS = 16_384  # of a batch


@dataclass(frozen=True, slots=True)
class LandedFiles:
    """Reads files with ``columns`` of records, and splits their rows by ``split``. Pickled and sent to executors.

    With ``numbered`` the rows that it splits have ``ORDINALS``, too; dead letters are without.
    """

    split: Callable[[], Pieces]
    columns: tuple[str, ...]
    numbered: bool = False

    def open(self) -> Pieces:
        """Return the function that takes batches of ``PATH``, and splits the rows of the files."""
        pieces = self.split()
        schema = arrow_schema(self.columns)

        def read(batch: pa.RecordBatch) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
            for path in batch.column(PATH).to_pylist():
                first = 0
                for rows in _rows(path, schema):
                    if not self.numbered:
                        yield from pieces(rows)
                        continue
                    for good, dead in pieces(_numbered(rows, path, first)):
                        yield good, dead.drop_columns([*ORDINALS])
                    first += rows.num_rows

        return read


@dataclass(frozen=True, slots=True)
class RestOfFiles:
    """Reads files by ``pieces``, but none of ``landed``, and no dead letters of those in ``marked``; by their names."""

    pieces: Callable[[], Pieces]
    landed: frozenset[str]
    marked: frozenset[str]

    def open(self) -> Pieces:
        """Return the function that takes batches of ``PATH``."""
        pieces = self.pieces()

        def read(batch: pa.RecordBatch) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
            for row, path in enumerate(batch.column(PATH).to_pylist()):
                name = path.rpartition("/")[2]
                if name not in self.landed:
                    for good, dead in pieces(batch.slice(row, 1)):
                        yield good, dead.slice(0, 0) if name in self.marked else dead

        return read


def _numbered(rows: pa.RecordBatch, path: str, first: int) -> pa.RecordBatch:
    entry, index = path.rpartition("/")[2].partition(".")[0].split("-")
    file = pa.repeat(pa.scalar(int(entry) << 20 | int(index), pa.int64()), rows.num_rows)
    ordinals = pa.array(range(first, first + rows.num_rows), pa.int64())
    return pa.RecordBatch.from_arrays([*rows.columns, file, ordinals], [*rows.schema.names, *ORDINALS])


def _rows(path: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a Parquet file under Spark's name; columns that it lacks are null, as in Spark."""
    with pq.ParquetFile("/" + path.removeprefix("file:").lstrip("/")) as file:
        there = [name for name in schema.names if name in file.schema_arrow.names]
        for batch in file.iter_batches(_ROWS, columns=there, use_threads=False):
            arrays = [
                batch.column(field.name).cast(field.type)
                if field.name in there
                else pa.nulls(batch.num_rows, field.type)
                for field in schema
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)
