"""A writer that is stopped at a step, a second one that takes over, and the first one that wakes up again."""

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from fastwire_daemon.dataset.steps import STEPS
from tests.crash.readers import Watch
from tests.crash.scene import Scene

pytestmark = pytest.mark.crash


# A dead writer has to be found, or an entry that nobody has published.
AFTER_A_DEATH = {"fence-linked", "fence-synced", "staging-cleared", "entry-trusted", "entry-published", "republished:0"}
# The dataset is created once.
ORDER = sorted(STEPS, key=lambda step: step != "dataset-created")
# The steps are those of the dataset, whatever the source is: around these, a source begins, and what it has is landed.
SOME = ["dataset-created", "files-synced", "entry-linked", "committed"]


def stop_at(scene: Scene, steps: list[str], report: Path, meanwhile: Callable[[], object] = lambda: None) -> list[str]:
    """Stop a run at each of ``steps`` while another lands, and let it go on; return where one was stopped.

    ``meanwhile`` is called after a run was killed, and while one is stopped.
    """
    stopped = []
    with Watch(scene.place, report) as watch, scene.system.proxy() as proxy:
        for step in steps:
            scene.feed.add(5)
            if step in AFTER_A_DEATH:
                with scene.run(script={"at": "log-synced", "do": "kill"}) as dead:
                    dead.wait()
                meanwhile()
            every = 1 if step.startswith("checkpoint") else 3
            script = {"at": step, "do": "stop", "checkpoint_every": every}
            with scene.run(script=script, job={"url": proxy.url}) as first:
                if first.wait_stopped():
                    stopped.append(step)
                    # Nobody hears from the first one any more: the broker gives everything to the second. Kafka's has
                    # to miss its heartbeats for that.
                    proxy.cut()
                    meanwhile()
                    scene.settle()
                    first.signal(signal.SIGCONT)
                # What the second landed the first must find out by itself, and end well.
                first.wait_done()
        wrong = watch.finish()
    assert wrong == []
    return stopped


@pytest.mark.parametrize(
    ("kind", "steps"),
    [
        pytest.param("failover", ORDER, id="failover"),
        *(pytest.param(kind, SOME, id=f"{kind}-some") for kind in ("tank", "tubemq")),
        *(pytest.param(kind, ORDER, id=kind, marks=pytest.mark.soak) for kind in ("none", "shared", "consumer")),
    ],
)
def test_stopped_at_every_step_while_another_takes_over(
    dev_scene: Callable[..., Scene], kind: str, steps: list[str], tmp_path: Path
) -> None:
    # The cluster's name keeps both of them in one log: their URLs differ.
    scene = dev_scene(kind=kind, source={"cluster": "dev"})
    stopped = stop_at(scene, steps, tmp_path / "seen.json")
    assert [step for step in steps if step not in stopped] == []
    scene.judge(ordered=False)


def test_two_first_starts_of_a_dataset(dev_scene: Callable[..., Scene]) -> None:
    """Both are about to create it; one is slower, and goes on from what the other has landed."""
    scene = dev_scene()
    scene.feed.add(10)
    with scene.run(script={"at": "staging-made", "do": "stop"}, until_end=False) as slow:
        assert slow.wait_stopped()
        with scene.run(job={"subscription": "another"}) as quick:
            quick.wait_done()
        scene.feed.add(10)
        slow.signal(signal.SIGCONT)
        scene.wait_until_acknowledged()
        slow.end()
    scene.judge()
