"""Waiting for a condition, in tests with an event loop and without."""

import asyncio
import time
from collections.abc import Callable

PATIENCE_S = 100.0  # only who waits in vain waits so long; less than pytest gives a test


def eventually(
    condition: Callable[[], object], what: str = "", say: Callable[[], object] = str, *, patience_s: float = PATIENCE_S
) -> None:
    """Wait until ``condition`` holds; a test that waits in vain says for what, and how things stand."""
    end = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < end, f"never happened: {what}; {say()}"
        time.sleep(0.02)


def grown(count: Callable[[], int], wanted: int, what: str) -> None:
    """Wait until ``count`` is ``wanted``, as long as it grows: a busy machine may take long, and one that hangs not."""
    most, since = count(), time.monotonic()
    while most < wanted:
        time.sleep(1.0)
        if (found := count()) > most:
            most, since = found, time.monotonic()
        assert time.monotonic() - since < PATIENCE_S, f"{most} of {wanted} {what}"


async def until(condition: Callable[[], object], what: str = "", say: Callable[[], object] = str) -> None:
    """Wait until ``condition`` holds, while the loop runs; a test that waits in vain says for what."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError(f"never happened: {what}; {say()}") from None
