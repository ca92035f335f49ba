"""A topic of Pulsar that takes no records for a time: the pipeline says why, lands nothing, and goes on by itself."""

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fastwire.pulsar.format.payload import Record
from fastwire.pulsar.producing.settings import Access, ProducerSettings
from fastwire_daemon.devbroker.kafka import KafkaDevBroker
from fastwire_daemon.devbroker.pulsar import PulsarDevBroker, PulsarOptions, running
from fastwire_daemon.systems.pulsar.writer import open_topic
from tests.daemon.pipeline.test_topicsequence import configured
from tests.real.daemon import Daemon, ask
from tests.support.pulsar.produce import client_settings
from tests.support.topic_copies import append, copied


@pytest.fixture
def target() -> Iterator[PulsarDevBroker]:
    with running(PulsarDevBroker(PulsarOptions(deduplication=True))) as broker:
        broker.create_topic("copy", 2)
        yield broker


class Copying:
    """A daemon that copies ``orders`` to ``copy``, and its status."""

    def __init__(self, daemon: Daemon, address: Path) -> None:
        self._daemon, self._address = daemon, address

    def told(self, health: str, why: str) -> None:
        """Wait until the health is this, and the status has the reason."""

        def holds() -> bool:
            answer = ask(self._address, "/status")
            status = json.loads(answer)["pipelines"]["mirror"] if answer else {}
            return status.get("health") == health and why in json.dumps(status)

        self._daemon.wait_until(holds, f"{health}, {why}")

    def has(self, target: PulsarDevBroker, *values: str) -> None:
        """Wait until the topic has these values, each once."""
        self._daemon.wait_until(lambda: len(copied(target)) >= len(values), "all records", pause_s=0.2)
        assert Counter(copied(target)) == Counter(values)


@contextmanager
def copying(folder: Path, source: KafkaDevBroker, target: PulsarDevBroker, delivery: str) -> Iterator[Copying]:
    """Run a daemon, which has copied a0 of one partition and b0 of the other."""
    source.create_topic("orders", 2)
    append(source, 0, "a0")
    append(source, 1, "b0")
    address = folder / "http"
    config = configured(folder, source, target)
    text = config.read_text().replace('daemon.http = ""', f'daemon.http = "unix:{address}"')
    config.write_text(text.replace('delivery = "exactly-once"', f'delivery = "{delivery}"'))
    with Daemon("run", str(config), log=folder / "log") as daemon:
        copy = Copying(daemon, address)
        copy.has(target, "a0", "b0")
        yield copy
        daemon.end()


def test_a_terminated_topic_is_tried_until_it_is_made_again(
    tmp_path: Path, source: KafkaDevBroker, target: PulsarDevBroker
) -> None:
    with copying(tmp_path, source, target, "at-least-once") as daemon:
        for number in range(2):
            target.terminate(f"copy-partition-{number}")
        append(source, 0, "a1")
        append(source, 1, "b1")
        daemon.told("degraded", "TopicTerminatedError")
        target.delete_topic("copy")
        target.create_topic("copy", 2)
        daemon.has(target, "a1", "b1")
    assert target.violations == []


def test_a_topic_that_another_client_has_alone_is_waited_for(
    tmp_path: Path, source: KafkaDevBroker, target: PulsarDevBroker
) -> None:
    alone = ProducerSettings(access=Access.EXCLUSIVE_WITH_FENCING)
    with copying(tmp_path, source, target, "exactly-once") as daemon:

        async def fence() -> None:
            async with open_topic(client_settings(target.url), "copy", alone) as producer:
                await producer.send(Record(value=b"of the other", key="k"))
                append(source, 0, "a1")
                append(source, 1, "b1")
                await asyncio.to_thread(daemon.told, "degraded", "exclusive producer")

        asyncio.run(fence())
        daemon.has(target, "a0", "b0", "of the other", "a1", "b1")
    assert target.violations == []
