"""A real store that refuses, delays, cuts and dies while a daemon lands: nothing is lost or doubled."""

import itertools
import random
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.crash.scene import Scene
from tests.stores.place import BucketPlace
from tests.stores.proxy import FAULTS, NOTHING, Fault, InTurn, Request, StoreProxy, slow_down
from tests.stores.roles import NEWEST, RoleService
from tests.stores.servers import REGION, Moto, S3Server, VersityGateway
from tests.support.waiting import eventually

pytestmark = [pytest.mark.crash, pytest.mark.store]

REFUSED = 10
ONE_WRITER = {"compression": "none", "writers": 1}
EXPIRED = Fault(status=400, code="ExpiredToken")
# What each run asks for; "part" and "complete" where a file is larger than a part.
KINDS = ("create", "put", "copy", "delete", "list", "get", "head", "begin", "part", "complete")


@pytest.fixture
def proxy(versity: VersityGateway) -> Iterator[StoreProxy]:
    with StoreProxy(versity.port) as proxy:
        yield proxy


@pytest.fixture
def scene_behind(
    proxy: StoreProxy,
    versity: VersityGateway,
    place_on: Callable[[S3Server], BucketPlace],
    dev_scene: Callable[..., Scene],
) -> Callable[..., Scene]:
    """Makes scenes whose daemons reach the store through the proxy; what judges goes straight to it."""

    def make(*, sink: dict[str, Any] | None = None, **options: Any) -> Scene:
        place = place_on(versity)
        return dev_scene(place=place, sink={**place.through(proxy.endpoint).sink, **(sink or {})}, **options)

    return make


def land_with(scene: Scene, proxy: StoreProxy, faults: Sequence[Fault]) -> None:
    """Land files of one part and of two while ``faults`` happen, in turn, to each kind of request."""
    scene.feed.size = 40_000
    scene.feed.add(4)  # 16 MB
    proxy.fault = InTurn(faults, KINDS)
    with scene.run(job={"roll": {"rows": 400, "idle": "30s"}}, script={"checkpoint_every": 1}) as daemon:
        daemon.wait_done()
    assert [kind for kind in KINDS if not proxy.happened[kind]] == []
    scene.feed.size = 100
    scene.feed.add(6)
    scene.settle()
    proxy.fault = lambda request: NOTHING
    scene.judge()


@pytest.mark.soak
@pytest.mark.parametrize("what", FAULTS)
def test_one_fault_of_each_request(scene_behind: Callable[..., Scene], proxy: StoreProxy, what: str) -> None:
    land_with(scene_behind(kind="shared", sink=ONE_WRITER), proxy, [FAULTS[what]])


def test_all_faults_of_each_request(scene_behind: Callable[..., Scene], proxy: StoreProxy) -> None:
    land_with(scene_behind(kind="shared", sink=ONE_WRITER), proxy, [*FAULTS.values()])


def test_throttling_is_honoured(scene_behind: Callable[..., Scene], proxy: StoreProxy) -> None:
    """A request that is refused is repeated, but at growing distances, and the daemon says what it waits for."""
    scene = scene_behind(kind="shared")
    scene.feed.add(2)
    came: list[float] = []

    def throttle(request: Request) -> Fault:
        if request.kind != "create" or len(came) == REFUSED:
            return NOTHING
        came.append(time.monotonic())
        return slow_down()

    with scene.run() as daemon:
        proxy.fault = throttle
        daemon.wait_done()
    assert len(came) == REFUSED
    gaps = [later - earlier for earlier, later in itertools.pairwise(came)]
    # Only lower bounds: a busy machine makes them longer. Within one operation of the library, then between two.
    assert max(gaps[:4]) >= 0.5
    assert sum(gaps) >= 2 * 1.0
    scene.judge()


def test_killed_store(
    dev_scene: Callable[..., Scene],
    versity: VersityGateway,
    place_on: Callable[[S3Server], BucketPlace],
    tmp_path: Path,
) -> None:
    scene = dev_scene(place=place_on(versity))
    dice = random.Random(4)
    with scene.under_way() as daemon:
        for _ in range(6):
            scene.feed.add(6)
            time.sleep(dice.uniform(0, 0.4))
            versity.stop(at_once=True)
            time.sleep(dice.uniform(0, 0.5))
            versity.start()
            scene.wait_until_acknowledged()
        assert daemon.process.poll() is None


def test_credentials_that_end_are_renewed(
    dev_scene: Callable[..., Scene], moto: Moto, place_on: Callable[[S3Server], BucketPlace], tmp_path: Path
) -> None:
    """Of a role: the store takes the newest tokens only, and refuses no request. (versitygw knows no tokens.)"""
    used: set[str] = set()
    with StoreProxy(moto.port) as proxy, RoleService(tmp_path) as role:

        def judge(request: Request) -> Fault:
            token = request.headers.get("x-amz-security-token", "none")
            used.add(token)
            return NOTHING if role.accepts(token) else EXPIRED

        place = place_on(moto)
        access = {"endpoint": proxy.endpoint, "allow_http": True, "region": REGION}
        scene = dev_scene(place=place, sink={"store": access})
        proxy.fault = judge
        with scene.run(until_end=False, env=role.environment) as daemon:
            while len(used) < 2 * NEWEST:
                scene.feed.add(2)
                scene.wait_until_acknowledged()
            daemon.end()
        assert not proxy.happened
    assert "none" not in used
    scene.judge()


def test_refused_credentials_are_tried_again(scene_behind: Callable[..., Scene], proxy: StoreProxy) -> None:
    scene = scene_behind()
    with scene.under_way() as daemon:
        scene.feed.add(4)
        scene.wait_until_acknowledged()
        proxy.fault = lambda request: EXPIRED
        scene.feed.add(4)
        eventually(lambda: daemon.output.count("ExpiredToken") > 2, "it tries again", daemon.tail)
        proxy.fault = lambda request: NOTHING
        scene.wait_until_acknowledged()
