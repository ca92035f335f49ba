"""Waiting for a condition, in tests with an event loop and without."""

import asyncio
import time
from collections.abc import Callable

__all__ = ["eventually", "until"]

PATIENCE_S = 100.0  # only who waits in vain waits so long; less than pytest gives a test


def eventually(
    condition: Callable[[], object], what: str = "", say: Callable[[], object] = str, *, patience_s: float = PATIENCE_S
) -> None:
    """Wait until ``condition`` holds; a test that waits in vain says for what, and how things stand."""
    end = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < end, f"never happened: {what}; {say()}"
        time.sleep(0.02)


async def until(condition: Callable[[], object], what: str = "", say: Callable[[], object] = str) -> None:
    """Wait until ``condition`` holds, while the loop runs; a test that waits in vain says for what."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError(f"never happened: {what}; {say()}") from None
