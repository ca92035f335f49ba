"""Requirements on a store, and stores of other kinds: each lands by one daemon, and by two."""

import subprocess
from collections.abc import Callable

import pytest

from fastwire_daemon.dataset.storage.probe import probe_bucket
from tests.crash.scene import Scene
from tests.real.daemon import ROOT, command
from tests.stores.place import AzurePlace, BucketPlace
from tests.stores.proxy import Fault, StoreProxy
from tests.stores.servers import Moto, S3Server, VersityGateway

pytestmark = [pytest.mark.crash, pytest.mark.store]


def land_by_two(scene: Scene) -> None:
    scene.feed.add(10)
    with scene.run() as daemon:
        daemon.wait_done()
    scene.feed.add(10)
    with scene.run() as first, scene.run(job={"subscription": "another"}) as second:
        first.wait_done()
        second.wait_done()
    scene.judge()


def check(scene: Scene) -> subprocess.CompletedProcess[str]:
    """Return the output of ``check --connect`` for a scene's configuration."""
    config = scene.job.write(scene.folder / "config")
    return subprocess.run(
        command("check", str(config), "--connect"), cwd=ROOT, capture_output=True, text=True, timeout=90
    )


def test_a_store_with_atomic_creates_is_accepted(
    dev_scene: Callable[..., Scene], versity: VersityGateway, place_on: Callable[[S3Server], BucketPlace]
) -> None:
    place = place_on(versity)
    said = check(dev_scene(place=place))
    assert said.returncode == 0, said.stdout + said.stderr
    assert "all checks passed" in said.stdout
    assert list(place.bucket().walk("")) == []


def test_a_store_that_ignores_the_condition_is_refused(
    dev_scene: Callable[..., Scene], moto: Moto, place_on: Callable[[S3Server], BucketPlace]
) -> None:
    place = place_on(moto)
    with StoreProxy(moto.port) as proxy:
        proxy.fault = lambda request: Fault(without=("if-none-match",))
        said = check(dev_scene(place=place.through(proxy.endpoint)))
    assert said.returncode == 1, said.stdout + said.stderr
    assert "writers created the same object: two daemons could both believe" in " ".join(said.stdout.split())
    assert list(place.bucket().walk("")) == []


def test_moto(dev_scene: Callable[..., Scene], moto: Moto, place_on: Callable[[S3Server], BucketPlace]) -> None:
    scene = dev_scene(place=place_on(moto))
    scene.feed.add(10)
    with scene.run() as daemon:
        daemon.wait_done()
    scene.judge()


def test_azurite(dev_scene: Callable[..., Scene], azure_place: AzurePlace) -> None:
    assert [check for check in probe_bucket(azure_place.bucket()) if not check.ok] == []
    land_by_two(dev_scene(place=azure_place))
