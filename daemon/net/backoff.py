"""Exponential backoff between attempts, and rate limiting of the log lines about failures."""

from random import Random

from ..runtime.logs import Logger

FIRST_S = 0.1
MOST_S = 60.0
JITTER = 0.2

_RANDOM = Random()  # of all: a generator takes 2.5 kB, and each partition has a backoff


class Backoff:
    """Delays that double from ``first_s`` to ``most_s`` seconds.

    Each is shortened at random by up to a fifth, so that a thousand consumers of one broker do not return at once.
    """

    def __init__(self, rng: Random | None = None, *, first_s: float = FIRST_S, most_s: float = MOST_S) -> None:
        self._rng = _RANDOM if rng is None else rng
        self._first_s = first_s
        self._most_s = most_s
        self._next_s = first_s
        self.failures = 0

    def next(self) -> float:
        """Return the seconds to wait now; the next delay is twice as long."""
        self.failures += 1
        delay = self._next_s
        self._next_s = min(delay * 2, self._most_s)
        return delay * (1 - JITTER * self._rng.random())

    def failed(self, log: Logger, event: str, error: Exception | str, *, warn: bool = False, **fields: object) -> float:
        """Log ``event``, as a warning if ``telling`` or ``warn`` and else as debug; return the seconds to wait."""
        delay = self.next()
        write = log.warning if warn or self.telling else log.debug
        write(event, **fields, error=str(error), retry_s=round(delay, 3))
        return delay

    @property
    def telling(self) -> bool:
        """True if the latest failure deserves a warning: a failure that lasts must not flood the log."""
        return self.failures in (1, 2, 4, 8) or (self.failures > 0 and self.failures % 10 == 0)

    def reset(self) -> None:
        """Start again with the shortest delay after a success."""
        self.failures = 0
        self._next_s = self._first_s
