"""Arrow IPC files (also known as Feather 2).

``topic`` and ``producer`` are plain strings here: the file format requires a complete dictionary before its first use,
the dictionaries of a record stream grow, and not every reader supports dictionary deltas.
"""

from collections.abc import Mapping
from typing import ClassVar

import pyarrow as pa
import pyarrow.ipc

from .base import EncoderOptions, WritableFile
from .grouped import GroupedEncoder

# Larger record batches do not help readers, and smaller ones cost a header of some 2 KiB each.
_BATCH_ROWS = 16_384


class ArrowEncoder(GroupedEncoder):
    """One Arrow IPC file. Small batches are merged, batches of 16,384 rows and more are written as they are."""

    extension: ClassVar[str] = "arrow"
    compressions: ClassVar[Mapping[str, str]] = dict.fromkeys(("zstd", "lz4", "none"), "")

    def __init__(self, file: WritableFile, schema: pa.Schema, options: EncoderOptions) -> None:
        super().__init__(file, options, min(options.row_group_rows, _BATCH_ROWS))
        self._schema = pa.schema(
            [f.with_type(f.type.value_type) if pa.types.is_dictionary(f.type) else f for f in schema]
        )
        # pyarrow takes the interpreter lock for every write to a Python file, so small writes are merged first.
        self._stream = pa.BufferedOutputStream(pa.PythonFile(self._outlet, mode="w"), options.buffer_bytes)
        codec, level = options.compression
        self._writer = pa.ipc.new_file(
            self._stream,
            self._schema,
            options=pa.ipc.IpcWriteOptions(
                compression=None if codec == "none" else pa.Codec(codec, compression_level=level)
            ),
        )

    def write(self, batch: pa.RecordBatch) -> None:
        """Take the rows of ``batch``, with dictionaries decoded to strings."""
        columns = [c.dictionary_decode() if isinstance(c, pa.DictionaryArray) else c for c in batch.columns]
        super().write(pa.RecordBatch.from_arrays(columns, schema=self._schema))

    def _write_group(self, batches: list[pa.RecordBatch]) -> None:
        """Write one record batch, or one for each chunk if all chunks are large."""
        table = pa.Table.from_batches(batches)
        batches.clear()
        small = min(map(len, table.column(0).chunks)) * 2 < self._most_rows
        self._writer.write_table(table.combine_chunks() if small else table)

    def _end(self) -> None:
        self._writer.close()
        self._stream.flush()
