"""Tables of Delta and Iceberg that a job writes: each record once, by their own libraries and by DuckDB."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from fastwire_daemon.config import ConfigError, parse_config
from fastwire_daemon.runtime.errors import DatasetMismatchError
from fastwire_daemon.spark.job.run import run_jobs
from tests.spark.jobs import Job
from tests.spark.landed import Landed
from tests.spark.runs import Runs
from tests.support import icebergs
from tests.support.tables import rows_by_duckdb

pytestmark = pytest.mark.spark

_FOLDERS = "only texts, integers, booleans and dates can partition a table"
DDL = "order_id BIGINT NOT NULL, paid DECIMAL(9,2), lines ARRAY<STRUCT<sku: STRING, count: INT>>, tags MAP<STRING, INT>"


def job_of(folder: Path, form: str, ddl: str = DDL) -> Job:
    """A job called ``form`` over the dataset in ``folder``, with everything else in a folder of its own."""
    own = folder / form
    own.mkdir()
    (own / "orders.ddl").write_text(ddl)
    output: dict[str, Any] = {"format": form, "partition_by": ["date", "hour"]}
    if form == "iceberg":
        settings = icebergs.catalog(own)
        output |= {"table": settings.pop("table"), "catalog": settings}
    decode = {"format": "json", "schema": own / "orders.ddl"}
    return Job(own, decode, output=output, source={"dataset": folder / "landed", "max_files": 1}, name=form)


def orders(first: int) -> list[bytes]:
    """Three orders, and a value that is not JSON."""
    values = [
        {"order_id": number, "paid": f"{number}.25", "lines": [{"sku": "a", "count": number}], "tags": {"n": number}}
        for number in range(first, first + 3)
    ]
    return [*(json.dumps(value).encode() for value in values), b"none"]


def found(job: Job) -> tuple[list[dict[str, Any]], int, str]:
    """The rows by the library of the format, how many commits have added files, and where DuckDB finds the table."""
    if job.name == "delta":
        delta = DeltaTable(str(job.table))
        commits = sum(each["operation"] == "WRITE" for each in delta.history())
        return delta.to_pyarrow_table().to_pylist(), commits, str(job.table)
    iceberg = icebergs.loaded(job.folder)
    return iceberg.scan().to_arrow().to_pylist(), len(iceberg.snapshots()), iceberg.metadata_location


def test_killed_between_the_tables_and_the_checkpoints(spark: Any, tmp_path: Path) -> None:
    """The batch is in the table, and Spark runs it again; the jobs go on."""
    jobs = [job_of(tmp_path, form) for form in ("delta", "iceberg")]
    landed = Landed(tmp_path / "landed")
    landed.add(orders(0))
    runs, text = Runs(jobs[0]), "".join(job.text() for job in jobs)
    jobs[0].write().write_text(text)
    assert runs.run({"at": "table-committed", "nth": 2, "together": True}) == -signal.SIGKILL, runs.said()
    for job in jobs:
        rows, commits, _ = found(job)
        assert (len(rows), commits) == (3, 1) and not (job.checkpoint / "commits" / "0").exists()
    landed.add(orders(3))
    assert run_jobs(spark, parse_config(text, {})) == 0
    for job in jobs:
        rows, commits, place = found(job)
        assert sorted(row["order_id"] for row in rows) == list(range(6)) and commits == 2
        last = max(rows, key=lambda row: int(row["order_id"]))
        assert (str(last["paid"]), last["lines"], dict(last["tags"])) == ("5.25", [{"sku": "a", "count": 5}], {"n": 5})
        assert (str(last["date"]), last["hour"]) == ("2026-01-02", 3)
        assert sorted(rows_by_duckdb(place, "order_id", job.name)) == [(number,) for number in range(6)]
        assert job.verify().filtered == len(job.rows(job.bad)) == 2


def test_what_a_table_cannot_have(spark: Any, tmp_path: Path) -> None:
    """All reasons are told before the query starts; and no job reads the files of a table as if they were a dataset."""
    job = job_of(tmp_path, "delta", "order_id TINYINT, paid DOUBLE")
    job.output = {**job.output, "partition_by": ["paid"]}
    Landed(tmp_path / "landed").add(orders(0))
    with pytest.raises(ConfigError) as caught:
        run_jobs(spark, job.config())
    assert [str(problem) for problem in caught.value.problems] == [
        f'spark.delta.output.partition_by[0]: "paid" is double: {_FOLDERS}',
        "spark.delta.output.format: a table of Delta cannot have these columns: tables have no type for order_id byte",
    ]
    assert not job.table.exists() and not job.checkpoint.exists()
    description = tmp_path / "landed" / "_fastwire/dataset.json"
    description.write_text(json.dumps(json.loads(description.read_text()) | {"table": "delta"}))
    with pytest.raises(DatasetMismatchError, match="is published in a table of Delta"):
        run_jobs(spark, job.config())
