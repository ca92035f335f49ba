"""Parquet by the compiled encoder: dictionaries for repeated values, deltas for counters."""

from collections.abc import Mapping
from typing import ClassVar

import pyarrow as pa

from fastwire.parquet.file import ParquetWriter

from .base import EncoderOptions, Outlet, WritableFile
from .grouped import GroupedEncoder

__all__ = ["ParquetEncoder"]

# A page while it is laid out and compressed. It has 1 MiB, or one value that is larger.
_PAGE_COPIES = 3
_FEW_ROWS = 1024  # of so few, each may be as large as all of them
_UNCOUNTED = 32 << 20  # of the resident memory that is promised beside the budget
_LARGE_WRITE = 64 << 10


class ParquetEncoder(GroupedEncoder):
    """One Parquet file. Rows are buffered to whole row groups."""

    extension: ClassVar[str] = "parquet"
    compressions: ClassVar[Mapping[str, str]] = dict.fromkeys(("zstd", "lz4", "snappy", "gzip", "none"), "")

    @staticmethod
    def working_bytes(rows: int, nbytes: int) -> int:
        """The copies of one page beyond 32 MiB."""
        return max(0, _PAGE_COPIES * nbytes * min(_FEW_ROWS, rows) // max(1, rows) - _UNCOUNTED)

    def __init__(self, file: WritableFile, schema: pa.Schema, options: EncoderOptions) -> None:
        super().__init__(file, options, options.row_group_rows)
        self._merged = _MergedWrites(self._outlet, options.buffer_bytes)
        codec, level = options.compression
        known = {column.name: (column.role, column.stats) for column in options.columns}
        self._writer = ParquetWriter(schema, self._merged.write, codec=codec, level=level, columns=known)

    def _write_group(self, batches: list[pa.RecordBatch]) -> None:
        self._writer.write_row_group(batches)

    def _end(self) -> None:
        self._writer.close()
        self._merged.flush()


class _MergedWrites:
    """Merges small writes up to ``most`` bytes: most pages of a file are some tens of bytes."""

    def __init__(self, outlet: Outlet, most: int) -> None:
        self._outlet = outlet
        self._most = most
        self._parts: list[bytes] = []
        self._size = 0

    def write(self, data: bytes) -> None:
        if len(data) >= min(_LARGE_WRITE, self._most):
            self.flush()
            self._outlet.write(data)
            return
        self._parts.append(data)
        self._size += len(data)
        if self._size >= self._most:
            self.flush()

    def flush(self) -> None:
        if self._parts:
            self._outlet.write(b"".join(self._parts))
            self._parts.clear()
            self._size = 0
