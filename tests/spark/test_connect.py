"""``format("fastwire")`` over Spark Connect: a server in processes of its own, and clients that have no Java."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.brokers.ports import free_ports
from tests.spark.session import SETTINGS, said
from tests.support.source_tree import ROOT
from tests.support.spark_scene import ROWS, SCENES, Scene, serve
from tests.support.spark_source import eventually

pytestmark = [pytest.mark.spark, pytest.mark.soak]

CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"
CLIENT = """
import json, sys
from pyspark.sql import SparkSession
from tests.spark.session import started
from fastwire_daemon.spark.register import FastwireSource

spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
given, folder = json.loads(sys.argv[2]), sys.argv[3]

def values(frame):
    return sorted(bytes(row.value).decode() for row in frame.select("value").collect())

def read():
    try:
        return values(spark.read.format("fastwire").options(**given).load())
    except Exception as exc:
        return str(exc)

before = read()
spark.dataSource.register(FastwireSource)
plain = read()
streamed, batches = [], []
if isinstance(plain, list):
    stream = spark.readStream.format("fastwire").options(**given, startingOffsets="earliest", maxRecordsPerTrigger="50")
    writer = stream.load().writeStream.format("parquet").option("path", folder + "/out").trigger(availableNow=True)
    query = started(writer.option("checkpointLocation", folder + "/checkpoint").start)
    query.awaitTermination()
    batches = [progress["numInputRows"] for progress in query.recentProgress]
    streamed = values(spark.read.parquet(folder + "/out"))
print("FOUND " + json.dumps([type(spark).__module__, before, plain, streamed, batches]))
"""


@pytest.fixture(scope="module", autouse=True)
def installed() -> None:
    """Name what PySpark needs for this and does not bring."""
    missing = [name for name in ("grpc", "grpc_status", "google.rpc") if find_spec(name) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)}: not installed; Spark Connect needs: pip install 'pyspark[connect]'")


@contextmanager
def server(folder: Path, path: Path) -> Iterator[str]:
    """A server with two threads; its Python looks for modules in ``path`` first. Gives its URL."""
    [port] = free_ports(1)
    more = {"spark.connect.grpc.binding.address": "127.0.0.1", "spark.connect.grpc.binding.port": str(port)}
    settings = [part for key, value in (SETTINGS | more).items() for part in ("--conf", f"{key}={value}")]
    submit = str(Path(sys.executable).with_name("spark-submit"))
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(
            [submit, "--master", "local[2]", "--class", CLASS, *settings],
            env=os.environ | {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(path), "SPARK_CONNECT_MODE": "0"},
            cwd=folder,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        eventually(lambda: listening(port), patience_s=100)
        yield f"sc://127.0.0.1:{port}"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def listening(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


@pytest.fixture(scope="module")
def with_format(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server whose Python can import the format, and does not find it by itself."""
    folder = tmp_path_factory.mktemp("with")
    path = folder / "path"
    path.mkdir()
    for name, place in (("fastwire", "fastwire"), ("fastwire_daemon", "daemon")):
        (path / name).symlink_to(ROOT / place)
    # An empty module of the name that Spark looks for: it has no format to offer.
    (path / "pyspark_fastwire.py").touch()
    with server(folder, path) as url:
        yield url


def found(url: str, scene: Scene, folder: Path) -> Any:
    """Return the result of a client."""
    given = {"servers": scene.url, "subscribe": "t"}
    return said(os.environ | {"PYTHONPATH": str(ROOT)}, CLIENT, url, json.dumps(given), str(folder))


@pytest.mark.parametrize("kind", SCENES.values(), ids=SCENES)
def test_a_client_registers_the_format_of_the_server(with_format: str, tmp_path: Path, kind: type[Scene]) -> None:
    with serve(kind(), 100) as scene:
        session, before, plain, streamed, batches = found(with_format, scene, tmp_path)
        assert session == "pyspark.sql.connect.session"
        assert "DATA_SOURCE_NOT_FOUND" in before
        assert plain == streamed == sorted(f"{number}:{row}" for number in range(100) for row in range(ROWS))
        assert len(batches) > 1


def test_a_server_without_the_format_cannot_be_given_it(tmp_path: Path) -> None:
    path = tmp_path / "path"
    path.mkdir()
    for name in ("fastwire_daemon", "pyspark_fastwire"):
        (path / f"{name}.py").write_text("raise ModuleNotFoundError(f\"No module named '{__name__}'\")\n")
    with serve(next(iter(SCENES.values()))(), 1) as scene, server(tmp_path, path) as url:
        _, before, plain, *_ = found(url, scene, tmp_path)
        assert "DATA_SOURCE_NOT_FOUND" in before
        assert "No module named 'fastwire_daemon'" in plain
