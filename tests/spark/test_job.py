"""The job in one process: what decodes, what is put aside, what is dropped, and what a replayed batch does."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from fastwire_daemon.config import ConfigError
from fastwire_daemon.runtime.errors import ConfigurationRefused, DatasetError, DatasetMismatchError
from fastwire_daemon.spark.job.landed import stream_files, stream_landed
from fastwire_daemon.spark.job.output import BatchCounts, DatasetOutput
from fastwire_daemon.spark.job.run import RunningJob, run_jobs
from fastwire_daemon.spark.job.trial import try_job
from tests.spark import schemas
from tests.spark.jobs import Job
from tests.spark.landed import BASE, TOPIC, Landed
from tests.support.waiting import eventually

pytestmark = pytest.mark.spark

DDL = """\
order_id BIGINT NOT NULL,  -- who it is
amount DOUBLE,
lines ARRAY<STRUCT<sku: STRING, count: INT>>,
"""


def order(number: int, **more: Any) -> bytes:
    return json.dumps({"order_id": number, "amount": number / 2} | more).encode()


def json_job(folder: Path, **more: Any) -> Job:
    (folder / "orders.ddl").write_text(DDL)
    return Job(folder, decode={"format": "json", "schema": folder / "orders.ddl"}, **more)


def test_json_into_a_partitioned_table(spark: Any, tmp_path: Path) -> None:
    job = json_job(tmp_path, output={"partition_by": ["date", "hour"]}, source={"max_files": 1})
    landed = Landed(job.landed)
    landed.add([order(1, lines=[{"sku": "a", "count": 2}]), order(2)])
    landed.add([order(3), b"{broken", None, order(4)[:-1], b'{"amount": 1}', b'{"order_id": "x"}', b"\xff{}"])
    landed.add([order(5)], after=timedelta(days=1, hours=4))
    assert run_jobs(spark, job.config()) == 0
    rows = sorted(job.rows(), key=lambda row: row["order_id"])
    assert [row["order_id"] for row in rows] == [1, 2, 3, 5]
    first = rows[0]
    assert first["lines"] == [{"sku": "a", "count": 2}]
    assert (first["date"], first["hour"]) == ("2026-01-02", 3)
    assert (rows[3]["date"], rows[3]["hour"]) == ("2026-01-03", 7)
    place = ("_topic", "_partition", "_ledger", "_offset", "_batchIndex", "_timestamp")
    assert tuple(first[name] for name in place) == (TOPIC, -1, 7, 0, 0, BASE)
    bad = {row["batchIndex"]: row for row in job.rows(job.bad)}
    assert {index: row["reason"] for index, row in bad.items()} == {
        1: "InvalidJson at byte 1 of the value",
        2: "NoValue at byte 0 of the value",
        3: "Truncated at byte 29 of the value, in amount",
        4: "MissingField at byte 12 of the value, in order_id",
        5: "WrongType at byte 13 of the value, in order_id",
        6: "InvalidJson at byte 0 of the value",
    }
    assert bad[1]["value"] == b"{broken"
    assert (bad[1]["ledger"], bad[1]["offset"], bad[1]["topic"]) == (7, 1, TOPIC)
    report = job.verify()
    assert (report.entries, report.rows, report.filtered) == (3, 4, 6)
    assert job.verify(job.bad).rows == 6
    # Spark reads it back by listing.
    table = spark.read.parquet(str(job.table))
    assert dict(table.dtypes)["lines"] == "array<struct<sku:string,count:int>>"
    assert table.filter("date = '2026-01-03'").count() == 1
    assert {row["date"] for row in table.select("date").collect()} == {date(2026, 1, 2), date(2026, 1, 3)}


def test_a_second_run_goes_on(spark: Any, tmp_path: Path) -> None:
    job = json_job(tmp_path)
    landed = Landed(job.landed)
    landed.add([order(1)])
    assert run_jobs(spark, job.config()) == 0
    assert run_jobs(spark, job.config()) == 0
    landed.add([order(2)])
    assert run_jobs(spark, job.config()) == 0
    assert sorted(row["order_id"] for row in job.rows()) == [1, 2]
    assert job.verify().entries == 2


def test_tasks_read_files_behind_the_checkpoint_of_a_scan_by_spark(spark: Any, tmp_path: Path) -> None:
    """A checkpoint from before tasks read files, or of a job that deduplicated, goes on with the new files."""
    landed = Landed(tmp_path / "landed dataset")
    names: list[str] = []

    def run(frame: Any, take: Callable[[Any, int], None]) -> None:
        query = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = query.trigger(availableNow=True).start()
        assert query.awaitTermination(100)
        assert query.exception() is None

    landed.add([order(1)])
    run(stream_landed(spark, landed.path, 10), lambda frame, _: None)
    landed.add([order(2)])
    run(stream_files(spark, landed.path, 10), lambda frame, _: names.extend(row.path for row in frame.collect()))
    assert names == [f"file:{landed.path}/000000000002-0.parquet"]


def test_duplicates_and_late_rows(spark: Any, tmp_path: Path, lines: Callable[[], list[dict[str, Any]]]) -> None:
    job = json_job(tmp_path, dedupe={"key": ["order_id"], "watermark": "1 hour"}, source={"max_files": 1})
    landed = Landed(job.landed)
    hour = timedelta(hours=1)
    landed.add([order(1), order(1, amount=9.0), order(2), b"bad", b"bad"])
    landed.add([order(2), order(3)], after=hour / 2)
    landed.add([order(4)], after=3 * hour)
    landed.add([order(7)], after=3 * hour)  # Spark asks the watermark of the batch before
    landed.add([order(5), b"bad"], after=hour)  # two hours behind: too late
    landed.add([order(1), order(6)], after=4 * hour)  # 1 has been forgotten by now
    assert run_jobs(spark, job.config()) == 0
    assert sorted(row["order_id"] for row in job.rows()) == [1, 1, 2, 3, 4, 6, 7]
    # Bad rows are neither duplicates of each other nor late.
    assert [row["reason"] for row in job.rows(job.bad)] == ["InvalidJson at byte 0 of the value"] * 3
    batches = [line for line in lines() if line["event"] == "batch" and line["rows_in"]]
    assert [line["rows_in"] for line in batches] == [5, 2, 1, 1, 2, 2]
    assert [line["rows_out"] for line in batches] == [2, 1, 1, 1, 0, 2]
    assert [line["dead_letters"] for line in batches] == [2, 0, 0, 0, 1, 0]
    assert [line["duplicates"] for line in batches] == [1, 1, 0, 0, 0, 0]
    assert [line["late"] for line in batches] == [0, 0, 0, 0, 1, 0]
    assert all(line["lag_seconds"] > 0 for line in batches if line["rows_out"])


def test_null_keys_are_bad(spark: Any, tmp_path: Path) -> None:
    job = Job(tmp_path, dedupe={"key": ["key"], "watermark": "1h"})
    Landed(job.landed).add([b"a", b"b"])
    assert run_jobs(spark, job.config()) == 0
    assert [row["reason"] for row in job.rows(job.bad)] == ["NullKey: key is null and part of the key"] * 2


def test_a_replayed_batch_is_recognised(spark: Any, tmp_path: Path) -> None:
    """Spark forgets that a batch is done (killed between the output and its own commit): nothing is there twice.

    Without keys: test_crash.py, test_tables.py.
    """
    job = json_job(tmp_path, dedupe={"key": ["order_id"], "watermark": "1 hour"}, source={"max_files": 1})
    landed = Landed(job.landed)
    landed.add([order(1), order(2), b"bad"])
    landed.add([order(3), b"bad"])
    assert run_jobs(spark, job.config()) == 0
    before = job.verify().entries
    commits = sorted((job.checkpoint / "commits").glob("[0-9]*"), key=lambda file: int(file.name))
    for file in commits[-1:]:
        file.unlink()
        (file.parent / f".{file.name}.crc").unlink(missing_ok=True)
    landed.add([order(3), order(4), b"bad"])
    assert run_jobs(spark, job.config()) == 0
    assert sorted(row["order_id"] for row in job.rows()) == [1, 2, 3, 4]
    assert len(job.rows(job.bad)) == 3
    assert job.verify().entries > before


def test_a_table_of_another_checkpoint_is_refused(spark: Any, tmp_path: Path) -> None:
    job = json_job(tmp_path)
    Landed(job.landed).add([order(1)])
    assert run_jobs(spark, job.config()) == 0
    shutil.rmtree(job.checkpoint)
    with pytest.raises(ConfigurationRefused, match="was written with another checkpoint"):
        run_jobs(spark, job.config())
    assert len(job.rows()) == 1


def test_a_checkpoint_over_another_source_is_refused(spark: Any, tmp_path: Path) -> None:
    job = json_job(tmp_path)
    Landed(job.landed).add([order(1)])
    offsets = job.checkpoint / "offsets"
    offsets.mkdir(parents=True)
    (offsets / "9").write_text('v1\n{}\n{"logOffset":0}')
    (offsets / "10").write_text('v1\n{}\n{"p":{},"sys":"kafka","v":1}')
    (offsets / ".10.crc").touch()
    with pytest.raises(ConfigurationRefused, match="to a job that reads kafka, and this one reads a dataset: it needs"):
        run_jobs(spark, job.config())
    assert not job.table.exists()


def test_a_table_that_is_gone_is_refused(spark: Any, tmp_path: Path) -> None:
    job = json_job(tmp_path)
    landed = Landed(job.landed)
    landed.add([order(1)])
    assert run_jobs(spark, job.config()) == 0
    shutil.rmtree(job.table)
    landed.add([order(2)])
    with pytest.raises(ConfigurationRefused, match="was it deleted, or is it not mounted"):
        run_jobs(spark, job.config())


# Values that from_json takes, and the reason why they are dead letters.
SLOPPY = {
    b'{"f": NaN}': "InvalidJson",
    b'{"f": 1e999}': "OutOfRange",  # infinity
    b'{"small": 128}': "OutOfRange",  # -128
    b'{"d": 1.005}': "Inexact",  # 1.01
    b'{"day": "2026-1-2"}': "InvalidTime",
    b'{"at": "2026-01"}': "InvalidTime",
    b'{"n": 1, "n": 2}': "DuplicateKey",
    b'{"n": 1} x': "TrailingBytes",
    b"{'n': 1}": "InvalidJson",
}
ALIKE = [
    b'{"n": 1, "f": 2.5, "s": "\xc3\xa9\\u00e9\\n", "d": 12.25, "day": "2026-01-02", "b": "aGk=", "y": true}',
    b'{"at": "2026-01-02T03:04:05.123456Z", "local": "2026-01-02T03:04:05"}',
    b'{"at": "2026-01-02 03:04:05.123456789", "local": "2026-01-02 03:04:05.5"}',
    b'{"at": "2026-01-02", "small": -128, "short": 32767}',
    b'{"at": 1767323045}',
    b'{"s": 5}',
    b'{"s": {"a":[1,2]}}',
    b'{"s": false}',
    b'{"list": [1, null, 3], "map": {"a": 1.5}, "inner": {"s": [1], "n": null}}',
    b'{"N": 1, "other": {}}',
    b"{}",
    b' {"n": -9223372036854775808} ',
    b'{"f": "NaN"}',
    b'{"n": 9223372036854775808}',
    b'{"n": 1.5e0}',
    b'[{"n": 1}]',
    b'{"n": true}',
    b'{"list": {}}',
    b'{"d": 123456}',
    b'{"b": "?"}',
    b'{"n": 1',
    b"1",
]
COLUMNS = """n BIGINT, f DOUBLE, s STRING, d DECIMAL(5,2), day DATE, at TIMESTAMP, local TIMESTAMP_NTZ, small TINYINT,
short SMALLINT, b BINARY, y BOOLEAN, list ARRAY<INT>, map MAP<STRING, FLOAT>,
inner STRUCT<s: STRING, n: INT NOT NULL>"""


def test_json_is_read_as_by_from_json(spark: Any, tmp_path: Path) -> None:
    """A value has the same columns, or it is a dead letter where ``from_json`` guesses or loses something."""
    from pyspark.sql import functions as fn

    values = [*ALIKE, *SLOPPY]
    (tmp_path / "all.ddl").write_text(COLUMNS)
    job = Job(tmp_path, decode={"format": "json", "schema": tmp_path / "all.ddl"})
    Landed(job.landed).add(values)
    assert run_jobs(spark, job.config()) == 0
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "corrupt"}
    text = fn.col("value").cast("string")
    parsed = spark.read.parquet(str(job.landed)).select(
        "batchIndex", fn.from_json(text, COLUMNS + ", corrupt STRING", options).alias("record")
    )
    expected = {}
    for row in parsed.collect():
        record = row["record"].asDict(recursive=True)
        if record.pop("corrupt") is None:
            expected[row["batchIndex"]] = record
    bad = {values[row["batchIndex"]]: row["reason"].split()[0] for row in job.rows(job.bad)}
    assert {value: reason for value, reason in bad.items() if values.index(value) in expected} == SLOPPY
    assert expected.keys() - {values.index(value) for value in SLOPPY} == {row["_batchIndex"] for row in job.rows()}
    for row in job.rows():
        one = expected[row["_batchIndex"]]
        row["map"] = None if row["map"] is None else dict(row["map"])
        row["at"] = None if row["at"] is None else row["at"].replace(tzinfo=None)  # as PySpark returns it
        assert repr({name: row[name] for name in one}) == repr(one)  # NaN is not equal to itself


def test_avro_and_protobuf(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "order.avsc").write_text(json.dumps(schemas.AVRO))
    (tmp_path / "order.desc").write_bytes(schemas.descriptor_set())
    decodes = {
        "avro": {"format": "avro", "schema": tmp_path / "order.avsc", "framing": "confluent", "ids": [7]},
        "protobuf": {"format": "protobuf", "schema": tmp_path / "order.desc", "message": "shop.Order"},
    }
    for form, decode in decodes.items():
        folder = tmp_path / form
        folder.mkdir()
        job = Job(folder, decode=decode, output={"partition_by": ["kind"], "metadata": False})
        encode = schemas.avro if form == "avro" else schemas.protobuf
        Landed(job.landed).add([encode(1), encode(2), encode(3)[:-1], None])
        assert run_jobs(spark, job.config()) == 0
        rows = spark.read.parquet(str(job.table)).orderBy("order_id").collect()
        assert [row["order_id"] for row in rows] == [1, 2]
        assert [row["kind"] for row in rows] == ["RETAIL", "RETAIL"]
        assert [dict(row["tags"]) for row in rows] == [{"n": 1}, {"n": 2}]
        assert [[line["sku"] for line in row["lines"]] for row in rows] == [["a", "b"]] * 2
        assert len(job.rows(job.bad)) == 2
        job.verify()


def test_rows_as_they_are(spark: Any, tmp_path: Path) -> None:
    job = Job(tmp_path, output={"partition_by": ["date"], "compression": "snappy"})
    Landed(job.landed).add([b"a", None, b"\xff"])
    assert run_jobs(spark, job.config()) == 0
    assert [row["value"] for row in job.rows()] == [b"a", None, b"\xff"]
    assert job.verify().rows == 3


def test_a_stream_goes_on_until_it_is_stopped(spark: Any, tmp_path: Path) -> None:
    job = json_job(tmp_path, trigger="200ms")
    landed = Landed(job.landed)
    landed.add([order(1)])
    running = RunningJob(spark, "orders", job.config().spark["orders"])
    running.start()
    try:
        for number in (2, 3):
            before = running.finished
            landed.add([order(number)])
            eventually(lambda before=before: running.finished > before and running.at_rest)  # type: ignore[misc]
    finally:
        running.stop()
    assert running.failure() is None
    assert run_jobs(spark, replace(job, trigger="available-now").config()) == 0
    assert sorted(row["order_id"] for row in job.rows()) == [1, 2, 3]


@pytest.mark.parametrize(("times", "code"), [(2, 0), (9, 1)])
def test_a_process_that_does_not_come_up_is_tried_again(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int, code: int
) -> None:
    """Spark gives its Python processes ten seconds to start; a busy machine must not end a job."""
    left, write = times, DatasetOutput.write

    def failing(self: DatasetOutput, frame: Any, batch: int) -> BatchCounts:
        nonlocal left
        counts = write(self, frame, batch)
        if left:
            left -= 1
            raise RuntimeError("org.apache.spark.SparkException: Python worker failed to connect back.")
        return counts

    monkeypatch.setattr(DatasetOutput, "write", failing)
    job = json_job(tmp_path)
    Landed(job.landed).add([order(1), order(2), b"bad"])
    assert run_jobs(spark, job.config()) == code
    assert left == (0 if code == 0 else times - 4)
    assert sorted(row["order_id"] for row in job.rows()) == [1, 2]
    assert job.verify().rows == 2


def test_trial(spark: Any, tmp_path: Path) -> None:
    job = json_job(tmp_path, output={"partition_by": ["date"]}, dedupe={"key": ["order_id"], "watermark": "1h"})
    Landed(job.landed).add([order(1), order(2), b"bad", None, None])
    trial = try_job(spark, "orders", job.config().spark["orders"], rows=1000)
    assert (trial.rows, trial.dead_letters) == (5, 3)
    assert trial.reasons == [("NoValue at byte 0 of the value", 2), ("InvalidJson at byte 0 of the value", 1)]
    assert trial.columns[:2] == [("order_id", "bigint"), ("amount", "double")]
    assert trial.columns[-1] == ("date", "date")
    assert not job.table.exists()
    assert not job.checkpoint.exists()


def refused(spark: Any, job: Job) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        run_jobs(spark, job.config())
    return [str(problem) for problem in caught.value.problems]


def test_what_only_spark_can_refuse(spark: Any, tmp_path: Path) -> None:
    job = json_job(tmp_path, output={"partition_by": ["dat"]}, dedupe={"key": ["orderid", "x"], "watermark": "1h"})
    with pytest.raises(DatasetError, match="there is no dataset at"):
        run_jobs(spark, job.config())
    Landed(job.landed).add([order(1)])
    known = "there are order_id, amount, lines, _topic, _partition, _ledger, _offset, _batchIndex, _timestamp"
    assert refused(spark, job) == [
        f'spark.orders.output.partition_by[0]: there is no column "dat": {known}',
        'spark.orders.dedupe.key[0]: there is no column "orderid", did you mean "order_id"?',
        f'spark.orders.dedupe.key[1]: there is no column "x": {known}',
    ]
    ddl = tmp_path / "orders.ddl"
    ddl.write_text("order_id BIGINTT")
    (problem,) = refused(spark, job)
    assert problem.startswith(f"{ddl}: spark.orders.decode.schema: is not DDL: ")
    ddl.unlink()
    assert "No such file" in refused(spark, job)[0]
    ddl.write_text("order_id BIGINT, raw BINARY, tags ARRAY<STRING>")
    job = replace(job, dedupe=None, output={"partition_by": ["raw", "tags"]})
    assert refused(spark, job) == [
        'spark.orders.output.partition_by[0]: "raw" is binary, which cannot be a folder name',
        'spark.orders.output.partition_by[1]: "tags" is array<string>, which cannot be a folder name',
    ]
    ddl.write_text("a INT, A INT")
    assert "which Spark does not distinguish" in refused(spark, replace(job, dedupe=None, output={}))[0]


def test_a_table_gets_new_columns_and_keeps_types(spark: Any, tmp_path: Path) -> None:
    job = json_job(tmp_path)
    landed = Landed(job.landed)
    landed.add([order(1)])
    assert run_jobs(spark, job.config()) == 0
    (tmp_path / "orders.ddl").write_text(DDL + "city STRING, small TINYINT")
    landed.add([order(2, city="Ulm", small=3)])
    assert run_jobs(spark, job.config()) == 0
    (tmp_path / "orders.ddl").write_text("order_id BIGINT NOT NULL")
    landed.add([order(3)])
    assert run_jobs(spark, job.config()) == 0
    table = spark.read.option("mergeSchema", "true").parquet(str(job.table)).orderBy("order_id")
    found = [(row["order_id"], row["amount"], row["city"], row["small"]) for row in table.collect()]
    assert found == [(1, 0.5, None, None), (2, 1.0, "Ulm", 3), (3, None, None, None)]
    assert job.verify().placed_files == 0  # of a dataset, whose files have no positions of rows
    (tmp_path / "orders.ddl").write_text("order_id INT")
    with pytest.raises(DatasetMismatchError, match="order_id int64 cannot become order_id int32 in the files of a job"):
        run_jobs(spark, job.config())
    with pytest.raises(DatasetMismatchError, match="the job reads Parquet that the daemon has landed"):
        run_jobs(spark, replace(job, source={"dataset": job.table}, output={"path": tmp_path / "other"}).config())
