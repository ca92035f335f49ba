"""The driver, killed with all of its Spark: in the first batch, in a later one, before and behind each log."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from threading import Event, Thread
from types import TracebackType
from typing import Any, Self

import pytest

from fastwire.pulsar.format.payload import Record, encode_batch_entry
from fastwire.tank.producing.bundle import encode_values
from fastwire_daemon.devbroker.pulsar import PulsarDevBroker, PulsarOptions
from fastwire_daemon.devbroker.server import running
from fastwire_daemon.devbroker.tank import TankDevBroker
from tests.spark.jobs import Job
from tests.spark.landed import BASE, Landed
from tests.spark.runs import PATIENCE_S, Runs, kill
from tests.spark.session import SETTINGS
from tests.support.source_tree import ROOT
from tests.support.spark_source import serving
from tests.support.waiting import eventually

pytestmark = pytest.mark.spark

ROWS = 40
TOKEN = "open-sesame"
# What is killed, and in which batch (by how often the step was reached).
BEGUN: dict[str, Any] = {"at": "batch-begun"}  # batch 0, behind its offsets
LINKED: dict[str, Any] = {"at": "entry-linked"}  # batch 0, between output and commit
AT_STEPS: list[dict[str, Any]] = [
    BEGUN,
    LINKED,
    {"at": "batch-landed", "nth": 2},  # the same for batch 1: what is run again comes first
    {"at": "log-synced", "in": "bad"},  # dead letters that are ahead of their table
    {"at": "files-written", "nth": 2},
]
OF_KEYS: list[dict[str, Any]] = [{"at": "keys-read"}, {"at": "keys-kept"}]  # in batch 0, where duplicates are dropped


class Lister:
    """Looks at the table by plain listing all the while; no look may show a row twice, or lack one of an earlier."""

    def __init__(self, job: Job) -> None:
        self.wrong: list[str] = []
        self.looks = 0
        self._job = job
        self._before: set[tuple[Any, ...]] = set()
        self._ending = Event()
        self._thread = Thread(target=self._watch)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ending.wait(0.2):
            if not any(self._job.table.glob("*=*/*.parquet")):
                continue
            try:
                rows = [tuple(row.values()) for row in self._job.rows()]
            except FileNotFoundError:
                continue  # pyarrow lists the staging folder, too, and that goes away
            self.looks += 1
            seen = set(rows)
            if len(rows) != len(seen):
                self.wrong.append(f"{len(rows) - len(seen)} rows are there twice")
            if not seen >= self._before:
                self.wrong.append(f"{len(self._before - seen)} rows are gone again")
            self._before = seen


def order_job(folder: Path, **more: Any) -> Job:
    (folder / "orders.ddl").write_text("order_id BIGINT NOT NULL")
    decode = {"format": "json", "schema": folder / "orders.ddl"}
    return Job(folder, decode=decode, output={"partition_by": ["date"]}, **more)


def values_of(batch: int) -> list[bytes]:
    """Numbered orders, a tenth of which are bad and a fifth sent twice."""
    numbers = range(batch * ROWS, (batch + 1) * ROWS)
    values = [b'{"order_id": %d}' % number if number % 10 else b"bad %d" % number for number in numbers]
    return [*values, *values[::5]]


def landed(folder: Path, batches: int, **more: Any) -> Job:
    """A job over a dataset with as many files."""
    job = order_job(folder, source={"max_files": 1}, **more)
    dataset = Landed(job.landed)
    for batch in range(batches):
        dataset.add(values_of(batch), after=timedelta(hours=batch))
    return job


def at_brokers(folder: Path, broker: PulsarDevBroker, batches: int, **more: Any) -> Job:
    """A job over a topic of two partitions, whose batches are about as large; and a secret that it must keep."""
    broker.create_topic("orders", 2)
    (folder / "token").write_text(TOKEN)
    source = {
        "url": broker.url,
        "topics": ["orders"],
        "subscription": "job",
        "max_records": len(values_of(0)),
        "auth": {"token_file": folder / "token"},
    }
    for batch in range(batches):
        put(broker, batch)
    return order_job(folder, source=source, **more)


def put(broker: PulsarDevBroker, batch: int) -> None:
    """Produce what is one batch, to one partition, in entries of four."""
    values = values_of(batch)
    for first in range(0, len(values), 4):
        records = [Record(value=value) for value in values[first : first + 4]]
        published = int((BASE + timedelta(hours=batch)).timestamp() * 1000)
        stored = encode_batch_entry(records, producer_name="p", sequence_id=first, publish_time=published)
        broker.append(f"orders-partition-{batch % 2}", [stored])


@pytest.fixture
def broker() -> Iterator[PulsarDevBroker]:
    """A broker that lets in who has the token."""
    with serving(broker=PulsarDevBroker(PulsarOptions(token=TOKEN, ledger_entries=20))) as one:
        yield one


def at_tank(folder: Path, broker: TankDevBroker, batches: int, **more: Any) -> Job:
    """The same of brokers that keep no progress of the job."""
    broker.create_topic("orders", 2)
    for batch in range(batches):
        values = values_of(batch)
        published = int((BASE + timedelta(hours=batch)).timestamp() * 1000)
        stored = [encode_values(values[first : first + 4], published) for first in range(0, len(values), 4)]
        broker.append("orders", stored, batch % 2)
    source = {"url": broker.url, "topics": ["orders"], "max_records": len(values_of(0))}
    return order_job(folder, source=source, **more)


@pytest.fixture
def tank() -> Iterator[TankDevBroker]:
    with running(TankDevBroker()) as one:
        yield one
        assert one.violations == []


@pytest.fixture(params=["landed", "brokers", "tank"])
def prepared(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Job]:
    """Makes a job over so many batches of either source."""
    if request.param == "landed":
        return lambda batches, **more: landed(tmp_path, batches, **more)
    if request.param == "tank":
        tank = request.getfixturevalue("tank")
        return lambda batches, **more: at_tank(tmp_path, tank, batches, **more)
    broker = request.getfixturevalue("broker")
    return lambda batches, **more: at_brokers(tmp_path, broker, batches, **more)


def outcome(job: Job) -> tuple[list[int], list[bytes]]:
    """Return the rows of the tables, in order."""
    if not any(job.table.glob("*=*")) or not any(job.bad.glob("*.parquet")):
        return [], []
    return sorted(row["order_id"] for row in job.rows()), sorted(row["value"] for row in job.rows(job.bad))


def expected(batches: int, *, dedupe: bool) -> tuple[list[int], list[bytes]]:
    """The tables that a run without an accident makes of :func:`prepared`."""
    good, bad = [], []
    for batch in range(batches):
        numbers = list(range(batch * ROWS, (batch + 1) * ROWS))
        for number in [*numbers, *([] if dedupe else numbers[::5])]:
            if number % 10:
                good.append(number)
        bad += [b"bad %d" % number for number in [*numbers, *numbers[::5]] if number % 10 == 0]
    return sorted(good), sorted(bad)


def settle(runs: Runs, batches: int, *, dedupe: bool) -> None:
    """Run as a stream until everything is there, and stop it as systemd does."""
    runs.job.trigger = "200ms"
    runs.job.write()
    process = runs.start({})
    try:
        good, _ = expected(batches, dedupe=dedupe)
        eventually(lambda: process.poll() is not None or len(outcome(runs.job)[0]) >= len(good), patience_s=PATIENCE_S)
        assert process.poll() is None, runs.said()
        process.terminate()
        assert process.wait(PATIENCE_S) == 0, runs.said()
    finally:
        kill(process)


def assert_killed_and_recovered(
    runs: Runs,
    plan: list[dict[str, Any]],
    batches: int,
    *,
    dedupe: bool,
    meanwhile: Callable[[], None] = lambda: None,
) -> None:
    """Kill as planned, settle, and find what a run without kills makes; a reader that lists sees nothing else."""
    job = runs.job
    with Lister(job) as lister:
        for script in plan:
            assert runs.run(script) == -signal.SIGKILL, (script, runs.said())
            meanwhile()
        settle(runs, batches, dedupe=dedupe)
    assert lister.wrong == []
    assert lister.looks > len(plan)
    assert outcome(job) == expected(batches, dedupe=dedupe)
    assert job.verify().filtered == len(job.rows(job.bad))
    job.verify(job.bad)


DEDUPE = {"key": ["order_id"], "watermark": "6 hours"}


def test_killed_between_output_and_commit(tmp_path: Path, broker: PulsarDevBroker) -> None:
    """In batch 0: what has come meanwhile belongs to later batches; the secret is in none of Spark's files."""
    job = at_brokers(tmp_path, broker, 2)
    events = tmp_path / "events"
    events.mkdir()
    runs = Runs(job, logging_to(events))
    assert_killed_and_recovered(runs, [LINKED], 3, dedupe=False, meanwhile=lambda: put(broker, 2))
    kept = [file.read_bytes() for folder in (events, job.checkpoint) for file in folder.rglob("*") if file.is_file()]
    assert any(b"auth.token_file" in text or b"orders" in text for text in kept)
    assert not any(TOKEN.encode() in text for text in kept)


@pytest.mark.soak
@pytest.mark.parametrize("dedupe", [False, True], ids=["plain", "dedupe"])
def test_killed_at_every_stage_of_a_batch(prepared: Callable[..., Job], dedupe: bool) -> None:
    job = prepared(6, dedupe=DEDUPE if dedupe else None)
    assert_killed_and_recovered(Runs(job), [*(OF_KEYS if dedupe else ()), *AT_STEPS], 6, dedupe=dedupe)


@pytest.mark.soak
@pytest.mark.parametrize("dedupe", [False, True], ids=["plain", "dedupe"])
def test_killed_around_the_logs_of_spark(prepared: Callable[..., Job], dedupe: bool) -> None:
    """Killed from outside, as soon as the offsets, or the commit, of a batch stand in the checkpoint; and at random."""
    batches = 6
    job = prepared(batches, dedupe=DEDUPE if dedupe else None)
    runs, dice = Runs(job), random.Random(5)
    with Lister(job) as lister:
        keys = ("fastwire/keys/*.npy", "fastwire/keys/2.json") if dedupe else ()
        paths = ("metadata", "offsets/*0*", "offsets/0", "commits/0", "offsets/2", "commits/2", "offsets/4")
        for path in (*paths[:3], *keys, *paths[3:]):  # the second is the first offsets while they are written
            process = runs.start({})
            while not any(job.checkpoint.glob(path)) and process.poll() is None:
                time.sleep(0.001)
            kill(process)
        for _ in range(4):
            process = runs.start({})
            time.sleep(dice.uniform(1, 20))  # half of it is Spark's start
            kill(process)
        assert runs.run({}) == 0, runs.said()
    assert lister.wrong == []
    assert outcome(job) == expected(batches, dedupe=dedupe)
    job.verify()
    job.verify(job.bad)


@pytest.mark.soak
def test_by_spark_submit(tmp_path: Path) -> None:
    """The job runs, and where and how spark-submit has said."""
    job, events = landed(tmp_path, 2), tmp_path / "events"
    events.mkdir()
    said = SETTINGS | {"spark.sql.shuffle.partitions": "3", **logging_to(events)}
    settings = [part for key, value in said.items() for part in ("--conf", f"{key}={value}")]
    submit = [str(Path(sys.executable).with_name("spark-submit")), "--master", "local[1]", "--name", "ours", *settings]
    env = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    command = [*submit, str(ROOT / "conf/spark_submit.py"), str(job.write())]
    done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr[-3000:]
    assert outcome(job) == expected(2, dedupe=False)
    [properties] = [
        event["Spark Properties"]
        for file in events.rglob("events_*")
        for event in map(json.loads, file.read_text().splitlines())
        if event["Event"] == "SparkListenerEnvironmentUpdate"
    ]
    assert (properties["spark.master"], properties["spark.app.name"]) == ("local[1]", "ours")
    assert '"spark.sql.shuffle.partitions":"3"' in (job.checkpoint / "offsets" / "0").read_text()


def logging_to(folder: Path) -> dict[str, str]:
    """Settings for a log of events that can be read."""
    return {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": folder.as_uri(),
        "spark.eventLog.compress": "false",
    }
