"""The event loops that coroutine tests run on."""

import asyncio
from collections.abc import Callable, Mapping

import pytest
import uvloop

__all__ = ["BOTH", "Loops", "loops_of"]

Loops = Mapping[str, Callable[[], asyncio.AbstractEventLoop]]

LOOPS: Loops = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}

BOTH = pytest.mark.asyncio(loop_factories=list(LOOPS))  # a test that runs once on each


def loops_of(item: pytest.Item, usual: str) -> Loops:
    """The loops that a test may choose from, by name; without a choice of its own it runs on the ``usual`` one."""
    mark = item.get_closest_marker("asyncio")
    return LOOPS if mark and "loop_factories" in mark.kwargs else {usual: LOOPS[usual]}
