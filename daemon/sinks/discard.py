"""A sink that drops records and has them acknowledged, to measure the pipeline without a sink."""

from fastwire.columns.chunk import Chunk

from .unlogged import UnloggedSink


class DiscardSink(UnloggedSink):
    """Counts and drops records. They are acknowledged at the next commit, so the broker deletes them: data is lost."""

    quick = True

    def write(self, chunk: Chunk) -> None:
        """Count ``chunk`` and release its memory."""
        self.written(chunk)
        chunk.release()
