"""A cluster of processes on loopback reads eight million records while an executor and a Python worker are killed."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.brokers.ports import free_ports
from tests.proxy import Proxy
from tests.source_pipe import entry
from tests.spark_source import eventually, serving
from tests.tree import ROOT

pytestmark = [pytest.mark.spark, pytest.mark.soak]

PARTITIONS = 4
ENTRIES = 2000  # of a partition
ROWS = 1000  # of an entry

SCRIPT = """
import sys
from pyspark.sql import SparkSession
from tests.spark.session import SETTINGS
from fastwire_daemon.spark.register import FastwireSource

builder = SparkSession.builder.master(sys.argv[1])
for key, value in (SETTINGS | {"spark.executor.memory": "600m", "spark.task.maxFailures": "8"}).items():
    builder = builder.config(key, value)
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
spark.dataSource.register(FastwireSource)
given = {"servers": sys.argv[2], "subscribe": "many", "columns": "partition,ledger,offset,batchIndex"}
frame = spark.read.format("fastwire").options(**given).load()
rows = frame.groupBy("partition", "ledger", "offset").agg({"batchIndex": "count"}).toDF("p", "l", "o", "n")
print("rows", *rows.selectExpr("sum(n)", "count(*)", "min(n)", "max(n)").collect()[0])
spark.stop()
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[str, list[psutil.Process]]]:
    """Master and two workers of one core each."""
    import pyspark

    home = Path(pyspark.__file__).parent
    environment = os.environ | {
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_JAVA_OPTS": "-Dspark.master.rest.enabled=false",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT),
    }
    port, web, *others = free_ports(4)
    master = f"spark://127.0.0.1:{port}"
    package = "org.apache.spark.deploy"
    commands = [
        [f"{package}.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", str(web)],
        *(
            [
                *(f"{package}.worker.Worker", "--host", "127.0.0.1", "-c", "1", "-m", "1g"),
                *("--webui-port", str(other), "-d", str(tmp_path / f"worker-{other}"), master),
            ]
            for other in others
        ),
    ]
    running = []
    try:
        for number, command in enumerate(commands):
            log = (tmp_path / f"log-{number}").open("wb")
            running.append(
                subprocess.Popen(
                    [home / "bin" / "spark-class", *command],
                    env=environment,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )
            log.close()
        logs = [tmp_path / f"log-{number}" for number in range(1, len(commands))]
        eventually(lambda: all(b"uccessfully registered with master" in log.read_bytes() for log in logs), 240)
        yield master, [psutil.Process(each.pid) for each in running[1:]]
    finally:
        for each in running:
            os.killpg(each.pid, signal.SIGKILL)
            each.wait()


def kill_one(workers: list[psutil.Process], what: str) -> bool:
    """Kill a process below the workers that is called so and has no children of that name; whether there was one."""
    for worker in workers:
        for each in worker.children(recursive=True):
            try:
                if what in " ".join(each.cmdline()) and not any(
                    what in " ".join(child.cmdline()) for child in each.children()
                ):
                    each.kill()
                    return True
            except psutil.NoSuchProcess:
                pass
    return False


def test_eight_million_records_through_deaths(cluster: tuple[str, list[psutil.Process]], tmp_path: Path) -> None:
    master, workers = cluster
    with serving(ledger_entries=100_000) as broker, Proxy(broker.port) as proxy:
        broker.create_topic("many", PARTITIONS)
        stored = entry(0, ROWS, size=90)
        for index in range(PARTITIONS):
            broker.append(f"many-partition-{index}", [stored] * ENTRIES)
        script = tmp_path / "script.py"
        script.write_text(SCRIPT)
        with subprocess.Popen(
            [sys.executable, str(script), master, proxy.url],
            env=os.environ | {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                for frames, victim in ((500, "CoarseGrainedExecutorBackend"), (3000, "pyspark.daemon")):
                    eventually(lambda frames=frames: proxy.frames >= frames, 600)  # type: ignore[misc]
                    proxy.stall()
                    eventually(lambda victim=victim: kill_one(workers, victim), 60)  # type: ignore[misc]
                    proxy.resume()
                out, _ = process.communicate(timeout=1800)
            except BaseException:
                os.killpg(process.pid, signal.SIGKILL)
                raise
        count = PARTITIONS * ENTRIES
        assert f"rows {count * ROWS} {count} {ROWS} {ROWS}" in out, out[-3000:]
