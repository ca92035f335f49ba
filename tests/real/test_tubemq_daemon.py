"""The daemon and ``produce`` on a real TubeMQ Master and Broker, beside their own tools."""

import json
import re
import signal
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow.dataset
import pytest

from tests.brokers.tubemq import PARTITIONS, TubeMQBroker
from tests.real.daemon import RUN_LIMIT, Daemon, Job, verify
from tests.support.nursery import shared
from tests.support.tubemq.rules import group

pytestmark = pytest.mark.broker

TAKEOVER_LIMIT = 3 * RUN_LIMIT  # a Broker keeps a dead consumer's partitions for 20 s here, the Master its place for 15
ENDLESS = ("--load", "100000000", "--rate", "250")


def job(broker: TubeMQBroker, topic: str, path: Path, **more: Any) -> Job:
    source = {"subscription_type": None, "subscription": None, "group": group(), "heartbeat": "1s"}
    return Job(broker.url, topic, path, source={**source, **more.pop("source", {})}, **more)


def member(task: Job, folder: Path, name: str, *, until_end: bool = False) -> Daemon:
    arguments = ["run", str(task.write(folder)), *(["--until-end"] if until_end else [])]
    return Daemon(*arguments, log=folder / f"{name}.log")


def producing(broker: TubeMQBroker, topic: str, folder: Path, *options: str) -> Daemon:
    """A producer that goes on while a test needs messages, however long that is; ``produced`` ends it."""
    return Daemon("produce", broker.url, topic, *ENDLESS, *options, log=folder / "produce.log")


def produced(producer: Daemon) -> int:
    """End a producer, and return how many messages the Broker has confirmed: the first ones of all."""
    producer.end(TAKEOVER_LIMIT)
    confirmed = re.search(r"([\d,]+) records confirmed", producer.output)
    assert confirmed is not None, producer.output
    return int(confirmed[1].replace(",", ""))


def dataset(path: Path) -> pyarrow.dataset.Dataset:
    return pyarrow.dataset.dataset(path, format="parquet", ignore_prefixes=["_"])


def by_partition(path: Path) -> Counter[int]:
    """Return the number of rows of each partition that a reader sees now."""
    return Counter(dataset(path).to_table(columns=["partition"])["partition"].to_pylist())


def rows(path: Path) -> list[dict[str, Any]]:
    said = verify(path)
    assert said.returncode == 0, said.stdout
    return list(dataset(path).to_table().to_pylist())


def numbers(landed: list[dict[str, Any]]) -> list[int]:
    """The numbers of generated records; fails if one message of the Broker has landed twice."""
    ids = [row["messageId"] for row in landed]
    assert len(ids) == len(set(ids)), "messages there twice"
    return sorted(json.loads(row["value"])["number"] for row in landed)


def test_what_the_stock_producer_sent_has_landed(plain_tubemq: TubeMQBroker, tmp_path: Path) -> None:
    topic, count = plain_tubemq.fresh_topic(), 3000
    plain_tubemq.tool(
        "CliProducer", "--topicName", topic, "--messages", str(count), "--message-data-size", "100",
        "--num-send-threads", "2", "--sync-produce", "--without-delay",
    )  # fmt: skip
    task = job(plain_tubemq, topic, tmp_path / "data")
    with member(task, tmp_path, "log", until_end=True) as daemon:
        daemon.wait_done()
    landed = rows(task.path)
    assert len(landed) == count
    assert len({row["messageId"] for row in landed}) == count
    assert {row["value"] for row in landed} == {b"This is a test data!" * 5}
    assert {(row["topic"], row["broker"], row["partition"]) for row in landed} == {(topic, 1, 0), (topic, 1, 1)}
    assert all(row["eventTime"] is not None for row in landed)
    assert all([one["key"] for one in row["headers"]] == ["$msgTime$", "serialId", "dataTime"] for row in landed)


def test_what_produce_sent_is_read_by_the_stock_consumer(plain_tubemq: TubeMQBroker) -> None:
    topic, count = plain_tubemq.fresh_topic(), 1000
    lines = [json.dumps({"value": f"{number}", "properties": {"n": f"{number}"}}) for number in range(count - 1)]
    lines.append(json.dumps({"value": "", "event_time": 1767240000000, "partition": 1}))
    done = shared().run("produce", plain_tubemq.url, topic, "--format", "jsonl", given="\n".join(lines))
    assert done.returncode == 0, done.stderr
    said = plain_tubemq.tool(
        "CliConsumer", "--topicName", topic, "--groupName", group(), "--messages", str(count),
        "--consume-position", "-1",
    )  # fmt: skip
    assert f"Topic Name = {topic}, count={count}" in said


def test_what_produce_sent_has_landed_as_it_was(plain_tubemq: TubeMQBroker, tmp_path: Path) -> None:
    topic = plain_tubemq.fresh_topic()
    records = [
        {"value": "plain"},
        {"value": "", "partition": 1},
        {"value": "v", "properties": {"$msgType$": "aaa", "k": "ü=1"}, "event_time": 1767240000000},
    ]
    lines = "\n".join(map(json.dumps, records))
    done = shared().run("produce", plain_tubemq.url, topic, "--format", "jsonl", given=lines)
    assert done.returncode == 0, done.stderr
    task = job(plain_tubemq, topic, tmp_path / "data")
    with member(task, tmp_path, "log", until_end=True) as daemon:
        daemon.wait_done()
    landed = {row["value"]: row for row in rows(task.path)}
    assert set(landed) == {b"plain", b"", b"v"}
    assert landed[b""]["partition"] == 1
    attributes = {header["key"]: header["value"].decode() for header in landed[b"v"]["headers"]}
    assert attributes == {"$msgType$": "aaa", "$msgTime$": "202601011200", "k": "ü=1"}
    assert landed[b"v"]["msgType"] == "aaa"
    assert landed[b"v"]["eventTime"].timestamp() == 1767240000


def test_nodes_share_a_topic(plain_tubemq: TubeMQBroker, tmp_path: Path) -> None:
    """Client balance: each node lands the partitions of its number, and is at the end without the others."""
    topic, name, count = plain_tubemq.fresh_topic(), group(), 500
    done = shared().run("produce", plain_tubemq.url, topic, "--load", str(count))
    assert done.returncode == 0, done.stderr
    with ExitStack() as stack:
        nodes = []
        for number in range(2):
            source = {"group": name, "balance": "client", "source_count": 2, "node_id": number}
            task = job(plain_tubemq, topic, tmp_path / "data", source=source)
            nodes.append(stack.enter_context(member(task, tmp_path, f"node-{number}", until_end=True)))
        for node in nodes:
            node.wait_done()
    landed = rows(tmp_path / "data")
    assert numbers(landed) == list(range(count))
    assert {row["partition"] for row in landed} == {0, 1}


def test_members_killed_and_added(plain_tubemq: TubeMQBroker, tmp_path: Path) -> None:
    topic = plain_tubemq.fresh_topic()
    task = job(plain_tubemq, topic, tmp_path / "data", roll={"rows": 400, "idle": "300ms"})
    with ExitStack() as stack:
        producer = stack.enter_context(producing(plain_tubemq, topic, tmp_path))
        first = stack.enter_context(member(task, tmp_path, "first"))
        first.wait_for_rows(100)
        second = stack.enter_context(member(task, tmp_path, "second"))
        second.wait_for_rows(100)
        first.signal(signal.SIGKILL)
        first.wait()
        third = stack.enter_context(member(task, tmp_path, "third"))
        third.wait_for_rows(100, TAKEOVER_LIMIT)
        for one in (second, third):
            one.end()
        count = produced(producer)
        with member(task, tmp_path, "last", until_end=True) as last:
            last.wait_done(TAKEOVER_LIMIT)
    assert numbers(rows(task.path)) == list(range(count))


def test_a_member_that_stands_still_and_goes_on(plain_tubemq: TubeMQBroker, tmp_path: Path) -> None:
    """The Broker gives its partition to the other member, which lands both; what it held lands once."""
    topic = plain_tubemq.fresh_topic()
    task = job(plain_tubemq, topic, tmp_path / "data", roll={"rows": 400, "idle": "300ms"})
    with ExitStack() as stack:
        producer = stack.enter_context(producing(plain_tubemq, topic, tmp_path))
        paused = stack.enter_context(member(task, tmp_path, "paused"))
        paused.wait_for_rows(100)
        other = stack.enter_context(member(task, tmp_path, "other"))
        other.wait_for_rows(100)
        paused.signal(signal.SIGSTOP)
        before = by_partition(task.path)
        wanted = before + Counter(dict.fromkeys(range(PARTITIONS), 400))
        other.wait_until(
            lambda: by_partition(task.path) >= wanted, "it landed both partitions", TAKEOVER_LIMIT, pause_s=0.5
        )
        paused.signal(signal.SIGCONT)
        paused.wait_for_rows(paused.committed() + 400, TAKEOVER_LIMIT)
        for one in (paused, other):
            one.end()
        count = produced(producer)
        with member(task, tmp_path, "last", until_end=True) as last:
            last.wait_done(TAKEOVER_LIMIT)
    assert numbers(rows(task.path)) == list(range(count))


def test_a_master_and_a_broker_that_restart(plain_tubemq: TubeMQBroker, tmp_path: Path) -> None:
    """Each message lands once; the producer may have stored one twice whose response it has not seen."""
    topic = plain_tubemq.fresh_topic()
    task = job(plain_tubemq, topic, tmp_path / "data", roll={"rows": 400, "idle": "300ms"})
    with ExitStack() as stack:
        producer = stack.enter_context(producing(plain_tubemq, topic, tmp_path))
        consumer = stack.enter_context(member(task, tmp_path, "consumer"))
        consumer.wait_for_rows(100)
        plain_tubemq.master.restart(at_once=True)
        consumer.wait_for_rows(consumer.committed() + 400, TAKEOVER_LIMIT)
        plain_tubemq.restart_broker()
        consumer.wait_for_rows(consumer.committed() + 400, TAKEOVER_LIMIT)
        count = produced(producer)
        consumer.end()
        with member(task, tmp_path, "last", until_end=True) as last:
            last.wait_done(TAKEOVER_LIMIT)
    assert sorted(set(numbers(rows(task.path)))) == list(range(count))
