"""Where logs begin of which nothing has landed yet: what ``start`` means for topics and partitions, old and new."""

from collections.abc import Set
from datetime import datetime

from fastwire.position import PULSAR_LATEST, Coverage, Log, Position
from fastwire.pulsar.connection import Connection
from fastwire.pulsar.topic import parse_topic

from ..base import LogStopped
from ..known import Known
from .settings import PulsarSettings

__all__ = ["Beginnings", "StartAt", "seek"]

TOGETHER_S = 10.0

StartAt = str | datetime | Position  # "earliest", "latest", a time, last consumed


class Beginnings:
    """``start`` is for topics that nobody has read yet; what was added to them later is read from its beginning."""

    def __init__(self, settings: PulsarSettings) -> None:
        self._settings = settings
        self._known = Known()
        self._together_until = float("inf")

    def learn(self, coverage: Coverage) -> None:
        """Note what was known when we came."""
        settings, pattern = self._settings, self._settings.pattern
        ours = settings.cluster, str(settings.incarnation)
        self._known = Known(
            (log for log in coverage.logs() if (log.cluster, log.incarnation) == ours),
            None if pattern is None else lambda topic: pattern.matches(parse_topic(topic)),
        )

    def start(self, now: float) -> None:
        """Subscribing begins."""
        self._together_until = now + TOGETHER_S

    def is_late(self, log: Log) -> bool:
        """Whether a log that is there when we come was added since reading began."""
        return self._known.is_late(log)

    def together(self, connecting: Set[str], now: float) -> Set[str]:
        """Of the topics with partitions that are ``connecting``, those whose others should wait for them."""
        if self._settings.start.kind == "earliest" or now >= self._together_until:
            return frozenset()
        return connecting - self._known.topics

    def of(self, log: Log, name: str, *, late: bool) -> StartAt:
        """Where a log begins that neither Coverage nor the broker's cursor knows; ``name`` is the partition's own."""
        start = self._settings.start
        if late and name not in start.positions:
            return "earliest"
        if start.kind == "time" and start.time is not None:
            return start.time
        if start.kind == "positions":
            at = start.positions.get(name)
            if at is None:
                raise LogStopped(f"{log}: start names no position for {name}")
            return at
        return start.kind


def seek(connection: Connection, consumer_id: int, at: StartAt, now: float) -> int:
    """Ask the broker to move the cursor there, to the end for "latest"; returns the request's id."""
    if isinstance(at, datetime):
        return connection.seek(consumer_id, now, publish_time_ms=max(0, int(at.timestamp() * 1000)))
    return connection.seek(consumer_id, now, position=at if isinstance(at, Position) else PULSAR_LATEST)
