"""The sink that throws records away, and has them acknowledged: for measuring what comes before a sink."""

from fastwire.columns.chunk import Chunk
from fastwire.position import Coverage

from .progress import Progress

__all__ = ["DiscardSink"]


class DiscardSink:
    """Counts and drops. What was written counts as landed at the next commit, so the broker forgets it: data is lost.

    Nothing is remembered beyond ``close``.
    """

    def __init__(self) -> None:
        self._progress = Progress()

    @property
    def rows(self) -> int:
        """Rows dropped so far."""
        return self._progress.rows

    def open(self) -> Coverage:
        """Start from nothing."""
        self._progress = Progress()
        return Coverage()

    def write(self, chunk: Chunk) -> None:
        """Count ``chunk`` and let go of its memory."""
        self._progress.add(chunk)
        chunk.release()

    def commit(self) -> Coverage:
        """Say that everything written has landed."""
        return self._progress.commit()

    def close(self) -> None:
        """Nothing is held."""
