"""The age of what has landed: when the last commit was, how old its newest record is, and the last hour of lag."""

import time
from collections.abc import Callable
from typing import Any

from ..runtime.metrics import PipelineMetrics
from ..runtime.rates import LagHistory


class Freshness:
    """Times of the commits and the landed records of one pipeline. ``clock`` has the seconds since 1970."""

    def __init__(self, metrics: PipelineMetrics, clock: Callable[[], float] = time.time) -> None:
        self._metrics = metrics
        self._clock = clock
        self._committed_at: float | None = None
        self._newest: float | None = None  # the time of the newest landed record, in seconds since 1970
        self._lag_s: float | None = None
        self._history = LagHistory()

    def committed(self, newest_time: int | None) -> None:
        """Note a commit of records; ``newest_time`` is the latest timestamp of them in microseconds, None without."""
        if newest_time is not None:
            self._newest = max(newest_time / 1e6, self._newest or 0.0)
        self._committed_at = self._clock()
        self._metrics.last_commit(self._committed_at)

    def look(self, backlog: int | None) -> None:
        """Measure the lag in time: that of the newest landed record while the broker holds others, else none."""
        self._history.add(backlog, self._clock())
        if backlog == 0:
            self._lag_s = 0.0
        elif backlog is None or self._newest is None:
            self._lag_s = None
        else:
            self._lag_s = max(0.0, self._clock() - self._newest)
        self._metrics.time_lag(self._lag_s)

    def status(self) -> dict[str, Any]:
        """Return the age of the last commit of records, the lag in seconds, and the backlog of the last hour by minute.

        None stands for what is not known.
        """
        age = None if self._committed_at is None else round(self._clock() - self._committed_at, 1)
        return {
            "last_commit_s_ago": age,
            "lag_s": None if self._lag_s is None else round(self._lag_s, 1),
            "lag_history": self._history.status(self._clock()),
        }
