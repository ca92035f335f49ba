"""The event loops that coroutine tests run on."""

import asyncio
import selectors
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import uvloop

__all__ = ["BOTH", "JUMPING", "Loops", "loops_of"]

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


LOOPS: Loops = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop, "jumping": JumpingLoop}

BOTH = pytest.mark.asyncio(loop_factories=["asyncio", "uvloop"])  # a test that runs once on each
JUMPING = pytest.mark.asyncio(loop_factories=["jumping"])  # a test whose hours take no time


def loops_of(item: pytest.Item, usual: str) -> Loops:
    """The loops that a test may choose from, by name; without a choice of its own it runs on the ``usual`` one."""
    mark = item.get_closest_marker("asyncio")
    return LOOPS if mark and "loop_factories" in mark.kwargs else {usual: LOOPS[usual]}
