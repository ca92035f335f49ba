"""The event loops that coroutine tests run on."""

import asyncio
import selectors
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import uvloop

Loops = Mapping[str, Callable[[], asyncio.AbstractEventLoop]]


class Jumping(selectors.SelectSelector):
    """Waits for nothing: time jumps to when something is due."""

    now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        self.now += timeout or 0.0
        return super().select(0)


class JumpingLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumping = Jumping()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now


class ClosingLoop(uvloop.Loop):
    """A loop that can be closed with open handles, as a failed test leaves them.

    uvloop warns of each before it closes it. Where the warning is an error, the handle stays open, and ``close`` waits
    for it forever.
    """

    def close(self) -> None:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", ResourceWarning)
            super().close()
        for each in caught:
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)


LOOPS: Loops = {"asyncio": asyncio.new_event_loop, "uvloop": ClosingLoop, "jumping": JumpingLoop}

BOTH = pytest.mark.asyncio(loop_factories=["asyncio", "uvloop"])  # a test that runs once on each
JUMPING = pytest.mark.asyncio(loop_factories=["jumping"])  # a test whose hours take no time


def loops_of(item: pytest.Item, usual: str) -> Loops:
    """The loops that a test may choose from, by name; without a choice of its own it runs on the ``usual`` one."""
    mark = item.get_closest_marker("asyncio")
    return LOOPS if mark and "loop_factories" in mark.kwargs else {usual: LOOPS[usual]}
