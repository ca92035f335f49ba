"""A Spark session for the tests that read, and the daemon of the crash tests to read beside."""

import importlib.util
import io
import json
import logging
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fastwire_daemon.runtime.logs import configure

# pytest finds fixtures by their names here.
from tests.crash.conftest import dev_broker, dev_scene, nursery  # noqa: F401
from tests.spark.home import spark_home
from tests.spark.session import SETTINGS

if home := spark_home():
    os.environ["SPARK_HOME"] = home


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Name what is missing, before a fixture stumbles over it."""
    if item.get_closest_marker("spark") is None:
        return
    if importlib.util.find_spec("pyspark") is None:
        pytest.skip("PySpark is not installed: pip install '.[spark]'")
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java: apt-get install default-jre-headless")


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """One session on two threads, with a small heap."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2,4]").appName("fastwire-tests")
    # Python tasks by the sockets that a job asks for; whoever has a Spark of its own shows the others.
    for key, value in (SETTINGS | {"spark.python.unix.domain.socket.enabled": "true"}).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture
def lines() -> Iterator[Callable[[], list[dict[str, Any]]]]:
    """Yield a function that returns the lines of the log."""
    root = logging.getLogger()
    before, level, stream = root.handlers[:], root.level, io.StringIO()
    configure(stream=stream, human=False)
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    root.handlers[:], root.level = before, level
