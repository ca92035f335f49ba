"""The calls of several sinks share threads."""

import asyncio
import threading
from typing import Any

import pytest

from fastwire_daemon.sinks import workers as workers_module
from fastwire_daemon.sinks.discard import DiscardSink
from fastwire_daemon.sinks.thread import SinkThread
from fastwire_daemon.sinks.workers import Workers

LIMIT_S = 60


async def begun(thread: SinkThread) -> None:
    async with asyncio.timeout(LIMIT_S):
        while thread.busy_since is None:
            await asyncio.sleep(0.001)


async def test_a_call_that_waits_for_a_thread_is_not_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand sinks commit at once: most of them wait for a thread, and none counts as hung."""
    monkeypatch.setattr(workers_module, "STUCK_S", 3600.0)  # else the second call gets a thread of its own
    workers = Workers(1, "test")
    first, second = (SinkThread(DiscardSink(), name, workers) for name in "ab")
    gate, order = threading.Event(), list[Any]()

    def held() -> None:
        assert gate.wait(LIMIT_S)
        order.append(first.busy_since)

    def after() -> None:
        order.append(second.busy_since)

    calls = [asyncio.create_task(first.run(held))]
    await begun(first)
    calls.append(asyncio.create_task(second.run(after)))
    await asyncio.sleep(0)
    now = asyncio.get_running_loop().time() + 3600
    assert first.hung_s(now) > 3000
    assert (second.busy_since, second.hung_s(now), second.waits_for) == (None, 0.0, None)
    gate.set()
    async with asyncio.timeout(LIMIT_S):
        await asyncio.gather(*calls)
    assert None not in order and order[0] <= order[1]
    assert (first.busy_since, second.busy_since) == (None, None)
    first.shutdown()
    second.shutdown()
    workers.end()
