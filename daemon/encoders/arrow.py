"""Arrow IPC files (also known as Feather 2).

``topic`` and ``producer`` are plain strings here: the file format wants every dictionary whole before it is used, the
ones of a stream of records grow, and not every reader takes the deltas that would bridge this.
"""

from collections.abc import Mapping
from typing import ClassVar

import pyarrow as pa
import pyarrow.ipc

from .base import EncoderOptions, Outlet, WritableFile

__all__ = ["ArrowEncoder"]

# Larger record batches give readers nothing, and smaller ones cost a header of some 2 KiB each.
_BATCH_ROWS = 16_384


class ArrowEncoder:
    """One Arrow IPC file. Small batches are put together, batches of 16,384 rows and more are written as they come."""

    extension: ClassVar[str] = "arrow"
    compressions: ClassVar[Mapping[str, str]] = dict.fromkeys(("zstd", "lz4", "none"), "")

    def __init__(self, file: WritableFile, schema: pa.Schema, options: EncoderOptions) -> None:
        self._batch_rows = min(options.row_group_rows, _BATCH_ROWS)
        self._batch_bytes = options.row_group_bytes
        self._schema = pa.schema(
            [f.with_type(f.type.value_type) if pa.types.is_dictionary(f.type) else f for f in schema]
        )
        codec, level = options.compression
        self._outlet = Outlet(file)
        # pyarrow takes the interpreter lock for every write to a Python file: small ones are put together first.
        self._stream = pa.BufferedOutputStream(pa.PythonFile(self._outlet, mode="w"), options.buffer_bytes)
        self._writer = pa.ipc.new_file(
            self._stream,
            self._schema,
            options=pa.ipc.IpcWriteOptions(
                compression=None if codec == "none" else pa.Codec(codec, compression_level=level)
            ),
        )
        self._batches: list[pa.RecordBatch] = []
        self._gathered_rows = 0
        self.rows = 0
        self.pending_bytes = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Gather ``batch``; write when enough is there."""
        if not batch.num_rows:
            return
        columns = [c.dictionary_decode() if isinstance(c, pa.DictionaryArray) else c for c in batch.columns]
        batch = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        self._batches.append(batch)
        self._gathered_rows += batch.num_rows
        self.rows += batch.num_rows
        self.pending_bytes += batch.get_total_buffer_size()  # nbytes takes fifty times as long
        if self._gathered_rows >= self._batch_rows or self.pending_bytes >= self._batch_bytes:
            self.flush()

    def flush(self) -> None:
        """Write what is gathered: one record batch, or each of several that are large themselves."""
        if not self._batches:
            return
        table = pa.Table.from_batches(self._batches)
        small = min(batch.num_rows for batch in self._batches) * 2 < self._batch_rows
        self._batches = []
        self._gathered_rows = 0
        with self._outlet.cut_on_error():
            self._writer.write_table(table.combine_chunks() if small else table)
        self.pending_bytes = 0

    def finish(self) -> None:
        """Write the last record batch and the footer."""
        self.flush()
        with self._outlet.cut_on_error():
            self._writer.close()
            self._stream.flush()
