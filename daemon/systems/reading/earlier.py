"""Finds the partitions and topics that were added since the last run, from the logs in Coverage."""

from collections.abc import Callable, Iterable

from fastwire.position import Log

TOGETHER_S = 10.0  # the longest time that the partitions of a new topic wait for each other


class EarlierLogs:
    """The logs that an earlier run has read. Logs added since are read from their beginning, and not from ``start``.

    A partition counts as added if Coverage knows only lower partition numbers of its topic; a topic counts as added if
    Coverage knows another topic that the pattern ``matches``. So the first positions of a topic's partitions must be
    committed together.
    """

    def __init__(self, logs: Iterable[Log] = (), matches: Callable[[str], bool] | None = None) -> None:
        self._highest: dict[tuple[str, str], int] = {}  # partition, by topic and incarnation
        for log in logs:
            topic = log.topic, log.incarnation
            self._highest[topic] = max(self._highest.get(topic, -1), int(log.partition))
        self.topics = frozenset(topic for topic, _ in self._highest)
        self._pattern_known = matches is not None and any(map(matches, self.topics))

    def is_recreated(self, log: Log) -> bool:
        """Return True if only other incarnations of the log's topic are known."""
        return log.topic in self.topics and (log.topic, log.incarnation) not in self._highest

    def is_late(self, log: Log) -> bool:
        """Return True if a log found at the start was added after the first run."""
        highest = self._highest.get((log.topic, log.incarnation))
        if highest is None:
            return self.is_recreated(log) or self._pattern_known
        return int(log.partition) > highest
