"""Topics of a real broker that come, grow, end and go while they are read."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fastwire.pulsar.topic import parse_topic
from fastwire_daemon.pulsar.topics import Topics
from fastwire_daemon.sources.pulsar.host import Stage
from tests.audit import assert_each_once, assert_in_order
from tests.brokers.admin import AdminError, PulsarAdmin
from tests.brokers.pulsar import PulsarBroker
from tests.crash.feed import PulsarFeed
from tests.crash.scene import ROLL, Scene
from tests.real.daemon import Daemon, Job, verify
from tests.source_pipe import Pipe, until
from tests.waiting import eventually

pytestmark = pytest.mark.broker


class Feeds:
    """Feeds several topics with records that are numbered through."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.count = 0

    def add(self, topic: str, partitions: int = 0, entries: int = 3) -> None:
        feed = PulsarFeed(self._url, topic, partitions)
        feed.count = self.count
        feed.add(entries)
        self.count = feed.count


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


def test_topics_of_a_pattern_come_and_go(
    plain_pulsar: PulsarBroker, fresh_name: Callable[[str], str], tmp_path: Path
) -> None:
    """The broker tells what happens: nothing here takes the minute after which it would be asked."""
    stem, admin, feeds = fresh_name("pattern"), plain_pulsar.admin, Feeds(plain_pulsar.service_url)
    first, parted, later = f"{stem}-a", f"{stem}-b", f"{stem}-c"
    admin.create_topic(first)
    admin.create_topic(parted, 2)
    feeds.add(first)
    feeds.add(parted, 2)
    source = {"topics": None, "topics_pattern": f"{stem}-.*"}
    job = Job(plain_pulsar.service_url, "", tmp_path / "data", source=source, roll=ROLL)

    def landed(topic: str, partitions: int = 0) -> bool:
        consumed = len(admin.consumers(topic, "landing", partitions)) == max(partitions, 1)
        return consumed and admin.backlog(topic, "landing", partitions) == 0

    with Daemon("run", str(job.write(tmp_path)), log=tmp_path / "run.log") as daemon:
        wait_until(lambda: landed(first) and landed(parted, 2))
        admin.create_topic(later)
        feeds.add(later)
        wait_until(lambda: landed(later))
        admin.grow(parted, 3)
        feeds.add(parted, 3)
        wait_until(lambda: landed(parted, 3))
        admin.delete_topic(first)
        daemon.wait_for("topic is gone")
        wait_until(lambda: not exists(admin, first))
        time.sleep(1.0)
        assert not exists(admin, first)  # nobody has made it again by asking for it
        admin.create_topic(first)
        feeds.add(first)
        wait_until(lambda: landed(first))
        daemon.end()
    assert verify(job.path).returncode == 0
    assert_each_once(job.path, feeds.count)
    assert_in_order(job.path)
    # What is added while nobody is there is read from its beginning, whatever start says.
    admin.create_topic(f"{stem}-d")
    feeds.add(f"{stem}-d")
    admin.grow(parted, 4)
    feeds.add(parted, 4)
    job = Job(plain_pulsar.service_url, "", tmp_path / "data", start="latest", source=source, roll=ROLL)
    with Daemon("run", str(job.write(tmp_path)), "--until-end", log=tmp_path / "again.log") as daemon:
        daemon.wait_done()
    assert_each_once(job.path, feeds.count)


def test_topics_of_a_pattern_by_asking(
    plain_pulsar: PulsarBroker, fresh_name: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same without being told, as with older brokers: lists and their hashes."""
    stem, admin = fresh_name("polled"), plain_pulsar.admin

    async def never(*_: Any) -> bool:
        return False

    monkeypatch.setattr(Topics, "_watch", never)

    async def main() -> None:
        feeds = Feeds(plain_pulsar.service_url)

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

    asyncio.run(main())


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
