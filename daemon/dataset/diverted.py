"""Dead letters: entries that could not be decoded, kept as they came, as an Arrow IPC file beside the log."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.ipc

from fastwire.position import format_position

from .log import Letter

__all__ = ["encode_letters", "read_letters"]

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


def encode_letters(letters: Sequence[Letter]) -> Any:
    """The bytes of the file (anything with the buffer protocol).

    Made in memory on purpose: pyarrow's writer would not survive a full disk.
    """
    columns: list[list[Any]] = [
        [letter.log.cluster for letter in letters],
        [letter.log.topic for letter in letters],
        [letter.log.partition for letter in letters],
        [letter.log.incarnation for letter in letters],
        [format_position(letter.log.system, letter.position) for letter in letters],
        [letter.reason for letter in letters],
        [letter.rows for letter in letters],
        [letter.payload for letter in letters],
    ]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _SCHEMA, strict=True)]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, _SCHEMA) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA))
    return sink.getvalue()


def read_letters(path: str) -> pa.Table:
    """The dead letters in one file. Raises OSError or pyarrow.ArrowInvalid."""
    with pa.OSFile(path) as file, pa.ipc.open_file(file) as reader:
        return reader.read_all()
