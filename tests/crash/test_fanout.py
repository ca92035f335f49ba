"""A pipeline with a dataset for each topic, killed while many datasets are open and one of them refuses."""

import random
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from fastwire_daemon.dataset.steps import STEPS
from tests.crash.system import KAFKA_KINDS
from tests.real.daemon import Daemon
from tests.support.fanout_scene import FanOutScene, values_in
from tests.support.nursery import Nursery
from tests.support.soaklength import KILLS

pytestmark = pytest.mark.crash

KILLED = -9
FIXTURES = {"kafka": "dev_kafka", "pulsar": "dev_broker", "tank": "dev_tank", "tubemq": "dev_tubemq"}
# A name spares the next run the wait for the session of the one that was killed.
SOURCES: dict[str, dict[str, Any]] = {"kafka": KAFKA_KINDS["static"], "tubemq": {"heartbeat": "50ms"}}
TOPICS = tuple(f"topic_{number:02}" for number in range(8))
BAD = "topic_03"
# The first writer that gets there, and one in the midst of the others.
EVERY_STEP = [(step, nth) for step in STEPS for nth in (1, 5)]
OF_A_COMMIT = [(step, 5) for step in ("staging-made", "files-synced", "entry-linked", "published:0", "committed")]


class Runs:
    """Runs of the daemon on one configuration: of ``topics``, or of all of the broker by a pattern."""

    def __init__(self, scene: FanOutScene, folder: Path, nursery: Nursery) -> None:
        self.scene = scene
        self.topics: tuple[str, ...] = TOPICS
        self.source = {"cluster": "scene", **SOURCES.get(scene.system, {})}
        self._folder = folder
        self._nursery = nursery
        self._count = 0

    def run(self, *arguments: str, script: dict[str, Any] | None = None) -> Daemon:
        text = self.scene.text(*self.topics, sink={"roll": {"rows": 100, "idle": "100ms"}}, **self.source)
        self._count += 1
        config = self._folder / f"run-{self._count:03}.toml"
        config.write_text(f'[daemon]\nhttp = ""\n{text}')
        log = self._folder / f"run-{self._count:03}.log"
        return Daemon("run", str(config), *arguments, log=log, script=script, nursery=self._nursery)

    def judge(self) -> None:
        """Land the rest of all topics, and assert that each dataset is sound and has each record of its topic once."""
        with self.run("--until-end") as daemon:
            daemon.wait_done()
        self.scene.assert_whole()


@pytest.fixture
def runs(request: pytest.FixtureRequest, tmp_path: Path, nursery: Nursery) -> Callable[[str], Runs]:
    """Makes runs over the topics of an embedded broker of a system."""

    def make(system: str) -> Runs:
        scene = FanOutScene(system, request.getfixturevalue(FIXTURES[system]), tmp_path / "lake")
        scene.root.mkdir()
        scene.create(*TOPICS)
        return Runs(scene, tmp_path, nursery)

    return make


def feed(scene: FanOutScene, count: int = 30, topics: Iterable[str] = ()) -> None:
    for topic in topics or scene.produced:
        scene.produce(topic, count)
        scene.produce(topic, count // 2, partition=1)


def with_a_foreign_dataset(on: Runs) -> None:
    """Make the datasets of two topics, and that of a third with the name of another cluster."""
    root, source = on.scene.root, on.source
    own = {} if on.scene.system == "tank" else {"subscription": "other"}
    on.scene.root = root.with_name("elsewhere")
    on.topics, on.source = (BAD,), {**source, **own, "cluster": "elsewhere"}
    for _ in range(2):
        with on.run("--until-end") as daemon:
            daemon.wait_done()
        on.scene.root, on.topics, on.source = root, TOPICS[:2], source
    folder = on.scene.folder(BAD)
    (root.with_name("elsewhere") / folder).rename(root / folder)
    on.topics = TOPICS


@pytest.mark.parametrize(
    ("system", "plan"),
    [("kafka", EVERY_STEP), ("pulsar", OF_A_COMMIT), ("tank", OF_A_COMMIT), ("tubemq", OF_A_COMMIT)],
    ids=["kafka", "pulsar", "tank", "tubemq"],
)
def test_killed_at_every_step_with_many_datasets(
    runs: Callable[[str], Runs], system: str, plan: list[tuple[str, int]]
) -> None:
    """The dataset of one topic is of another cluster, so that it is refused all the while."""
    on = runs(system)
    scene = on.scene
    bad = scene.root / scene.folder(BAD)
    with_a_foreign_dataset(on)
    killed: Counter[str] = Counter()
    for step, nth in plan:
        feed(scene)
        script = {"at": step, "nth": nth, "do": "kill", "checkpoint_every": 2}
        with on.run("--until-end", script=script) as daemon:
            code = daemon.wait()
        assert code, f"no dataset was refused:\n{daemon.tail()}"
        assert code == KILLED or "elsewhere" in daemon.tail(1), (
            f"killed at {step}, it ended with {code}:\n{daemon.tail()}"
        )
        killed[step] += code == KILLED
    assert [step for step, _ in plan if not killed[step]] == []
    assert not values_in(bad)
    shutil.rmtree(bad)
    on.judge()


@pytest.mark.parametrize(("kills", "topics"), [(6, 12), pytest.param(KILLS, 60, marks=pytest.mark.soak)])
def test_two_daemons_are_killed_while_topics_come_and_go(runs: Callable[[str], Runs], kills: int, topics: int) -> None:
    """Both share one group, and datasets change hands with their partitions. Topics that were deleted come again."""
    on = runs("kafka")
    scene = on.scene
    on.topics = ()
    on.source |= {**KAFKA_KINDS["consumer"], "metadata_max_age": "200ms"}
    del on.source["group_instance_id"]
    dice = random.Random(5)
    there, gone = list(scene.produced), list[str]()
    daemons = [on.run(), on.run()]
    try:
        for kill in range(kills):
            if kill % 3 == 2:
                gone.append(there.pop(dice.randrange(len(there))))
                scene.delete(gone[-1])
            if len(gone) > 1:
                there.append(gone.pop(0))
                scene.create(there[-1], partitions=3)
            for number in range(len(scene.produced), min(topics, len(scene.produced) + 1 + 4 * topics // kills)):
                there.append(f"topic_{number:02}")
                scene.create(there[-1])
            feed(scene, 10, there)
            time.sleep(dice.uniform(0.05, 0.8))
            victim = dice.randrange(2)
            daemons[victim].process.kill()
            assert daemons[victim].wait() == KILLED, f"kill {kill}: it had ended:\n{daemons[victim].tail()}"
            daemons[victim] = on.run()
    finally:
        for daemon in daemons:
            daemon.process.kill()
            daemon.process.wait()
    on.judge()
