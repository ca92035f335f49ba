"""What was added to the topics while nobody was there, as far as Coverage can tell."""

from collections.abc import Callable, Iterable

from fastwire.position import Log

__all__ = ["Known"]


class Known:
    """The logs that were read before we came: ``start`` is not for what was added to their topics since.

    A partition that Coverage does not know was added later only if it knows lower numbers alone, a topic if it knows
    another one that the same pattern ``matches``. So the first positions of a topic's partitions have to be committed
    together.
    """

    def __init__(self, logs: Iterable[Log] = (), matches: Callable[[str], bool] | None = None) -> None:
        self._highest: dict[tuple[str, str], int] = {}  # partition, by topic and incarnation
        for log in logs:
            topic = log.topic, log.incarnation
            self._highest[topic] = max(self._highest.get(topic, -1), int(log.partition))
        self.topics = frozenset(topic for topic, _ in self._highest)
        self._pattern_known = matches is not None and any(map(matches, self.topics))

    def is_late(self, log: Log) -> bool:
        """Whether a log that is there when we come was added since reading began."""
        highest = self._highest.get((log.topic, log.incarnation))
        if highest is None:
            return log.topic in self.topics or self._pattern_known
        return int(log.partition) > highest
