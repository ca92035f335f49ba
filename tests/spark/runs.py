"""A job as a process of its own, which can be killed with all of its Spark."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from tests.spark.jobs import Job
from tests.spark.session import SETTINGS
from tests.support.source_tree import ROOT

PATIENCE_S = 600  # of a run, where many others want the machine: a Spark starts in ten seconds, or in a hundred


class Runs:
    """The job as a child process, again and again."""

    def __init__(self, job: Job, settings: Mapping[str, str] | None = None) -> None:
        self.job = job
        self._settings = {**SETTINGS, **(settings or {})}
        self._config = job.write()
        self._count = 0

    def start(self, script: dict[str, Any]) -> subprocess.Popen[bytes]:
        self._count += 1
        settings = [part for key, value in self._settings.items() for part in ("--conf", f"{key}={value}")]
        with (self.job.folder / f"run-{self._count:02d}.log").open("wb") as log:
            return subprocess.Popen(
                [
                    *("setpriv", "--pdeathsig", "KILL", sys.executable, "-m", "tests.spark.child", json.dumps(script)),
                    *("spark", str(self._config), "--master", "local[2]", *settings),
                ],
                cwd=ROOT,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def run(self, script: dict[str, Any]) -> int:
        """The exit code of one run; negative for a signal."""
        process = self.start(script)
        try:
            return process.wait(PATIENCE_S)
        finally:
            kill(process)

    def said(self) -> str:
        return (self.job.folder / f"run-{self._count:02d}.log").read_text(errors="replace")[-3000:]


def kill(process: subprocess.Popen[bytes]) -> int:
    """End the whole group, if there is something left of it."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    return process.wait()
