"""The keys of rows, in the tasks: hashed for the driver, which finds duplicates, and left out where it has found some.

A task reads its rows twice: once for their marks, once for the rows that stay. Each row is decoded twice, and none goes
through Spark, which costs three times as much.
"""

import json
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fastwire.columns.keyhash import chain_cells, chain_words

from .split import Pieces

MARK = np.dtype([("first", "<u8"), ("second", "<u8"), ("row", "<u8"), ("time", "<i8")])
"""A good row: the hash of its key, a hash of the row's own, and its time in microseconds."""
NO_TIME = np.iinfo(np.int64).min

MARKS_DDL = "name string, good bigint, dead bigint"
MARKS = pa.schema([("name", pa.string()), ("good", pa.int64()), ("dead", pa.int64())])


def _no_rows() -> Pieces:
    return lambda _batch: iter(())


@dataclass(frozen=True, slots=True)
class KeyedRows:
    """Rows of ``split`` with a key. Pickled and sent to executors.

    Good rows have the columns of ``key``, and those of ``place``, which end here and in which no two rows are equal;
    ``time`` is one of them. ``secret`` makes the hashes. Rows up to the time ``late`` are left out, and those in the
    file ``dropped``: two columns, of the rows' own hashes in order and of their keys'.
    """

    key: tuple[str, ...]
    place: tuple[str, ...]
    time: str
    split: Callable[[], Pieces] = _no_rows
    secret: bytes = b""
    late: int | None = None
    dropped: str = ""

    def of(self, batch: pa.RecordBatch) -> np.ndarray:
        """Return the marks of good rows."""
        names = sorted(self.key)
        # Hashes begin with the names: a job whose key is another from now on knows no row by a value of the old one.
        hashes = np.zeros((1, 2), np.uint64)
        _chain(hashes, self.secret, pa.array([json.dumps(names)]))
        hashes = np.repeat(hashes, batch.num_rows, axis=0)
        marks = np.empty(batch.num_rows, MARK)
        for name in names:
            _chain(hashes, self.secret, batch.column(name))
        marks["first"], marks["second"] = hashes.T
        for name in self.place:
            _chain(hashes, self.secret, batch.column(name))
        marks["row"] = hashes[:, 0]
        marks["time"] = _words(batch.column(self.time), NO_TIME)
        return marks

    def open(self) -> Pieces:
        """Return the function that splits batches into the rows that stay, and the dead letters."""
        split = self.split()
        dropped = np.load(self.dropped, mmap_mode="r") if self.dropped else None

        def pieces(batch: pa.RecordBatch) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
            for good, dead in split(batch):
                yield self._staying(good, dropped).drop_columns([*self.place]), dead

        return pieces

    def _staying(self, good: pa.RecordBatch, dropped: np.ndarray | None) -> pa.RecordBatch:
        if not good.num_rows:
            return good
        gone = np.zeros(good.num_rows, bool)
        if self.late is not None:
            times = _words(good.column(self.time), NO_TIME)
            gone = (times <= self.late) & (times != NO_TIME)
        if dropped is not None:
            marks = self.of(good)
            at = np.minimum(np.searchsorted(dropped[0], marks["row"]), dropped.shape[1] - 1)
            gone |= (dropped[0][at] == marks["row"]) & (dropped[1][at] == marks["first"])
        return good.filter(pa.array(~gone)) if gone.any() else good


def write_marks(rows: KeyedRows, folder: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function for ``mapInArrow`` that writes the marks of a task's good rows to a file in ``folder``.

    It yields one row of ``MARKS``.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        name, good, dead = secrets.token_hex(8), 0, 0  # attempts of a task never share a name
        split = rows.split()
        with Path(folder, name).open("xb") as file:
            for batch in batches:
                for kept, refused in split(batch):
                    file.write(rows.of(kept).data)
                    good, dead = good + kept.num_rows, dead + refused.num_rows
        yield pa.RecordBatch.from_pylist([{"name": name, "good": good, "dead": dead}], MARKS)

    return run


def _chain(hashes: np.ndarray, secret: bytes, array: pa.Array) -> None:
    """Hash the cells of a column into ``hashes``. Equal numbers are equal in all types of their kind."""
    kind = array.type
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_temporal(kind):
        chain_words(hashes, secret, _words(array, -1))
        return
    if pa.types.is_floating(kind):
        numbers = array.cast(pa.float64()).to_numpy(zero_copy_only=False) + 0.0  # the two zeros are one
        numbers[np.isnan(numbers)] = np.nan
        chain_words(hashes, secret, numbers.view(np.int64))
        return
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        cells = array.cast(pa.binary())
    else:  # rare, and each value has one text
        cells = pa.array(_texts(array), pa.binary())
    _, offsets, data = cells.buffers()
    places = np.frombuffer(offsets, np.int32)[cells.offset : cells.offset + len(cells) + 1]
    chain_cells(hashes, secret, places, b"" if data is None else memoryview(data).cast("B"))


def _texts(array: pa.Array) -> list[bytes]:
    """Return the texts of values. They stay as they are: checkpoints have their hashes."""
    try:
        values = array.to_pylist()
    except (OverflowError, ValueError):  # Python has no such time
        if len(array) > 1:
            return [text for row in range(len(array)) for text in _texts(array.slice(row, 1))]
        values = array.cast(_timeless(array.type)).to_pylist()
    return [repr(value).encode() for value in values]


def _timeless(kind: pa.DataType) -> pa.DataType:
    """Return a nested type with numbers in place of times."""
    if pa.types.is_date32(kind) or pa.types.is_time32(kind):
        return pa.int32()
    if pa.types.is_temporal(kind):
        return pa.int64()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_timeless(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_timeless(kind.key_type), kind.item_field.with_type(_timeless(kind.item_type)))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_timeless(kind.value_type)))
    return kind


def _words(array: pa.Array, null: int) -> np.ndarray:
    """Return a column of numbers or times as 64-bit numbers, with ``null`` for its nulls."""
    if not pa.types.is_int64(array.type):
        narrow = pa.types.is_date32(array.type) or pa.types.is_time32(array.type)
        array = array.cast(pa.int32() if narrow else pa.int64()).cast(pa.int64())
    numbers: np.ndarray = (pc.fill_null(array, null) if array.null_count else array).to_numpy()
    return numbers
