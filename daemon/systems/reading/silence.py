"""Topics whose producers have fallen silent: the growth of each, compared with its own past hour."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

WINDOW_S = 300.0
WINDOWS = 12  # of the past hour
ACTIVE = 10  # of these must have records: a topic that is written to now and then does not fall silent
SILENT_SHARE = 0.05  # of the mean window of the past hour: at most this is silence
MOST_SHOWN = 100


@dataclass(slots=True)
class _Topic:
    logs: frozenset[int]
    growth: int = 0  # in the window that is open
    windows: deque[int] = field(default_factory=lambda: deque(maxlen=WINDOWS))
    mean: float = 0.0  # of the hour before it fell silent
    silent_since: float | None = None

    def end_window(self, began: float) -> None:
        """Judge the window that began at ``began``. A silent topic keeps the hour before the silence as its past."""
        mean = self.mean if self.silent_since is not None else sum(self.windows) / max(1, len(self.windows))
        regular = len(self.windows) == WINDOWS and sum(map(bool, self.windows)) >= ACTIVE
        if self.silent_since is None and regular and self.growth <= mean * SILENT_SHARE:
            self.silent_since, self.mean = began, mean
        elif self.silent_since is not None and self.growth > mean * SILENT_SHARE:
            self.silent_since = None
            self.windows.clear()
        if self.silent_since is None:
            self.windows.append(self.growth)
        self.growth = 0


class Silence:
    """The growth of topics in windows of five minutes, as the ends of their logs show it, by whichever reader.

    A topic whose logs that are known here have changed begins anew: some of it may have moved to another instance.
    """

    def __init__(self) -> None:
        self._topics: dict[str, _Topic] = {}
        self._began: float | None = None

    def add(self, logs: Mapping[str, frozenset[int]], growth: Mapping[str, int], now: float) -> None:
        """Add the growth of topics since the last call, at ``now``; ``logs`` are the known logs of each topic."""
        self._began = now if self._began is None else self._began
        for topic in self._topics.keys() - logs.keys():
            del self._topics[topic]
        for topic, known in logs.items():
            one = self._topics.get(topic)
            if one is None or one.logs != known:
                one = self._topics[topic] = _Topic(known)
            one.growth += growth.get(topic, 0)
        if now - self._began >= WINDOW_S:
            for one in self._topics.values():
                one.end_window(self._began)
            self._began = now

    @property
    def count(self) -> int:
        """The number of silent topics."""
        return sum(one.silent_since is not None for one in self._topics.values())

    def status(self, now: float) -> dict[str, Any]:
        """Return the silent topics: the seconds since then, and the entries an hour that they had before."""
        silent = [
            (name, one.silent_since, one.mean) for name, one in self._topics.items() if one.silent_since is not None
        ]
        silent.sort(key=lambda each: each[1])
        return {
            name: {"silent_s": round(now - since), "entries_per_hour": round(mean * WINDOWS)}
            for name, since, mean in silent[:MOST_SHOWN]
        }
