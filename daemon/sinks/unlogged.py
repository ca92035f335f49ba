"""The base of sinks without a log: written records count as durable for the lifetime of the process."""

from collections.abc import Sequence

from fastwire.columns.chunk import Chunk, SpanAccumulator
from fastwire.coverage import Coverage
from fastwire.position import Log, Span

# The coverage of a log that several consumers share has holes that are never filled. The oldest intervals are
# forgotten: if the broker sends one of them again, it is written again, which "at least once" allows.
_INTERVALS = 64


class UnloggedSink:
    """``open``, ``commit`` and ``close`` of such a sink. The ``write`` of a subclass ends with ``written``."""

    def __init__(self) -> None:
        self.rows = 0
        """Rows written since ``open``."""
        self._spans = SpanAccumulator()
        self._coverage = Coverage()

    def open(self) -> Coverage:
        """Return an empty Coverage: the sink cannot know what an earlier process has written."""
        self.rows = 0
        self._spans = SpanAccumulator()
        self._coverage = Coverage()
        return Coverage()

    def written(self, chunk: Chunk) -> None:
        """Record that ``chunk`` was written."""
        self._spans.add(chunk)
        self.rows += chunk.rows

    def commit(self) -> Coverage:
        """Return the Coverage with all written chunks."""
        return self.cover(self._spans.take())

    def cover(self, spans: Sequence[Span]) -> Coverage:
        """Add ``spans`` to the Coverage and return it."""
        for span in spans:
            self._coverage.add(span)
        if any(len(self._coverage.intervals(span.log)) > _INTERVALS for span in spans):
            self._coverage = _shortened(self._coverage)
        return self._coverage.copy()

    def close(self) -> None:
        """Do nothing: the sink holds no resources."""


def _shortened(coverage: Coverage) -> Coverage:
    shorter = Coverage()
    for log in coverage.logs():
        for span in _newest(coverage, log):
            shorter.add(span)
    return shorter


def _newest(coverage: Coverage, log: Log) -> list[Span]:
    intervals = coverage.intervals(log)[-_INTERVALS // 2 :]
    start = coverage.start(log)
    assert start is not None
    if not intervals:
        return [Span(log, start, start, 0)]
    return [Span(log, after, upto, 0) for after, upto in intervals]
