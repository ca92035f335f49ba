"""Other versions of Spark, downloaded: 3.5 and later read what is landed, 4.0 and later read topics and run jobs."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from fastwire.pulsar.format.payload import Record, encode_batch_entry
from tests.spark.home import spark_home
from tests.spark.jobs import Job
from tests.spark.landed import BASE, Landed
from tests.spark.session import OLD_SETTINGS, said
from tests.support.spark_scene import ROWS, SCENES, Scene, serve
from tests.support.spark_source import serving

pytestmark = [pytest.mark.spark, pytest.mark.soak]

ROOT = Path(__file__).parents[2]
READERS = ("3.5", "4.0", "4.1", "4.2")
RUNNERS = ("4.0", "4.1", "4.2")

Installed = Callable[[str], dict[str, str]]

READ = """
import json, sys
from pyspark.sql import SparkSession

path, checkpoint, settings = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
builder = SparkSession.builder.master("local[2]")
for key, value in settings.items():
    builder = builder.config(key, value)
spark = builder.getOrCreate()
plain = spark.read.parquet(path)
seen = []
stream = spark.readStream.schema(plain.schema).parquet(path).writeStream.trigger(availableNow=True)
query = stream.option("checkpointLocation", checkpoint).foreachBatch(
    lambda frame, batch: seen.extend(bytes(row.value).decode() for row in frame.select("value").collect())
).start()
query.awaitTermination()
values = [bytes(row.value).decode() for row in plain.select("value").collect()]
print("FOUND " + json.dumps([spark.version, sorted(values), sorted(seen), sorted(plain.dtypes)]))
"""


TOPICS = """
import json, sys
from pyspark.sql import SparkSession
from tests.spark.session import started

given, checkpoint, settings = json.loads(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
builder = SparkSession.builder.master("local[2]")
for key, value in settings.items():
    builder = builder.config(key, value)
spark = builder.getOrCreate()  # finds the format by itself

def values(frame):
    return sorted(bytes(row.value).decode() for row in frame.select("value").collect())

plain = values(spark.read.format("fastwire").options(**given).load())
batches = []
given["startingOffsets"] = "earliest"
if spark.version >= "4.2":  # before, a query that ends would end behind the limit
    given["maxRecordsPerTrigger"] = "50"  # far below what is there, however rows are estimated
stream = spark.readStream.format("fastwire").options(**given).load().writeStream.trigger(availableNow=True)
query = started(stream.option("checkpointLocation", checkpoint).foreachBatch(
    lambda frame, batch: batches.append(values(frame))
).start)
query.awaitTermination()
print("FOUND " + json.dumps([spark.version, plain, batches]))
"""


@pytest.fixture(scope="session")
def installed() -> Installed:
    """The environment in which one version of PySpark is found before the installed one; kept for later runs."""
    folder = ROOT / "build" / "sparks"

    def install(version: str) -> dict[str, str]:
        place = folder / version
        if not place.exists():
            part = folder / f"{version}.part"
            command = [sys.executable, "-m", "pip", "install", "-q", "--target", str(part), f"pyspark~={version}.0"]
            subprocess.run(command, check=True)
            part.rename(place)
        home = spark_home(str(place))
        assert home is not None
        path = f"{place}{os.pathsep}{ROOT}"
        return {**os.environ, "PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable, "SPARK_HOME": home}

    return install


@pytest.mark.parametrize("version", READERS)
def test_what_is_landed_is_read(installed: Installed, tmp_path: Path, version: str) -> None:
    landed = Landed(tmp_path / "landed")
    values = [f"value {number}" for number in range(30)]
    for first in range(0, 30, 10):
        landed.add([value.encode() for value in values[first : first + 10]], after=timedelta(hours=first))
    arguments = [str(landed.path), str(tmp_path / "checkpoint"), json.dumps(OLD_SETTINGS)]
    found, plain, seen, types = said(installed(version), READ, *arguments)
    assert found.startswith(version)
    assert plain == seen == sorted(values)
    assert ["timestamp", "timestamp"] in types
    assert ["value", "binary"] in types


@pytest.mark.parametrize("scene", SCENES.values(), ids=SCENES)
@pytest.mark.parametrize("version", RUNNERS)
def test_topics_are_read(installed: Installed, tmp_path: Path, version: str, scene: type[Scene]) -> None:
    """As a batch, and as a stream that goes on from its checkpoint; only 4.2 and later know limits here."""
    with serve(scene(), 100) as brokers:
        given = {"servers": brokers.url, "subscribe": "t"}
        arguments = [json.dumps(given), str(tmp_path / "checkpoint"), json.dumps(OLD_SETTINGS)]
        for first, count in ((0, 100), (100, 50)):
            brokers.append(first, count if first else 0)
            found, plain, batches = said(installed(version), TOPICS, *arguments)
            assert found.startswith(version)
            assert plain == sorted(f"{number}:{row}" for number in range(first + count) for row in range(ROWS))
            new = sorted(f"{number}:{row}" for number in range(first, first + count) for row in range(ROWS))
            assert sorted(value for batch in batches for value in batch) == new
            assert (len([batch for batch in batches if batch]) > 1) == (version >= "4.2")


@pytest.mark.parametrize("over", ["landed", "brokers"])
@pytest.mark.parametrize("version", RUNNERS)
def test_the_job_runs(installed: Installed, tmp_path: Path, version: str, over: str) -> None:
    (tmp_path / "orders.ddl").write_text("order_id BIGINT NOT NULL")
    job = Job(
        tmp_path,
        decode={"format": "json", "schema": tmp_path / "orders.ddl"},
        dedupe={"key": ["order_id"], "watermark": "1 hour"},
        output={"partition_by": ["date"]},
        source={"max_files": 1},
    )
    batches = []
    for first in (0, 10):
        good = [b'{"order_id": %d}' % number for number in range(first, first + 10)]
        batches.append([*good, good[0], b"bad"])
    with serving() as broker:
        if over == "brokers":
            job.source = {"url": broker.url, "topics": ["t"], "subscription": "job"}
        landed = Landed(job.landed)
        for values in batches:
            landed.add(values)
            records = [Record(value=value) for value in values]
            published = int(BASE.timestamp() * 1000)
            broker.append("t", [encode_batch_entry(records, producer_name="p", sequence_id=0, publish_time=published)])
        settings = [part for key, value in OLD_SETTINGS.items() for part in ("--conf", f"{key}={value}")]
        command = [sys.executable, "-m", "fastwire_daemon.cli", "spark", str(job.write()), "--master", "local[2]"]
        for _ in range(2):  # the second finds nothing to do
            done = subprocess.run(
                [*command, *settings], env=installed(version), capture_output=True, text=True, timeout=900
            )
            assert done.returncode == 0, done.stderr[-3000:]
    assert sorted(row["order_id"] for row in job.rows()) == list(range(20))
    assert len(job.rows(job.bad)) == 2
    job.verify()
