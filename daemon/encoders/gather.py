"""Between chunks and files: which folder each row belongs to, and batches that are worth encoding.

A chunk holds rows of many logs in arrival order, and when little comes in it holds few of them in a lot of memory.
Most chunks pass through as they are. Where folders were asked for, chunks are gathered and dealt out in larger pieces;
a chunk that is mostly empty is copied, so that its memory goes back at once.
"""

from array import array
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Literal

import pyarrow as pa

from fastwire.position import Log

__all__ = ["Gatherer", "Piece", "own"]

Piece = tuple[str, pa.RecordBatch]
"""Rows of one folder."""

Folder = Callable[[Log | None, int | None], str]
"""The folder of a log (None: all of them) and a time in microseconds (None: no time)."""

_Run = tuple[str, int, int]  # folder, first row, rows
_TimeRun = tuple[int | None, int]  # beginning of the day or hour, rows

# A batch of this many rows costs the encoders no more per row than a larger one.
_ENOUGH_ROWS = 16_384
# Dealt out to many folders, the pieces should still be of some size.
_ENOUGH_ROWS_TO_DEAL = 131_072
# From here on, copying slices is cheaper than picking rows one by one.
_LONG_RUN = 64
# What a batch costs beside its cells, a column (measured: array, buffers and their owners).
_COLUMN_OVERHEAD = 512

_MICROS = {"day": 86_400_000_000, "hour": 3_600_000_000}


def own(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A copy of ``batch`` that shares no memory with it."""
    return _own_dictionaries(pa.concat_batches([batch]))


def _own_dictionaries(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Copying or picking rows leaves dictionaries where they are, and one cell keeps a whole chunk alive."""
    columns = [
        pa.DictionaryArray.from_arrays(column.indices, pa.concat_arrays([column.dictionary]))
        if isinstance(column, pa.DictionaryArray)
        else column
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


class Gatherer:
    """Takes the rows of chunks and gives pieces for files. For one thread.

    ``folder`` names the folder of a log and a time. Without ``by_log`` it is asked for no log, without ``by_time`` for
    no time, and else for the beginning of the day or hour. At most ``limit_bytes`` are held before they are dealt out.
    The rows of one log come out in their order.
    """

    def __init__(
        self, folder: Folder, limit_bytes: int, *, by_log: bool = False, by_time: Literal["day", "hour"] | None = None
    ) -> None:
        self._name = lru_cache(maxsize=65_536)(folder)
        self._limit_bytes = limit_bytes
        self._by_log = by_log
        self._by_time = by_time
        self._batches: list[tuple[pa.RecordBatch, list[_Run]]] = []
        self._folder: str | None = ""  # of all that is held; None: of several
        self.pending_rows = 0
        self.pending_bytes = 0

    def add(self, batch: pa.RecordBatch, held_bytes: int, runs: Sequence[tuple[Log, int, int]]) -> list[Piece]:
        """Take ``batch``, which keeps ``held_bytes`` of memory alive; return what is ready, which may be nothing.

        ``runs`` says which rows are of which log: (log, first row, rows). It may be empty if nothing is split.
        """
        if not batch.num_rows:
            return []
        folders = self._runs(batch, runs)
        folder = folders[0][0] if len(folders) == 1 else None
        mostly_empty = held_bytes > 2 * batch.get_total_buffer_size()
        if folder is not None and not mostly_empty and (not self._batches or self._folder == folder):
            return [*self.flush(), (folder, batch)]
        if mostly_empty:
            batch = own(batch)
            held_bytes = batch.get_total_buffer_size()
        else:
            batch = _own_dictionaries(batch)
        self._folder = folder if not self._batches or self._folder == folder else None
        self._batches.append((batch, folders))
        self.pending_rows += batch.num_rows
        self.pending_bytes += held_bytes + _COLUMN_OVERHEAD * batch.num_columns
        enough = _ENOUGH_ROWS if self._folder is not None else _ENOUGH_ROWS_TO_DEAL
        if self.pending_rows >= enough or self.pending_bytes >= self._limit_bytes:
            return self.flush()
        return []

    def flush(self) -> list[Piece]:
        """Deal out all that is held."""
        batches, folder = self._batches, self._folder
        self.clear()
        if not batches:
            return []
        if folder is not None:
            return [(folder, batches[0][0] if len(batches) == 1 else pa.concat_batches([b for b, _ in batches]))]
        rows = sum(batch.num_rows for batch, _ in batches)
        if rows >= _LONG_RUN * sum(len(runs) for _, runs in batches):
            return _deal_slices(batches)
        return _deal_rows(batches)

    def clear(self) -> None:
        """Forget what is held."""
        self._batches = []
        self._folder = ""
        self.pending_rows = 0
        self.pending_bytes = 0

    def _runs(self, batch: pa.RecordBatch, runs: Sequence[tuple[Log, int, int]]) -> list[_Run]:
        """The rows by folder, in row order; neighbours of one folder are one run."""
        logs: list[tuple[Log | None, int, int]] = [(None, 0, batch.num_rows)]
        if self._by_log:
            logs = list(runs)
        times: Iterable[_TimeRun] = [(None, batch.num_rows)]
        if self._by_time is not None:
            times = _time_runs(batch.column("timestamp"), self._by_time)
        return list(_join((self._name(log, time), first, rows) for log, time, first, rows in _intersect(logs, times)))


def _time_runs(times: pa.Array, unit: str) -> list[_TimeRun]:
    # Making its functions takes as long as the rest of pyarrow, and 8 MiB, so only who needs them waits for it.
    import pyarrow.compute as pc

    if not times.null_count:
        ends = pc.min_max(times.view(pa.int64()))
        first, last = (ends[key].as_py() // _MICROS[unit] * _MICROS[unit] for key in ("min", "max"))
        if first == last:
            return [(first, len(times))]
    encoded = pc.run_end_encode(pc.floor_temporal(times, unit=unit).view(pa.int64()))
    runs = []
    start = 0
    for end, micros in zip(encoded.run_ends.to_pylist(), encoded.values.to_pylist(), strict=True):
        runs.append((micros, end - start))
        start = end
    return runs


def _intersect(
    logs: Iterable[tuple[Log | None, int, int]], times: Iterable[_TimeRun]
) -> Iterable[tuple[Log | None, int | None, int, int]]:
    """Two ways to cut the same rows, laid over each other."""
    others = iter(times)
    time, left = next(others)
    for log, first, rows in logs:
        while rows:
            if not left:
                time, left = next(others)
            cut = min(rows, left)
            yield log, time, first, cut
            first += cut
            rows -= cut
            left -= cut


def _join(runs: Iterable[_Run]) -> Iterable[_Run]:
    last: _Run | None = None
    for run in runs:
        if last is not None and last[0] == run[0]:
            last = (last[0], last[1], last[2] + run[2])
            continue
        if last is not None:
            yield last
        last = run
    if last is not None:
        yield last


def _deal_slices(batches: list[tuple[pa.RecordBatch, list[_Run]]]) -> list[Piece]:
    slices: dict[str, list[pa.RecordBatch]] = {}
    for batch, runs in batches:
        for folder, first, rows in runs:
            slices.setdefault(folder, []).append(batch.slice(first, rows))
    # Copied even if it is a single one: a slice would keep all of its batch alive for as long as its file gathers.
    return [(folder, pa.concat_batches(parts)) for folder, parts in slices.items()]


def _deal_rows(batches: list[tuple[pa.RecordBatch, list[_Run]]]) -> list[Piece]:
    indices: dict[str, array[int]] = {}
    base = 0
    for batch, runs in batches:
        for folder, first, rows in runs:
            indices.setdefault(folder, array("q")).extend(range(base + first, base + first + rows))
        base += batch.num_rows
    together = pa.concat_batches([batch for batch, _ in batches])
    batches.clear()
    return [
        (folder, together.take(pa.Array.from_buffers(pa.int64(), len(rows), [None, pa.py_buffer(rows)])))
        for folder, rows in indices.items()
    ]
