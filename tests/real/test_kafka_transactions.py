"""A topic of a real Kafka as an exactly-once sink: kills and takeovers, read by the official client."""

import random
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.brokers.kafka import KafkaBroker
from tests.daemon.cli.program import PROGRAM
from tests.support.soaklength import KILLS
from tests.support.waiting import grown

pytestmark = pytest.mark.broker

TOLD = 4_000  # characters of a daemon's log, where a test fails

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


def check(written: dict[int, list[tuple[bytes, bytes]]], found: dict[int, list[tuple[bytes, bytes]]]) -> None:
    """Each written record is there once, and those of a partition of the source are in their order."""
    origin = {value: number for number, part in written.items() for _, value in part}
    copies = Counter(value for part in found.values() for _, value in part)
    assert {value: times for value, times in copies.items() if times != 1} == {}
    assert copies.keys() == origin.keys()
    for number, part in found.items():
        last: dict[int, int] = {}
        for _, value in part:
            assert last.get(origin[value], -1) < int(value), f"an order of partition {number}"
            last[origin[value]] = int(value)


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
    except BaseException:
        for number in range(count):
            print(f"daemon {number}:\n{config.with_suffix(f'.{number}.log').read_text()[-TOLD:]}")
        raise
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
    grown(lambda: sum(map(len, read(servers, topic).values())), count, "records")


Accident = Callable[[int], str]


def campaign(servers: str, config: Path, source: str, target: str, accidents: Sequence[Accident], kills: int) -> str:
    """Kill two daemons in turn with what the accidents kill while they copy; return what happened, for people."""
    feed, drawn, happened = Feed(servers, source), random.Random(kills), Counter[str]()
    with daemons(config, 2) as again:
        for turn in range(kills):
            feed.more(500)
            time.sleep(drawn.uniform(0.5, 4))  # the kill may come at any time
            if turn % 2 or not accidents:
                again(drawn.randrange(2))
                happened["daemon"] += 1
            else:
                happened[accidents[turn // 2 % len(accidents)](turn)] += 1
        settled(servers, target, feed.sent)
    check(read(servers, source), read(servers, target))
    told = ", ".join(f"{times} of {what}" for what, times in happened.items())
    return f"{told} killed, {feed.sent:,} records each once and in order"


def copied(broker: KafkaBroker, fresh_name: Callable[[str], str], folder: Path, kills: int, *, restarts: bool) -> str:
    """Conduct a campaign at one broker."""
    source, target = fresh_name("source"), fresh_name("target")
    broker.create_topic(source, 4)
    broker.create_topic(target, 3)

    def restart(_turn: int) -> str:
        broker.restart(at_once=True)
        return "broker"

    config = configured(folder, broker.url, source, target)
    return campaign(broker.servers, config, source, target, [restart] if restarts else [], kills)


def test_killed_daemons_copy_each_record_once(
    plain_kafka: KafkaBroker, fresh_name: Callable[[str], str], tmp_path: Path
) -> None:
    copied(plain_kafka, fresh_name, tmp_path, 12, restarts=False)


@pytest.mark.soak
def test_two_hundred_kills(
    plain_kafka: KafkaBroker,
    fresh_name: Callable[[str], str],
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    record_property("done", f"Kafka, exactly once: {copied(plain_kafka, fresh_name, tmp_path, KILLS, restarts=True)}")
