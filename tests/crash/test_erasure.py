"""An erasure is killed at each of its steps, beside a daemon that lands: other rows stay, each once."""

from collections.abc import Callable

import pytest

from fastwire_daemon.dataset.commitlog.entry import ERASING
from tests.crash.scene import Scene
from tests.real.daemon import Daemon
from tests.support.nursery import Nursery
from tests.support.sequence_audit import assert_each_once, assert_in_order, landed_numbers, numbered

pytestmark = pytest.mark.crash

ERASED = 3


def erased(scene: Scene, nursery: Nursery, *arguments: str, script: dict[str, object] | None = None) -> int:
    where = f"value = '{numbered(ERASED).decode()}'"
    log = scene.folder / "erase.log"
    with Daemon(
        "erase", str(scene.job.path), "--where", where, *arguments, log=log, script=script, nursery=nursery
    ) as command:
        return command.wait()


@pytest.mark.parametrize(
    ("kind", "step"),
    [
        ("static", "erasure-staged"),
        ("failover", "erasure-linked"),
        ("failover", "replaced:0"),
        *(
            pytest.param("failover", step, marks=pytest.mark.soak)
            for step in ("erasure-staged", "erasure-synced", "erased")
        ),
    ],
)
def test_an_erasure_that_is_killed_beside_a_daemon(
    dev_scene: Callable[..., Scene], nursery: Nursery, kind: str, step: str
) -> None:
    scene = dev_scene(kind=kind)
    scene.feed.add(5)
    with scene.run(until_end=False) as daemon:
        daemon.wait_for_rows(scene.feed.count)
        assert erased(scene, nursery, script={"at": step, "do": "kill"}) == -9
        assert landed_numbers(scene.path).keys() >= set(range(scene.feed.count)) - {ERASED}
        assert scene.place.verify().returncode == 0
        scene.feed.add(2)
        daemon.wait_for_rows(scene.feed.count)
        daemon.process.kill()  # what an erasure has left is there at the next start of a writer
        daemon.wait()
    scene.settle()
    assert erased(scene, nursery) == 0
    said = scene.place.verify("--deep")
    assert said.returncode == 0, said.stdout + said.stderr
    assert [file.name for file in (scene.path / ERASING).iterdir() if not file.name.startswith("lock-")] == []
    assert_each_once(scene.path, set(range(scene.feed.count)) - {ERASED})
    if scene.system.ordered(kind):
        assert_in_order(scene.path)
    assert not scene.unacknowledged()
