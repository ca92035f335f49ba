"""Rows that were given to the writer of a topic and are not confirmed yet: what a refused one is, by its number."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from fastwire.columns.chunk import DeadLetter
from fastwire.position import positions_of
from fastwire.reason import Reason

from ..dataset.deadletters.reader import NULL_VALUE
from ..sinks.recordrows import Runs


def needed_columns(system: str, known: Sequence[str]) -> frozenset[str]:
    """Return the columns of the records of ``system`` that a topic gets, and those of their positions.

    ``known`` are all columns of the system.
    """
    time = "eventTime" if "eventTime" in known else "timestamp"
    written = {"value", "key", "headers", "orderingKey", time}.intersection(known)
    places = positions_of(system)
    return frozenset({*written, *places.number_columns, *(name for name, _ in places.sequence_columns)})


@dataclass(frozen=True, slots=True)
class _Batch:
    first: int
    rows: pa.RecordBatch
    runs: Runs


class HeldRows:
    """The batches of rows since the last ``clear``, numbered from 0 on over the life of this object."""

    def __init__(self) -> None:
        self.nbytes = 0
        """Memory of the batches, in bytes."""
        self._next = 0
        self._batches: list[_Batch] = []

    def add(self, rows: pa.RecordBatch, runs: Runs) -> int:
        """Hold a batch whose rows are of the logs ``runs``; return the number of its first row."""
        first, self._next = self._next, self._next + rows.num_rows
        self._batches.append(_Batch(first, rows, runs))
        self.nbytes += rows.get_total_buffer_size()
        return first

    def letter(self, number: int, reason: str) -> DeadLetter:
        """Return the dead letter of the row of this number, which the topic refuses."""
        batch = self._batches[bisect_right(self._batches, number, key=lambda one: one.first) - 1]
        row = number - batch.first
        log, *_ = batch.runs[bisect_right(batch.runs, row, key=lambda run: run[1]) - 1]
        places = positions_of(log.system)
        position = places.of_row([batch.rows.column(name)[row].as_py() for name in places.number_columns])
        value = batch.rows.column("value")[row].as_py()
        kind = Reason.REFUSED if value is not None else f"{Reason.REFUSED} {NULL_VALUE}"
        return DeadLetter(log, position, f"{kind}: {reason}", value or b"", 1)

    def clear(self) -> None:
        """Let go of all batches: their rows are confirmed, or their dead letters were taken."""
        self._batches.clear()
        self.nbytes = 0
