"""The common base of encoders of columns: it buffers batches until a group of them is worth a call."""

from abc import ABC, abstractmethod

import pyarrow as pa

from .base import EncoderOptions, Outlet, WritableFile

_LARGE_BATCH = 16 << 20  # beyond what a chunk has whose entries are small


class GroupedEncoder(ABC):
    """Most of an encoder. A subclass writes to ``_outlet`` and defines ``_write_group`` and ``_end``.

    A group is written once ``most_rows`` rows are buffered. A batch is never split, so the sizes of groups vary a
    little; a batch of more than 16 MiB is a group of its own.
    """

    def __init__(self, file: WritableFile, options: EncoderOptions, most_rows: int) -> None:
        self._outlet = Outlet(file)
        self._most_rows = most_rows
        self._most_bytes = options.row_group_bytes
        self._batches: list[pa.RecordBatch] = []
        self._gathered_rows = 0
        self.rows = 0
        self.pending_bytes = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Buffer ``batch``, and write a group when enough rows are buffered."""
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
        """Write the buffered rows as one group."""
        if not self._batches:
            return
        # Only the call holds the rows while it runs.
        batches, self._batches = self._batches, []
        self._gathered_rows = 0
        with self._outlet.cut_on_error():
            self._write_group(batches)
        self.pending_bytes = 0

    def finish(self) -> None:
        """Write the buffered rows and the end of the file."""
        self.flush()
        with self._outlet.cut_on_error():
            self._end()

    @abstractmethod
    def _write_group(self, batches: list[pa.RecordBatch]) -> None:
        """Write the rows of ``batches``, at least one."""

    @abstractmethod
    def _end(self) -> None:
        """Write what a file ends with."""
