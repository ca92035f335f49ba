"""A cluster of processes on loopback reads millions of records while an executor and a Python worker are killed.

Nothing is registered: Spark finds the format by its name.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from fastwire_daemon.devbroker.kafka import KafkaDevBroker
from fastwire_daemon.devbroker.pulsar import PulsarDevBroker
from fastwire_daemon.devbroker.tank import TankDevBroker
from tests.brokers.ports import free_ports
from tests.spark.session import JAVA
from tests.support.kafka.source_pipe import batch
from tests.support.source_pipe import entry
from tests.support.source_tree import ROOT
from tests.support.spark_scene import SCENES, Scene, serve
from tests.support.spark_source import eventually
from tests.support.tank.bundles import bundle
from tests.support.tcp_proxy import Proxy

pytestmark = pytest.mark.spark

PARTITIONS = 4
ROWS = 1000  # of an entry

SCRIPT = """
import sys
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from tests.spark.session import SETTINGS

builder = SparkSession.builder.master(sys.argv[1])
for key, value in (SETTINGS | {"spark.executor.memory": "600m", "spark.task.maxFailures": "8"}).items():
    builder = builder.config(key, value)
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
given = {"servers": sys.argv[2], "subscribe": "many"} | dict(each.split("=") for each in sys.argv[4:])
frame = spark.read.format("fastwire").options(**given).load()
# Each entry with the number of its rows, and sums that tell which of them there are.
entries = frame.selectExpr("partition", *sys.argv[3].split(";")).groupBy("partition", "entry").agg(
    F.count("row").alias("r"), F.sum("row").alias("n"), F.sum(F.col("row") * F.col("row")).alias("q")
)
print("rows", *entries.selectExpr(
    "sum(r)", "count(*)", "min(r)", "max(r)", "min(n)", "max(n)", "min(q)", "max(q)"
).collect()[0])
spark.stop()
"""
# What an entry is and where in it a row stands, and options that make many answers of what is read.
PLACES = {
    "pulsar": ("struct(ledger, offset) AS entry", "batchIndex", "receiverQueueSize=10000"),
    "kafka": (f"offset div {ROWS} AS entry", f"offset % {ROWS}", "fetchMaxBytes=20000"),
    "tank": (f"(offset - 1) div {ROWS} AS entry", f"(offset - 1) % {ROWS}", "fetchMaxBytes=20000"),
}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[str, list[psutil.Process]]]:
    """Master and two workers of one core each."""
    home = Path(os.environ["SPARK_HOME"])
    environment = os.environ | {
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_JAVA_OPTS": f"{JAVA} -Dspark.master.rest.enabled=false",
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
        eventually(
            lambda: all(b"uccessfully registered with master" in log.read_bytes() for log in logs), patience_s=240
        )
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


def store(scene: Scene, count: int) -> None:
    """As many entries in each partition."""
    scene.create("many", PARTITIONS)
    for index in range(PARTITIONS):
        if isinstance(scene.broker, KafkaDevBroker):
            scene.broker.append("many", [batch(0, ROWS)] * count, index)
        elif isinstance(scene.broker, PulsarDevBroker):
            scene.broker.append(f"many-partition-{index}", [entry(0, ROWS, size=90)] * count)
        elif isinstance(scene.broker, TankDevBroker):
            scene.broker.append("many", [bundle(0, ROWS)] * count, index)


@pytest.mark.parametrize(
    ("system", "count", "deaths"),
    [
        ("kafka", 100, (30, 150)),
        *(pytest.param(system, 2000, (500, 3000), marks=pytest.mark.soak) for system in sorted(SCENES)),
    ],
)
def test_millions_of_records_through_deaths(
    cluster: tuple[str, list[psutil.Process]], tmp_path: Path, system: str, count: int, deaths: tuple[int, int]
) -> None:
    master, workers = cluster
    scene = SCENES[system](**({"ledger_entries": 100_000} if system == "pulsar" else {}))
    with serve(scene), Proxy(scene.broker.port, scheme=system) as proxy:
        if isinstance(scene.broker, KafkaDevBroker):
            scene.broker.advertise(0, "127.0.0.1", proxy.port)
        store(scene, count)
        script = tmp_path / "script.py"
        script.write_text(SCRIPT)
        what, row, option = PLACES[system]
        columns = f"{what};{row} AS row"
        with subprocess.Popen(
            [sys.executable, str(script), master, proxy.url, columns, option],
            env=os.environ | {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                for frames, victim in zip(deaths, ("CoarseGrainedExecutorBackend", "pyspark.daemon"), strict=True):
                    while proxy.frames < frames:
                        assert process.poll() is None, process.communicate()
                        time.sleep(0.01)
                    proxy.stall()
                    eventually(lambda victim=victim: kill_one(workers, victim))  # type: ignore[misc]
                    proxy.resume()
                out, _ = process.communicate(timeout=1800)
            except BaseException:
                os.killpg(process.pid, signal.SIGKILL)
                raise
        whole = PARTITIONS * count
        sums = (sum(range(ROWS)), sum(row * row for row in range(ROWS)))
        wanted = (whole * ROWS, whole, ROWS, ROWS, sums[0], sums[0], sums[1], sums[1])
        assert f"rows {' '.join(map(str, wanted))}" in out, out[-3000:]
