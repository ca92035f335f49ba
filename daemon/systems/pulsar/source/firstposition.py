"""Resolve the first position of a log from which nothing landed: the meaning of ``start`` for old and new topics."""

from collections.abc import Set
from datetime import datetime

from fastwire.coverage import Coverage
from fastwire.position import Log, Position
from fastwire.pulsar.names.topic import parse_topic
from fastwire.pulsar.position import PULSAR_LATEST
from fastwire.pulsar.protocol.connection import Connection

from ...reading.earlier import TOGETHER_S, EarlierLogs
from ...source import LogStopped
from .settings import PulsarSettings

StartAt = str | datetime | Position  # "earliest", "latest", a time, last consumed


class FirstPositions:
    """Applies ``start`` to topics that are new to the dataset; later partitions and topics begin at their beginning."""

    def __init__(self, settings: PulsarSettings) -> None:
        self._settings = settings
        self._earlier = EarlierLogs()
        self._together_until = float("inf")

    def learn(self, coverage: Coverage) -> None:
        """Note the logs in the coverage of earlier runs."""
        settings, pattern = self._settings, self._settings.pattern
        ours = settings.cluster, str(settings.incarnation)
        self._earlier = EarlierLogs(
            (log for log in coverage.logs() if (log.cluster, log.incarnation) == ours),
            None if pattern is None else lambda topic: pattern.matches(parse_topic(topic)),
        )

    def start(self, now: float) -> None:
        """Note that subscribing begins."""
        self._together_until = now + TOGETHER_S

    def is_late(self, log: Log) -> bool:
        """Return True if a log found at the start was added since reading began."""
        return self._earlier.is_late(log)

    def together(self, connecting: Set[str], now: float) -> Set[str]:
        """Return the topics of ``connecting`` partitions whose other partitions should be waited for."""
        if self._settings.start.kind == "earliest" or now >= self._together_until:
            return frozenset()
        return connecting - self._earlier.topics

    def of(self, log: Log, name: str, *, late: bool) -> StartAt:
        """Return the start of a log that neither Coverage nor the cursor knows; ``name`` is the partition's own."""
        start = self._settings.start
        if late and name not in start.positions:
            return "earliest"
        if start.kind == "time" and start.time is not None:
            return start.time
        if start.kind == "positions":
            at = start.positions.get(name)
            if at is None:
                raise LogStopped(f"{log}: start names no position for {name}", "start")
            return at
        return start.kind


def seek(connection: Connection, consumer_id: int, at: StartAt, now: float) -> int:
    """Send a seek to ``start``, to the end for "latest"; returns the request id."""
    if isinstance(at, datetime):
        return connection.seek(consumer_id, now, publish_time_ms=max(0, int(at.timestamp() * 1000)))
    return connection.seek(consumer_id, now, position=at if isinstance(at, Position) else PULSAR_LATEST)
