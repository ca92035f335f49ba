"""The same accidents with a dataset in a real object store, and accidents of the store."""

import gc
from collections.abc import Callable
from pathlib import Path

import pytest

from fastwire_daemon.dataset.steps import STEPS
from tests.crash.readers import Watch
from tests.crash.scene import Scene
from tests.crash.store_campaign import StoreCampaign
from tests.crash.test_kill import EVERY_STEP, LATER, kill_at, kill_at_random
from tests.crash.test_takeover import ORDER, stop_at
from tests.stores.place import BucketPlace
from tests.stores.servers import S3Server, VersityGateway
from tests.support.nursery import Nursery
from tests.support.soaklength import KILLS

Say = Callable[[str, object], None]

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
        killed = kill_at_random(scene, 8, seed=3)
        scene.settle()
        wrong = watch.finish()
    assert wrong == []
    assert killed == 8
    scene.judge()


def take_over(scene: Scene, versity: VersityGateway, steps: list[str], report: Path) -> None:
    """Stop runs at ``steps``; whoever does not renew its lock meanwhile loses its lease."""
    pattern = f"{scene.place.url.rpartition('/')[2]}/_fastwire/staging/*/lock"
    stopped = stop_at(scene, steps, report, lambda: versity.age(pattern))
    assert [step for step in steps if step not in stopped] == []
    scene.judge(ordered=False)


def test_stopped_while_another_takes_over(
    dev_scene: Callable[..., Scene],
    versity: VersityGateway,
    place_on: Callable[[S3Server], BucketPlace],
    tmp_path: Path,
) -> None:
    scene = dev_scene(source={"cluster": "dev"}, place=place_on(versity))
    take_over(scene, versity, ["files-synced", "entry-linked"], tmp_path / "seen.json")


@pytest.mark.soak
def test_stopped_at_every_step_while_another_takes_over(
    dev_scene: Callable[..., Scene],
    versity: VersityGateway,
    place_on: Callable[[S3Server], BucketPlace],
    tmp_path: Path,
) -> None:
    scene = dev_scene(source={"cluster": "dev"}, place=place_on(versity))
    take_over(scene, versity, ORDER, tmp_path / "seen.json")


def test_two_daemons(
    dev_scene: Callable[..., Scene],
    versity: VersityGateway,
    place_on: Callable[[S3Server], BucketPlace],
    tmp_path: Path,
) -> None:
    """Both are given everything; what one has landed the other cuts and acknowledges."""
    scene = dev_scene(place=place_on(versity))
    other = {"subscription": "another"}
    with Watch(scene.place, tmp_path / "seen.json") as watch:
        scene.feed.add(20)
        with scene.run() as first, scene.run(job=other) as second:
            first.wait_done()
            second.wait_done()
        wrong = watch.finish()
    assert wrong == []
    scene.judge()


def conduct(
    folder: Path, nursery: Nursery, store: VersityGateway, place: BucketPlace, cycles: int, record_property: Say
) -> None:
    with StoreCampaign("shared", folder, nursery, cycles, store, place) as campaign:
        campaign.run(cycles)
        campaign.audit()
    gc.collect()
    happened = ", ".join(f"{what} {times}" for what, times in campaign.happened.most_common())
    record_property(
        "done", f"campaign on a store: {cycles} cycles ({happened}), {campaign.records} records: 0 lost, 0 doubled"
    )


def test_ten_accidents(
    tmp_path: Path,
    nursery: Nursery,
    versity: VersityGateway,
    place_on: Callable[[S3Server], BucketPlace],
    record_property: Say,
) -> None:
    conduct(tmp_path, nursery, versity, place_on(versity), 10, record_property)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_two_hundred_accidents(
    tmp_path: Path,
    nursery: Nursery,
    versity: VersityGateway,
    place_on: Callable[[S3Server], BucketPlace],
    record_property: Say,
) -> None:
    conduct(tmp_path, nursery, versity, place_on(versity), KILLS, record_property)
