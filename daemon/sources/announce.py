"""What a source tells its pipeline of logs, gathered so that many are told together, and ends before beginnings."""

import asyncio
from collections.abc import Callable, Sequence

from fastwire.position import Log

from ..logs import get_logger
from .base import Assignment, SourceEvents

__all__ = ["Announcements"]

log = get_logger("source")


class Announcements:
    """Offers and revocations on their way to the pipeline."""

    def __init__(self, events: SourceEvents, logs: Sequence[Log]) -> None:
        self._events = events
        self._logs = logs
        self._loop = asyncio.get_running_loop()
        self._offered: list[Assignment] = []
        self._revoked: dict[str, list[int]] = {}  # by reason; told together at the end of the turn
        self._closed = False

    def offer(self, assignment: Assignment) -> None:
        """A log can be read; ``tell`` says so."""
        if not self._closed:
            self._offered.append(assignment)

    def withdraw(self, assignment: Assignment) -> bool:
        """Take back an offer that was not told yet; false if it was."""
        if assignment in self._offered:
            self._offered.remove(assignment)
            return True
        return False

    def revoke(self, index: int, reason: str) -> None:
        """A log that was granted cannot be read any more; told at the end of this turn of the loop."""
        if self._closed:
            return
        if not self._revoked:
            self._loop.call_soon(self.tell_revoked)
        self._revoked.setdefault(reason, []).append(index)

    def tell_revoked(self) -> None:
        """Tell of what has ended."""
        revoked, self._revoked = self._revoked, {}
        for reason, indexes in () if self._closed else revoked.items():
            log.info("logs revoked", logs=len(indexes), first=str(self._logs[indexes[0]]), reason=reason)
            self._events.on_revoked(indexes, reason)

    def tell(self) -> None:
        """Tell of what has ended and what begins."""
        self.tell_revoked()  # a log ends before it begins again
        if self._offered and not self._closed:
            offered, self._offered = self._offered, []
            self._events.on_assigned(offered)

    def close(self) -> None:
        """Nothing more is told."""
        self._closed = True
