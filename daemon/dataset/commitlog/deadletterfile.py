"""Dead letters: entries that could not be decoded, stored unchanged in Arrow IPC files beside the log."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.ipc

from fastwire.position import Log, format_position

from ..staging import StagedFile
from .entry import DeadLetterCount, DeadLetterLike
from .ipcfile import opened_ipc_file

_SCHEMA = pa.schema(
    [
        pa.field("cluster", pa.string(), nullable=False),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.string(), nullable=False),
        pa.field("incarnation", pa.string(), nullable=False),
        pa.field("position", pa.string(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("rows", pa.int64(), nullable=False),
        pa.field("payload", pa.large_binary(), nullable=False),
    ]
)
ERASED = "erased"
"""The reason of a dead letter whose payload was erased: it stays, because its number names it in the log."""

# Payloads of one record batch, whose header takes 1 KiB: a larger letter is a batch of its own.
_BATCH_BYTES = 1 << 20


class Outbox:
    """A file in memory for pyarrow's writer, which would not survive a failed write; ``take`` empties it."""

    closed = False  # pyarrow reads it before each use

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def write(self, data: bytes) -> int:
        """Hold ``data`` until ``take``."""
        self._pieces.append(data)
        return len(data)

    def take(self) -> list[bytes]:
        """Return what was written since the last call."""
        pieces, self._pieces = self._pieces, []
        return pieces

    def flush(self) -> None:
        """Do nothing: ``take`` empties it."""

    def close(self) -> None:
        """Do nothing: the writer that is dropped without an end calls it, too."""


class DeadLetterFile:
    """The dead letters of one roll, in a staged file; none stays in memory.

    Writing may wait for disk space, and raises the errors of writing to a staged file.
    """

    def __init__(self, staged: StagedFile) -> None:
        self.staged = staged
        self._counts: dict[Log, tuple[int, int]] = {}
        self._outbox = Outbox()
        self._writer: Any = pa.ipc.new_file(pa.PythonFile(self._outbox, mode="w"), _SCHEMA)

    @property
    def dead_letter_counts(self) -> tuple[DeadLetterCount, ...]:
        """Entries and rows by log."""
        return tuple(DeadLetterCount(log, entries, rows) for log, (entries, rows) in self._counts.items())

    def add(self, dead_letters: Sequence[DeadLetterLike]) -> None:
        """Write ``dead_letters`` behind those before them."""
        batch: list[DeadLetterLike] = []
        size = 0
        for letter in dead_letters:
            if batch and size + len(letter.payload) > _BATCH_BYTES:
                self._write(batch)
                batch, size = [], 0
            batch.append(letter)
            size += len(letter.payload)
        if batch:
            self._write(batch)

    def finish(self) -> None:
        """Write the end of the file, without which it cannot be read."""
        self._writer.close()
        self._drain()
        self.staged.rows = sum(rows for _, rows in self._counts.values())

    def _write(self, dead_letters: Sequence[DeadLetterLike]) -> None:
        columns: Iterable[list[Any]] = (
            [letter.log.cluster for letter in dead_letters],
            [letter.log.topic for letter in dead_letters],
            [letter.log.partition for letter in dead_letters],
            [letter.log.incarnation for letter in dead_letters],
            [format_position(letter.log.system, letter.position) for letter in dead_letters],
            [letter.reason for letter in dead_letters],
            [letter.rows for letter in dead_letters],
        )
        arrays = [pa.array(column, field.type) for column, field in zip(columns, _SCHEMA, strict=False)]
        self._writer.write_batch(pa.RecordBatch.from_arrays([*arrays, _payloads(dead_letters)], schema=_SCHEMA))
        self._drain()
        for letter in dead_letters:
            entries, rows = self._counts.get(letter.log, (0, 0))
            self._counts[letter.log] = entries + 1, rows + letter.rows

    def _drain(self) -> None:
        for piece in self._outbox.take():
            self.staged.file.write(piece)


def _payloads(dead_letters: Sequence[DeadLetterLike]) -> pa.Array:
    """The column of payloads; one that is alone is not copied."""
    if len(dead_letters) > 1:
        return pa.array([letter.payload for letter in dead_letters], pa.large_binary())
    payload = dead_letters[0].payload
    offsets = pa.array([0, len(payload)], pa.int64()).buffers()[1]
    return pa.Array.from_buffers(pa.large_binary(), 1, [None, offsets, pa.py_buffer(payload)])


def read_dead_letters(file: BinaryIO) -> pa.Table:
    """The dead letters in one file. Raises OSError or pyarrow.ArrowInvalid."""
    with opened_ipc_file(file) as reader:
        return reader.read_all()


def each_dead_letter(file: BinaryIO) -> Iterator[dict[str, Any]]:
    """Yield the dead letters in one file, without cluster and incarnation; about 1 MiB is read at a time.

    Raises OSError or pyarrow.ArrowInvalid.
    """
    names = [name for name in _SCHEMA.names if name not in ("cluster", "incarnation")]
    with opened_ipc_file(file) as reader:
        for batch in reader:
            yield from batch.select(names).to_pylist()
