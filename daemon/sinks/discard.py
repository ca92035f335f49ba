"""The sink that throws records away, and has them acknowledged: for measuring what comes before a sink."""

from fastwire.columns.chunk import Chunk

from .unlogged import UnloggedSink

__all__ = ["DiscardSink"]


class DiscardSink(UnloggedSink):
    """Counts and drops. What was written counts as landed at the next commit, so the broker forgets it: data is lost.

    Nothing is remembered beyond ``close``.
    """

    quick = True

    def write(self, chunk: Chunk) -> None:
        """Count ``chunk`` and let go of its memory."""
        self.written(chunk)
        chunk.release()
