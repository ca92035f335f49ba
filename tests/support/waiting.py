"""Waiting for what comes in its own time, in tests that do not run an event loop."""

import time
from collections.abc import Callable

__all__ = ["eventually"]

PATIENCE_S = 100.0  # only who waits in vain waits so long; less than pytest gives a test


def eventually(
    condition: Callable[[], object], what: str = "", say: Callable[[], object] = str, *, patience_s: float = PATIENCE_S
) -> None:
    """Wait until ``condition`` holds; a test that waits in vain says for what, and how things stand."""
    end = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < end, f"never happened: {what}; {say()}"
        time.sleep(0.02)
