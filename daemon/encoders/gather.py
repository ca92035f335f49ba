"""Splits the rows of chunks by folder, in batches that are large enough to encode.

A chunk holds rows of many logs in arrival order, and under low load it holds few rows in much memory. Most chunks pass
through unchanged. If the dataset has folder levels, chunks are gathered and split in larger pieces; a chunk that is
mostly empty is copied, so that its memory is released at once.
"""

from array import array
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, Literal, overload

import pyarrow as pa

from fastwire.position import Log

Piece = tuple[str, pa.RecordBatch]
"""Rows of one folder."""

Folder = Callable[[Log | None, int | None], str]
"""Returns the folder of a log (None: all logs) and a time in microseconds (None: no time)."""

_Run = tuple[str, int, int]  # folder, first row, rows
_TimeRun = tuple[int | None, int]  # beginning of the day or hour, rows

# A batch of this many rows costs the encoders no more per row than a larger one.
_ENOUGH_ROWS = 16_384
# Split among many folders, the pieces should not be too small.
_ENOUGH_ROWS_TO_DEAL = 131_072
# From here on, copying slices is cheaper than picking rows one by one.
_LONG_RUN = 64
# Bytes per column beside the cells of a batch (measured: array, buffers and their owners).
_COLUMN_OVERHEAD = 512
# Bytes per run: a tuple, two numbers, a list item.
_RUN_OVERHEAD = 128
_NAMES_REMEMBERED = 4_096

_MICROS = {"day": 86_400_000_000, "hour": 3_600_000_000}


def memory_of(batch: pa.RecordBatch) -> int:
    """Return an estimate of a batch's own memory in bytes, with the overhead that dominates in small batches."""
    cells: int = batch.get_total_buffer_size()
    return max(cells, _COLUMN_OVERHEAD * int(batch.num_columns))


def own(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a copy of ``batch`` that shares no memory with it."""
    return _own_dictionaries(pa.concat_batches([batch]))


def _own_dictionaries(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Copy the dictionaries of ``batch``: copying its rows does not, and a shared one keeps the whole chunk alive."""
    columns = [
        pa.DictionaryArray.from_arrays(column.indices, pa.concat_arrays([column.dictionary]))
        if isinstance(column, pa.DictionaryArray)
        else column
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


class Gatherer:
    """Takes the rows of chunks and returns pieces for files. For one thread.

    ``folder`` returns the folder of a log and a time. Without ``by_log`` its log is None, without ``by_time`` its time
    is None, else the beginning of the day or hour of the column ``time``. Pieces that are to be split by ``levels``
    (``by_values``) are large; all are if it is ``patient``. At most ``limit_bytes`` are buffered. The rows of one log
    keep their order.
    """

    def __init__(
        self,
        folder: Folder,
        limit_bytes: int,
        *,
        by_log: bool = False,
        by_time: Literal["day", "hour"] | None = None,
        time: str = "timestamp",
        levels: Sequence[str] = (),
        patient: bool = False,
    ) -> None:
        self._name = lru_cache(maxsize=_NAMES_REMEMBERED)(folder)
        self._limit_bytes = limit_bytes
        self._by_log = by_log
        self._by_time = by_time
        self._time = time
        self._whole = not levels and not patient  # a chunk of one folder needs no splitting
        self._batches: list[tuple[pa.RecordBatch, list[_Run]]] = []
        self._folder: str | None = ""  # of all buffered rows; None: they have several
        self.pending_rows = 0
        self.pending_bytes = 0

    def add(self, batch: pa.RecordBatch, held_bytes: int, runs: Sequence[tuple[Log, int, int]]) -> Sequence[Piece]:
        """Take ``batch``, which keeps ``held_bytes`` of memory alive; return the pieces that are ready, if any.

        ``runs`` gives the log of each row: (log, first row, rows). It may be empty without ``by_log``.
        """
        if not batch.num_rows:
            return []
        folders = self._runs(batch, runs)
        folder = folders[0][0] if len(folders) == 1 else None
        mostly_empty = held_bytes > 2 * batch.get_total_buffer_size()
        if folder is not None and self._whole and not mostly_empty and (not self._batches or self._folder == folder):
            return [*self.flush(), (folder, batch)]
        if mostly_empty:
            batch = own(batch)
            held_bytes = batch.get_total_buffer_size()
        else:
            batch = _own_dictionaries(batch)
        self._folder = folder if not self._batches or self._folder == folder else None
        self._batches.append((batch, folders))
        self.pending_rows += batch.num_rows
        self.pending_bytes += held_bytes + _COLUMN_OVERHEAD * batch.num_columns + _RUN_OVERHEAD * len(folders)
        enough = _ENOUGH_ROWS if self._folder is not None and self._whole else _ENOUGH_ROWS_TO_DEAL
        if self.pending_rows >= enough or self.pending_bytes >= self._limit_bytes:
            return self.flush()
        return []

    def flush(self) -> Sequence[Piece]:
        """Return all buffered rows as pieces."""
        batches, folder = self._batches, self._folder
        self.clear()
        if not batches:
            return []
        if folder is None:
            return deal(batches)
        whole = [batch for batch, _ in batches]
        if self._whole and len(whole) > 1:
            whole = [pa.concat_batches(whole)]
        return [(folder, batch) for batch in whole]  # of many sinks as they are: a copy would take memory and time

    def clear(self) -> None:
        """Drop all buffered rows."""
        self._batches = []
        self._folder = ""
        self.pending_rows = 0
        self.pending_bytes = 0

    def _runs(self, batch: pa.RecordBatch, runs: Sequence[tuple[Log, int, int]]) -> list[_Run]:
        """Return the runs of rows by folder, in row order; adjacent rows of one folder are one run."""
        logs: list[tuple[Log | None, int, int]] = [(None, 0, batch.num_rows)]
        if self._by_log:
            logs = list(runs)
        times: Iterable[_TimeRun] = [(None, batch.num_rows)]
        if self._by_time is not None:
            times = _time_runs(batch.column(self._time), self._by_time)
        return list(_join((self._name(log, time), first, rows) for log, time, first, rows in _intersect(logs, times)))


def _time_runs(times: pa.Array, unit: str) -> list[_TimeRun]:
    # This import takes as long as the rest of pyarrow, and 8 MiB, so it is made only when it is needed.
    import pyarrow.compute as pc

    times = _micros(times)
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


def _micros(times: pa.Array) -> pa.Array:
    """Return times or dates in microseconds, null for dates that these cannot count; decoders refuse such times."""
    import pyarrow.compute as pc

    if not pa.types.is_date32(times.type):
        return times.cast(pa.timestamp("us", times.type.tz), safe=False)  # nanoseconds are cut off
    days = times.cast(pa.int32()).cast(pa.int64())
    counted = pc.less_equal(pc.abs(days), ((1 << 63) - 1) // _MICROS["day"])
    return pc.multiply(pc.if_else(counted, days, None), _MICROS["day"]).cast(pa.timestamp("us"))


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


def deal(batches: list[tuple[pa.RecordBatch, list[_Run]]]) -> Sequence[Piece]:
    """Split ``batches``, each with its runs of rows by folder, into one piece for each folder. The list is emptied."""
    rows = sum(batch.num_rows for batch, _ in batches)
    if rows >= _LONG_RUN * sum(len(runs) for _, runs in batches):
        return _deal_slices(batches)
    return _deal_rows(batches)


def _deal_slices(batches: list[tuple[pa.RecordBatch, list[_Run]]]) -> Sequence[Piece]:
    slices: dict[str, list[pa.RecordBatch]] = {}
    for batch, runs in batches:
        for folder, first, rows in runs:
            slices.setdefault(folder, []).append(batch.slice(first, rows))
    # A single slice is copied, too: it would keep its whole batch alive for as long as the file buffers it.
    return [(folder, pa.concat_batches(parts)) for folder, parts in slices.items()]


Levels = Callable[[Iterable[tuple[str, str | None]]], str]
"""Returns the folder for pairs of a column and its value."""


def by_values(
    folder: str, batch: pa.RecordBatch, columns: Sequence[str], levels: Levels, *, empty: bool = False
) -> Sequence[Piece]:
    """Split the rows of a folder among the folders in it for the values of ``columns``, without these columns.

    Rows with equal values keep their order. An empty text counts as null, as readers of folder names have it, unless
    ``empty`` says that it is a value.
    """
    if not columns:
        return [(folder, batch)]
    import pyarrow.compute as pc

    codes, texts = row_codes([_texts(batch.column(name), empty) for name in columns])
    order = pc.array_sort_indices(codes)  # stable
    runs = pc.run_end_encode(codes.take(order))
    indices = []
    first = 0
    for end, code in zip(runs.run_ends.to_pylist(), runs.values.to_pylist(), strict=True):
        indices.append((folder + levels(zip(columns, texts(code), strict=True)), order.slice(first, end - first)))
        first = end
    rest = batch.drop_columns(list(columns))
    return [(indices[0][0], rest)] if len(indices) == 1 else _Picked(rest, indices)


def _texts(column: pa.Array, empty: bool) -> pa.Array:
    """Return values as text for names of folders; an empty text is null, unless it is a value."""
    import pyarrow.compute as pc

    text = pc.cast(column, pa.string())
    return text if empty else pc.if_else(pc.equal(text, ""), pa.scalar(None, pa.string()), text)


def row_codes(columns: Sequence[pa.Array]) -> tuple[pa.Array, Callable[[int], list[Any]]]:
    """Return a number for each row, equal for equal values, and a function that returns the values of a number."""
    import pyarrow.compute as pc

    codes: pa.Array = pa.repeat(pa.scalar(0, pa.int64()), len(columns[0]))
    values: list[list[Any]] = []
    for column in columns:
        encoded = column.dictionary_encode()
        known: list[Any] = [*encoded.dictionary.to_pylist(), None]
        own = pc.fill_null(encoded.indices.cast(pa.int64()), len(known) - 1)
        codes = pc.add_checked(pc.multiply_checked(codes, len(known)), own)
        values.append(known)

    def texts(code: int) -> list[Any]:
        found = []
        for known in reversed(values):
            code, place = divmod(code, len(known))
            found.append(known[place])
        return found[::-1]

    return codes, texts


def _deal_rows(batches: list[tuple[pa.RecordBatch, list[_Run]]]) -> Sequence[Piece]:
    indices: dict[str, array[int]] = {}
    base = 0
    for batch, runs in batches:
        for folder, first, rows in runs:
            indices.setdefault(folder, array("q")).extend(range(base + first, base + first + rows))
        base += batch.num_rows
    together = pa.concat_batches([batch for batch, _ in batches])
    batches.clear()
    return _Picked(together, [(folder, _as_indices(rows)) for folder, rows in indices.items()])


def _as_indices(rows: "array[int]") -> pa.Array:
    return pa.Array.from_buffers(pa.int64(), len(rows), [None, pa.py_buffer(rows)])


class _Picked(Sequence[Piece]):
    """Pieces that are copied on access: thousands of small pieces take much more memory than their rows."""

    def __init__(self, together: pa.RecordBatch, indices: list[tuple[str, pa.Array]]) -> None:
        self._together = together
        self._indices = indices

    def __len__(self) -> int:
        return len(self._indices)

    @overload
    def __getitem__(self, index: int, /) -> Piece: ...
    @overload
    def __getitem__(self, index: slice, /) -> Sequence[Piece]: ...
    def __getitem__(self, index: int | slice, /) -> Piece | Sequence[Piece]:
        if isinstance(index, slice):
            return _Picked(self._together, self._indices[index])
        folder, rows = self._indices[index]
        return folder, self._together.take(rows)
