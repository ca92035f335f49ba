"""Two daemons on one dataset, a clock that jumps, and a first start that never got to its first commit."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fastwire_daemon.devbroker.pulsar.broker import PulsarDevBroker
from tests.audit import landed_numbers
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


def land_then_follow(scene: Scene) -> None:
    """All has landed by one subscription; another one, at the beginning, only has it to acknowledge."""
    scene.feed.add(15)
    scene.settle()
    scene.job = replace(scene.job, subscription="another")
    scene.settle()
    scene.judge()


@pytest.mark.parametrize("kind", ["exclusive", "failover", "shared", "key_shared"])
def test_new_subscription_of_what_has_landed(dev_scene: Callable[..., Scene], kind: str) -> None:
    land_then_follow(dev_scene(kind=kind))


@pytest.mark.broker
@pytest.mark.parametrize("kind", ["exclusive", "failover", "shared", "key_shared"])
def test_new_subscription_of_what_has_landed_on_a_real_broker(
    plain_pulsar: PulsarBroker, fresh_name: Callable[[str], str], tmp_path: Path, nursery: Nursery, kind: str
) -> None:
    topic = fresh_name("followed")
    scene = Scene.on(plain_pulsar, topic, tmp_path, partitions=2, kind=kind, nursery=nursery)
    plain_pulsar.admin.create_subscription(topic, "another")
    land_then_follow(scene)


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


class Latest:
    """A topic that holds records already when the first start, at ``latest``, is killed at a step."""

    def __init__(self, url: str, topic: str, folder: Path, nursery: Nursery) -> None:
        self.feed = Feed(url, topic)
        self.path = folder / "data"
        self._folder = folder
        self._nursery = nursery
        self._config = str(Job(url, topic, self.path, start="latest", roll=ROLL).write(folder))

    def run(self, script: dict[str, Any] | None = None) -> int:
        """One run to the end; the exit code."""
        log = self._folder / "run.log"
        with Daemon("run", self._config, "--until-end", log=log, script=script, nursery=self._nursery) as daemon:
            code = daemon.wait()
            assert code in (0, -9), daemon.tail()
            return code

    def judge(self, step: str) -> None:
        """Kill the first start at ``step``, feed, go on twice; nothing that was promised may be missing."""
        self.feed.add(5)
        before = self.feed.count
        assert self.run({"at": step, "do": "kill"}) == -9
        # Linked is committed: from then on the first position is known, and everything behind it lands.
        known = (self.path / "_fastwire/log/000000000/000000000001.json").exists()
        self.feed.add(5)
        between = self.feed.count
        assert self.run() == 0
        self.feed.add(5)
        assert self.run() == 0
        said = verify(self.path)
        assert said.returncode == 0, said.stdout + said.stderr
        landed = landed_numbers(self.path)
        assert sorted(landed) == list(range(before if known or before in landed else between, self.feed.count))


@pytest.mark.parametrize(
    "step", ["staging-made", "dataset-created", "log-read", "files-finished", "entry-linked", "log-synced", "committed"]
)
def test_start_at_latest_killed_before_the_first_commit(
    dev_broker: PulsarDevBroker, tmp_path: Path, nursery: Nursery, step: str
) -> None:
    topic = "persistent://public/default/latest"
    dev_broker.create_topic(topic)
    Latest(dev_broker.url, topic, tmp_path, nursery).judge(step)


@pytest.mark.broker
@pytest.mark.parametrize("step", ["dataset-created", "entry-linked"])
def test_start_at_latest_on_a_real_broker(
    plain_pulsar: PulsarBroker, fresh_name: Callable[[str], str], tmp_path: Path, nursery: Nursery, step: str
) -> None:
    topic = fresh_name("latest")
    plain_pulsar.admin.create_topic(topic)
    Latest(plain_pulsar.service_url, topic, tmp_path, nursery).judge(step)
