"""A scene of each system, and queries of it that are stopped in the end."""

from collections.abc import Iterator
from typing import Any

import pytest

from fastwire_daemon.spark.source import systems
from tests.support.spark_scene import SCENES, Scene, Serve, serve


@pytest.fixture(autouse=True)
def _kept() -> Iterator[None]:
    yield
    for client in systems._kept.values():
        client.close()
    systems._kept.clear()


@pytest.fixture(params=sorted(SCENES))
def system(request: pytest.FixtureRequest) -> str:
    """Each system in turn."""
    return str(request.param)


@pytest.fixture
def serving(system: str) -> Serve:
    """Serve a scene of the system."""
    return _serve(system)


@pytest.fixture(params=sorted(name for name, scene in SCENES.items() if scene.group_option))
def serving_groups(request: pytest.FixtureRequest) -> Serve:
    """Serve a scene of each system whose brokers keep the progress of a query."""
    return _serve(request.param)


@pytest.fixture(params=sorted(name for name, scene in SCENES.items() if scene.times))
def serving_times(request: pytest.FixtureRequest) -> Serve:
    """Serve a scene of each system whose brokers find times."""
    return _serve(request.param)


def _serve(system: str) -> Serve:
    def start(count: int = 0, **settings: Any) -> Any:
        return serve(SCENES[system](**settings), count)

    return start


@pytest.fixture(autouse=True)
def _soon_certain(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic that a broker does not know is missing after a moment."""
    for system in ("kafka", "tank"):
        monkeypatch.setattr(f"fastwire_daemon.systems.{system}.cluster.MISSING_S", 0.05)


@pytest.fixture
def query() -> Iterator[Any]:
    """Make queries; they are stopped in the end."""
    from tests.daemon.spark.source.datasource.playing import Query  # PySpark may be missing where this file is read

    made: list[Query] = []

    def make(scene: Scene, **more: str) -> Any:
        made.append(Query(scene, **more))
        return made[-1]

    yield make
    for one in made:
        one.stop()
