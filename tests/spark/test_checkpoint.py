"""Checkpoints that are older than their tables: restored from a backup, or cut by a power loss. Nothing is lost."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fastwire.errors import FastwireError
from fastwire_daemon.runtime.errors import ConfigurationRefused, DatasetError
from fastwire_daemon.spark.job.run import RunningJob, run_jobs
from tests.spark.jobs import Job
from tests.spark.landed import Landed

# pytest finds fixtures by their names here.
from tests.spark.test_direct import Topic, order, over_brokers, topic  # noqa: F401
from tests.spark.test_job import json_job
from tests.support.waiting import eventually

pytestmark = pytest.mark.spark

DEDUPE = {"key": ["order_id"], "watermark": "1 hour"}


def forget(job: Job, batch: int) -> None:
    """Let a power loss take the logs of ``batch`` and of all later ones, which Spark does not sync."""
    for log in ("offsets", "commits", "sources/0"):
        for file in (job.checkpoint / log).glob("[0-9]*"):
            if int(file.name.partition(".")[0]) >= batch:
                file.unlink()
                (file.parent / f".{file.name}.crc").unlink(missing_ok=True)


# The job knows no system by its name: each accident, and the positions of each system.
@pytest.mark.parametrize(
    ("topic", "accident", "dedupe"),
    [("kafka", "backup", None), ("pulsar", "power", DEDUPE), ("tank", "backup", None)],
    indirect=["topic"],
)
def test_records_behind_an_older_checkpoint_land(
    spark: Any,
    tmp_path: Path,
    topic: Topic,  # noqa: F811
    dedupe: Any,
    accident: str,
) -> None:
    """Spark plans the batch again over a range that has grown: only what is new lands."""
    job = over_brokers(tmp_path, topic.url, dict(topic.chosen), dedupe=dedupe)

    def run(first: int) -> None:
        topic.put([*map(order, range(first, first + 10)), b"bad %d" % first], first // 10 % 2)
        assert run_jobs(spark, job.config()) == 0

    run(0)
    shutil.copytree(job.checkpoint, tmp_path / "backup")
    run(10)
    if accident == "backup":
        shutil.rmtree(job.checkpoint)
        (tmp_path / "backup").rename(job.checkpoint)
    else:
        forget(job, 0)
    run(20)
    run(30)
    assert sorted(row["order_id"] for row in job.rows()) == [*range(40)]
    assert len(job.rows(job.bad)) == 4
    assert {row["value"] for row in job.rows(job.bad)} == {b"bad %d" % first for first in range(0, 40, 10)}
    report = job.verify()
    assert (report.filtered, report.placed_files) == (4, report.files)
    job.verify(job.bad)


def test_files_behind_an_older_checkpoint_land(spark: Any, tmp_path: Path) -> None:
    """The same where the source is a landed dataset."""
    job = json_job(tmp_path)
    landed = Landed(job.landed)
    for batch in range(4):
        landed.add([order(batch), b"bad"])
        if batch == 2:
            forget(job, 1)
        assert run_jobs(spark, job.config()) == 0
    assert sorted(row["order_id"] for row in job.rows()) == [*range(4)]
    assert len(job.rows(job.bad)) == 4
    job.verify()
    job.verify(job.bad)


def test_another_dataset_at_the_path_is_refused(
    spark: Any, tmp_path: Path, lines: Callable[[], list[dict[str, Any]]]
) -> None:
    """Its files have the names of those that were read: Spark would take them for the same ones."""
    job = json_job(tmp_path, trigger="200ms")
    Landed(job.landed).add([order(1)])
    running = RunningJob(spark, "orders", job.config().spark["orders"])
    running.start()
    try:
        eventually(lambda: running.finished > 0)
        with pytest.raises(FastwireError, match="another job that runs has the checkpoint"):
            run_jobs(spark, job.config())
        job.landed.rename(tmp_path / "away")
        eventually(lambda: running.revive() and lines()[-1]["event"] == "waiting")
        Landed(job.landed).add([order(2)])
        eventually(lambda: not running.revive())
    finally:
        running.stop()
    assert "is not the one that the job has read" in str(running.failure())
    with pytest.raises(ConfigurationRefused, match="is not the one that the job has read"):
        run_jobs(spark, job.config())
    shutil.rmtree(job.landed)
    with pytest.raises(DatasetError, match="there is no dataset at"):
        run_jobs(spark, job.config())
    assert [row["order_id"] for row in job.rows()] == [1]
