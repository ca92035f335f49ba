"""Batches the assignments and revocations that a source reports to its pipeline; revocations come first."""

import asyncio
from collections.abc import Collection, Sequence

from fastwire.position import Log

from ...runtime.logs import get_logger
from ..source import Assignment, SourceEvents

log = get_logger("source")


class Offers:
    """Gathers assignments and revocations. ``logs`` are those of the source, by log index."""

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
        """Report no more events."""
        self._closed = True

    def add(self, assignment: Assignment) -> None:
        """Add an assignment, which is reported at the next ``tell``."""
        if not self._closed:
            self._offered.append(assignment)

    def withdraw(self, assignment: Assignment) -> bool:
        """Remove an assignment that has ended; return True if it was not reported yet."""
        if assignment not in self._offered:
            return False
        self._offered.remove(assignment)
        return True

    def revoke(self, index: int, reason: str) -> None:
        """Report at the end of the turn that a granted log cannot be read any more."""
        if self._closed:
            return
        if not self._revoked:
            self._loop.call_soon(self.tell_revoked)
        self._revoked.setdefault(reason, []).append(index)

    def tell_revoked(self) -> None:
        """Report the revocations now."""
        revoked, self._revoked = self._revoked, {}
        for reason, indexes in () if self._closed else revoked.items():
            log.info("logs revoked", logs=len(indexes), first=str(self._logs[indexes[0]]), reason=reason)
            self._events.on_revoked(indexes, reason)

    def tell(self, waiting: Collection[str] = ()) -> None:
        """Report revocations and assignments, except assignments of the topics ``waiting``."""
        self.tell_revoked()  # the end of an assignment comes before the next one of the same log
        offered = [one for one in self._offered if one.log.topic not in waiting]
        if offered and not self._closed:
            self._offered = [one for one in self._offered if one.log.topic in waiting]
            self._events.on_assigned(offered)
