"""Rates of growing totals, averaged over the last seconds, and the backlog of the last hour."""

from array import array
from collections import deque
from itertools import repeat

MINUTES = 60

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


class LagHistory:
    """The largest backlog of each of the last ``MINUTES`` minutes; takes below a kilobyte.

    None stands for a minute in which it was not known. Times are seconds of one clock, which may jump.
    """

    def __init__(self) -> None:
        self._most = array("q")  # -1: unknown
        self._minute = 0

    def add(self, backlog: int | None, now: float) -> None:
        """Note the backlog at ``now``."""
        minute = int(now // 60)
        if not self._most or minute < self._minute:
            self._most.append(-1)
        else:
            self._most.extend(repeat(-1, min(minute - self._minute, MINUTES)))
        del self._most[:-MINUTES]
        self._minute = minute
        if backlog is not None:
            self._most[-1] = max(backlog, self._most[-1])

    def status(self, now: float) -> list[int | None]:
        """Return the minutes up to ``now``, the current one last."""
        if self._most:
            self.add(None, now)
        return [None if most < 0 else most for most in self._most]
