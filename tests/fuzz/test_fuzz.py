"""Fuzzing for as long as FASTWIRE_FUZZ_SECONDS says: by default a quarter of an hour each, half an hour for Pulsar.

`make soak` runs it in the build with the sanitizers, so that what reads beyond a buffer is found, too.
"""

import os
import subprocess
import sys

import pytest

SECONDS = float(os.environ.get("FASTWIRE_FUZZ_SECONDS", "900"))


@pytest.mark.soak
@pytest.mark.timeout(SECONDS + 1800)
@pytest.mark.parametrize("subject", ["pulsar", "state", "kafka"])
def test_nothing_is_found(subject: str) -> None:
    command = [sys.executable, "-m", f"tests.fuzz.{subject}", "--seconds", str(SECONDS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
