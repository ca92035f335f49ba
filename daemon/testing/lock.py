"""Measures the time for which a call keeps all other threads from running Python."""

import sys
import threading
import time
import warnings
from collections.abc import Callable

LIMIT_S = 0.005

_TICK_S = 0.0002
_SWITCH_S = 0.0005
_TRIES = 5


class LongLockWarning(UserWarning):
    """A call holds the interpreter lock for more than 5 ms, in which no other thread of the daemon can run."""


def longest_hold(call: Callable[[], object]) -> float:
    """Return the longest time in seconds for which ``call`` keeps another thread from running.

    Other processes disturb the measurement: time in which this process did not run is left out, but only the smallest
    of several results is meaningful.
    """
    done = threading.Event()
    longest = 0.0

    def tick() -> None:
        nonlocal longest
        last, last_work = time.perf_counter(), time.process_time()
        while not done.is_set():
            time.sleep(_TICK_S)
            now, work = time.perf_counter(), time.process_time()
            longest = max(longest, min(now - last, work - last_work))
            last, last_work = now, work

    interval = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_S)
    ticker = threading.Thread(target=tick)
    ticker.start()
    try:
        time.sleep(10 * _TICK_S)  # so that the ticker is running
        call()
    finally:
        done.set()
        ticker.join()
        sys.setswitchinterval(interval)
    return longest


def warn_if_long(what: str, prepare: Callable[[], Callable[[], object]]) -> None:
    """Warn if each of several calls, freshly prepared, holds the lock for longer than 5 ms."""
    shortest = min(longest_hold(prepare()) for _ in range(_TRIES))
    if shortest > LIMIT_S:
        warnings.warn(
            f"{what} holds the interpreter lock for {shortest * 1e3:.0f} ms at a time; 5 ms is what the rest of the "
            "daemon can bear",
            LongLockWarning,
            stacklevel=3,
        )
