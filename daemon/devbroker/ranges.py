"""Sets of whole numbers that come in long runs."""

from bisect import bisect_right
from collections.abc import Iterator

__all__ = ["Ranges"]


class Ranges:
    """Disjoint half-open runs in ascending order; touching runs are one run."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def add(self, start: int, end: int) -> None:
        """Put [start, end) in; what is there already stays."""
        if end <= start:
            return
        if self._ends and self._ends[-1] == start:  # the run goes on: nearly every call
            self._ends[-1] = end
            return
        first = bisect_right(self._ends, start - 1)  # the first run that reaches start
        last = bisect_right(self._starts, end)  # one past the last run that begins at or before end
        if first < last:
            start = min(start, self._starts[first])
            end = max(end, self._ends[last - 1])
        self._starts[first:last] = [start]
        self._ends[first:last] = [end]

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self._starts, number) - 1
        return at >= 0 and number < self._ends[at]

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(zip(self._starts, self._ends, strict=True))

    def __bool__(self) -> bool:
        return bool(self._starts)

    def after(self, number: int) -> int:
        """Return the first number that is not in the set, from ``number`` on."""
        at = bisect_right(self._starts, number) - 1
        return self._ends[at] if at >= 0 and number < self._ends[at] else number

    def drop_below(self, number: int) -> None:
        """Take out everything under ``number``."""
        at = bisect_right(self._ends, number)
        del self._starts[:at], self._ends[:at]
        if self._starts and self._starts[0] < number:
            self._starts[0] = number

    def clear(self) -> None:
        """Take everything out."""
        self._starts.clear()
        self._ends.clear()
