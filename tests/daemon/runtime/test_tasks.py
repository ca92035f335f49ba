"""Blocking calls on a thread of their own."""

import asyncio
import threading

import pytest

from fastwire_daemon.runtime.tasks import in_thread


def test_a_result_and_an_exception() -> None:
    def fail() -> None:
        raise ValueError("why")

    async def run() -> None:
        assert await in_thread(threading.current_thread, 60, "a look") is not threading.current_thread()
        with pytest.raises(ValueError, match="why"):
            await in_thread(fail, 60, "a look")

    asyncio.run(run())


def test_a_timeout_of_the_call_itself_keeps_its_words() -> None:
    def fail() -> None:
        raise TimeoutError("of the store")

    with pytest.raises(TimeoutError, match="of the store"):
        asyncio.run(in_thread(fail, 60, "a look"))


def test_a_call_without_an_end_is_given_up_and_does_not_hold_up_the_process() -> None:
    end = threading.Event()
    with pytest.raises(TimeoutError, match=r"a look: no end after 0\.01 s"):
        asyncio.run(in_thread(end.wait, 0.01, "a look"))
    (thread,) = (each for each in threading.enumerate() if each.name == "a look")
    assert thread.daemon
    end.set()  # the loop is closed: nobody is told
    thread.join()
