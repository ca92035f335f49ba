"""The byte budget of the process, and what it means for those who ask brokers for records.

Memory is charged where a block is taken from the pool and credited where it comes back, on any thread and in plain C;
nothing is called from there. So somebody has to look: on a steady clock, and whenever a sink has let go of something.
"""

import asyncio
from collections.abc import Callable
from enum import IntEnum
from typing import Protocol

__all__ = ["Budget", "Level", "permit_window"]

TICK_S = 0.05
HOLD_AT = 0.80  # of the limit: ask for nothing more
# Where a level was reached it is left a little lower, or it would flap with every block.
FREE_BELOW = 0.75
READ_BELOW = 0.95
PERMIT_SHARE = 4  # permits of all consumers together stand for at most a quarter of the budget


class Level(IntEnum):
    """How much memory is left: what a source may do."""

    FREE = 0  # ask for records
    HOLD = 1  # ask for nothing more, read what comes
    STOP = 2  # do not read


class PoolLike(Protocol):
    """What a budget needs of ``wire.pool.Pool``."""

    @property
    def used(self) -> int: ...
    @property
    def limit(self) -> int: ...


class Budget:
    """Watches the pool and tells everybody who asks for records how much memory is left.

    ``charge`` adds what no pool counts: the buffers of encoders, by estimate.
    """

    def __init__(self, pool: PoolLike) -> None:
        self._pool = pool
        self._charged: dict[object, int] = {}
        self._watchers: list[Callable[[Level], None]] = []
        self._timer: asyncio.TimerHandle | None = None
        self.level = Level.FREE

    @property
    def limit(self) -> int:
        return self._pool.limit

    @property
    def used(self) -> int:
        """Bytes in use now, estimates included."""
        # One item at a time: another thread may charge meanwhile.
        return self._pool.used + sum(list(self._charged.values()))

    def charge(self, who: object, nbytes: int) -> None:
        """``who`` holds about ``nbytes`` outside of the pool (0: nothing any more). From any thread."""
        if nbytes:
            self._charged[who] = nbytes
        else:
            self._charged.pop(who, None)

    def watch(self, watcher: Callable[[Level], None]) -> None:
        """Call ``watcher`` on every change of the level, on the loop's thread; at once if memory is scarce now."""
        self._watchers.append(watcher)
        if self.level is not Level.FREE:
            watcher(self.level)

    def unwatch(self, watcher: Callable[[Level], None]) -> None:
        """Stop telling ``watcher``."""
        self._watchers.remove(watcher)

    def check(self) -> Level:
        """Look at the counters and tell the watchers if the level has changed. On the loop's thread only.

        Call it when a sink has returned from ``write`` or ``commit``: only then does memory come back.
        """
        level = self._look()
        if level is not self.level:
            self.level = level
            for watcher in tuple(self._watchers):
                watcher(level)
        return level

    def start(self) -> None:
        """Look every 50 ms from here, on the running loop."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(TICK_S, self._tick)

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(TICK_S, self._tick)
        self.check()

    def _look(self) -> Level:
        used, limit = self.used, self._pool.limit
        if used > limit or (self.level is Level.STOP and used > limit * READ_BELOW):
            return Level.STOP
        if used > limit * HOLD_AT or (self.level is not Level.FREE and used > limit * FREE_BELOW):
            return Level.HOLD
        return Level.FREE


def permit_window(limit: int, consumers: int, permit_bytes: int, most: int) -> int:
    """How many messages one of ``consumers`` may have under way when one message is at most ``permit_bytes`` large.

    This bounds what a broker may send in a burst; memory is safe without it, because nothing is read for which there
    is no room.
    """
    share = limit // PERMIT_SHARE // max(1, consumers)
    return max(1, min(most, share // max(1, permit_bytes)))
