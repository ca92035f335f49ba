"""Arrow IPC files, read from front to end on the thread that asks.

pyarrow's reader of IPC files reads on threads of its own. One of them may be the last that holds a Python file, drops
it while the interpreter ends, and ends the process by SIGABRT. The format holds a stream between two marks, which a
reader of streams reads without threads.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from io import SEEK_END
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.ipc

# Apache Arrow, "Columnar Format", IPC File Format: the mark stands at both ends, and the stream begins at a multiple
# of eight.
_MARK = b"ARROW1"
_STREAM_AT = 8


@contextmanager
def opened_ipc_file(file: BinaryIO, columns: list[int] | None = None) -> Iterator[Any]:
    """Open an IPC file with random access as a ``pyarrow.RecordBatchStreamReader``.

    Of ``columns``, numbers in the schema, only these are decompressed. Raises OSError or pyarrow.ArrowInvalid, also
    for a file whose end is missing.
    """
    file.seek(0)
    begins = file.read(len(_MARK))
    size = file.seek(0, SEEK_END)
    file.seek(max(size - len(_MARK), 0))
    if begins != _MARK or size < _STREAM_AT + len(_MARK) or file.read(len(_MARK)) != _MARK:
        raise pa.ArrowInvalid(f"is not a whole Arrow IPC file, of {size} bytes")
    file.seek(_STREAM_AT)
    options = pa.ipc.IpcReadOptions(use_threads=False, included_fields=columns)
    with pa.ipc.open_stream(pa.PythonFile(file, mode="r"), options=options) as reader:
        yield reader
