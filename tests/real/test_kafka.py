"""A real Kafka broker: what official clients produce lands, every field of it, once, whatever happens on the way."""

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.dataset
import pytest
from confluent_kafka import Producer

from tests.brokers.kafka import KafkaBroker
from tests.real.daemon import Daemon, Job, verify

pytestmark = pytest.mark.broker

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
BEGAN_MS = 1_700_000_000_000


@dataclass(frozen=True)
class Sent:
    """One record as it was given to the producer."""

    partition: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    milli: int


def records(count: int, partitions: int, seed: int) -> list[Sent]:
    """All that a record may be: nulls, empty texts, repeated headers, large values."""
    dice = random.Random(seed)
    made = []
    for number in range(count):
        value: bytes | None = b"%08d " % number + dice.randbytes(dice.choice((0, 3, 90, 2000)))
        if number % 17 == 3:
            value = None
        elif number % 17 == 5:
            value = b""
        key = dice.choice((None, b"", b"key-%d" % (number % 9), dice.randbytes(4)))
        names = dice.choice(((), ("a",), ("a", "b", "a"), ("",)))
        headers = tuple((name, dice.choice((None, b"", b"\x00\xff", b"text"))) for name in names)
        made.append(Sent(number % partitions, key, value, headers, BEGAN_MS + number * 7))
    return made


def produce(broker: KafkaBroker, topic: str, sent: Iterable[Sent], **settings: Any) -> None:
    said = {key.replace("_", "."): value for key, value in settings.items()}
    producer = Producer({"bootstrap.servers": broker.servers, "log_level": 0, "linger.ms": 20, **said})
    transactional = "transactional.id" in said
    if transactional:
        producer.init_transactions(60)
        producer.begin_transaction()
    for one in sent:
        producer.produce(
            topic,
            value=one.value,
            key=one.key,
            partition=one.partition,
            timestamp=one.milli,
            headers=list(one.headers),
        )
        producer.poll(0)
    assert producer.flush(60) == 0
    if transactional:
        producer.commit_transaction(60)


def job(broker: KafkaBroker, topic: str, path: Path, **more: Any) -> Job:
    source = {"subscription_type": None, **more.pop("source", {})}
    return Job(broker.url, topic, path, subscription=f"group-of-{topic}", source=source, **more)


def land(task: Job, tmp_path: Path) -> list[dict[str, Any]]:
    """Run to the topic's end, prove the dataset, and return its rows by partition and offset."""
    with Daemon("run", str(task.write(tmp_path)), "--until-end", log=tmp_path / "log") as daemon:
        daemon.wait_done()
    return rows(task.path)


def rows(path: Path) -> list[dict[str, Any]]:
    said = verify(path)
    assert said.returncode == 0, said.stdout
    table = pyarrow.dataset.dataset(path, format="parquet", ignore_prefixes=["_"]).to_table()
    return sorted(table.to_pylist(), key=lambda row: (row["partition"], row["offset"]))


def assert_same(sent: list[Sent], landed: list[dict[str, Any]], topic: str) -> None:
    assert len(landed) == len(sent)
    for partition in {one.partition for one in sent}:
        mine = [one for one in sent if one.partition == partition]
        found = [row for row in landed if row["partition"] == partition]
        assert [row["offset"] for row in found] == list(range(len(mine)))
        for one, row in zip(mine, found, strict=True):
            assert row["topic"] == topic
            assert (row["key"], row["value"]) == (one.key, one.value)
            assert row["timestamp"].timestamp() * 1000 == pytest.approx(one.milli, abs=0.5)
            assert row["timestampType"] == 0
            headers = [(header["key"], header["value"]) for header in row["headers"] or []]
            assert headers == list(one.headers)


@pytest.mark.parametrize("codec", CODECS)
def test_every_field(plain_kafka: KafkaBroker, fresh_name: Callable[[str], str], tmp_path: Path, codec: str) -> None:
    topic = fresh_name("fields")
    plain_kafka.create_topic(topic, 3)
    sent = records(1500, 3, seed=CODECS.index(codec))
    # However they are sent: by a plain producer, an idempotent one, or in a transaction.
    ways: dict[str, dict[str, Any]] = {"gzip": {"enable_idempotence": True}, "lz4": {"transactional_id": topic}}
    produce(plain_kafka, topic, sent, compression_type=codec, **ways.get(codec, {}))
    assert_same(sent, land(job(plain_kafka, topic, tmp_path / "data"), tmp_path), topic)


def test_times_of_the_broker(plain_kafka: KafkaBroker, fresh_name: Callable[[str], str], tmp_path: Path) -> None:
    topic = fresh_name("append-time")
    plain_kafka.create_topic(topic, 1, message_timestamp_type="LogAppendTime")
    produce(plain_kafka, topic, records(50, 1, seed=9))
    landed = land(job(plain_kafka, topic, tmp_path / "data"), tmp_path)
    assert {row["timestampType"] for row in landed} == {1}
    assert min(row["timestamp"].timestamp() for row in landed) * 1000 > BEGAN_MS + 1e9


def test_aborted_transactions(plain_kafka: KafkaBroker, fresh_name: Callable[[str], str], tmp_path: Path) -> None:
    topic = fresh_name("transactions")
    plain_kafka.create_topic(topic, 1)
    producer = Producer({"bootstrap.servers": plain_kafka.servers, "log_level": 0, "transactional.id": topic})
    producer.init_transactions(60)
    for number, commit in enumerate((True, False, True, False)):
        producer.begin_transaction()
        for _ in range(10):
            producer.produce(topic, value=b"%d" % number)
        producer.flush(60)
        if commit:
            producer.commit_transaction(60)
        else:
            producer.abort_transaction(60)
    landed = land(job(plain_kafka, topic, tmp_path / "committed"), tmp_path)
    assert [row["value"] for row in landed] == [b"0"] * 10 + [b"2"] * 10
    task = job(plain_kafka, topic, tmp_path / "all", source={"isolation": "read_uncommitted"})
    with Daemon("run", str(task.write(tmp_path)), "--until-end", log=tmp_path / "log") as daemon:
        assert daemon.wait() == 78  # the group has progress, and the dataset is new
    again = job(plain_kafka, topic, tmp_path / "all", source={"isolation": "read_uncommitted", "subscription": topic})
    assert len(land(again, tmp_path)) == 40


def test_the_group_has_what_has_landed(
    plain_kafka: KafkaBroker, fresh_name: Callable[[str], str], tmp_path: Path
) -> None:
    topic = fresh_name("offsets")
    plain_kafka.create_topic(topic, 2)
    produce(plain_kafka, topic, records(100, 2, seed=1))
    task = job(plain_kafka, topic, tmp_path / "data")
    assert len(land(task, tmp_path)) == 100
    assert plain_kafka.committed(task.subscription) == {(topic, 0): 50, (topic, 1): 50}
    assert len(land(task, tmp_path)) == 100
    produce(plain_kafka, topic, records(10, 2, seed=2))
    assert len(land(task, tmp_path)) == 110


def test_killed_on_the_way(plain_kafka: KafkaBroker, fresh_name: Callable[[str], str], tmp_path: Path) -> None:
    topic = fresh_name("killed")
    plain_kafka.create_topic(topic, 3)
    task = job(plain_kafka, topic, tmp_path / "data", roll={"rows": 300, "idle": "200ms"})
    dice = random.Random(4)
    sent: list[Sent] = []
    for turn in range(8):
        more = records(600, 3, seed=turn)
        produce(plain_kafka, topic, more)
        sent += more
        step = dice.choice(("files-finished", "files-synced", "entry-linked", "committed", "published:1"))
        script = {"at": step, "nth": dice.choice((1, 2)), "do": "kill"}
        with Daemon("run", str(task.write(tmp_path)), "--until-end", log=tmp_path / "log", script=script) as daemon:
            assert daemon.wait() in (0, -9), daemon.tail()
    assert_same(sent, land(task, tmp_path), topic)


def test_a_topic_that_is_not_there(plain_kafka: KafkaBroker, tmp_path: Path) -> None:
    task = job(plain_kafka, "nobody-made-this", tmp_path / "data")
    with Daemon("run", str(task.write(tmp_path)), log=tmp_path / "log") as daemon:
        assert daemon.wait() == 1
        assert "nobody-made-this does not exist; fastwire reads topics and creates none" in daemon.output
