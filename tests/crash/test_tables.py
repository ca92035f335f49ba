"""Tables: kills at every step and at random, with one daemon and with two, and rewriting meanwhile.

Audited by the library of each format, which the daemon uses, and by DuckDB, which has other readers.
"""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, TableNotFoundError

from fastwire_daemon.dataset.proof.verify import verify as verify_dataset
from fastwire_daemon.dataset.steps import STEPS
from tests.crash.scene import Scene
from tests.real.daemon import verify
from tests.support import icebergs
from tests.support.rolls import entries
from tests.support.s3_server import new_bucket, s3_server
from tests.support.sequence_audit import DIGITS, numbers_of
from tests.support.soaklength import KILLS
from tests.support.tables import rows_by_duckdb
from tests.support.waiting import eventually

pytestmark = pytest.mark.crash

KILLED = -9
# The table is created once, and new columns have a test of their own (``tests/daemon/dataset/test_tables.py``).
PLAN = [*STEPS[:2], "table-created", *STEPS[2:], "table-ready", "table-committed"]
# What is in the table is not looked at again, so there must be something that is not.
AFTER_A_DEATH = {"republished:0"}


def judge(scene: Scene) -> None:
    """The table has every record once, and log and table agree; the broker has its acknowledgements."""
    said = verify(scene.path)
    assert said.returncode == 0, said.stdout + said.stderr
    kind, place = scene.job.sink["type"], str(scene.path)
    if kind == "delta":
        table = DeltaTable(place).to_pyarrow_table(columns=["value"])
    else:
        iceberg = icebergs.loaded(scene.path)
        table, place = iceberg.scan(selected_fields=("value",)).to_arrow(), iceberg.metadata_location
    produced = Counter(range(scene.feed.count))
    assert Counter(numbers_of(table["value"]).to_pylist()) == produced, "by the library of the format"
    found = rows_by_duckdb(place, f"CAST(decode(value[1:{DIGITS}]) AS BIGINT)", kind)
    assert Counter(number for (number,) in found) == produced, "by DuckDB"
    assert not scene.unacknowledged()


@contextmanager
def compacted(path: Path) -> Iterator[Callable[[], int]]:
    """Rewrite the table all the time, and delete what it has replaced; yields the number of rewritten files."""
    stop, rewritten = threading.Event(), [0]

    def work() -> None:
        while not stop.wait(0.2):
            try:
                table = DeltaTable(path)
                rewritten[0] += table.optimize.compact()["numFilesRemoved"]
                table.update_incremental()
                table.vacuum(24, dry_run=False, enforce_retention_duration=False)
            except (CommitFailedError, TableNotFoundError, FileNotFoundError):
                continue

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield lambda: rewritten[0]
    finally:
        stop.set()
        thread.join()


def test_killed_at_every_step(dev_scene: Callable[..., Scene]) -> None:
    scene = dev_scene(sink={"type": "delta", "split": "partition", "partition_by": "hour"})
    killed = Counter[str]()
    for step in PLAN:
        scene.feed.add(6)
        if step in AFTER_A_DEATH:
            with scene.run(script={"at": "log-synced", "do": "kill"}) as dead:
                dead.wait()
        every = 1 if step.startswith("checkpoint") else 3
        with scene.run(script={"at": step, "do": "kill", "checkpoint_every": every}) as daemon:
            code = daemon.wait()
        assert code in (0, KILLED), f"killed at {step}, it ended with {code}:\n{daemon.tail()}"
        killed[step] += code == KILLED
    scene.settle()
    assert [step for step in PLAN if not killed[step]] == []
    judge(scene)
    assert DeltaTable(scene.path).metadata().partition_columns == ["t", "p", "dt", "hh"]


@pytest.mark.timeout(300)
def test_killed_in_an_object_store(dev_scene: Callable[..., Scene], tmp_path: Path) -> None:
    with s3_server() as settings:
        bucket = new_bucket(settings, tmp_path.name)
        scene = dev_scene(sink={"type": "delta", "path": bucket.url, "store": {**settings, "allow_http": True}})
        for step in ("table-created", "entry-linked", "published:0", "table-ready", "table-committed"):
            scene.feed.add(6)
            with scene.run(script={"at": step, "do": "kill", "checkpoint_every": 3}) as daemon:
                assert daemon.wait() == KILLED, daemon.tail()
        scene.settle()
        table = DeltaTable(bucket.url, storage_options=settings)
        landed = numbers_of(table.to_pyarrow_table(columns=["value"])["value"]).to_pylist()
        assert Counter(landed) == Counter(range(scene.feed.count))
        report = verify_dataset("", medium=bucket)
        assert report.problems == [] and report.pending == []


def has_more(scene: Scene, before: int) -> bool:
    """Return True if the log has grown."""
    return entries(scene.path) > before


def kill_two(
    scene: Scene, times: int, seed: int, rewriting: AbstractContextManager[Callable[[], int]] | None = None
) -> int:
    """Kill one of two daemons on one table again and again, also while it is rewritten; return the number of kills."""
    dice = random.Random(seed)
    killed = 0
    with ExitStack() as stack:
        rewritten = stack.enter_context(rewriting) if rewriting is not None else lambda: 1
        # Without a common subscription both read everything: each entry is published by the one or the other.
        jobs = [{"subscription": f"landing-{number}"} for number in range(2)]
        running = [stack.enter_context(scene.run(until_end=False, job=job)) for job in jobs]
        for _ in range(times):
            more = partial(has_more, scene, entries(scene.path))
            scene.feed.add(8)
            eventually(more, f"something lands after {killed} kills", lambda: [each.tail() for each in running])
            time.sleep(dice.uniform(0.0, 0.3))
            victim = dice.randrange(2)
            running[victim].process.kill()
            killed += running[victim].wait() == KILLED
            running[victim] = stack.enter_context(scene.run(until_end=False, job=jobs[victim]))
        assert rewritten() > 0
    for job in jobs:
        with scene.run(job=job) as daemon:
            daemon.wait_done()
    scene.settle()
    return killed


def test_two_daemons_killed_while_the_table_is_rewritten(dev_scene: Callable[..., Scene]) -> None:
    scene = dev_scene(sink={"type": "delta"}, source={"cluster": "dev"})
    assert kill_two(scene, 10, seed=1, rewriting=compacted(scene.path)) == 10
    judge(scene)


def iceberg_scene(dev_scene: Callable[..., Scene]) -> Scene:
    """A pipeline that lands in an Iceberg table of a catalog of its own."""
    scene = dev_scene(sink={"type": "iceberg"}, source={"cluster": "dev"})
    scene.path.mkdir()
    catalog = icebergs.catalog(scene.path)
    scene.job.sink.update(table=catalog.pop("table"), catalog=catalog)
    return scene


@pytest.mark.timeout(600)
def test_two_daemons_killed_while_they_publish_in_iceberg(dev_scene: Callable[..., Scene]) -> None:
    """Its process is left by the one that was killed, and may commit after it."""
    scene = iceberg_scene(dev_scene)
    for step in ("table-created", "table-ready", "table-committed"):
        scene.feed.add(6)
        with scene.run(script={"at": step, "do": "kill"}) as daemon:
            assert daemon.wait() == KILLED, daemon.tail()
    assert kill_two(scene, 2, seed=3) == 2
    judge(scene)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", ["failover", "shared", "none"])
def test_two_daemons_killed_two_hundred_times(dev_scene: Callable[..., Scene], kind: str) -> None:
    scene = dev_scene(kind=kind, sink={"type": "delta"}, source={"cluster": "dev"})
    assert kill_two(scene, KILLS, seed=2, rewriting=compacted(scene.path)) == KILLS
    judge(scene)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_two_daemons_killed_two_hundred_times_in_iceberg(dev_scene: Callable[..., Scene]) -> None:
    scene = iceberg_scene(dev_scene)
    assert kill_two(scene, KILLS, seed=4) == KILLS
    judge(scene)
