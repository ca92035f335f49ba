"""Parquet with the settings that were measured as cheapest: dictionaries for repeated values, deltas for counters."""

from collections.abc import Mapping
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq

from .base import EncoderOptions, WritableFile
from .native import NativeEncoder

__all__ = ["ParquetEncoder", "writer_settings"]

# pyarrow splits a table into row groups; this encoder has done so before.
_ONE_ROW_GROUP = 1 << 26
# Rows that go into a page before its size is looked at, and the copies of a page while it is built and compressed
# (measured: five are allocated, and three to four filled).
_PAGE_ROWS = 1024
_PAGE_COPIES = 4
_UNCOUNTED = 32 << 20  # of the resident memory that is promised beside the budget


def writer_settings(schema: pa.Schema, options: EncoderOptions) -> dict[str, Any]:
    """Return the arguments of ``pq.ParquetWriter`` for these columns; a rewriter of the files should use them, too."""
    roles = {column.name: column for column in options.columns}
    dictionary = [
        field.name
        for field in schema
        if pa.types.is_dictionary(field.type) or (field.name in roles and roles[field.name].role == "constant")
    ]
    counters = [name for name in schema.names if name in roles and roles[name].role == "counter"]
    return {
        "compression": options.compression.codec,
        "compression_level": options.compression.level,
        "use_dictionary": dictionary,
        "column_encoding": dict.fromkeys(counters, "DELTA_BINARY_PACKED"),
        "write_statistics": [column.name for column in options.columns if column.stats and column.name in schema.names],
        # Spark reads microseconds at most; a stored Arrow schema would make readers return dictionaries.
        "coerce_timestamps": "us",
        "store_schema": False,
    }


class ParquetEncoder(NativeEncoder):
    """One Parquet file. Rows are buffered to whole row groups; pyarrow writes one per call."""

    extension: ClassVar[str] = "parquet"
    compressions: ClassVar[Mapping[str, str]] = dict.fromkeys(("zstd", "lz4", "snappy", "gzip", "none"), "")

    @staticmethod
    def working_bytes(rows: int, nbytes: int) -> int:
        """The copies of one page beyond 32 MiB: of rows with large values a page holds all that come in one batch."""
        return max(0, _PAGE_COPIES * nbytes * min(_PAGE_ROWS, rows) // max(1, rows) - _UNCOUNTED)

    def __init__(self, file: WritableFile, schema: pa.Schema, options: EncoderOptions) -> None:
        super().__init__(file, options, options.row_group_rows)
        self._writer = pq.ParquetWriter(self._stream, schema, **writer_settings(schema, options))

    def _write_table(self, table: pa.Table) -> None:
        # The writer reuses a single dictionary for the whole row group; with several it falls back to plain encoding.
        self._writer.write_table(table.unify_dictionaries(), row_group_size=_ONE_ROW_GROUP)
