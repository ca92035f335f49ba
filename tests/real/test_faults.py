"""A real broker that restarts, unloads, loses a topic, and connections that are cut or stand still."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.brokers.pulsar import PulsarBroker
from tests.crash.feed import PulsarFeed
from tests.crash.scene import Scene
from tests.crash.system import PulsarSystem
from tests.proxy import Proxy

pytestmark = pytest.mark.broker

# A roll that stays open over everything that a test does to the broker.
OPEN = {"rows": 1_000_000, "age": "60s", "idle": "60s"}


def wait_until(what: Callable[[], bool], limit: float = 60.0) -> None:
    """Until it is so."""
    deadline = time.monotonic() + limit
    while not what():
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.05)


def end(daemon_scene: Scene) -> None:
    """Whatever the run before has left lies with the next one."""
    daemon_scene.settle()
    daemon_scene.judge()


@pytest.mark.parametrize("kind", ["failover", "shared"])
def test_topic_unloaded_under_load_with_an_open_roll(
    plain_pulsar: PulsarBroker, fresh_name: Callable[[str], str], tmp_path: Path, kind: str
) -> None:
    topic = fresh_name("unloaded")
    scene = Scene.on(plain_pulsar, topic, tmp_path, partitions=2, kind=kind)
    scene.feed.add(10)
    with scene.run(until_end=False, job={"roll": OPEN}) as daemon:
        wait_until(lambda: len(plain_pulsar.admin.consumers(topic, "landing", 2)) == 2)
        for _ in range(3):
            scene.feed.add(10)
            plain_pulsar.admin.unload(topic)
            scene.feed.add(10)
            wait_until(lambda: len(plain_pulsar.admin.consumers(topic, "landing", 2)) == 2)
        daemon.process.terminate()
        daemon.wait_done()
    end(scene)


def test_broker_restarted_under_load_with_an_open_roll(
    guarded_pulsar: PulsarBroker, fresh_name: Callable[[str], str], tmp_path: Path
) -> None:
    topic = fresh_name("restarted")
    scene = Scene.on(guarded_pulsar, topic, tmp_path, partitions=2)
    scene.feed.add(20)
    with scene.run(until_end=False, job={"roll": OPEN}) as daemon:
        wait_until(lambda: len(guarded_pulsar.admin.consumers(topic, "landing", 2)) == 2)
        guarded_pulsar.restart(at_once=True)
        scene.feed.add(20)
        wait_until(lambda: len(guarded_pulsar.admin.consumers(topic, "landing", 2)) == 2)
        scene.feed.add(20)
        daemon.process.terminate()
        daemon.wait_done()
    end(scene)


def test_topic_deleted_and_made_again(
    plain_pulsar: PulsarBroker, fresh_name: Callable[[str], str], tmp_path: Path
) -> None:
    """Ledger ids of the new topic are higher, so it simply goes on."""
    topic = fresh_name("again")
    scene = Scene.on(plain_pulsar, topic, tmp_path, partitions=2)
    scene.feed.add(10)
    scene.settle()
    plain_pulsar.admin.delete_topic(topic, 2)
    plain_pulsar.admin.create_topic(topic, 2)
    scene.feed.add(10)
    end(scene)


def test_topic_deleted_and_made_again_under_a_running_daemon(
    plain_pulsar: PulsarBroker, fresh_name: Callable[[str], str], tmp_path: Path
) -> None:
    topic = fresh_name("vanishes")
    scene = Scene.on(plain_pulsar, topic, tmp_path)
    scene.feed.add(10)
    with scene.run(until_end=False) as daemon:
        wait_until(lambda: plain_pulsar.admin.backlog(topic, "landing") == 0 and scene.path.exists())
        plain_pulsar.admin.delete_topic(topic)
        time.sleep(1)
        plain_pulsar.admin.create_topic(topic)
        scene.feed.add(10)
        # It may go on, or say that the topic is gone for good; either way nothing is lost or doubled.
        time.sleep(3)
        daemon.process.terminate()
        assert daemon.wait() in (0, 1), daemon.tail()
    end(scene)


@pytest.mark.parametrize("kind", ["failover", "shared"])
def test_connection_cut_in_the_middle_of_a_frame(
    plain_pulsar: PulsarBroker, fresh_name: Callable[[str], str], tmp_path: Path, kind: str
) -> None:
    topic = fresh_name("cut")
    plain_pulsar.admin.create_topic(topic, 2)
    with Proxy(plain_pulsar.port) as proxy:
        scene = Scene(PulsarSystem(proxy.url), topic, tmp_path, partitions=2, kind=kind)
        scene.feed = PulsarFeed(plain_pulsar.service_url, topic, 2, size=2_000)
        scene.feed.add(30)
        with scene.run(until_end=False) as daemon:
            for after in (3, 11, 29):
                cuts = proxy.cuts
                proxy.cut_in_frame(after)
                scene.feed.add(25)
                wait_until(lambda cuts=cuts: proxy.cuts > cuts)  # type: ignore[misc]
            wait_until(lambda: plain_pulsar.admin.backlog(topic, "landing", 2) == 0)
            daemon.process.terminate()
            daemon.wait_done()
        end(scene)


def test_slow_sink_keeps_its_connection(
    guarded_pulsar: PulsarBroker, fresh_name: Callable[[str], str], tmp_path: Path
) -> None:
    """The disk stands still for three keep-alive intervals; two minutes are four at a broker's defaults."""
    topic = fresh_name("slow")
    scene = Scene.on(guarded_pulsar, topic, tmp_path, partitions=1)
    scene.feed.add(40)
    with Proxy(guarded_pulsar.port) as proxy:
        script = {"at": "files-finished", "nth": 2, "do": "sleep", "seconds": 16}
        job = {"url": proxy.url, "source": {**scene.job.source, "cluster": "guarded"}, "daemon": {"memory": "64MiB"}}
        scene.job.source["cluster"] = "guarded"
        with scene.run(script=script, job=job) as daemon:
            wait_until(lambda: bool(guarded_pulsar.admin.consumers(topic, "landing", 1)))
            connections = proxy.connections
            daemon.wait_done()
            assert proxy.connections == connections
    end(scene)


def test_peer_that_falls_silent_is_left_and_found_again(
    guarded_pulsar: PulsarBroker, fresh_name: Callable[[str], str], tmp_path: Path
) -> None:
    """Nothing is closed, nothing arrives any more: the broker gives up first, then everything comes again."""
    topic = fresh_name("silent")
    scene = Scene.on(guarded_pulsar, topic, tmp_path, partitions=1)
    scene.job.source["cluster"] = "guarded"
    with Proxy(guarded_pulsar.port) as proxy:
        job = {"url": proxy.url, "source": scene.job.source, "roll": OPEN}
        scene.feed.add(10)
        with scene.run(until_end=False, job=job) as daemon:
            wait_until(lambda: proxy.frames > 0)
            proxy.stall()
            scene.feed.add(10)
            wait_until(lambda: not guarded_pulsar.admin.consumers(topic, "landing", 1))
            proxy.resume()
            wait_until(lambda: bool(guarded_pulsar.admin.consumers(topic, "landing", 1)))
            daemon.process.terminate()
            daemon.wait_done()
    end(scene)
