"""Splits rows into those of a job's table and its dead letters, on the executors."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from fastwire.reason import Reason

from ...dataset.level import FIRST_US, LAST_US
from ...dataset.levelvalues import unnameable
from .schema import Decoded, Decoder

REASON = "reason"
REASONS_DDL = "reason string, `rows` bigint"

Pieces = Callable[[pa.RecordBatch], Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]]
"""Yields good rows with the columns of the table, and dead letters with those of the input and the reason."""


class Column(NamedTuple):
    """A column of the table: ``source`` of the decoded values, of the input, or of the input by day or hour in UTC."""

    name: str
    origin: Literal["value", "input", "date", "hour"]
    source: str


@dataclass(frozen=True, slots=True)
class RowSplit:
    """Decodes input rows, and splits them. Instances are pickled and sent to executors.

    Dead letters are rows whose value cannot be decoded, with a null in a column of ``key``, and with a value of
    ``levels`` that cannot name a folder, of a ``table`` or of plain files.
    """

    decoder: Decoder | None
    columns: Sequence[Column]
    key: Sequence[str]
    levels: Sequence[str] = ()
    table: bool = False

    def open(self) -> Pieces:
        """Return the function that splits batches in this process."""
        read = _kept if self.decoder is None else self.decoder.compile()

        def pieces(batch: pa.RecordBatch) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
            values = batch.column(0 if self.decoder is None else "value")
            for decoded in read(values):
                yield self._piece(batch, decoded)

        return pieces

    def _piece(self, batch: pa.RecordBatch, decoded: Decoded) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        dead = dict(decoded.bad)
        kept: Sequence[int] = range(decoded.first, decoded.upto)
        own = batch.slice(decoded.first, len(kept))
        if dead:
            kept = [row for row in kept if row not in dead]
            own = batch.take(pa.array(kept, pa.int64()))
        made = {each.name: _column(each, decoded.records, own) for each in self.columns}
        good = pa.RecordBatch.from_arrays([*made.values()], [*made])
        wrong: dict[int, str] = {}
        for name in self.key:
            for row in pc.indices_nonzero(made[name].is_null()).to_pylist():
                wrong.setdefault(row, f"{Reason.KEY_NULL}: {name} is null and part of the key")
        for name in self.levels:
            for row, reason in unnameable(made[name], name, table=self.table).items():
                wrong.setdefault(row, f"{reason}, in {name}")
        if wrong:
            good = good.take(pa.array([row for row in range(good.num_rows) if row not in wrong], pa.int64()))
            dead |= {kept[row]: reason for row, reason in wrong.items()}
        return good, _dead_rows(batch, dead)


def _kept(values: pa.Array) -> Iterator[Decoded]:
    """Decode nothing."""
    yield Decoded(pa.RecordBatch.from_arrays([], []), 0, len(values), ())


def _column(column: Column, records: pa.RecordBatch, own: pa.RecordBatch) -> pa.Array:
    if column.origin == "value":
        return records.column(column.source)
    array = own.column(column.source)
    if column.origin != "input":
        micros = array.cast(pa.int64())
        days = pc.and_(pc.greater_equal(micros, FIRST_US), pc.less_equal(micros, LAST_US))
        array = pc.if_else(days, array, pa.scalar(None, array.type))  # no folder names another time
    if column.origin == "date":
        return array.cast(pa.date32())
    return pc.hour(array).cast(pa.int32()) if column.origin == "hour" else array


def _dead_rows(batch: pa.RecordBatch, dead: dict[int, str]) -> pa.RecordBatch:
    rows = batch.take(pa.array(sorted(dead), pa.int64()))
    return rows.append_column(REASON, pa.array([dead[row] for row in sorted(dead)], pa.string()))


def count_reasons(split: Callable[[], Pieces]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function for ``mapInArrow`` that counts the rows of a task by reason, null for good ones."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        counts = Counter[str | None]()
        pieces = split()
        for batch in batches:
            for good, dead in pieces(batch):
                counts[None] += good.num_rows
                counts.update(dead.column(REASON).to_pylist())
        yield pa.record_batch(
            [pa.array([*counts], pa.string()), pa.array([*counts.values()], pa.int64())], [REASON, "rows"]
        )

    return run
