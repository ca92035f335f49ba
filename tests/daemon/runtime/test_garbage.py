"""Garbage collection leaves out all that is alive at a start, and nothing that comes later."""

import gc
import weakref
from collections.abc import Iterator

import pytest

from fastwire_daemon.runtime.garbage import settle


class Node:
    """One end of a cycle."""

    def __init__(self) -> None:
        self.other: Node | None = self


@pytest.fixture(autouse=True)
def _thawed() -> Iterator[None]:
    yield
    gc.unfreeze()


def test_what_is_alive_is_exempt_and_cycles_of_later_still_go() -> None:
    settle()
    assert gc.get_freeze_count() > 1000
    later = weakref.ref(Node())
    gc.collect()
    assert later() is None


def test_the_cycles_of_a_pipeline_that_has_ended_go_with_the_next_call() -> None:
    node = Node()
    settle()
    seen = weakref.ref(node)
    del node
    gc.collect()
    assert seen() is not None
    settle(again=True)
    assert seen() is None
