"""A topic of a real Kafka as an exactly-once sink: kills and takeovers, read by the official client."""

import random
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.brokers.kafka import KafkaBroker
from tests.daemon.cli.program import PROGRAM

pytestmark = pytest.mark.broker

CONFIG = """\
daemon.http = ""
[pipelines.copy.source]
url = "{url}"
topics = ["{source}"]
group = "{source}"
start = "earliest"
session_timeout = "6s"
[pipelines.copy.sink]
type = "kafka"
url = "{url}"
topic = "{target}"
delivery = "exactly-once"
roll.idle = "100ms"
roll.rows = 500
"""


def read(servers: str, topic: str) -> dict[int, list[tuple[bytes, bytes]]]:
    """Key and value of all committed records by partition, as the official client sees them."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "reader",
            "log_level": 0,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    found: dict[int, list[tuple[bytes, bytes]]] = defaultdict(list)
    try:
        partitions = list(consumer.list_topics(topic, timeout=30).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        left = len(partitions)
        while left:
            message = consumer.poll(60)
            assert message is not None, "an open transaction hides records"
            if message.error():
                left -= 1
            else:
                number, key, value = message.partition(), message.key(), message.value()
                assert number is not None and key is not None and value is not None
                found[number].append((key, value))
    finally:
        consumer.close()
    return found


def check(found: dict[int, list[tuple[bytes, bytes]]], sent: int) -> None:
    """Each record is there once, and those of a key are in their order."""
    values = [value for part in found.values() for _, value in part]
    assert (len(values), len(set(values))) == (sent, sent)
    for part in found.values():
        of_key: dict[bytes, int] = {}
        for key, value in part:
            assert of_key.get(key, -1) < int(value)
            of_key[key] = int(value)


class Feed:
    """Writes numbered records, whose keys stay in one partition of source and target."""

    def __init__(self, servers: str, topic: str) -> None:
        self._producer = Producer({"bootstrap.servers": servers, "log_level": 0, "enable.idempotence": True})
        self._topic = topic
        self.sent = 0

    def more(self, count: int) -> None:
        for number in range(self.sent, self.sent + count):
            self._producer.produce(self._topic, key=b"k%d" % (number % 50), value=b"%08d" % number)
        self.sent += count
        assert self._producer.flush(60) == 0


@contextmanager
def daemons(config: Path, count: int) -> Iterator[Callable[[int], None]]:
    """Run some daemons; what is returned kills one of them and starts another."""

    def start(number: int) -> subprocess.Popen[bytes]:
        with config.with_suffix(f".{number}.log").open("ab") as log:
            return subprocess.Popen([*PROGRAM, "run", str(config)], stderr=log)

    running = [start(number) for number in range(count)]

    def again(number: int) -> None:
        running[number].kill()
        running[number].wait()
        running[number] = start(number)

    try:
        yield again
    finally:
        for process in running:
            process.kill()
            process.wait()


def configured(folder: Path, url: str, source: str, target: str) -> Path:
    config = folder / "config.toml"
    config.write_text(CONFIG.format(url=url, source=source, target=target))
    return config


def settled(servers: str, topic: str, count: int) -> None:
    """Wait until so many records are visible."""
    give_up_at = time.monotonic() + 180
    while (found := sum(map(len, read(servers, topic).values()))) < count:
        assert time.monotonic() < give_up_at, f"{found} of {count} records"
        time.sleep(1)


def test_killed_daemons_copy_each_record_once(
    plain_kafka: KafkaBroker, fresh_name: Callable[[str], str], tmp_path: Path
) -> None:
    source, target, drawn = fresh_name("source"), fresh_name("target"), random.Random(1)
    plain_kafka.create_topic(source, 4)
    plain_kafka.create_topic(target, 3)
    feed = Feed(plain_kafka.servers, source)
    with daemons(configured(tmp_path, plain_kafka.url, source, target), 2) as again:
        for _ in range(12):
            feed.more(1_000)
            time.sleep(drawn.uniform(0.5, 4))  # the kill may come at any time
            again(drawn.randrange(2))
        settled(plain_kafka.servers, target, feed.sent)
    check(read(plain_kafka.servers, target), feed.sent)
