"""Runs the job with an accident built in: ``child.py SCRIPT CONFIG arguments…``.

SCRIPT is JSON: ``{"at": step, "nth": 2, "in": "table"}`` kills the whole process group, Spark's Java included, when
``step`` is reached for the nth time; with ``"together": true`` those that reach it before wait there, for jobs beside
each other. Steps are those of a writer of a dataset (``in`` names its folder), and

* ``batch-begun``: Spark has logged the offsets of a batch and asks for its output;
* ``keys-read``, ``keys-kept``: of a batch, where duplicates are dropped;
* ``files-written``: the tasks are done, nothing is committed;
* ``batch-landed``: the output is committed, and Spark does not know it yet.
"""

import json
import os
import signal
import sys
import threading
from typing import Any

from fastwire_daemon.cli.app import main
from fastwire_daemon.dataset.writer import DatasetWriter
from fastwire_daemon.spark.job import output
from fastwire_daemon.spark.job.keys import Keys
from fastwire_daemon.spark.job.run import RunningJob


def install(script: dict[str, Any]) -> None:
    """Count the steps, and act."""
    left = int(script.get("nth", 1))

    def reached(step: str) -> None:
        nonlocal left
        if step == script.get("at"):
            left -= 1
            if not left:
                os.killpg(0, signal.SIGKILL)
            if script.get("together"):
                threading.Event().wait()

    on_batch, written, writer = RunningJob._on_batch, output._Written.__init__, DatasetWriter.__init__

    def spied_batch(self: RunningJob, *arguments: Any) -> None:
        reached("batch-begun")
        on_batch(self, *arguments)
        reached("batch-landed")

    def spied_written(self: Any, *arguments: Any) -> None:
        written(self, *arguments)
        reached("files-written")

    search, keep = Keys.search, Keys.keep

    def spied_search(self: Keys, *arguments: Any) -> Any:
        found = search(self, *arguments)
        reached("keys-read")
        return found

    def spied_keep(self: Keys, *arguments: Any) -> None:
        keep(self, *arguments)
        reached("keys-kept")

    def spied_writer(self: DatasetWriter, path: Any, *arguments: Any) -> None:
        writer(self, path, *arguments)
        if os.path.basename(path) == script.get("in", "table"):
            self._reached = reached

    RunningJob._on_batch = spied_batch  # type: ignore[method-assign, assignment]
    output._Written.__init__ = spied_written  # type: ignore[method-assign, assignment]
    Keys.search, Keys.keep = spied_search, spied_keep  # type: ignore[method-assign, assignment]
    DatasetWriter.__init__ = spied_writer  # type: ignore[method-assign, assignment]


if __name__ == "__main__":
    install(json.loads(sys.argv.pop(1)))
    main()
