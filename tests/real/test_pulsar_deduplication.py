"""A topic of a real Pulsar as an exactly-once sink: kills, takeovers and an unload, read by the official client."""

import random
import time
from collections.abc import Callable
from pathlib import Path

import pulsar
import pytest

from fastwire.pulsar.format.payload import Record
from fastwire_daemon.systems.pulsar.producer import TopicProducer
from tests.brokers.pulsar import PulsarBroker
from tests.real.matrix import quiet_client
from tests.real.test_kafka_transactions import daemons
from tests.real.test_producing import write

pytestmark = pytest.mark.broker

CONFIG = """\
daemon.http = ""
[pipelines.copy.source]
url = "{url}"
topics = ["{source}"]
subscription = "copy"
start = "earliest"
[pipelines.copy.sink]
type = "pulsar"
url = "{url}"
topic = "{target}"
delivery = "exactly-once"
path = "{path}"
roll.idle = "200ms"
roll.rows = 500
"""
LARGE = 6 << 20  # goes out in chunks


def read(url: str, topic: str) -> list[tuple[str, int]]:
    """Key and number of all records that are there, in order of each partition."""
    client = quiet_client(url)
    try:
        reader = client.create_reader(topic, pulsar.MessageId.earliest)
        found = []
        while reader.has_message_available():
            message = reader.read_next(30_000)
            found.append((message.partition_key(), int(message.data()[:8])))
        reader.close()
        return found
    finally:
        client.close()


def all_of(url: str, topic: str, partitions: int) -> list[list[tuple[str, int]]]:
    return [read(url, f"persistent://public/default/{topic}-partition-{n}") for n in range(partitions)]


def test_killed_daemons_copy_each_record_once(
    plain_pulsar: PulsarBroker, fresh_name: Callable[[str], str], tmp_path: Path
) -> None:
    source, target, drawn = fresh_name("source"), fresh_name("target"), random.Random(1)
    url, admin = plain_pulsar.service_url, plain_pulsar.admin
    admin.create_topic(source, 4)
    admin.create_topic(target, 3)
    admin.call("POST", f"/admin/v2/persistent/public/default/{target}/deduplicationEnabled", True)
    config = tmp_path / "config.toml"
    config.write_text(CONFIG.format(url=url, source=source, target=target, path=tmp_path / "memory"))
    sent = 0

    async def more(producer: TopicProducer) -> None:
        for number in range(sent, sent + 1_000):
            padding = LARGE if number % 4_000 == 3_999 else 0
            await producer.put(Record(value=b"%08d" % number + bytes(padding), key=f"k{number % 50}"))

    with daemons(config, 2) as again:
        for turn in range(12):
            write(url, source, more, chunking=True)
            sent += 1_000
            time.sleep(drawn.uniform(0.5, 4))  # the kill may come at any time
            again(drawn.randrange(2))
            if turn == 6:
                admin.call("PUT", f"/admin/v2/persistent/public/default/{target}/unload")
        give_up_at = time.monotonic() + 180
        while (found := sum(map(len, all_of(url, target, 3)))) < sent:
            assert time.monotonic() < give_up_at, f"{found} of {sent} records"
            time.sleep(1)
    parts = all_of(url, target, 3)
    numbers = [number for part in parts for _, number in part]
    assert (len(numbers), len(set(numbers))) == (sent, sent)
    for part in parts:
        of_key: dict[str, int] = {}
        for key, number in part:
            assert of_key.get(key, -1) < number
            of_key[key] = number
