"""Rates of growing totals: averages over the last seconds."""

from collections import deque

__all__ = ["Rate"]

_WINDOW_S = 5.0  # steady enough to read, and quick to show a stop


class Rate:
    """The growth of a total a second, averaged over the last five seconds."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def take(self, now: float, total: int) -> float:
        """Add ``total`` as of ``now``, in seconds of a monotonic clock; return the new rate."""
        self._seen.append((now, total))
        while len(self._seen) > 2 and self._seen[1][0] <= now - _WINDOW_S:
            self._seen.popleft()
        return self.value

    @property
    def value(self) -> float:
        """The rate at the last total; 0 before the second one."""
        if not self._seen:
            return 0.0
        (then, total_then), (now, total) = self._seen[0], self._seen[-1]
        return (total - total_then) / (now - then) if now > then else 0.0
