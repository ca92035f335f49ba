"""Configuration of every Spark of the tests: small, on loopback, without a web page."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xss4m"  # quick to start, in little memory
# As far as every version knows them.
OLD_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": JAVA,
    "spark.executor.extraJavaOptions": JAVA,
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
}
SETTINGS = {
    **OLD_SETTINGS,
    # Each log file would cost a forked chmod.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}

TRIES = 4
SLOW = "Python worker failed to connect back"


def started(begin: Callable[[], Any]) -> Any:
    """The query that ``begin`` starts, once it has done something or ended.

    Spark gives the process that asks a Python source for offsets ten seconds to come up, and has no setting for it:
    on a busy machine the query is begun again from its checkpoint.
    """
    for _ in range(TRIES):
        query = begin()
        while query.isActive and query.lastProgress is None:
            time.sleep(0.02)
        if query.isActive or SLOW not in str(query.exception()):
            break
    return query


def said(env: Mapping[str, str], script: str, *arguments: str) -> Any:
    """Return the result of a script in a separate Spark: the JSON behind the word FOUND."""
    command = [sys.executable, "-c", script, *arguments]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("FOUND ")]
    return json.loads(line.removeprefix("FOUND "))
