"""How long to wait before trying again, and which failures are worth a line in the log."""

from random import Random

from .logs import Logger

__all__ = ["Backoff"]

FIRST_S = 0.1
MOST_S = 60.0
JITTER = 0.2


class Backoff:
    """Waiting times that double from ``first_s`` to ``most_s``.

    Each is cut by a random part of up to a fifth, so that a thousand consumers of one broker do not come back at once.
    """

    def __init__(self, rng: Random | None = None, *, first_s: float = FIRST_S, most_s: float = MOST_S) -> None:
        self._rng = Random() if rng is None else rng
        self._first_s = first_s
        self._most_s = most_s
        self._next_s = first_s
        self.failures = 0

    def next(self) -> float:
        """The time to wait now; the next one is twice as long."""
        self.failures += 1
        delay = self._next_s
        self._next_s = min(delay * 2, self._most_s)
        return delay * (1 - JITTER * self._rng.random())

    def failed(self, log: Logger, event: str, error: Exception, *, told: bool = False, **fields: object) -> float:
        """Write ``event`` to the log, as a warning where that is worth it or ``told``; returns the time to wait."""
        delay = self.next()
        write = log.warning if told or self.telling else log.debug
        write(event, **fields, error=str(error), retry_s=round(delay, 3))
        return delay

    @property
    def telling(self) -> bool:
        """Whether the latest failure is worth a line in the log: one that lasts an hour is not worth a thousand."""
        return self.failures in (1, 2, 4, 8) or (self.failures > 0 and self.failures % 10 == 0)

    def reset(self) -> None:
        """It worked: the next failure waits a short time again."""
        self.failures = 0
        self._next_s = self._first_s
