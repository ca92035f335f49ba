"""The common base of encoders over pyarrow's file writers: it buffers batches until they are worth a call."""

from abc import ABC, abstractmethod
from typing import Any

import pyarrow as pa

from .base import EncoderOptions, Outlet, WritableFile

__all__ = ["NativeEncoder"]

_LARGE_BATCH = 16 << 20  # beyond what a chunk has whose entries are small


class NativeEncoder(ABC):
    """Most of an encoder. A subclass sets ``_writer``, which writes to ``_stream``, and defines ``_write_table``.

    A table is written once ``most_rows`` rows are buffered. A batch is never split, so table sizes vary a little; a
    batch of more than 16 MiB is a table of its own.
    """

    _writer: Any

    def __init__(self, file: WritableFile, options: EncoderOptions, most_rows: int) -> None:
        self._outlet = Outlet(file)
        # pyarrow takes the interpreter lock for every write to a Python file, so small writes are merged first.
        self._stream = pa.BufferedOutputStream(pa.PythonFile(self._outlet, mode="w"), options.buffer_bytes)
        self._most_rows = most_rows
        self._most_bytes = options.row_group_bytes
        self._batches: list[pa.RecordBatch] = []
        self._gathered_rows = 0
        self.rows = 0
        self.pending_bytes = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Buffer ``batch``, and write a table when enough rows are buffered."""
        if not batch.num_rows:
            return
        nbytes = batch.get_total_buffer_size()  # nbytes takes fifty times as long
        if nbytes > _LARGE_BATCH:  # it is written alone, and at once: the writers copy what they write
            self.flush()
        self._batches.append(batch)
        self._gathered_rows += batch.num_rows
        self.rows += batch.num_rows
        self.pending_bytes += nbytes
        full = self._gathered_rows >= self._most_rows or self.pending_bytes >= self._most_bytes
        if full or nbytes > _LARGE_BATCH:
            self.flush()

    def flush(self) -> None:
        """Write the buffered rows as one table."""
        if not self._batches:
            return
        table = pa.Table.from_batches(self._batches)
        # The references are dropped before the work, so that only the table holds the rows while it runs.
        self._batches = []
        self._gathered_rows = 0
        with self._outlet.cut_on_error():
            self._write_table(table)
        self.pending_bytes = 0

    def finish(self) -> None:
        """Write the buffered rows and the footer."""
        self.flush()
        with self._outlet.cut_on_error():
            self._writer.close()
            self._stream.flush()

    @abstractmethod
    def _write_table(self, table: pa.Table) -> None: ...
