"""A sink that prints one JSON object per line, at least once."""

import os
import select
import sys

from fastwire.columns.chunk import Chunk
from fastwire.columns.text import LineFormatter

from ..runtime.errors import SinkDoneError, SinkFailedError
from ..runtime.logs import get_logger
from ..runtime.terminal import printable_json
from .unlogged import UnloggedSink

PIECE_BYTES = 1 << 18

_log = get_logger("sink")


class ReaderGoneError(SinkDoneError):
    """The reader of the output has closed it (``| head``): a normal end, after which ``open`` cannot help."""


class StdoutSink(UnloggedSink):
    """Writes lines to a file descriptor, by default that of standard output.

    A committed row has been given to the operating system; the sink cannot know whether the reader has processed it.
    Rows that were written and not committed are printed again after a restart. Entries that cannot be decoded are
    not printed; the pipeline logs them with the commit.
    """

    def __init__(self, descriptor: int | None = None) -> None:
        super().__init__()
        self._descriptor = sys.stdout.fileno() if descriptor is None else descriptor
        self._terminal = os.isatty(self._descriptor)

    def write(self, chunk: Chunk) -> None:
        """Print the rows of ``chunk``; waits for a slow reader. Raises ReaderGoneError when the reader has gone."""
        if chunk.rows:
            lines = LineFormatter(chunk)
            chunk.release()
            lines.write(self.put, PIECE_BYTES)
        self.written(chunk)

    def put(self, text: bytes) -> None:
        """Write lines of JSON; waits for a slow reader. Raises ReaderGoneError when the reader has gone."""
        rest = memoryview(printable_json(text) if self._terminal else text)
        while rest:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except BlockingIOError:
                # Another process that shares the terminal or pipe has made it non-blocking.
                select.select([], [self._descriptor], [])
            except BrokenPipeError as exc:
                raise ReaderGoneError("standard output was closed by its reader") from exc
            except OSError as exc:
                raise SinkFailedError(f"cannot write to standard output: {exc.strerror}") from exc
