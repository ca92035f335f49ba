"""Two daemons on one dataset, a clock that jumps, and a first start that never got to its first commit."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fastwire_daemon.devbroker.pulsar.broker import PulsarDevBroker
from tests.audit import assert_each_once
from tests.brokers.pulsar import PulsarBroker
from tests.crash.feed import Feed
from tests.crash.nursery import Nursery
from tests.crash.preload import Clock
from tests.crash.readers import Watch
from tests.crash.scene import ROLL, Scene
from tests.real.daemon import Daemon, Job, verify

pytestmark = pytest.mark.crash

DAY = 86_400


@pytest.mark.parametrize("kind", ["failover", "shared", "key_shared"])
def test_two_daemons_with_one_subscription(dev_scene: Callable[..., Scene], kind: str, tmp_path: Path) -> None:
    scene = dev_scene(kind=kind, partitions=4)
    scene.feed.add(10)
    with Watch(scene.path, tmp_path / "seen.json") as watch:
        with scene.run(until_end=False) as first, scene.run(until_end=False) as second:
            for _ in range(8):
                time.sleep(0.3)
                scene.feed.add(6)
            scene.wait_until_acknowledged()
            first.process.terminate()
            first.wait_done()
            scene.feed.add(6)
            scene.wait_until_acknowledged()
            second.process.terminate()
            second.wait_done()
        wrong = watch.finish()
    assert wrong == []
    scene.judge(ordered=False)


def test_two_daemons_with_a_subscription_each(dev_scene: Callable[..., Scene], tmp_path: Path) -> None:
    """Both are given everything; what one has landed the other cuts and acknowledges."""
    scene = dev_scene()
    other: dict[str, Any] = {"subscription": "another"}
    with Watch(scene.path, tmp_path / "seen.json") as watch:
        for _ in range(3):
            scene.feed.add(15)
            with scene.run() as first, scene.run(job=other) as second:
                first.wait_done()
                second.wait_done()
        scene.settle()
        with scene.run(job=other) as second:
            second.wait_done()
        wrong = watch.finish()
    assert wrong == []
    scene.judge(ordered=False)
    scene.job = replace(scene.job, **other)
    assert not scene.unacknowledged()


def test_wall_clock_that_jumps(dev_scene: Callable[..., Scene], tmp_path: Path, tampered_nursery: Nursery) -> None:
    scene = dev_scene(partitions=2, sink={"partition_by": "day"})
    clock = Clock(tmp_path)
    scene.feed.add(10)
    with scene.run(until_end=False, env=clock.env, nursery=tampered_nursery) as daemon:
        for ahead in (DAY, -400 * DAY, 30 * 365 * DAY, 0):
            clock.set_ahead(ahead)
            scene.feed.add(10)
            scene.wait_until_acknowledged()
        daemon.process.terminate()
        daemon.wait_done()
    scene.judge()
    # Folders come from the records' time, whatever the clock says.
    assert len(list(scene.path.glob("dt=*"))) <= 2


@pytest.mark.parametrize(
    "step", ["staging-made", "dataset-created", "log-read", "files-finished", "entry-linked", "log-synced", "committed"]
)
def test_start_at_latest_killed_before_the_first_commit(
    dev_broker: PulsarDevBroker, tmp_path: Path, nursery: Nursery, step: str
) -> None:
    """What is produced once "latest" has been resolved lands, also when the daemon was killed before it committed that.

    Before the cursor was moved nothing is resolved: then the next start decides what is the latest.
    """
    topic = "persistent://public/default/latest"
    dev_broker.create_topic(topic)
    feed = Feed(dev_broker.url, topic)
    feed.add(5)
    before = feed.count
    path = tmp_path / "data"
    job = Job(dev_broker.url, topic, path, start="latest", roll=ROLL)
    config = str(job.write(tmp_path))
    script = {"at": step, "do": "kill"}
    with Daemon("run", config, "--until-end", log=tmp_path / "first.log", script=script, nursery=nursery) as daemon:
        assert daemon.wait() in (0, -9), daemon.tail()
    if step in ("staging-made", "dataset-created", "log-read"):
        with Daemon("run", config, "--until-end", log=tmp_path / "second.log", nursery=nursery) as daemon:
            daemon.wait_done()
    feed.add(5)
    with Daemon("run", config, "--until-end", log=tmp_path / "third.log", nursery=nursery) as daemon:
        daemon.wait_done()
    said = verify(path)
    assert said.returncode == 0, said.stdout + said.stderr
    assert_each_once(path, range(before, feed.count))


@pytest.mark.broker
def test_start_at_latest_on_a_real_broker(
    plain_pulsar: PulsarBroker, fresh_name: Callable[[str], str], tmp_path: Path
) -> None:
    topic = fresh_name("latest")
    plain_pulsar.admin.create_topic(topic, 2)
    feed = Feed(plain_pulsar.service_url, topic, 2)
    feed.add(5)
    before = feed.count
    path = tmp_path / "data"
    config = str(Job(plain_pulsar.service_url, topic, path, start="latest", roll=ROLL).write(tmp_path))
    with Daemon("run", config, log=tmp_path / "first.log", script={"at": "committed", "do": "kill"}) as daemon:
        daemon.wait()
    feed.add(5)
    with Daemon("run", config, "--until-end", log=tmp_path / "second.log") as daemon:
        daemon.wait_done()
    assert verify(path).returncode == 0
    assert_each_once(path, range(before, feed.count))
