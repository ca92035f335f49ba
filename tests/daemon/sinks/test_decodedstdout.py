"""Decoded values on standard output."""

import json
import os
from typing import Any

import pytest

from fastwire_daemon.net.schemaregistry import RegistryAwayError
from fastwire_daemon.runtime.errors import LogRefusedError, SinkFailedError
from fastwire_daemon.sinks.decodedstdout import DecodedStdoutSink
from fastwire_daemon.sinks.recordschemas import RegisteredSchemas
from tests.support.avro import encode
from tests.support.decoded_dataset import REGISTERED, Changes, decoder
from tests.support.schema_registry import framed

ONE = encode(REGISTERED, {"id": 1, "country": "DE"})


def printed(values: list[bytes | None], **more: Any) -> tuple[list[Any], DecodedStdoutSink]:
    reading, writing = os.pipe()
    sink, feed = DecodedStdoutSink(decoder(("*", "_key", "_offset"), REGISTERED, **more), "pulsar", writing), Changes()
    try:
        sink.open()
        sink.write(feed.chunk_of(values))
        coverage = sink.commit()
        assert len(coverage.logs()) == 1
    finally:
        sink.close()
        os.close(writing)
        with open(reading, "rb") as pipe:
            lines = [json.loads(line) for line in pipe]
    assert feed.held_bytes == 0
    return lines, sink


def test_lines_of_decoded_values() -> None:
    lines, sink = printed([ONE, ONE[:-1], None, ONE])
    assert lines == [{"id": 1, "country": "DE", "_key": key, "_offset": 0} for key in "03"]
    assert sink.decoded == (2, 2, 0, 0)
    assert sink.dead_letter_sums.tell("p", kept=False) == {"Truncated": 1, "NoValue": 1}


def test_a_bad_value_can_stop_its_partition() -> None:
    with pytest.raises(LogRefusedError, match="Truncated"):
        printed([ONE, ONE[:-1]], on_error="stop")


class Away:
    """A registry that gives no schema."""

    def __init__(self) -> None:
        self.sink: DecodedStdoutSink | None = None

    def schema(self, id: int) -> Any:
        assert self.sink is not None
        self.sink.interrupt()
        raise RegistryAwayError("it is away")


def test_a_wait_for_a_registry_ends() -> None:
    registry: Any = Away()
    _, writing = os.pipe()
    sink = DecodedStdoutSink(decoder(("*",), REGISTERED, schemas=RegisteredSchemas(registry)), "pulsar", writing)
    registry.sink = sink
    sink.open()
    with pytest.raises(SinkFailedError, match="it is away"):
        sink.write(Changes().chunk_of([framed(1, ONE)]))
    assert sink.waiting is None
