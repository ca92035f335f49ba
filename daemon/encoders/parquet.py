"""Parquet, as measured to be cheapest: dictionaries for what repeats within a batch, deltas for counters."""

from collections.abc import Mapping
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq

from .base import EncoderOptions, Outlet, WritableFile

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


class ParquetEncoder:
    """One Parquet file. Rows are gathered to whole row groups; pyarrow closes one at each call."""

    extension: ClassVar[str] = "parquet"
    compressions: ClassVar[Mapping[str, str]] = dict.fromkeys(("zstd", "lz4", "snappy", "gzip", "none"), "")

    def __init__(self, file: WritableFile, schema: pa.Schema, options: EncoderOptions) -> None:
        self._options = options
        self._outlet = Outlet(file)
        # pyarrow takes the interpreter lock for every write to a Python file: small ones are put together first.
        self._stream = pa.BufferedOutputStream(pa.PythonFile(self._outlet, mode="w"), options.buffer_bytes)
        self._writer = pq.ParquetWriter(self._stream, schema, **writer_settings(schema, options))
        self._batches: list[pa.RecordBatch] = []
        self._gathered_rows = 0
        self.rows = 0
        self.pending_bytes = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Gather ``batch``; write a row group when there is one. A batch is never cut, so row groups vary a little."""
        if not batch.num_rows:
            return
        self._batches.append(batch)
        self._gathered_rows += batch.num_rows
        self.rows += batch.num_rows
        self.pending_bytes += batch.get_total_buffer_size()  # nbytes takes fifty times as long
        options = self._options
        if self._gathered_rows >= options.row_group_rows or self.pending_bytes >= options.row_group_bytes:
            self.flush()

    def flush(self) -> None:
        """Write what is gathered as a row group."""
        if not self._batches:
            return
        table = pa.Table.from_batches(self._batches)
        # The references go before the work: while it runs, the table alone holds the rows.
        self._batches = []
        self._gathered_rows = 0
        with self._outlet.cut_on_error():
            # With one dictionary for the whole row group the writer takes it over as it is; with several it falls back.
            self._writer.write_table(table.unify_dictionaries(), row_group_size=_ONE_ROW_GROUP)
        self.pending_bytes = 0

    def finish(self) -> None:
        """Write the last row group and the footer."""
        self.flush()
        with self._outlet.cut_on_error():
            self._writer.close()
            self._stream.flush()
