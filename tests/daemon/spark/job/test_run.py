"""The look at the queries of a run: one that fails is started again, whenever it fails."""

import subprocess
import sys
from typing import Any, cast

import pytest

from fastwire_daemon.spark.job.run import RunningJob, _going


class Dying:
    """A query that fails right behind the look at it."""

    active = True

    def __init__(self, runs: bool) -> None:
        self.runs = runs

    def tell(self) -> None:
        """Log nothing."""

    def revive(self) -> bool:
        self.active = False
        return self.runs

    def failure(self) -> Exception:
        return RuntimeError("Python worker failed to connect back")


@pytest.mark.parametrize("runs", [True, False])
def test_a_query_that_fails_behind_the_look_is_left_to_the_next_one(runs: bool) -> None:
    job: Any = Dying(runs)
    assert _going([cast(RunningJob, job)]) is runs


def test_the_command_says_that_spark_is_missing_without_what_comes_with_it() -> None:
    absent = "import sys; sys.modules.update(dict.fromkeys(('numpy', 'pandas', 'pyspark')))"
    modules = "import fastwire_daemon.spark.job.run, fastwire_daemon.spark.job.trial"
    subprocess.run([sys.executable, "-c", f"{absent}; {modules}"], check=True, timeout=60)
