"""The loops of tests end, whatever a test has left open."""

import asyncio
import warnings

import pytest

from tests.support.loops import LOOPS


def test_a_loop_with_an_open_server_closes() -> None:
    """A test that fails does not hang, and one that passes is told of what it leaves open."""

    async def leave() -> object:
        return await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loop = LOOPS["uvloop"]()
        left = loop.run_until_complete(leave())
        with pytest.raises(ResourceWarning, match="unclosed resource"):
            loop.close()
    assert loop.is_closed() and left is not None
