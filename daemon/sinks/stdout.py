"""The sink that prints: one JSON object a line, at least once."""

import os
import select
import sys

from fastwire.columns.chunk import Chunk
from fastwire.columns.text import LineFormatter

from ..errors import SinkDoneError, SinkFailedError
from ..logs import get_logger
from .unlogged import UnloggedSink

__all__ = ["ReaderGoneError", "StdoutSink"]

_PIECE_BYTES = 1 << 18

_log = get_logger("sink")


class ReaderGoneError(SinkDoneError):
    """Whoever read our output has had enough (``| head``): a reason to end, and no failure. ``open`` will not help."""


class StdoutSink(UnloggedSink):
    """Writes lines to a file descriptor, by default that of standard output.

    A committed row has been handed to the operating system; whether its reader has done anything with it, nobody knows.
    Rows that were written and not committed come again after a restart. Entries that cannot be decoded are said in the
    log, not printed.
    """

    def __init__(self, descriptor: int | None = None) -> None:
        super().__init__()
        self._descriptor = sys.stdout.fileno() if descriptor is None else descriptor

    def write(self, chunk: Chunk) -> None:
        """Print the rows of ``chunk``; waits for a slow reader. Raises ReaderGoneError when there is none any more."""
        if chunk.rows:
            lines = LineFormatter(chunk)
            chunk.release()
            while text := lines.read(_PIECE_BYTES):
                self._print(text)
        for letter in chunk.diverted:
            _log.warning("an entry cannot be decoded and was not printed", log=str(letter.log), reason=letter.reason)
        self.written(chunk)

    def _print(self, text: bytes) -> None:
        rest = memoryview(text)
        while rest:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except BlockingIOError:
                # Somebody who shares our terminal or pipe has made it non-blocking.
                select.select([], [self._descriptor], [])
            except BrokenPipeError as exc:
                raise ReaderGoneError("standard output was closed by its reader") from exc
            except OSError as exc:
                raise SinkFailedError(f"cannot write to standard output: {exc.strerror}") from exc
