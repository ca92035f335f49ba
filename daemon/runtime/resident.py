"""Resident memory of the process beyond its byte budget: the choice of the allocator, and the release of pages."""

import os
import resource
from collections.abc import Callable
from time import monotonic

from .budget import Budget, Level
from .pages import keep_heap_pages, release_heap_pages, release_library_pages

RELEASE_INTERVAL_S = 0.01  # a millisecond of faults, when memory is scarce
# Resident memory, beyond the budget, above which library pages go back: an eighth of what is promised beyond it.
RELEASE_ABOVE = 16 << 20
HEAP_ABOVE = 64 << 20  # and half of it for the free pages of heaps: encoders need most of them again


class ResidentMemory:
    """Releases library pages when ``budget`` leaves FREE, and when resident memory exceeds it by 16 MiB.

    Free pages of heaps follow if it still exceeds the budget by 64 MiB.

    ``clock`` returns seconds.
    """

    def __init__(self, budget: Budget, clock: Callable[[], float] = monotonic) -> None:
        self._limit = budget.limit + RELEASE_ABOVE
        self._heap_limit = budget.limit + HEAP_ABOVE
        self._clock = clock
        self._released_at = -RELEASE_INTERVAL_S
        budget.watch(self._on_level)
        budget.on_tick(self._on_tick)

    def release(self) -> None:
        """Release the pages, unless that was done within the last 10 ms."""
        now = self._clock()
        if now - self._released_at >= RELEASE_INTERVAL_S:
            self._release(now)

    def _release(self, now: float) -> None:
        self._released_at = now
        release_library_pages()
        if resident_bytes() > self._heap_limit:
            release_heap_pages()

    def _on_level(self, level: Level) -> None:
        if level is not Level.FREE:
            self._release(self._clock())

    def _on_tick(self) -> None:
        if resident_bytes() > self._limit:
            self.release()


def use_system_allocator(memory: int) -> None:
    """Let Arrow allocate from the system's allocator in the whole process, unless the environment selects another.

    ``memory`` is that of one pipeline, in bytes. Arrow's own allocators keep 25 to 40 MiB of unused memory beyond any
    budget. Arrow reads the variable once, when it is loaded, so this comes before a sink of files is made; Parquet
    writers ignore ``pyarrow.set_memory_pool``.
    """
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    keep_heap_pages(memory)


def use_one_blas_thread() -> None:
    """Let numpy, which Arrow loads, start no threads, unless the environment wants some.

    OpenBLAS starts one for each core when it is loaded, and each of them spins for a while; nothing here multiplies
    matrices. It reads the variable once, so this comes before Arrow is loaded.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def resident_bytes() -> int:
    """Return the resident memory of this process in bytes; 0 where the system does not report it."""
    try:
        with open("/proc/self/statm", "rb", buffering=0) as file:
            return int(file.read(100).split()[1]) * resource.getpagesize()
    except OSError:
        return 0
