"""The same accidents with a dataset in a real object store, and accidents of the store."""

from collections.abc import Callable
from pathlib import Path

import pytest

from fastwire_daemon.dataset.steps import STEPS
from tests.crash.readers import Watch
from tests.crash.scene import Scene
from tests.crash.test_kill import EVERY_STEP, LATER, kill_at, kill_at_random
from tests.stores.place import BucketPlace
from tests.stores.servers import S3Server, VersityGateway

pytestmark = [pytest.mark.crash, pytest.mark.store]


def test_killed_at_every_step(
    dev_scene: Callable[..., Scene],
    versity: VersityGateway,
    place_on: Callable[[S3Server], BucketPlace],
    tmp_path: Path,
) -> None:
    place = place_on(versity)
    scene = dev_scene(kind="shared", place=place, sink={"writers": 2})

    def between() -> None:
        versity.age(f"{place.prefix}/_fastwire/staging/*/lock")

    with Watch(place, tmp_path / "seen.json") as watch:
        killed = kill_at(scene, EVERY_STEP, between=between)
        watch.wait_for_rounds(2)
        scene.feed.size = 8_000
        later = kill_at(scene, LATER, entries=20, between=between, roll={"rows": 700, "idle": "200ms"})
        scene.settle()
        wrong = watch.finish()
    assert wrong == []
    assert [step for step in STEPS if not killed[step]] == []
    assert [step for step, _ in LATER if not later[step]] == []
    scene.judge()


def test_killed_at_random(
    dev_scene: Callable[..., Scene],
    versity: VersityGateway,
    place_on: Callable[[S3Server], BucketPlace],
    tmp_path: Path,
) -> None:
    scene = dev_scene(partitions=3, place=place_on(versity))
    scene.feed.interleaves = True
    with Watch(scene.place, tmp_path / "seen.json") as watch:
        killed = kill_at_random(scene, 20, seed=3)
        scene.settle()
        wrong = watch.finish()
    assert wrong == []
    assert killed == 20
    scene.judge()
