"""Fuzzing for as long as FASTWIRE_FUZZ_SECONDS says (default: ten minutes)."""

import os
import subprocess
import sys

import pytest

SECONDS = float(os.environ.get("FASTWIRE_FUZZ_SECONDS", "600"))


@pytest.mark.soak
@pytest.mark.timeout(SECONDS + 600)
def test_pulsar() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.pulsar", "--seconds", str(SECONDS)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
