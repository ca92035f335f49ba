"""Tables of PostgreSQL: SIGKILL at every step of a commit and at random, of daemons and of the server."""

import random
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tests.crash.scene import Scene
from tests.crash.system import seldom
from tests.databases.postgresql import Postgres, query
from tests.support.sequence_audit import DIGITS

pytestmark = [pytest.mark.crash, pytest.mark.database]

KILLED = -9
STEPS = ("locked", "loaded", "landed", "committed")
KINDS = ["static", "failover", "tank", "tubemq", *seldom("shared", "key_shared", "consumer", "exclusive")]

DatabaseScene = Callable[..., Scene]


@pytest.fixture
def table_scene(dev_scene: Callable[..., Scene], database: str) -> DatabaseScene:
    """Makes scenes whose records land in the table ``numbers``."""

    def make(**options: Any) -> Scene:
        sink = {"type": "postgresql", "path": None, "url": database, "table": "numbers", "timeout": "20s"}
        return dev_scene(sink={**sink, **options.pop("sink", {})}, **options)

    return make


def judge(scene: Scene, database: str) -> None:
    """Each record is in the table once, none is a dead letter, and the brokers have nothing left for us."""
    rows = query(database, "SELECT value, count(*) FROM numbers GROUP BY value")
    landed = Counter({int(value[:DIGITS]): times for value, times in rows})
    assert [number for number in range(scene.feed.count) if not landed[number]] == []
    assert {number: times for number, times in landed.items() if times != 1} == {}
    assert landed.total() == scene.feed.count
    assert query(database, "SELECT sum(records) FROM fastwire_coverage") == [(str(scene.feed.count),)]
    if scene.job.kind != "tank":  # whose brokers keep no progress
        assert not scene.unacknowledged()


@pytest.mark.parametrize("kind", KINDS)
def test_killed_at_every_step(table_scene: DatabaseScene, database: str, kind: str) -> None:
    scene = table_scene(kind=kind)
    killed = []
    for step, nth in [*((step, 1) for step in STEPS), ("landed", 2)]:
        scene.feed.add(6)
        with scene.run(script={"at": step, "nth": nth, "do": "kill"}) as daemon:
            if daemon.wait() == KILLED:
                killed.append(step)
    assert set(killed) == set(STEPS)
    scene.settle()
    judge(scene, database)


@pytest.mark.parametrize("kind", ["static", *seldom("failover", "tank", "tubemq")])
def test_killed_at_random(table_scene: DatabaseScene, database: str, kind: str) -> None:
    scene = table_scene(kind=kind, partitions=3)
    dice = random.Random(kind)
    for _ in range(10):
        scene.feed.add(12)
        with scene.run(until_end=False) as daemon:
            time.sleep(dice.uniform(0.02, 0.8))
            daemon.process.kill()
            assert daemon.wait() == KILLED
    scene.settle()
    judge(scene, database)


@pytest.mark.parametrize("kind", ["failover", *seldom("consumer", "shared")])
def test_the_server_is_killed(table_scene: DatabaseScene, postgres: Postgres, database: str, kind: str) -> None:
    """Backends are ended, and the whole server is killed, while two daemons land."""
    scene = table_scene(kind=kind, partitions=3)
    dice = random.Random(kind)
    with scene.run(until_end=False) as one, scene.run(until_end=False) as other:
        for turn in range(6):
            scene.feed.add(12)
            time.sleep(dice.uniform(0.05, 0.5))
            if turn % 2:
                postgres.crash()
            else:
                name = database.rpartition("/")[2]
                of_daemons = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
                query(postgres.url(), of_daemons)
        scene.feed.complete()
        scene.wait_until_acknowledged()
        one.end()
        other.end()
    scene.settle()
    judge(scene, database)
