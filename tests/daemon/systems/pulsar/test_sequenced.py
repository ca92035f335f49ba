"""The writer of numbered records to topics of Pulsar."""

import asyncio
from dataclasses import replace

import pyarrow as pa
import pytest

from fastwire.columns.rows import Rows
from fastwire_daemon.config import parse_config
from fastwire_daemon.devbroker.pulsar import PulsarDevBroker, PulsarOptions, running
from fastwire_daemon.systems.pulsar import sequenced
from fastwire_daemon.systems.pulsar.sequenced import PulsarSequencedWriter, open_sequenced
from fastwire_daemon.systems.sequenced import NotDeduplicated
from fastwire_daemon.systems.writer import WriteOptions
from tests.support.waiting import until

CONFIG = """\
[pipelines.p.source]
url = "kafka://127.0.0.1:1"
topics = ["orders"]
group = "copy"
start = "earliest"
[pipelines.p.sink]
type = "pulsar"
url = "{url}"
topic = "copy"
"""


async def write(writer: PulsarSequencedWriter, number: int) -> None:
    rows = Rows(pa.record_batch({"value": pa.array([b"%d" % number])}), text_keys=True, origin=number)
    await writer.write_numbered(rows, "one", [number])
    await writer.flush()


async def test_brokers_that_do_not_deduplicate_any_more_are_found_when_a_stream_is_opened_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sequenced, "IDLE_S", 0.02)
    with running(PulsarDevBroker(PulsarOptions(deduplication=True))) as broker:
        broker.create_topic("copy")
        connection = parse_config(CONFIG.format(url=broker.url), {}).pipelines["p"].sink.connection
        assert connection is not None
        async with open_sequenced(connection, "copy", WriteOptions(batch=10)) as writer:
            await write(writer, 1)
            await until(lambda: not writer._streams, "an idle stream is closed")
            await write(writer, 2)
            await until(lambda: not writer._streams, "an idle stream is closed")
            for topic in broker.topics.values():
                topic.options = replace(topic.options, deduplication=False)
                topic.sequences.clear()
            with pytest.raises(NotDeduplicated):
                await write(writer, 3)


@pytest.mark.parametrize("idle", [False, True])
async def test_a_broker_that_forgets_numbers_after_a_load_stores_nothing_twice(
    monkeypatch: pytest.MonkeyPatch, *, idle: bool
) -> None:
    """Its second replay of the log ends when producers may write already, so nothing is sent until then."""
    monkeypatch.setattr(sequenced, "IDLE_S", 0.02 if idle else 10.0)
    with running(PulsarDevBroker(PulsarOptions(deduplication=True, forgetful_s=0.1))) as broker:
        broker.create_topic("copy")
        connection = parse_config(CONFIG.format(url=broker.url), {}).pipelines["p"].sink.connection
        assert connection is not None
        async with open_sequenced(connection, "copy", WriteOptions(batch=10)) as writer:
            await write(writer, 1)
            if idle:
                await until(lambda: not writer._streams, "an idle stream is closed")
            broker.unload("copy")
            await write(writer, 2)
        await asyncio.sleep(0.2)  # the broker has forgotten by then what it would forget
        async with open_sequenced(connection, "copy", WriteOptions(batch=10)) as writer:
            await write(writer, 2)
            await write(writer, 3)
        assert broker.topic("copy").log.end == 3
