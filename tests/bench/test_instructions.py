"""The hot loop takes as many instructions a message as its baseline says, whatever else the machine does."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bench.instructions import foreign

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.instructions


def test_the_hot_loop_takes_the_instructions_of_its_baseline() -> None:
    if not shutil.which("valgrind"):
        pytest.skip("valgrind is not installed: apt-get install valgrind")
    if reason := foreign():
        pytest.skip(reason)
    done = subprocess.run(
        [sys.executable, "-m", "bench.instructions", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
