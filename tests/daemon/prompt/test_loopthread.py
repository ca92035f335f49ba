"""Calls into a loop that another thread closes."""

import asyncio
import threading
from concurrent.futures import CancelledError

import pytest

from fastwire_daemon.prompt.loopthread import LoopThread


def test_a_call_that_comes_while_it_closes_does_not_wait() -> None:
    """Not run any more, it would have no end."""
    made, entered, leave = LoopThread("test"), threading.Event(), threading.Event()

    async def leaving() -> None:
        entered.set()
        await asyncio.to_thread(leave.wait)

    made.stack.push_async_callback(leaving)
    closing = threading.Thread(target=made.close)
    closing.start()
    assert entered.wait(30)
    late = asyncio.sleep(0)
    with pytest.raises(CancelledError):
        made.call(late)
    leave.set()
    closing.join(30)
    assert not closing.is_alive() and late.cr_frame is None  # type: ignore[attr-defined]
    made.close()


def test_a_call_that_waits_ends_with_it() -> None:
    made, begun = LoopThread("test"), threading.Event()

    async def waits() -> None:
        begun.set()
        await asyncio.Event().wait()

    ended: list[BaseException] = []

    def call() -> None:
        try:
            made.call(waits())
        except CancelledError as exc:
            ended.append(exc)

    calling = threading.Thread(target=call)
    calling.start()
    assert begun.wait(30)
    made.close()
    calling.join(30)
    assert len(ended) == 1
