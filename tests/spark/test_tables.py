"""Tables of Delta and Iceberg that a job writes: each record once, by their own libraries and by DuckDB."""

import json
import signal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from fastwire_daemon.config import ConfigError, parse_config
from fastwire_daemon.dataset.proof.verify import verify
from fastwire_daemon.dataset.storage.bucket import Bucket, open_bucket
from fastwire_daemon.runtime.errors import DatasetMismatchError
from fastwire_daemon.spark.job.run import run_jobs
from tests.spark.jobs import Job
from tests.spark.landed import Landed
from tests.spark.runs import Runs
from tests.support import icebergs
from tests.support.s3_server import Settings, new_bucket, s3_server
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


def test_tables_in_an_object_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver dies behind the entry of the first batch. Driver and executors have the key in their environment."""
    landed = Landed(tmp_path / "landed")
    landed.add(orders(0))
    landed.add(orders(3))
    with s3_server() as settings:
        for name in ("access_key_id", "secret_access_key"):
            monkeypatch.setenv(f"AWS_{name}".upper(), settings[name])
        store = {name: settings[name] for name in ("endpoint", "region")} | {"allow_http": True}
        root = new_bucket(settings, tmp_path.name).url.rpartition("/")[0]
        jobs = [job_of(tmp_path, form) for form in ("parquet", "delta", "iceberg")]
        for job in jobs:
            job.output = {**job.output, "path": f"{root}/{job.name}/table", "store": store}
        runs = Runs(jobs[0])
        jobs[0].write().write_text("".join(job.text() for job in jobs))
        assert runs.run({"at": "entry-linked", "nth": 3, "together": True}) == -signal.SIGKILL, runs.said()
        assert runs.run({}) == 0, runs.said()
        for job in jobs:
            bucket = open_bucket(f"{root}/{job.name}/table", settings)
            report = verify("", medium=bucket)
            assert report.ok, report.problems
            assert sorted(numbers_in_store(job, bucket, settings)) == list(range(6))
            # The lock of the killed driver: its lease has not ended.
            assert len([name for name in bucket.walk("_fastwire/staging/") if name.endswith(".task")]) <= 1


def numbers_in_store(job: Job, bucket: Bucket, settings: Settings) -> list[int]:
    """The orders of a table in a store."""
    if job.name == "delta":
        return list(DeltaTable(bucket.url, storage_options=settings).to_pyarrow_table()["order_id"].to_pylist())
    if job.name == "iceberg":
        table = icebergs.database(job.folder, settings).load_table(icebergs.NAME)
        return list(table.scan().to_arrow()["order_id"].to_pylist())
    names = [name for name in bucket.walk("") if not name.startswith("_")]
    files = [pa.BufferReader(bucket.get(name)) for name in names]
    return [number for file in files for number in pq.read_table(file)["order_id"].to_pylist()]


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
