"""Groups at a real Kafka broker: members come, go, die and sleep, and every record lands once all the same."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from tests.brokers.kafka import KafkaBroker
from tests.real.daemon import Daemon, Job
from tests.real.test_kafka import assert_same, job, produce, records, rows

pytestmark = pytest.mark.broker

PARTITIONS = 6
# A session of a classic group; the broker of the tests has its own time for the other protocol.
WAYS = [
    {"group_protocol": "consumer"},
    {"group_protocol": "classic", "session_timeout": "6s"},
    {"group_protocol": "classic", "session_timeout": "6s", "assignor": "range"},
]
IDS = ["consumer", "cooperative", "eager"]


def member(task: Job, folder: Path, name: str, *, until_end: bool = False) -> Daemon:
    arguments = ["run", str(task.write(folder)), *(["--until-end"] if until_end else [])]
    return Daemon(*arguments, log=folder / f"{name}.log")


class Flood:
    """Records while something else goes on."""

    def __init__(self, broker: KafkaBroker, topic: str) -> None:
        self.count = 0
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(broker, topic))
        self._thread.start()

    def _run(self, broker: KafkaBroker, topic: str) -> None:
        producer = Producer({"bootstrap.servers": broker.servers, "log_level": 0, "linger.ms": 5})
        while not self._enough.wait(0.01):
            for _ in range(20):
                producer.produce(topic, value=b"%08d" % self.count, partition=self.count % PARTITIONS)
                self.count += 1
            producer.flush(60)

    def end(self) -> int:
        self._enough.set()
        self._thread.join()
        return self.count


@contextmanager
def flood(broker: KafkaBroker, topic: str) -> Iterator[Flood]:
    running = Flood(broker, topic)
    try:
        yield running
    finally:
        running.end()


def assert_all_once(landed: list[dict[str, Any]], count: int) -> None:
    values = [int(row["value"]) for row in landed]
    assert len(values) == len(set(values)), "rows there twice"
    assert sorted(values) == list(range(count))
    for partition in range(PARTITIONS):
        mine = [row for row in landed if row["partition"] == partition]
        assert [row["offset"] for row in mine] == list(range(len(mine)))
        assert [int(row["value"]) for row in mine] == sorted(int(row["value"]) for row in mine)


# The older way of the classic protocol is left to those who have the time.
@pytest.mark.parametrize("way", [*WAYS[:2], pytest.param(WAYS[2], marks=pytest.mark.soak)], ids=IDS)
def test_members_killed_added_and_paused(
    plain_kafka: KafkaBroker, fresh_name: Callable[[str], str], tmp_path: Path, way: dict[str, Any]
) -> None:
    topic = fresh_name("members")
    plain_kafka.create_topic(topic, PARTITIONS)
    task = job(plain_kafka, topic, tmp_path / "data", source=way, roll={"rows": 400, "idle": "300ms"})
    with ExitStack() as stack, flood(plain_kafka, topic) as running:
        first = stack.enter_context(member(task, tmp_path, "first"))
        first.wait_for_rows(100)
        second = stack.enter_context(member(task, tmp_path, "second"))
        second.wait_for_rows(100)
        third = stack.enter_context(member(task, tmp_path, "third"))
        third.wait_for_rows(50)
        first.signal(signal.SIGKILL)
        first.wait()
        seen = second.committed() + third.committed()
        second.wait_for_rows(second.committed() + 100)
        second.signal(signal.SIGSTOP)
        third.wait_for_rows(third.committed() + 400)
        # What was its own when it fell asleep is read by the other one meanwhile, session timeouts allowing.
        fourth = stack.enter_context(member(task, tmp_path, "fourth"))
        fourth.wait_for_rows(50)
        second.signal(signal.SIGCONT)
        second.wait_for_rows(second.committed() + 100)
        assert second.committed() + third.committed() > seen
        for one in (second, fourth):
            one.end()
        count = running.end()
        third.end()
        with member(task, tmp_path, "last", until_end=True) as last:
            last.wait_done()
    assert_all_once(rows(task.path), count)


@pytest.mark.parametrize("way", WAYS, ids=IDS)
def test_handed_over_in_order(
    plain_kafka: KafkaBroker, fresh_name: Callable[[str], str], tmp_path: Path, way: dict[str, Any]
) -> None:
    """Partitions are given away after a commit only: nobody drops what it has, nothing is read twice."""
    topic = fresh_name("handover")
    plain_kafka.create_topic(topic, PARTITIONS)
    task = job(plain_kafka, topic, tmp_path / "data", source=way, roll={"rows": 100_000, "age": "1h", "idle": "1h"})
    with ExitStack() as stack, flood(plain_kafka, topic) as running:
        first = stack.enter_context(member(task, tmp_path, "first"))
        first.wait_for("partitions assigned")
        second = stack.enter_context(member(task, tmp_path, "second"))
        first.wait_for("revoked: no longer assigned to this member of the group")
        third = stack.enter_context(member(task, tmp_path, "third"))
        third.wait_for("partitions assigned")
        third.end()
        for one in (first, second):
            one.end()
        for one in (first, second, third):
            assert "the roll is dropped" not in one.output, one.tail()
            assert "before they have landed" not in one.output, one.tail()
        count = running.end()
        with member(task, tmp_path, "last", until_end=True) as last:
            last.wait_done()
    assert_all_once(rows(task.path), count)


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_a_static_member_restarts(
    plain_kafka: KafkaBroker, fresh_name: Callable[[str], str], tmp_path: Path, protocol: str
) -> None:
    """It comes back to what it had, and the other member never hears of it: no new generation, no new epoch."""
    topic = fresh_name("static")
    plain_kafka.create_topic(topic, PARTITIONS)
    sent = records(600, PARTITIONS, seed=3)
    # Long enough for a start on a busy machine. In the newer protocol it is the group's, and the broker knows it.
    session = {"session_timeout": "30s"} if protocol == "classic" else {}

    def task(name: str) -> Job:
        way = {"group_protocol": protocol, "group_instance_id": name, **session}
        return job(plain_kafka, topic, tmp_path / "data", source=way, roll={"idle": "200ms"})

    def assignments(daemon: Daemon) -> list[tuple[int, int]]:
        said = [event for event in daemon.events() if event.get("event") == "partitions assigned"]
        return [(event["partitions"], event["generation"]) for event in said]

    if protocol == "consumer":
        plain_kafka.set_group(task("any").subscription, consumer_session_timeout_ms="30000")
    with ExitStack() as members:
        one = members.enter_context(member(task("one"), tmp_path, "one"))
        one.wait_for("partitions assigned")
        two = members.enter_context(member(task("two"), tmp_path, "two"))
        two.wait_for('"partitions":3,"generation"')
        produce(plain_kafka, topic, sent[:300])
        one.wait_for_rows(150)
        two.wait_for_rows(150)
        settled = assignments(one)
        two.end()
        again = members.enter_context(member(task("two"), tmp_path, "two again"))
        again.wait_for("partitions assigned")
        assert assignments(again) == assignments(two)[-1:]
        produce(plain_kafka, topic, sent[300:])
        again.wait_for_rows(150)
        one.wait_for_rows(300)
        assert assignments(again) == assignments(two)[-1:]
        assert assignments(one) == settled
        for daemon in (again, one):
            daemon.end()
    assert_same(sent, rows(tmp_path / "data"), topic)


def test_a_static_member_comes_back_for_more(
    plain_kafka: KafkaBroker, fresh_name: Callable[[str], str], tmp_path: Path
) -> None:
    """The broker gives it what it had; that it reads one more topic now it has to say itself."""
    topics = [fresh_name("static"), fresh_name("more")]
    for topic in topics:
        plain_kafka.create_topic(topic, PARTITIONS)

    def task(name: str, *read: str) -> Job:
        way = {"group_protocol": "classic", "assignor": "range", "session_timeout": "30s"}
        source = {**way, "group_instance_id": name, "topics": list(read)}
        return job(plain_kafka, topics[0], tmp_path / "data", source=source, roll={"idle": "200ms"})

    with ExitStack() as members:
        one = members.enter_context(member(task("one", *topics), tmp_path, "one"))
        one.wait_for('"partitions":12,"generation"')
        two = members.enter_context(member(task("two", topics[0]), tmp_path, "two"))
        two.wait_for('"partitions":3,"generation"')
        one.wait_for('"partitions":9,"generation"')
        two.end()
        again = members.enter_context(member(task("two", *topics), tmp_path, "two again"))
        again.wait_for('"partitions":6,"generation"')
        one.wait_for('"partitions":6,"generation"')


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_beside_an_official_consumer(
    plain_kafka: KafkaBroker, fresh_name: Callable[[str], str], tmp_path: Path, strategy: str
) -> None:
    topic = fresh_name("mixed")
    plain_kafka.create_topic(topic, PARTITIONS)
    way = {"group_protocol": "classic", "session_timeout": "6s", "assignor": strategy}
    task = job(plain_kafka, topic, tmp_path / "data", source=way, roll={"idle": "200ms"})
    official = Consumer(
        {
            "bootstrap.servers": plain_kafka.servers,
            "group.id": task.subscription,
            "partition.assignment.strategy": strategy,
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 1000,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    theirs: set[tuple[int | None, int | None]] = set()

    def poll_until(done: Callable[[], bool]) -> None:
        for _ in range(600):
            message = official.poll(0.1)
            if message is not None and message.error() is None:
                theirs.add((message.partition(), message.offset()))
                official.commit(message=message, asynchronous=False)
            if done():
                return
        raise AssertionError("the group has not come to what was waited for")

    with member(task, tmp_path, "ours") as ours:
        ours.wait_for("partitions assigned")
        official.subscribe([topic])
        poll_until(lambda: len(official.assignment()) == PARTITIONS // 2)
        produce(plain_kafka, topic, records(240, PARTITIONS, seed=8))
        poll_until(lambda: len(theirs) >= 120)
        ours.wait_for_rows(120)
        shared = {(row["partition"], row["offset"]) for row in rows(task.path)}
        assert len(shared) == len(theirs) == 120
        assert shared | theirs == {(partition, offset) for partition in range(PARTITIONS) for offset in range(40)}
        official.close()
        produce(plain_kafka, topic, records(60, PARTITIONS, seed=9))
        # The dataset knows its partitions from their beginning, so what another one has read of them is read again.
        ours.wait_for_rows(300)
        ours.end()
    landed = [(row["partition"], row["offset"]) for row in rows(task.path)]
    assert landed == [(partition, offset) for partition in range(PARTITIONS) for offset in range(50)]
