"""The first records of a pipeline, from which its columns are inferred."""

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from fastwire_daemon.config import Start
from fastwire_daemon.config.decode import parse_decode
from fastwire_daemon.pipeline.firstcolumns import InferredColumns
from fastwire_daemon.runtime.errors import SinkFailedError
from fastwire_daemon.sinks.registry import decoder_of


def test_a_stop_ends_it_also_while_brokers_do_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    source = SimpleNamespace(topics=["orders"], start=Start("earliest"), chosen=None)
    stop, ended = threading.Event(), threading.Event()

    async def silent(self: InferredColumns, start: Start, enough: Any) -> None:
        try:
            stop.set()
            await asyncio.Event().wait()
        finally:
            ended.set()

    monkeypatch.setattr(InferredColumns, "_read", silent)
    config: Any = SimpleNamespace(source=source)
    decoder: Any = SimpleNamespace(columns=())
    with pytest.raises(SinkFailedError, match="was stopped"):
        InferredColumns(config)(decoder, stop)
    assert ended.is_set()


def test_the_columns_are_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Later records would make other ones of a dataset that could not be created at first."""
    found = [[b'{"id": 1}'], [b'{"id": "x", "more": 1}']]

    def given(self: InferredColumns, start: Start, stop: threading.Event) -> list[bytes]:
        return found.pop(0)

    monkeypatch.setattr(InferredColumns, "_values", given)
    config: Any = SimpleNamespace(source=SimpleNamespace(topics=["orders"], start=Start("earliest")))
    first = InferredColumns(config)
    for _ in range(2):
        made = decoder_of(parse_decode({"format": "json", "schema": "infer"}), "kafka")
        first(made, threading.Event())
        assert [str(each) for each in made.types] == ["id int64"]
