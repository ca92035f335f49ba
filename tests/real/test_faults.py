"""Real brokers that restart, unload, lose a topic, and connections that are cut or stand still."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.brokers.pulsar import PulsarBroker
from tests.crash.scene import Scene
from tests.crash.system import KAFKA_KINDS, seldom
from tests.real.daemon import ask
from tests.support.waiting import eventually

pytestmark = pytest.mark.broker

# A roll that stays open over everything that a test does to the broker.
OPEN = {"rows": 1_000_000, "age": "60s", "idle": "60s"}


@pytest.fixture
def scene_of(request: pytest.FixtureRequest, fresh_name: Callable[[str], str], tmp_path: Path) -> Callable[..., Scene]:
    """Makes scenes on the broker of the system that has this kind of subscription.

    Their cluster has a name, so that a way through a proxy leads to the same logs.
    """

    def make(stem: str, kind: str, partitions: int = 2, *, guarded: bool = False) -> Scene:
        pulsar = "guarded_pulsar" if guarded else "plain_pulsar"
        broker = request.getfixturevalue("plain_kafka" if kind in KAFKA_KINDS else pulsar)
        source = {"cluster": "real"}
        daemon = {"http": f"unix:{tmp_path / 'http'}", "memory": "64MiB"}
        topic = fresh_name(stem)
        return Scene.on(broker, topic, tmp_path, partitions=partitions, kind=kind, source=source, daemon=daemon)

    return make


def reads_all(scene: Scene) -> bool:
    """Return whether the daemon reads everything that was fed. The guarded Pulsar sends little before acks."""
    if scene.system.scheme == "pulsar":
        return scene.members() == scene.partitions
    status = ask(scene.folder / "http", "/status")
    if not status:
        return False
    pipeline = json.loads(status)["pipelines"]["p"]
    # Where the broker was away for longer than a session of the group, what was read has been committed.
    came: int = pipeline["rows_committed"] + pipeline["roll"]["rows"]
    return came == scene.feed.count


def end(scene: Scene, **judging: Any) -> None:
    """Whatever the run before has left lies with the next one."""
    scene.settle()
    scene.judge(**judging)


@pytest.mark.parametrize("kind", ["failover", "shared"])
def test_topic_unloaded_under_load_with_an_open_roll(
    plain_pulsar: PulsarBroker, fresh_name: Callable[[str], str], tmp_path: Path, kind: str
) -> None:
    topic = fresh_name("unloaded")
    scene = Scene.on(plain_pulsar, topic, tmp_path, partitions=2, kind=kind)
    scene.feed.add(10)
    with scene.run(until_end=False, job={"roll": OPEN}) as daemon:
        eventually(lambda: scene.members() == 2)
        for _ in range(3):
            scene.feed.add(10)
            plain_pulsar.admin.unload(topic)
            scene.feed.add(10)
            eventually(lambda: scene.members() == 2)
        daemon.end()
    end(scene)


@pytest.mark.parametrize("kind", ["failover", "classic"])
def test_broker_restarted_under_load_with_an_open_roll(scene_of: Callable[..., Scene], kind: str) -> None:
    scene = scene_of("restarted", kind, guarded=True)
    scene.feed.add(20)
    with scene.run(until_end=False, job={"roll": OPEN}) as daemon:
        eventually(lambda: reads_all(scene))
        scene.broker.restart(at_once=True)
        scene.feed.add(20)
        eventually(lambda: reads_all(scene))
        scene.feed.add(20)
        daemon.end()
    end(scene)
    if isinstance(scene.broker, PulsarBroker):
        # It would revalidate the locks of the killed one without end, on most of a core: the next test has a new one.
        scene.broker.stop(at_once=True)


@pytest.mark.parametrize("kind", ["failover", "classic", *seldom("none")])
def test_topic_deleted_and_made_again(scene_of: Callable[..., Scene], kind: str) -> None:
    """Pulsar's ledger ids are higher then, so it simply goes on; Kafka's topic is another log, from its beginning."""
    scene = scene_of("again", kind)
    scene.feed.add(10)
    scene.settle()
    scene.delete_topic()
    scene.create_topic()
    scene.feed.add(10)
    end(scene, ordered=kind == "failover")


@pytest.mark.parametrize("kind", ["failover", "classic"])
def test_topic_deleted_and_made_again_under_a_running_daemon(scene_of: Callable[..., Scene], kind: str) -> None:
    scene = scene_of("vanishes", kind, partitions=0)
    scene.feed.add(10)
    with scene.run(until_end=False) as daemon:
        daemon.wait_for_rows(scene.feed.count)
        scene.wait_until_acknowledged()
        scene.delete_topic()
        scene.create_topic()
        scene.feed.add(10)
        # It may go on, or say that the topic is gone for good; either way nothing is lost or doubled.
        eventually(lambda: daemon.process.poll() is not None or daemon.committed() >= scene.feed.count)
        daemon.process.terminate()
        assert daemon.wait() in (0, 1), daemon.tail()
    end(scene, ordered=kind == "failover")


@pytest.mark.parametrize("kind", ["failover", "shared", "classic"])
def test_connection_cut_in_the_middle_of_a_frame(scene_of: Callable[..., Scene], kind: str) -> None:
    scene = scene_of("cut", kind)
    scene.feed.size = 2_000
    scene.feed.add(30)
    with scene.broker.proxy() as proxy:
        with scene.run(until_end=False, job={"url": proxy.url}) as daemon:
            for after in (3, 11, 5):
                cuts = proxy.cuts
                proxy.cut_in_frame(after)
                # An answer of Kafka has whatever there is.
                while proxy.cuts == cuts:
                    scene.feed.add(5)
            scene.wait_until_acknowledged()
            daemon.end()
    end(scene)


@pytest.mark.parametrize("kind", ["failover", "classic"])
def test_slow_sink_keeps_its_connection(scene_of: Callable[..., Scene], kind: str) -> None:
    """The disk stands still for three keep-alive intervals, or longer than a session of a group."""
    scene = scene_of("slow", kind, partitions=1, guarded=True)
    if kind == "classic":
        scene.job.source["session_timeout"] = "12s"
    scene.feed.add(40)
    with scene.broker.proxy() as proxy:
        script = {"at": "files-finished", "nth": 2, "do": "sleep", "seconds": 16}
        with scene.run(script=script, job={"url": proxy.url}) as daemon:
            eventually(lambda: scene.members() == 1)
            daemon.wait_for("first positions")
            connections = proxy.connections
            daemon.wait_done()
            if kind == "failover":
                assert proxy.connections == connections
            said = daemon.output
            assert "connection lost" not in said and "this member was removed from the group" not in said, daemon.tail()
    end(scene)


@pytest.mark.parametrize("kind", ["failover", "classic"])
def test_peer_that_falls_silent_is_left_and_found_again(scene_of: Callable[..., Scene], kind: str) -> None:
    """No connection is closed, no byte arrives: the broker gives up first, then everything comes again."""
    scene = scene_of("silent", kind, partitions=1, guarded=True)
    with scene.broker.proxy() as proxy:
        scene.feed.add(10)
        with scene.run(until_end=False, job={"url": proxy.url, "roll": OPEN}) as daemon:
            eventually(lambda: proxy.frames > 0)
            eventually(lambda: scene.members() == 1)
            proxy.stall()
            scene.feed.add(10)
            eventually(lambda: not scene.members())
            proxy.resume()
            eventually(lambda: scene.members() == 1)
            scene.feed.add(1)
            daemon.end()
    end(scene)
