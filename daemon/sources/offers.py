"""What a source tells its pipeline of logs that come and go: many at a time, and what is gone before what comes."""

import asyncio
from collections.abc import Collection, Sequence

from fastwire.position import Log

from ..logs import get_logger
from .base import Assignment, SourceEvents

__all__ = ["Offers"]

log = get_logger("source")


class Offers:
    """Gathers assignments and their ends. ``logs`` are those of the source, by log index."""

    def __init__(self, events: SourceEvents, logs: Sequence[Log]) -> None:
        self._events = events
        self._logs = logs
        self._loop = asyncio.get_running_loop()
        self._offered: list[Assignment] = []
        self._revoked: dict[str, list[int]] = {}  # by reason; told together at the end of the turn
        self._closed = False

    def __len__(self) -> int:
        return len(self._offered)

    def close(self) -> None:
        """Tell nothing any more."""
        self._closed = True

    def add(self, assignment: Assignment) -> None:
        """A log can be read; the pipeline learns of it with the next ``tell``."""
        if not self._closed:
            self._offered.append(assignment)

    def withdraw(self, assignment: Assignment) -> bool:
        """An assignment has ended; whether that was before anybody was told of it."""
        if assignment not in self._offered:
            return False
        self._offered.remove(assignment)
        return True

    def revoke(self, index: int, reason: str) -> None:
        """A log that was granted cannot be read any more."""
        if self._closed:
            return
        if not self._revoked:
            self._loop.call_soon(self.tell_revoked)
        self._revoked.setdefault(reason, []).append(index)

    def tell_revoked(self) -> None:
        """Tell now of what is gone."""
        revoked, self._revoked = self._revoked, {}
        for reason, indexes in () if self._closed else revoked.items():
            log.info("logs revoked", logs=len(indexes), first=str(self._logs[indexes[0]]), reason=reason)
            self._events.on_revoked(indexes, reason)

    def tell(self, waiting: Collection[str] = ()) -> None:
        """Tell of everything, but not yet of logs whose topics are among the ``waiting``."""
        self.tell_revoked()  # a log ends before it begins again
        offered = [one for one in self._offered if one.log.topic not in waiting]
        if offered and not self._closed:
            self._offered = [one for one in self._offered if one.log.topic in waiting]
            self._events.on_assigned(offered)
