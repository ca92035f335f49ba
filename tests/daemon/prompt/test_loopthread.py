"""Calls into the loop of another thread: one that is closed meanwhile, and Ctrl-C."""

import asyncio
import gc
import itertools
import sys
import threading
from collections.abc import AsyncIterator, Coroutine
from concurrent.futures import CancelledError
from contextlib import asynccontextmanager
from types import FrameType
from typing import Any

import pytest

from fastwire_daemon.prompt.feed import Feed
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
    late: list[None] = []

    async def comes_late() -> None:
        late.append(None)

    with pytest.raises(CancelledError):
        made.call(comes_late)
    leave.set()
    closing.join(30)
    assert not closing.is_alive() and not late
    made.close()


def test_work_that_cannot_begin_ends_its_call() -> None:
    made, raised = LoopThread("test"), list[BaseException]()

    def refuses() -> Coroutine[Any, Any, None]:
        raise ValueError("no such argument")

    def call() -> None:
        try:
            made.call(refuses)
        except ValueError as exc:
            raised.append(exc)

    calling = threading.Thread(target=call, daemon=True)
    calling.start()
    calling.join(60)
    made.close()
    assert len(raised) == 1


def test_a_call_that_waits_ends_with_it() -> None:
    made, begun = LoopThread("test"), threading.Event()

    async def waits() -> None:
        begun.set()
        await asyncio.Event().wait()

    ended: list[BaseException] = []

    def call() -> None:
        try:
            made.call(waits)
        except CancelledError as exc:
            ended.append(exc)

    calling = threading.Thread(target=call)
    calling.start()
    assert begun.wait(30)
    made.close()
    calling.join(30)
    assert len(ended) == 1


@asynccontextmanager
async def numbers() -> AsyncIterator[AsyncIterator[int]]:
    async def counted() -> AsyncIterator[int]:
        for number in itertools.count():
            yield number

    yield counted()


class Interruption:
    """Traces a thread, and raises KeyboardInterrupt at a line of this package or of asyncio.

    In a future's own code one would keep a lock that a signal, which comes between calls, does not.
    """

    def __init__(self, after: int) -> None:
        self.left = after

    def __call__(self, frame: FrameType, event: str, arg: object) -> Any:
        if frame.f_globals["__name__"].startswith(("fastwire_daemon.", "asyncio.")):
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt
        return self


def test_ctrl_c_may_come_between_any_two_lines() -> None:
    """A coroutine that it leaves unawaited would be a warning, which is an error here."""
    tracing = sys.gettrace()
    with Feed("test", numbers, aiter) as feed:
        gc.collect()
        gc.disable()  # what it would find of earlier tests has lines, too, and loses an error
        try:
            for after in itertools.count(1):
                interruption = Interruption(after)
                sys.settrace(interruption)
                try:
                    feed.next()
                    break
                except KeyboardInterrupt:
                    continue
                finally:
                    sys.settrace(tracing)
        finally:
            gc.enable()
        gc.collect()
        assert after > 15 and interruption.left > 0
        assert feed.next() is not None
