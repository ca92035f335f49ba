"""The last commits of a pipeline, for the status page."""

from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["Commit", "CommitHistory"]

_REMEMBERED = 10


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit: its rows, its published files with their size in bytes, its duration, and what has ended the roll."""

    rows: int
    files: int
    bytes: int
    seconds: float
    reason: str


class CommitHistory:
    """The last ten commits with rows, the newest first. ``clock`` returns seconds of a monotonic clock."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._commits: deque[tuple[float, Commit]] = deque(maxlen=_REMEMBERED)

    def add(self, commit: Commit) -> None:
        """Add a commit that has just ended."""
        self._commits.appendleft((self._clock(), commit))

    def status(self) -> list[dict[str, Any]]:
        """Return the commits as plain values, with their age in seconds."""
        now = self._clock()
        return [{"s_ago": round(now - at, 1), **asdict(commit)} for at, commit in self._commits]
