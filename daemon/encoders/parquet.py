"""Parquet by the compiled encoder: dictionaries for repeated values, deltas for counters."""

from collections.abc import Mapping
from typing import ClassVar

import pyarrow as pa

from fastwire.parquet.file import ParquetWriter

from .base import EncoderOptions, WritableFile
from .grouped import GroupedEncoder

# A page while it is laid out and compressed. It has 1 MiB, or one value that is larger.
_PAGE_COPIES = 3
_FEW_ROWS = 1024  # of so few, each may be as large as all of them
_UNCOUNTED = 32 << 20  # of the resident memory that is promised beside the budget


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
        codec, level = options.compression
        known = {column.name: (column.role, column.stats) for column in options.columns}
        self._writer = ParquetWriter(
            schema,
            self._outlet.write,
            codec=codec,
            level=level,
            columns=known,
            buffer_bytes=options.buffer_bytes,
        )

    def _write_group(self, batches: list[pa.RecordBatch]) -> None:
        self._writer.write_row_group(batches)

    def _end(self) -> None:
        self._writer.close()
