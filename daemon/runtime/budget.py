"""The memory budget of the process, and the back-pressure that it puts on the sources.

Memory is charged where a block is taken from the pool and credited where it comes back, on any thread and in plain C,
without a callback. So the budget polls the counters: on a timer, and whenever a sink has released memory.
"""

import asyncio
import contextvars
import time
from collections.abc import Callable
from enum import IntEnum
from typing import Protocol

TICK_S = 0.05
HOLD_AT = 0.80  # of the limit: ask for nothing more
# Where a level was reached it is left a little lower, or it would flap with every block.
FREE_BELOW = 0.75
READ_BELOW = 0.95
LARGE_CHUNK = 24 << 20  # beyond what a chunk takes whose entries are small
LARGE_SHARE = 8  # of a small limit it is this part
ROOM_COPIES = 2  # of the next large entry: decompressed, and in columns
ROOM_SHARE = 2  # at most so much of the limit stays free for it
FINISH_SHARE = 8  # of the limit: records under way beside which one more frame may be completed
PERMIT_SHARE = 4  # permits of all consumers together stand for at most a quarter of the budget


class Level(IntEnum):
    """The memory level, which decides what a source may do."""

    FREE = 0  # request records
    HOLD = 1  # request no more records, read those that arrive
    FINISH = 2  # read from one connection: incomplete frames hold the memory, and only their ends release it
    STOP = 3  # do not read


class PoolLike(Protocol):
    """The part of ``wire.pool.Pool`` that a budget needs."""

    @property
    def used(self) -> int:
        """Bytes in use."""

    @property
    def receiving(self) -> int:
        """Bytes of receive buffers, a part of ``used``."""

    @property
    def charged(self) -> int:
        """Bytes of incomplete chunked messages, a part of ``used``."""

    @property
    def limit(self) -> int:
        """Size of the pool in bytes."""

    @property
    def kept(self) -> int:
        """Bytes of free blocks that the pool keeps."""

    def trim(self, keep: int = 0) -> None:
        """Release free blocks until ``keep`` bytes of them are left."""


class Budget:
    """Watches the pool and tells its watchers, the sources, when the memory level changes.

    ``count`` adds memory outside of the pool: the buffers of encoders, by estimate. Free blocks of the pool are
    released when they would not fit beside the memory in use.
    """

    def __init__(self, pool: PoolLike) -> None:
        self._pool = pool
        self._counted: list[Callable[[], int]] = []
        self._room = 0  # bytes of the limit that are left for the next large entry
        self._watchers: list[tuple[Callable[[Level], None], contextvars.Context]] = []
        self._on_tick: list[Callable[[], None]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._held_since: float | None = None  # no chunk has arrived, and no more are asked for
        self.level = Level.FREE

    @property
    def held_s(self) -> float:
        """Seconds for which memory in use has kept all sources from reading; 0.0 while records arrive."""
        return 0.0 if self._held_since is None else time.monotonic() - self._held_since

    @property
    def limit(self) -> int:
        """Size of the budget in bytes."""
        return self._pool.limit

    @property
    def used(self) -> int:
        """Bytes in use now, estimates included."""
        return self._pool.used + sum(held() for held in tuple(self._counted))

    def count(self, held: Callable[[], int]) -> None:
        """Add the bytes that ``held`` returns, until ``uncount``. It is called at every check, from any thread."""
        self._counted.append(held)

    def uncount(self, held: Callable[[], int]) -> None:
        """Stop counting ``held``, if it is counted."""
        if held in self._counted:
            self._counted.remove(held)

    def arrived(self, nbytes: int) -> None:
        """Note the arrival of a chunk of ``nbytes`` and check the budget, before anything else is read or decoded.

        On the loop's thread. The size of an entry is known only after decompression, so after a large one reading stops
        while there is still room for another of its size.
        """
        if nbytes > min(LARGE_CHUNK, self._pool.limit // LARGE_SHARE):
            self._room = max(self._room, min(ROOM_COPIES * nbytes, self._pool.limit // ROOM_SHARE))
        self._held_since = None
        self.check()

    def watch(self, watcher: Callable[[Level], None]) -> None:
        """Call ``watcher`` on every change of the level, on the loop's thread; at once if the level is not FREE.

        It runs in a copy of this call's context, so that what it logs and starts belongs to the caller's pipeline.
        """
        self._watchers.append((watcher, contextvars.copy_context()))
        if self.level is not Level.FREE:
            watcher(self.level)

    def unwatch(self, watcher: Callable[[Level], None]) -> None:
        """Remove ``watcher`` if it is registered."""
        self._watchers = [each for each in self._watchers if each[0] != watcher]

    def on_tick(self, call: Callable[[], None]) -> None:
        """Call ``call`` every 50 ms between ``start`` and ``stop``, on the loop's thread."""
        self._on_tick.append(call)

    def check(self) -> Level:
        """Compare the counters with the limit and tell the watchers of a new level. On the loop's thread only.

        Call it when a sink has returned from ``write`` or ``commit``: only then is memory released.
        """
        level = self._look()
        if level is Level.FREE:
            self._held_since = None
        elif self._held_since is None:
            self._held_since = time.monotonic()
        if level is not self.level:
            self.level = level
            for watcher, context in tuple(self._watchers):
                context.copy().run(watcher, level)
        return level

    def start(self) -> None:
        """Start to check every 50 ms on the running loop."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(TICK_S, self._tick)

    def stop(self) -> None:
        """Stop the checks, and release the free blocks of the pool.

        The exit of the process touches every library once more: beside these blocks that would exceed the promise.
        """
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._pool.trim()

    def _tick(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(TICK_S, self._tick)
        self.check()
        for call in self._on_tick:
            call()

    def _look(self) -> Level:
        used, limit = self.used, self._pool.limit
        if used + self._pool.kept > limit:
            self._pool.trim(max(0, limit - used))
        most = limit - self._room
        if used > most or (self.level >= Level.FINISH and used > most * READ_BELOW):
            under_way = used - self._pool.receiving - self._pool.charged
            return Level.FINISH if under_way < limit // FINISH_SHARE else Level.STOP
        if used > limit * HOLD_AT or (self.level is not Level.FREE and used > limit * FREE_BELOW):
            return Level.HOLD
        return Level.FREE


def permit_window(limit: int, consumers: int, permit_bytes: int, most: int) -> int:
    """Return the permits of one of ``consumers``: at most ``most``, and a fair share of a quarter of ``limit`` bytes.

    One message counts for ``permit_bytes``. This bounds the burst that a broker may send; the memory limit holds
    without it, because the daemon does not read when there is no room.
    """
    share = limit // PERMIT_SHARE // max(1, consumers)
    return max(1, min(most, share // max(1, permit_bytes)))
