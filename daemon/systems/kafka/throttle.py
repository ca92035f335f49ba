"""Throttling by broker quotas, for metrics, status and the log (spec: kafka 5.1; KIP-219)."""

from typing import Any

from ...runtime.logs import get_logger
from ...runtime.metrics import PipelineMetrics

PERIOD_S = 60.0  # a period ends after so long without a throttle; the next period is logged again

log = get_logger("source")


class Throttling:
    """Counts the throttles of one source's connections, and writes a line at the beginning and end of each period."""

    def __init__(self, metrics: PipelineMetrics | None) -> None:
        self.seconds = 0.0  # so far
        self._metrics = metrics
        self._before = 0.0  # of ``seconds``, when the period began
        self._began: float | None = None
        self._until = 0.0

    def throttled(self, broker: str, seconds: float, left_s: float, now: float) -> None:
        """Note that ``broker`` throttles a connection for ``seconds`` longer, so for ``left_s`` from ``now`` on."""
        if self._began is None:
            self._began, self._before = now, self.seconds
            log.warning(
                "the broker throttles this client: a quota of the cluster is exceeded",
                broker=broker,
                throttle_s=round(seconds, 3),
            )
        self.seconds += seconds
        self._until = max(self._until, now + left_s)
        if self._metrics is not None:
            self._metrics.throttled.inc(seconds)

    def look(self, now: float) -> None:
        """Log the end of a period if it is over at ``now``."""
        if self._began is not None and now - self._until >= PERIOD_S:
            log.info(
                "no broker throttles this client any more",
                lasted_s=round(self._until - self._began, 1),
                throttled_s=round(self.seconds - self._before, 1),
            )
            self._began = None

    def status(self, now: float) -> dict[str, Any]:
        """Return the fields of the status page."""
        return {"seconds_total": round(self.seconds, 3), "now": now < self._until}
