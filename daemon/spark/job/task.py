"""Writes rows into Parquet files on the executors, in the staging folder from which the driver commits."""

import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from crc32c import crc32c

from fastwire.columns.schema import Column, Role

from ...dataset.level import hive_directory
from ...dataset.staging import ForeignFile
from ...dataset.storage.bucket import open_bucket
from ...dataset.storage.patience import Patience
from ...dataset.storage.upload import UploadedFile
from ...encoders.base import EncoderOptions, parse_compression
from ...encoders.gather import by_values
from ...encoders.parquet import ParquetEncoder
from .split import Pieces

REPORT_DDL = "dead boolean, name string, directory string, `rows` bigint, nbytes bigint, checksum bigint, newest bigint"
REPORT = pa.schema(
    [
        ("dead", pa.bool_()),
        ("name", pa.string()),
        ("directory", pa.string()),
        ("rows", pa.int64()),
        ("nbytes", pa.int64()),
        ("checksum", pa.int64()),
        ("newest", pa.int64()),
    ]
)

_MOST_OPEN = (
    64  # open files of one task; above that the least recently used is finished, and its folder gets another file
)
_GATHER_BYTES = 64 << 20  # bytes that one task buffers before it writes a row group
_BUFFER_BYTES = 256 << 10
_FEW = 1000  # values that say nothing about how the next ones repeat


class Access(NamedTuple):
    """The object store that holds a table: its URL there, and the settings of the store."""

    url: str
    settings: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class FileLayout:
    """The location of the files of one table.

    ``prefix`` begins their paths or URLs, ``levels`` are the columns of its folders, ``time`` is the column of record
    times, if there is one. ``access`` is that to the object store, None for a folder. ``table`` is that of
    ``hive_directory``. With ``empty`` the empty text is a value of ``levels``, else null.
    """

    prefix: str
    levels: tuple[str, ...]
    compression: str
    time: str | None = None
    access: Access | None = None
    table: bool = False
    empty: bool = False

    def creator(self) -> "Callable[[str], _NewFile]":
        """Return a function that creates a file, given what its name has behind the prefix."""
        if self.access is None:
            return lambda rest: _Local(self.prefix + rest)
        bucket = open_bucket(*self.access)
        prefix, patience = self.prefix.removeprefix(f"{bucket.url}/"), Patience(bucket)
        return lambda rest: UploadedFile(bucket, prefix + rest, patience)


class _NewFile(Protocol):
    """A file that is written from its begin to its end, and is there once it is complete."""

    checksum: int

    def write(self, data: Any, /) -> int: ...

    def tell(self) -> int: ...

    def complete(self) -> None: ...

    def close(self) -> None: ...


class _Local:
    """A file of this machine, and the CRC-32C of the bytes written to it."""

    def __init__(self, path: str) -> None:
        self._file: BinaryIO = open(path, "xb", buffering=0)  # noqa: SIM115 - its owner closes it
        self.checksum = 0

    def write(self, data: Any, /) -> int:
        """Write a part of ``data``; return its number of bytes."""
        written = self._file.write(data)
        self.checksum = crc32c(memoryview(data)[:written], self.checksum)
        return written

    def tell(self) -> int:
        return self._file.tell()

    def complete(self) -> None:
        """Make it durable."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


class _File:
    """One file that a task writes."""

    def __init__(
        self,
        place: FileLayout,
        create: Callable[[str], _NewFile],
        directory: str,
        first: pa.RecordBatch,
        number: int,
        token: str,
    ) -> None:
        self.directory = directory
        rest = f"{token}-{number}.task"
        self._name = os.path.basename(place.prefix) + rest
        self._file = create(rest)
        self._encoder = ParquetEncoder(self._file, first.schema, _options(first, place.compression))

    @property
    def pending_bytes(self) -> int:
        return self._encoder.pending_bytes

    def write(self, batch: pa.RecordBatch) -> None:
        self._encoder.write(batch)

    def flush(self) -> None:
        self._encoder.flush()

    def finish(self) -> ForeignFile:
        """Make it durable."""
        self._encoder.finish()
        self._file.complete()
        size = self._file.tell()
        self.close()
        return ForeignFile(self._name, self.directory, self._encoder.rows, size, self._file.checksum)

    def close(self) -> None:
        self._file.close()


class _Table:
    """The files that one task writes for one table."""

    def __init__(self, place: FileLayout) -> None:
        self._place = place
        self._create = place.creator()
        self._token = secrets.token_hex(8)  # attempts of a task never share a name
        self._number = 0
        self._open: dict[str, _File] = {}
        self.done: list[ForeignFile] = []
        self.newest: int | None = None  # microseconds

    def write(self, batch: pa.RecordBatch) -> None:
        if self._place.time is not None:
            newest = pc.max(batch.column(self._place.time).cast(pa.int64())).as_py()
            if newest is not None:
                self.newest = newest if self.newest is None else max(newest, self.newest)
        named = partial(hive_directory, table=self._place.table)
        for directory, rows in by_values("", batch, self._place.levels, named, empty=self._place.empty):
            file = self._open.pop(directory, None) or self._new(directory, rows)
            self._open[directory] = file  # the newest is last
            file.write(rows)
        while sum(file.pending_bytes for file in self._open.values()) > _GATHER_BYTES:
            max(self._open.values(), key=lambda file: file.pending_bytes).flush()

    def _new(self, directory: str, first: pa.RecordBatch) -> _File:
        if len(self._open) >= _MOST_OPEN:
            self.done.append(self._open.pop(next(iter(self._open))).finish())
        self._number += 1
        return _File(self._place, self._create, directory, first, self._number, self._token)

    def finish(self) -> None:
        self.done += [file.finish() for file in self._open.values()]
        self._open.clear()

    def close(self) -> None:
        for file in self._open.values():
            file.close()


def write_rows(
    good: FileLayout, dead: FileLayout, split: Callable[[], Pieces]
) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Return a function for ``mapInArrow`` that writes the rows of a task and yields a row of ``REPORT`` per file.

    ``split`` returns the function that splits batches. ``newest`` is the newest time of the table's rows in this task.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tables = {False: _Table(good), True: _Table(dead)}
        pieces = split()
        try:
            for batch in batches:
                for piece in pieces(batch):
                    for table, rows in zip(tables.values(), piece, strict=True):
                        if rows.num_rows:
                            table.write(rows)
            for table in tables.values():
                table.finish()
        finally:
            for table in tables.values():
                table.close()
        files = [(which, *file, table.newest) for which, table in tables.items() for file in table.done]
        if files:
            columns = zip(*files, strict=True)
            arrays = [pa.array(column, field.type) for column, field in zip(columns, REPORT, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=REPORT)

    return run


def _options(first: pa.RecordBatch, compression: str) -> EncoderOptions:
    """Return the options of a file that begins with these rows."""
    columns = [
        Column(name, _role(column), stats=True)
        for name, column in zip(first.schema.names, first.columns, strict=True)
        if not pa.types.is_nested(column.type)
    ]
    return EncoderOptions(
        compression=parse_compression(compression, ParquetEncoder.compressions),
        columns=tuple(columns),
        row_group_bytes=_GATHER_BYTES // 2,
        buffer_bytes=_BUFFER_BYTES,
    )


def _role(column: pa.Array) -> Role:
    """Return the role of a column by its first values: a dictionary of those that hardly repeat costs time and room."""
    kind = column.type
    if pa.types.is_binary(kind):
        return "plain"
    if pa.types.is_boolean(kind) or pc.count_distinct(column).as_py() * 2 <= max(len(column), _FEW):
        return "constant"
    return "counter" if pa.types.is_integer(kind) or pa.types.is_timestamp(kind) else "plain"
