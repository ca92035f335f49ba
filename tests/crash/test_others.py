"""Two daemons on one dataset, a clock that jumps, and a first start that never got to its first commit."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.crash.preload import Clock
from tests.crash.readers import Watch
from tests.crash.scene import Scene
from tests.crash.system import seldom
from tests.real.daemon import verify
from tests.support.nursery import Nursery
from tests.support.sequence_audit import landed_numbers

pytestmark = pytest.mark.crash

DAY = 86_400


# The campaigns have two daemons of the others, with accidents.
@pytest.mark.parametrize("kind", ["failover", "key_shared", *seldom("none", "classic")])
def test_two_daemons_with_one_subscription(dev_scene: Callable[..., Scene], kind: str, tmp_path: Path) -> None:
    scene = dev_scene(kind=kind, partitions=4)
    scene.feed.add(10)
    with Watch(scene.place, tmp_path / "seen.json") as watch:
        with scene.run(until_end=False) as first, scene.run(until_end=False) as second:
            for _ in range(8):
                time.sleep(0.3)
                scene.feed.add(6)
            scene.wait_until_acknowledged()
            first.end()
            scene.feed.add(6)
            scene.wait_until_acknowledged()
            second.end()
        wrong = watch.finish()
    assert wrong == []
    scene.judge(ordered=False)


@pytest.mark.parametrize("kind", ["failover", "none", "tubemq", *seldom("static")])
def test_two_daemons_with_a_subscription_each(dev_scene: Callable[..., Scene], kind: str, tmp_path: Path) -> None:
    """Both are given everything; what one has landed the other cuts and acknowledges."""
    scene = dev_scene(kind=kind)
    other: dict[str, Any] = {"subscription": "another"}
    with Watch(scene.place, tmp_path / "seen.json") as watch:
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


# The others are those of the test on a real broker below.
@pytest.mark.parametrize("kind", ["static", *seldom("none")])
def test_new_subscription_of_what_has_landed(dev_scene: Callable[..., Scene], kind: str) -> None:
    land_then_follow(dev_scene(kind=kind))


@pytest.mark.broker
@pytest.mark.parametrize("kind", ["exclusive", "failover", "shared", "key_shared", *seldom("static")])
def test_new_subscription_of_what_has_landed_on_a_real_broker(real_scene: Callable[..., Scene], kind: str) -> None:
    scene = real_scene(kind=kind)
    scene.system.subscribe(scene.job.topic, "another")
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
        daemon.end()
    scene.judge()
    # Folders come from the records' time, whatever the clock says.
    assert len(list(scene.path.glob("dt=*"))) <= 2


def die_at_latest(scene: Scene, step: str) -> None:
    """Kill the first start at ``step``, feed, go on twice; nothing that was promised may be missing."""
    scene.feed.add(5)
    before = scene.feed.count
    with scene.run(script={"at": step, "do": "kill"}) as daemon:
        assert daemon.wait() == -9, daemon.tail()
    # Linked is committed: from then on the first position is known, and everything behind it lands.
    known = (scene.path / "_fastwire/log/000000000/000000000001.json").exists()
    scene.feed.add(5)
    between = scene.feed.count
    scene.settle()
    scene.feed.add(5)
    scene.settle()
    said = verify(scene.path)
    assert said.returncode == 0, said.stdout + said.stderr
    landed = landed_numbers(scene.path)
    assert sorted(landed) == list(range(before if known or before in landed else between, scene.feed.count))


STEPS = ["staging-made", "dataset-created", "log-read", "files-finished", "entry-linked", "log-synced", "committed"]


@pytest.mark.parametrize(
    ("kind", "step"),
    [
        *(("failover", step) for step in STEPS),
        *((kind, step) for kind in ("static", "tank") for step in ("dataset-created", "entry-linked")),
        *(pytest.param("none", step, marks=pytest.mark.soak) for step in STEPS),
    ],
)
def test_start_at_latest_killed_before_the_first_commit(dev_scene: Callable[..., Scene], kind: str, step: str) -> None:
    die_at_latest(dev_scene(kind=kind, start="latest", partitions=0), step)


@pytest.mark.broker
@pytest.mark.parametrize(
    ("kind", "step"), [("failover", "dataset-created"), ("failover", "entry-linked"), ("static", "dataset-created")]
)
def test_start_at_latest_on_a_real_broker(real_scene: Callable[..., Scene], kind: str, step: str) -> None:
    die_at_latest(real_scene(kind=kind, start="latest", partitions=0), step)
