"""The base of sinks that keep no log: what was written counts as landed, for as long as the process lives."""

from fastwire.columns.chunk import Chunk, SpanAccumulator
from fastwire.position import Coverage, Log, Span

__all__ = ["UnloggedSink"]

# A log that several consumers share has holes in our coverage of it, and nothing ever fills them. The oldest intervals
# are forgotten: should the broker send one of them again, it is written again, which "at least once" allows.
_INTERVALS = 64


class UnloggedSink:
    """``open``, ``commit`` and ``close`` of such a sink; its own ``write`` ends with ``written``."""

    def __init__(self) -> None:
        self.rows = 0
        """Rows written since ``open``."""
        self._spans = SpanAccumulator()
        self._coverage = Coverage()

    def open(self) -> Coverage:
        """Start from nothing: there is no telling what an earlier process has written."""
        self.rows = 0
        self._spans = SpanAccumulator()
        self._coverage = Coverage()
        return Coverage()

    def written(self, chunk: Chunk) -> None:
        """Note that ``chunk`` was written."""
        self._spans.add(chunk)
        self.rows += chunk.rows

    def commit(self) -> Coverage:
        """Say that everything written has landed."""
        spans = self._spans.take()
        for span in spans:
            self._coverage.add(span)
        if any(len(self._coverage.intervals(span.log)) > _INTERVALS for span in spans):
            self._coverage = _shortened(self._coverage)
        return self._coverage.copy()

    def close(self) -> None:
        """Nothing is held that would be ours to release."""


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
