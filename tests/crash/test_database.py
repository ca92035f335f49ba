"""Tables of PostgreSQL: SIGKILL at every step of a commit and at random, of daemons and of the server."""

import random
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

from fastwire_daemon.sinks.postgresql.proof import verify_tables
from fastwire_daemon.sinks.postgresql.session import Server
from tests.crash.scene import Scene
from tests.crash.system import seldom
from tests.databases.postgresql import Postgres, query
from tests.support.sequence_audit import DIGITS
from tests.support.soaklength import KILLS

pytestmark = [pytest.mark.crash, pytest.mark.database]

KILLED = -9
STEPS = ("locked", "loaded", "landed", "committed")
KINDS = ["static", "failover", *seldom("shared", "key_shared", "consumer", "exclusive")]

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


def campaign(scene: Scene, postgres: Postgres, database: str, turns: int, dice: random.Random) -> Counter[str]:
    """Two daemons land while they, backends of the server and all of it are killed; return how often each was."""
    name, done = database.rpartition("/")[2], Counter[str]()
    of_daemons = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
    with ExitStack() as stack:
        daemons = [stack.enter_context(scene.run(until_end=False)) for _ in range(2)]
        for turn in range(turns):
            scene.feed.add(6)
            time.sleep(dice.uniform(0.02, 0.6))
            accident = ("daemon", "backends", "daemon", "server")[turn % 4]
            if accident == "daemon":
                killed = daemons.pop(dice.randrange(2))
                killed.process.kill()
                assert killed.wait() == KILLED, killed.tail()
                daemons.append(stack.enter_context(scene.run(until_end=False)))
            elif accident == "backends":
                query(postgres.url(), of_daemons)
            else:
                postgres.crash()
            done[accident] += 1
        scene.feed.complete()
        scene.wait_until_acknowledged()
        for daemon in daemons:
            daemon.end()
    scene.settle()
    judge(scene, database)
    for report in verify_tables(Server(database, "the database", 60.0), strict=True):
        assert report.problems == []
    return done


@pytest.mark.parametrize("kind", ["failover", *seldom("consumer", "shared")])
def test_daemons_and_the_server_are_killed(
    table_scene: DatabaseScene, postgres: Postgres, database: str, kind: str
) -> None:
    campaign(table_scene(kind=kind, partitions=3), postgres, database, 8, random.Random(kind))


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["failover", "consumer", "tubemq"])
def test_two_hundred_kills(
    table_scene: DatabaseScene,
    postgres: Postgres,
    database: str,
    kind: str,
    record_property: Callable[[str, object], None],
) -> None:
    scene = table_scene(kind=kind, partitions=3)
    done = campaign(scene, postgres, database, KILLS, random.Random(kind))
    told = ", ".join(f"{times} of {what}" for what, times in done.items())
    record_property("done", f"{kind} into PostgreSQL: {told} killed, {scene.feed.count:,} records each once")
