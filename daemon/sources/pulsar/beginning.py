"""Where logs begin of which nothing has landed yet: what ``start`` means for topics and partitions, old and new."""

from collections.abc import Set
from datetime import datetime

from fastwire.position import PULSAR_LATEST, Coverage, Log, Position
from fastwire.pulsar.connection import Connection
from fastwire.pulsar.topic import Topic, parse_topic

from ..base import LogStopped
from .settings import PulsarSettings

__all__ = ["Beginnings", "StartAt", "seek"]

TOGETHER_S = 10.0

StartAt = str | datetime | Position  # "earliest", "latest", a time, last consumed


class Beginnings:
    """``start`` is for topics that nobody has read yet; what was added to them later is read from its beginning.

    That a partition was added while nobody was there, only Coverage can tell: it knows the topic and lower numbers.
    So the first positions of a topic's partitions have to be committed together.
    """

    def __init__(self, settings: PulsarSettings) -> None:
        self._settings = settings
        self._known: dict[str, int] = {}  # the highest partition of each topic that Coverage knows
        self._pattern_known = False
        self._together_until = float("inf")

    def learn(self, coverage: Coverage) -> None:
        """Note what was known when we came."""
        settings = self._settings
        for log in coverage.logs():
            if (log.cluster, log.incarnation) == (settings.cluster, str(settings.incarnation)):
                self._known[log.topic] = max(self._known.get(log.topic, -1), int(log.partition))
                if settings.pattern is not None and settings.pattern.matches(parse_topic(log.topic)):
                    self._pattern_known = True

    def start(self, now: float) -> None:
        """Subscribing begins."""
        self._together_until = now + TOGETHER_S

    def is_late(self, topic: Topic, index: int) -> bool:
        """Whether a log that is there when we come was added since reading began."""
        known = self._known.get(str(topic.base))
        return self._pattern_known if known is None else index > known

    def together(self, connecting: Set[str], now: float) -> Set[str]:
        """Of the topics with partitions that are ``connecting``, those whose others should wait for them."""
        if self._settings.start.kind == "earliest" or now >= self._together_until:
            return frozenset()
        return connecting - self._known.keys()

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
