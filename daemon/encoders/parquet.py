"""Parquet, as measured to be cheapest: dictionaries for what repeats within a batch, deltas for counters."""

from collections.abc import Mapping
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq

from .base import EncoderOptions, WritableFile
from .native import NativeEncoder

__all__ = ["ParquetEncoder", "writer_settings"]

# pyarrow cuts a table into row groups by itself; ours are cut before.
_ONE_ROW_GROUP = 1 << 26


def writer_settings(schema: pa.Schema, options: EncoderOptions) -> dict[str, Any]:
    """The arguments of ``pq.ParquetWriter`` for these columns; also what a rewriter of our files should use."""
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
        # Spark reads microseconds and nothing finer; the Arrow schema in the file would give readers dictionaries back.
        "coerce_timestamps": "us",
        "store_schema": False,
    }


class ParquetEncoder(NativeEncoder):
    """One Parquet file. Rows are gathered to whole row groups; pyarrow closes one at each call."""

    extension: ClassVar[str] = "parquet"
    compressions: ClassVar[Mapping[str, str]] = dict.fromkeys(("zstd", "lz4", "snappy", "gzip", "none"), "")

    def __init__(self, file: WritableFile, schema: pa.Schema, options: EncoderOptions) -> None:
        super().__init__(file, options, options.row_group_rows)
        self._writer = pq.ParquetWriter(self._stream, schema, **writer_settings(schema, options))

    def _write_table(self, table: pa.Table) -> None:
        # With one dictionary for the whole row group the writer takes it over as it is; with several it falls back.
        self._writer.write_table(table.unify_dictionaries(), row_group_size=_ONE_ROW_GROUP)
