"""A real broker that stores message sets of versions 0 and 1, and has no KIP-848: read as ever, groups as of old."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.brokers.kafka_zookeeper import OldKafka
from tests.real.daemon import Daemon
from tests.real.test_kafka import BEGAN_MS, Sent, job, produce, rows

pytestmark = pytest.mark.broker

# zstd came later than these formats.
CODECS = ["none", "gzip", "snappy", "lz4"]
PARTITIONS = 2


def records(first: int, count: int) -> list[Sent]:
    return [
        Sent(n % PARTITIONS, None if n % 5 == 0 else b"key %d" % n, b"%d " % n + b"x" * (n % 300), (), BEGAN_MS + n)
        for n in range(first, first + count)
    ]


def test_old_message_sets(old_kafka: OldKafka, fresh_name: Callable[[str], str], tmp_path: Path) -> None:
    sent: dict[str, list[Sent]] = {}
    for magic, version in enumerate(("0.9.0", "0.10.0")):
        topic = fresh_name("format-" + version.replace(".", "-"))
        # By itself the broker stores what producers have compressed as it came.
        old_kafka.create_topic(topic, PARTITIONS, message_format_version=version)
        sent[topic] = []
        for number, codec in enumerate(CODECS):
            some = records(number * 300, 300)
            produce(old_kafka, topic, some, compression_type=codec)
            sent[topic] += some
        assert old_kafka.magics(topic, 0) == {magic}
    for topic, said in sent.items():
        task = job(old_kafka, topic, tmp_path / topic)
        with Daemon("run", str(task.write(tmp_path)), "--until-end", log=tmp_path / "log") as daemon:
            daemon.wait_done()
        assert "the group does not speak the consumer protocol: classic" in (tmp_path / "log").read_text()
        landed = rows(task.path)
        for partition in range(PARTITIONS):
            mine = [one for one in said if one.partition == partition]
            found = [row for row in landed if row["partition"] == partition]
            assert [row["offset"] for row in found] == list(range(len(mine)))
            assert [(row["key"], row["value"]) for row in found] == [(one.key, one.value) for one in mine]
            if "0-10" in topic:  # version 0 has no times
                assert [row["timestamp"].timestamp() * 1000 for row in found] == [one.milli for one in mine]
        assert old_kafka.committed(task.subscription) == {
            (topic, n): len(said) // PARTITIONS for n in range(PARTITIONS)
        }
