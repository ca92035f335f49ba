"""Rows of chunks as the records have them, and the dead letters of rows that cannot land."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from fastwire.columns.chunk import Chunk, DeadLetter
from fastwire.decode.program import BadRecord
from fastwire.position import Log, positions_of

from ..runtime.errors import LogRefusedError
from .recordschemas import Pause

Runs = Sequence[tuple[Log, int, int]]
"""The log of the rows of a batch: (log, first row, rows)."""


def taken(chunk: Chunk) -> tuple[pa.RecordBatch, Runs]:
    """Return the rows of ``chunk``, which is released: from here on Arrow alone holds their memory."""
    runs = [(chunk.log(index), first, rows) for index, first, rows in chunk.runs()]
    batch = pa.record_batch(chunk)
    chunk.release()
    return batch, runs


@dataclass(frozen=True, slots=True)
class DecodedRows:
    """Consecutive rows of a chunk with the columns of the files, and the dead letters of those that are left out."""

    batch: pa.RecordBatch
    runs: Runs
    numbers: Sequence[int]
    """Number of each row of ``batch`` in the batch that was decoded."""
    dead_letters: Sequence[DeadLetter]
    nbytes: int
    """Memory of the decoded columns, in bytes."""
    filtered: int = 0
    """Rows that were left out on purpose."""
    apart: bool = False
    """True if ``batch`` shares no memory with the batch that was decoded."""


class RecordRows:
    """Rows of record batches of ``system``, with the ``columns`` of the records under their own names.

    A row that cannot land becomes a dead letter, or (``on_error``) stops its log.
    """

    prefix = ""
    """Stands before the names of the columns of the records."""

    def __init__(
        self, columns: Sequence[str], system: str, *, on_error: Literal["dead_letter", "stop"] = "dead_letter"
    ) -> None:
        self._places = positions_of(system)
        self._on_error = on_error
        self.columns = tuple(columns)
        """Columns of the files."""
        self.needed = frozenset({"value", *columns, *self._places.number_columns})
        """Columns that the batches must have."""

    @property
    def nbytes(self) -> int:
        """Memory beside that of the batches, in bytes. From any thread."""
        return 0

    def trim(self) -> None:
        """Give memory back."""

    def decode(self, batch: pa.RecordBatch, runs: Runs, pause: Pause) -> Iterator[DecodedRows]:
        """Yield the rows of ``batch``, whose logs are ``runs``, in their order."""
        yield DecodedRows(batch.select(self.columns), runs, range(batch.num_rows), (), 0)

    def dead_letter_of(
        self, bad: BadRecord, batch: pa.RecordBatch, runs: Runs, opened: pa.RecordBatch | None = None
    ) -> DeadLetter:
        """Return the dead letter of a value of ``batch``, whose keys are those of ``opened``.

        Raises LogRefusedError if it stops its log.
        """
        return self.letter(bad.row, str(bad), batch, runs, "does not match the schema")

    def letter(
        self, row: int, reason: str, batch: pa.RecordBatch, runs: Runs, problem: str, *, stops: bool = False
    ) -> DeadLetter:
        """Return the dead letter of the value in ``row`` of ``batch``; ``problem`` is a verb with its object.

        Raises LogRefusedError if such values stop their log, or this one ``stops`` it.
        """
        log, *_ = runs[bisect_right(runs, row, key=lambda run: run[1]) - 1]
        position = self._places.of_row([batch.column(name)[row].as_py() for name in self._places.number_columns])
        if stops or self._on_error == "stop":
            place = self._places.format(position)
            raise LogRefusedError(f"a value of {log} at {place} {problem}: {reason}", log.__eq__, "undecodable")
        payload = batch.column("value")[row].as_py()
        return DeadLetter(log, position, reason, payload or b"", 1)
