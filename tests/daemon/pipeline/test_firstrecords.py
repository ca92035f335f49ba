"""The first records of a pipeline, from which its columns are inferred."""

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from fastwire_daemon.config import Start
from fastwire_daemon.pipeline.firstrecords import FirstRecords
from fastwire_daemon.runtime.errors import SinkFailedError


def test_a_stop_ends_it_also_while_brokers_do_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    source = SimpleNamespace(topics=["orders"], start=Start("earliest"), chosen=None)
    stop, ended = threading.Event(), threading.Event()

    async def silent(self: FirstRecords, start: Start) -> list[bytes]:
        try:
            stop.set()
            await asyncio.Event().wait()
            return []
        finally:
            ended.set()

    monkeypatch.setattr(FirstRecords, "_values", silent)
    config: Any = SimpleNamespace(source=source)
    decoder: Any = SimpleNamespace(columns=())
    with pytest.raises(SinkFailedError, match="was stopped"):
        FirstRecords(config)(decoder, stop)
    assert ended.is_set()
