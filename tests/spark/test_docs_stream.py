"""The stream of docs/spark.md from Pulsar to Kafka, as printed, in a Spark of its own."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fastwire_daemon.spark.source.datasource import BatchReader
from tests.daemon.spark.source.datasource.playing import given, values
from tests.spark.session import SETTINGS, SLOW, TRIES
from tests.support.source_tree import ROOT
from tests.support.spark_scene import ROWS, KafkaScene, PulsarScene, serve

pytestmark = pytest.mark.spark

# As the page asks for: by TCP a process does not notice at once that the other side has gone.
UNIX_SOCKETS = {"spark.python.unix.domain.socket.enabled": "true"}
SESSION = """\
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[2]")
for key, value in {settings}.items():
    builder = builder.config(key, value)
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
"""
END = """
query.processAllAvailable()
query.stop()
spark.stop()
"""


def test_the_stream_as_printed(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "spark.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python pyspark\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert len(blocks) == 2
    with serve(PulsarScene(), 30) as pulsar, serve(KafkaScene()) as kafka:
        script = "\n".join([SESSION.format(settings=SETTINGS | UNIX_SOCKETS), *blocks, END])
        for printed, used in (
            ("pulsar://127.0.0.1:6650", pulsar.url),
            ("kafka://127.0.0.1:9092", kafka.url),
            ('"orders"', '"t"'),
            ('"loud-orders"', '"t"'),
            ('"checkpoint"', repr(str(tmp_path / "checkpoint"))),
        ):
            assert printed in script
            script = script.replace(printed, used)
        env = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}
        for _ in range(TRIES):
            done = subprocess.run(
                [sys.executable, "-c", script], cwd=ROOT, env=env, capture_output=True, text=True, timeout=300
            )
            if not done.returncode or SLOW not in done.stderr:
                break  # else it is begun again from its checkpoint
        assert done.returncode == 0, done.stderr[-3000:]
        # The process that Spark asks for offsets ends with its query, and in silence. Spark's own workers, which are
        # slow to connect on a busy machine, may find it gone: each of them says so, and their lines may alternate.
        frames = re.findall(r'^ +File "(.+?)", line', done.stderr, re.MULTILINE)
        errors = re.findall(r"^([\w.]*(?:Error|Exception|Interrupt|Exit))\b", done.stderr, re.MULTILINE)
        assert {Path(each).parts[-2:] for each in frames} <= {("pyspark", "daemon.py")}, done.stderr[-3000:]
        assert set(errors) <= {"BrokenPipeError"}, done.stderr[-3000:]
        reader = BatchReader(given(kafka))
        assert sorted(values(reader, reader.partitions())) == sorted(
            b"%d:%d" % (entry, row) for entry in range(30) for row in range(ROWS)
        )
