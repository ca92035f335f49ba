"""What pyarrow's own file writers have in common: batches are gathered until they are worth a call."""

from abc import ABC, abstractmethod
from typing import Any

import pyarrow as pa

from .base import EncoderOptions, Outlet, WritableFile

__all__ = ["NativeEncoder"]


class NativeEncoder(ABC):
    """Most of an encoder. Whoever inherits makes ``_writer``, which writes to ``_stream``, and ``_write_table``.

    A table is written from ``most_rows`` rows on. A batch is never cut, so their sizes vary a little.
    """

    _writer: Any

    def __init__(self, file: WritableFile, options: EncoderOptions, most_rows: int) -> None:
        self._outlet = Outlet(file)
        # pyarrow takes the interpreter lock for every write to a Python file: small ones are put together first.
        self._stream = pa.BufferedOutputStream(pa.PythonFile(self._outlet, mode="w"), options.buffer_bytes)
        self._most_rows = most_rows
        self._most_bytes = options.row_group_bytes
        self._batches: list[pa.RecordBatch] = []
        self._gathered_rows = 0
        self.rows = 0
        self.pending_bytes = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Gather ``batch``; write when enough is there."""
        if not batch.num_rows:
            return
        self._batches.append(batch)
        self._gathered_rows += batch.num_rows
        self.rows += batch.num_rows
        self.pending_bytes += batch.get_total_buffer_size()  # nbytes takes fifty times as long
        if self._gathered_rows >= self._most_rows or self.pending_bytes >= self._most_bytes:
            self.flush()

    def flush(self) -> None:
        """Write what is gathered."""
        if not self._batches:
            return
        table = pa.Table.from_batches(self._batches)
        # The references go before the work: while it runs, the table alone holds the rows.
        self._batches = []
        self._gathered_rows = 0
        with self._outlet.cut_on_error():
            self._write_table(table)
        self.pending_bytes = 0

    def finish(self) -> None:
        """Write what is left, and the footer."""
        self.flush()
        with self._outlet.cut_on_error():
            self._writer.close()
            self._stream.flush()

    @abstractmethod
    def _write_table(self, table: pa.Table) -> None: ...
