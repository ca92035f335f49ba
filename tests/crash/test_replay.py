"""Dead letters reach a topic exactly once, whatever happens to the command that writes them, and to its brokers."""

import json
import random
import signal
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from fastwire.columns.chunk import DeadLetter
from fastwire.position import Position
from fastwire_daemon.dataset.proof.verify import verify
from fastwire_daemon.dataset.storage.bucket import Bucket
from fastwire_daemon.devbroker.base import DevBroker, dev_broker
from fastwire_daemon.devbroker.server import running
from tests.real.daemon import Daemon
from tests.support import rolls
from tests.support.nursery import shared

pytestmark = pytest.mark.crash

TOPIC = "mended"
COUNT = 40
# Groups of 15 letters; where requests on their way cannot be fenced, they arrive at once here.
SCRIPT = {"group": 15, "settle": 0.1}
SENDING = ("intent-linked", "intent-recorded", "letter-written", "letters-confirmed", "replay-linked", "letters-marked")
FINDING = ("intent-taken-over", "sender-fenced", "letters-found", "replay-linked")
# The steps are those of one program; of the other systems there are those between which something of theirs happens.
KILLS = [*(("kafka", step) for step in SENDING), ("pulsar", "letters-confirmed"), ("tubemq", "letters-confirmed")]
SECOND_KILLS = [*(("kafka", step) for step in FINDING), ("pulsar", "letters-found"), ("tubemq", "letters-found")]


def dead_letters(path: Path, count: int = COUNT, commits: int = 4, medium: Bucket | None = None) -> Path:
    """A dataset with dead letters that are values, in several commits, and entries of a broker among them."""
    writer = rolls.writer(path, medium)
    writer.open()
    numbers = iter(range(count))
    for commit in range(commits):
        found = [
            DeadLetter(rolls.log(), Position(rolls.LEDGER, n), "InvalidJson at byte 0 of the value", b"v%d" % n, 1)
            for _, n in zip(range(count // commits), numbers, strict=False)
        ]
        found.insert(3, DeadLetter(rolls.log(), Position(rolls.LEDGER, 9), "checksum", b"raw", 100))
        writer.add_dead_letters(found)
        rolls.land(writer, 10 * commit - 1, 10 * commit + 9)
    writer.close()
    return path


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    return dead_letters(tmp_path / "orders")


@pytest.fixture(params=["kafka", "pulsar", "tubemq"])
def broker(request: pytest.FixtureRequest) -> Iterator[DevBroker]:
    yield from serving(request.param)


@pytest.fixture
def kafka() -> Iterator[DevBroker]:
    yield from serving("kafka")


def serving(system: str) -> Iterator[DevBroker]:
    with running(dev_broker(system)) as server:
        server.create_topic(TOPIC, 2)
        yield server


def replay(dataset: Path, broker: DevBroker, name: str = "log", **script: Any) -> Daemon:
    log = dataset.parent / f"{name}-{random.randrange(1 << 40)}"
    return Daemon("dead", str(dataset), "--replay", broker.url, TOPIC, log=log, script=SCRIPT | script)


def killed(dataset: Path, broker: DevBroker, step: str, nth: int = 1) -> None:
    with replay(dataset, broker, at=step, nth=nth, do="kill") as child:
        assert child.wait() == -signal.SIGKILL, child.output


def finished(dataset: Path, broker: DevBroker) -> str:
    with replay(dataset, broker) as child:
        child.wait_done()
        return child.output


def values(broker: DevBroker) -> Counter[str]:
    """The values in the topic; of Kafka by the official client."""
    if broker.scheme == "kafka":
        return by_official_client(broker.url.removeprefix("kafka://"))
    said = shared().run("tail", broker.url, TOPIC, "--from", "earliest", "--until-end", "--format", "raw")
    assert said.returncode == 0, said.stderr
    return Counter(said.stdout.split())


def by_official_client(servers: str) -> Counter[str]:
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "x", "enable.auto.commit": False, "enable.partition.eof": True,
         "isolation.level": "read_uncommitted"}
    )  # fmt: skip
    found: Counter[str] = Counter()
    try:
        for number in range(2):
            consumer.assign([TopicPartition(TOPIC, number, 0)])
            while (message := consumer.poll(30)) is not None and not message.error():
                found[(message.value() or b"").decode()] += 1
            assert message is not None, "the end of the partition"
    finally:
        consumer.close()
    return found


def assert_each_once(broker: DevBroker, dataset: Path, count: int = COUNT) -> None:
    assert values(broker) == Counter({f"v{n}": 1 for n in range(count)})
    report = verify(dataset)
    assert (report.problems, report.replayed) == ([], count)


@pytest.mark.parametrize(("broker", "step"), KILLS, indirect=["broker"])
def test_a_kill_while_sending(dataset: Path, broker: DevBroker, step: str) -> None:
    nth = 20 if step == "letter-written" else 2
    killed(dataset, broker, step, nth)
    finished(dataset, broker)
    assert_each_once(broker, dataset)
    assert finished(dataset, broker).startswith(f"{dataset}: 0 dead letters written")


@pytest.mark.parametrize(("broker", "step"), SECOND_KILLS, indirect=["broker"])
def test_a_second_kill_while_looking(dataset: Path, broker: DevBroker, step: str) -> None:
    killed(dataset, broker, "letters-confirmed", 2)
    killed(dataset, broker, step)
    finished(dataset, broker)
    assert_each_once(broker, dataset)


def test_kills_at_random(dataset: Path, kafka: DevBroker) -> None:
    chance = random.Random(7)
    steps = [*SENDING, *FINDING]
    for _ in range(6):
        with replay(dataset, kafka, at=chance.choice(steps), nth=chance.randrange(1, 4), do="kill", group=7) as child:
            if child.wait() == 0:
                break
    finished(dataset, kafka)
    assert_each_once(kafka, dataset)


def test_two_commands_at_once(tmp_path: Path, kafka: DevBroker) -> None:
    dataset = dead_letters(tmp_path / "many", 400)

    def one(_: int) -> str:
        return finished(dataset, kafka)

    with ThreadPoolExecutor(2) as pool:
        said = list(pool.map(one, range(2)))
    assert_each_once(kafka, dataset, 400)
    counts = [int(line.split(": ")[1].split()[0]) for line in said]
    assert sum(counts) == 400


def test_a_living_command_keeps_what_it_has_in_hand(dataset: Path, kafka: DevBroker) -> None:
    with replay(dataset, kafka, at="letters-confirmed", do="stop") as first:
        assert first.wait_stopped(), first.output
        said = finished(dataset, kafka)
        assert "15 left out: another command has them in hand" in said
        first.signal(signal.SIGCONT)
        first.wait_done()
    assert_each_once(kafka, dataset)


def test_a_broker_that_restarts(dataset: Path, broker: DevBroker) -> None:
    with replay(dataset, broker, at="letter-written", nth=20, do="stop") as child:
        assert child.wait_stopped(), child.output
        broker.restart()
        child.signal(signal.SIGCONT)
        child.wait_done()
    assert_each_once(broker, dataset)


def test_a_topic_that_was_made_again_is_refused(dataset: Path, kafka: DevBroker) -> None:
    killed(dataset, kafka, "letters-confirmed", 2)
    kafka.delete_topic(TOPIC)
    kafka.create_topic(TOPIC, 2)
    with replay(dataset, kafka) as child:
        assert child.wait() == 1, child.output
        assert "the topic was deleted, or deleted and created again" in child.output
    assert json.loads(shared().run("dead", dataset, "--json").stdout)["replayed"] == 15
    said = shared().run("dead", dataset, "--replay", kafka.url, TOPIC, "--again")
    assert said.returncode == 0, said.stderr
    assert "15 dead letters of a command that has ended may be written again" in said.stderr
    assert verify(dataset).replayed == COUNT


def test_records_that_retention_has_deleted_are_refused(dataset: Path, kafka: Any) -> None:
    killed(dataset, kafka, "letters-confirmed", 2)
    for number, end in enumerate(kafka.ends(TOPIC)):
        kafka.trim(TOPIC, end, number)
    with replay(dataset, kafka) as child:
        assert child.wait() == 1, child.output
        assert "it cannot be found out which dead letters" in child.output and "deleted" in child.output
