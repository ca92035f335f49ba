"""The loop of the client's tests."""

import pytest

from tests.support.loops import Loops, loops_of


def pytest_asyncio_loop_factories(item: pytest.Item) -> Loops:
    """The loop of asyncio, which most who import the client have."""
    return loops_of(item, "asyncio")
