"""SIGKILL at every step of a commit and at random instants, while readers watch the folder."""

import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fastwire_daemon.dataset.steps import STEPS
from tests.crash.readers import Watch
from tests.crash.scene import Scene
from tests.crash.system import seldom

pytestmark = pytest.mark.crash

KILLED = -9
# Reached in every commit; the rest once a start, or now and then.
OF_A_COMMIT = STEPS[STEPS.index("files-finished") : STEPS.index("committed") + 1]
EVERY_STEP = [(step, 1) for step in STEPS]
# With several files a commit, and several commits a run.
LATER = [("published:1", 1), ("published:1", 2), ("files-synced", 2), ("entry-linked", 2), ("committed", 2)]
CHECKPOINT_EVERY = 3


def kill_at(
    scene: Scene,
    plan: list[tuple[str, int]],
    entries: int = 6,
    between: Callable[[], object] = lambda: None,
    **job: Any,
) -> Counter[str]:
    """One run for each step of the plan, with ``between`` before each; how often a run was killed at which."""
    killed: Counter[str] = Counter()
    for step, nth in plan:
        between()
        scene.feed.add(entries)
        script = {"at": step, "nth": nth, "do": "kill", "checkpoint_every": CHECKPOINT_EVERY}
        with scene.run(script=script, job=job) as daemon:
            code = daemon.wait()
        assert code in (0, KILLED), f"killed at {step}, it ended with {code}:\n{daemon.tail()}"
        killed[step] += code == KILLED
    return killed


def kill_at_random(scene: Scene, times: int, seed: int) -> int:
    """Runs that do not end by themselves, killed somewhere; how many were."""
    dice = random.Random(seed)
    killed = 0
    for _ in range(times):
        scene.feed.add(12)
        script = {"checkpoint_every": CHECKPOINT_EVERY}
        with scene.run(script=script, until_end=False) as daemon:
            # Some kills hit the start (reading the log, fencing), most the work, some what follows it.
            time.sleep(dice.uniform(0.02, 0.8))
            daemon.process.kill()
            killed += daemon.wait() == KILLED
    return killed


@pytest.mark.parametrize("kind", ["failover", "shared", "static", "tank", "tubemq", *seldom("none", "consumer")])
def test_killed_at_every_step(dev_scene: Callable[..., Scene], kind: str, tmp_path: Path) -> None:
    scene = dev_scene(kind=kind, sink={"writers": 2})
    with Watch(scene.place, tmp_path / "seen.json") as watch:
        killed = kill_at(scene, EVERY_STEP)
        watch.wait_for_rounds(2)
        # A chunk holds 500 of these, a roll two chunks: one for each encoder.
        scene.feed.size = 8_000
        later = kill_at(scene, LATER, entries=20, roll={"rows": 700, "idle": "5s"})
        for _ in range(5):  # a chunk that a busy machine passes on early joins the next one, and both are one file
            missing = [(step, nth) for step, nth in LATER if not later[step]]
            later.update(kill_at(scene, missing, entries=20, roll={"rows": 700, "idle": "5s"}))
        scene.settle()
        wrong = watch.finish()
    assert wrong == []
    assert [step for step in STEPS if not killed[step]] == []
    assert [step for step, _ in LATER if not later[step]] == []
    scene.judge()


# Those of TANK and TubeMQ are among the accidents of test_campaign.py.
@pytest.mark.parametrize("kind", ["failover", *seldom("tank", "tubemq", "static", "consumer")])
def test_killed_at_random(dev_scene: Callable[..., Scene], kind: str, tmp_path: Path) -> None:
    scene = dev_scene(kind=kind, partitions=3)
    scene.feed.interleaves = True
    with Watch(scene.place, tmp_path / "seen.json") as watch:
        killed = kill_at_random(scene, 40, seed=1)
        scene.settle()
        wrong = watch.finish()
    assert wrong == []
    assert killed == 40
    scene.judge()


@pytest.mark.parametrize("kind", ["exclusive", *seldom("failover", "shared")])
def test_killed_while_chunked_messages_interleave(dev_scene: Callable[..., Scene], kind: str) -> None:
    scene = dev_scene(kind=kind)
    scene.feed.interleaves = True
    for run in range(6):
        scene.feed.add(4)
        # The first commit of the first run is that of the first positions.
        script = {"at": "committed", "nth": 1 if run else 2, "do": "kill", "checkpoint_every": CHECKPOINT_EVERY}
        with scene.run(script=script, until_end=False) as daemon:
            assert daemon.wait() == KILLED, daemon.tail()
    scene.settle()
    scene.judge()


def die_unacknowledged(scene: Scene) -> None:
    """Land everything and die before the broker hears of it, then run again with nothing new to land."""
    scene.feed.add(10)
    # The first commit is that of the first positions.
    script = {"at": "committed", "nth": 2, "do": "kill"}
    with scene.run(script=script, job={"roll": {"rows": 100_000, "idle": "200ms"}}) as daemon:
        assert daemon.wait() == KILLED, daemon.tail()
    assert scene.unacknowledged()
    scene.settle()
    scene.judge()


# The others are those of the test on a real broker below.
@pytest.mark.parametrize("kind", ["tubemq", *seldom("consumer")])
def test_what_has_landed_is_acknowledged_by_the_next_run(dev_scene: Callable[..., Scene], kind: str) -> None:
    die_unacknowledged(dev_scene(kind=kind))


@pytest.mark.broker
@pytest.mark.parametrize("kind", ["exclusive", "failover", "shared", "key_shared", "none", "static"])
def test_what_has_landed_is_acknowledged_to_a_real_broker(real_scene: Callable[..., Scene], kind: str) -> None:
    die_unacknowledged(real_scene(kind=kind))


@pytest.mark.broker
@pytest.mark.parametrize("kind", ["failover", "key_shared", "static", *seldom("none", "consumer")])
def test_killed_on_a_real_broker(real_scene: Callable[..., Scene], kind: str, tmp_path: Path) -> None:
    scene = real_scene(kind=kind)
    with Watch(scene.place, tmp_path / "seen.json") as watch:
        steps = EVERY_STEP if kind == "failover" else [(step, 1) for step in OF_A_COMMIT]
        killed = kill_at(scene, steps).total() + kill_at_random(scene, 5, seed=2)
        scene.settle()
        wrong = watch.finish()
    assert wrong == []
    assert killed >= len(steps)
    scene.judge()
