"""Topics of a real broker that come, grow, end and go while they are read."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fastwire.pulsar.names.topic import parse_topic
from fastwire_daemon.systems.pulsar.topics import Topics
from fastwire_daemon.systems.reading.stage import Stage
from tests.brokers.admin import AdminError, PulsarAdmin
from tests.brokers.kafka import KafkaBroker
from tests.brokers.pulsar import PulsarBroker
from tests.crash.feed import Feed, KafkaFeed, PulsarFeed
from tests.crash.scene import ROLL, Scene
from tests.real.daemon import Daemon, Job, verify
from tests.support.sequence_audit import assert_each_once, assert_in_order
from tests.support.source_pipe import Pipe, until
from tests.support.waiting import eventually

pytestmark = pytest.mark.broker


class Ground(ABC):
    """Topics that come and go, with records that are numbered through, whatever their topic."""

    url: str
    source: dict[str, Any]
    """What of a job's source is this system's own."""

    def __init__(self) -> None:
        self.count = 0

    def add(self, topic: str, partitions: int = 0, entries: int = 3) -> None:
        feed = self._feed(topic, partitions)
        feed.count = self.count
        feed.add(entries)
        self.count = feed.count

    @abstractmethod
    def _feed(self, topic: str, partitions: int) -> Feed: ...

    @abstractmethod
    def create(self, topic: str, partitions: int = 0) -> None: ...

    @abstractmethod
    def grow(self, topic: str, partitions: int) -> None: ...

    @abstractmethod
    def delete(self, topic: str) -> None: ...

    @abstractmethod
    def exists(self, topic: str) -> bool: ...

    @abstractmethod
    def landed(self, topic: str, partitions: int, job: Job) -> bool:
        """Return whether everything in a topic is confirmed."""


class PulsarGround(Ground):
    """A real Pulsar, which tells what happens: nothing here takes the minute after which it would be asked."""

    def __init__(self, broker: PulsarBroker) -> None:
        super().__init__()
        self.url, self.source = broker.service_url, {}
        self._admin = broker.admin

    def _feed(self, topic: str, partitions: int) -> Feed:
        return PulsarFeed(self.url, topic, partitions)

    def create(self, topic: str, partitions: int = 0) -> None:
        self._admin.create_topic(topic, partitions)

    def grow(self, topic: str, partitions: int) -> None:
        self._admin.grow(topic, partitions)

    def delete(self, topic: str) -> None:
        self._admin.delete_topic(topic)

    def exists(self, topic: str) -> bool:
        return exists(self._admin, topic)

    def landed(self, topic: str, partitions: int, job: Job) -> bool:
        consumed = len(self._admin.consumers(topic, job.subscription, partitions)) == max(partitions, 1)
        return consumed and self._admin.backlog(topic, job.subscription, partitions) == 0


class KafkaGround(Ground):
    """A real Kafka, which is asked."""

    def __init__(self, broker: KafkaBroker, protocol: str) -> None:
        super().__init__()
        self.url = broker.url
        self.source = {"subscription_type": None, "group_protocol": protocol, "metadata_max_age": "500ms"}
        self._broker = broker

    def _feed(self, topic: str, partitions: int) -> Feed:
        return KafkaFeed(self._broker.servers, topic, max(partitions, 1))

    def create(self, topic: str, partitions: int = 0) -> None:
        self._broker.create_topic(topic, max(partitions, 1))

    def grow(self, topic: str, partitions: int) -> None:
        self._broker.grow_topic(topic, partitions)

    def delete(self, topic: str) -> None:
        self._broker.delete_topic(topic)

    def exists(self, topic: str) -> bool:
        return self._broker.has_topic(topic)

    def landed(self, topic: str, partitions: int, job: Job) -> bool:
        if self._broker.members(job.subscription) != 1:
            return False
        told = self._broker.committed(job.subscription)
        return all(told.get((topic, number)) == end for number, end in enumerate(self._broker.ends(topic)))


@pytest.fixture(params=["pulsar", "kafka-classic", "kafka-consumer"])
def ground(request: pytest.FixtureRequest) -> Ground:
    system, _, protocol = request.param.partition("-")
    broker = request.getfixturevalue(f"plain_{system}")
    return KafkaGround(broker, protocol) if protocol else PulsarGround(broker)


def wait_until(what: Callable[[], bool]) -> None:
    """Until it is so; a topic that is being deleted answers nothing for a moment."""

    def is_so() -> bool:
        try:
            return what()
        except AdminError:
            return False

    eventually(is_so)


def exists(admin: PulsarAdmin, topic: str) -> bool:
    try:
        admin.stats(topic)
    except AdminError as exc:
        if exc.status != 404:
            raise
        return False
    return True


def test_topics_of_a_pattern_come_and_go(ground: Ground, fresh_name: Callable[[str], str], tmp_path: Path) -> None:
    stem = fresh_name("pattern")
    first, parted, later = f"{stem}-a", f"{stem}-b", f"{stem}-c"
    ground.create(first)
    ground.create(parted, 2)
    ground.add(first)
    ground.add(parted, 2)
    source = {"topics": None, "topics_pattern": f"{stem}-.*", **ground.source}
    job = Job(ground.url, "", tmp_path / "data", subscription=stem, source=source, roll=ROLL)

    def landed(topic: str, partitions: int = 0) -> bool:
        return ground.landed(topic, partitions, job)

    with Daemon("run", str(job.write(tmp_path)), log=tmp_path / "run.log") as daemon:
        wait_until(lambda: landed(first) and landed(parted, 2))
        ground.create(later)
        ground.add(later)
        wait_until(lambda: landed(later))
        ground.grow(parted, 3)
        ground.add(parted, 3)
        wait_until(lambda: landed(parted, 3))
        ground.delete(first)
        daemon.wait_for("topic is gone")
        wait_until(lambda: not ground.exists(first))
        ground.grow(parted, 4)
        ground.add(parted, 4)
        wait_until(lambda: landed(parted, 4))  # so the topics have been looked for again
        assert not ground.exists(first)  # nobody has made it again by asking for it
        assert_in_order(job.path)
        ground.create(first)
        ground.add(first)
        wait_until(lambda: landed(first))
        daemon.end()
        assert not [event for event in daemon.events() if event["level"] == "error"]
    assert verify(job.path).returncode == 0
    assert_each_once(job.path, ground.count)
    # What is added while nobody is there is read from its beginning, whatever start says.
    ground.create(f"{stem}-d")
    ground.add(f"{stem}-d")
    ground.grow(parted, 5)
    ground.add(parted, 5)
    job = Job(ground.url, "", tmp_path / "data", subscription=stem, start="latest", source=source, roll=ROLL)
    with Daemon("run", str(job.write(tmp_path)), "--until-end", log=tmp_path / "again.log") as daemon:
        daemon.wait_done()
    assert_each_once(job.path, ground.count)


async def test_topics_of_a_pattern_by_asking(
    plain_pulsar: PulsarBroker, fresh_name: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same without being told, as with older brokers: lists and their hashes."""
    stem, admin = fresh_name("polled"), plain_pulsar.admin

    async def never(*_: Any) -> bool:
        return False

    monkeypatch.setattr(Topics, "_watch", never)

    feeds = PulsarGround(plain_pulsar)

    async def do(call: Callable[..., None], *arguments: Any) -> None:
        await asyncio.to_thread(call, *arguments)

    await do(admin.create_topic, f"{stem}-a")
    broker: Any = SimpleNamespace(url=plain_pulsar.service_url)
    pipe = Pipe(broker, pattern=f"{stem}-.*", partition_poll_s=0.2)
    try:
        await pipe.start()
        await pipe.granted()
        await do(admin.create_topic, f"{stem}-b", 2)
        await do(feeds.add, f"{stem}-b", 2)
        await pipe.got(300)
        await do(admin.delete_topic, f"{stem}-a")
        gone = pipe.source.partitions[0]
        await until(lambda: gone.stage is Stage.GONE, "a topic that is gone")
        assert parse_topic(gone.log.topic).local == f"{stem}-a"
        assert pipe.source.topics._hash
    finally:
        await pipe.close()


def test_a_terminated_topic_is_read_to_its_end(
    plain_pulsar: PulsarBroker, fresh_name: Callable[[str], str], tmp_path: Path
) -> None:
    topic = fresh_name("ended")
    scene = Scene.on(plain_pulsar, topic, tmp_path)
    scene.feed.add(5)
    with scene.under_way() as daemon:
        wait_until(lambda: bool(plain_pulsar.admin.consumers(topic, "landing")))
        scene.feed.add(5)
        plain_pulsar.admin.terminate(topic)
        daemon.wait_for("topic was terminated and is read to its end")
        wait_until(lambda: plain_pulsar.admin.backlog(topic, "landing") == 0)
