"""Thirteen fuzzers, each for four minutes, so that a soak ends within two hours.

`make soak` runs them in the build with the sanitizers, which report a read beyond a buffer: FASTWIRE_FUZZ_UNDER is what
it puts before the command.
"""

import os
import shlex
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.support.soaklength import SHARE

SECONDS = 240 * SHARE
UNDER = shlex.split(os.environ.get("FASTWIRE_FUZZ_UNDER", ""))


@pytest.mark.soak
@pytest.mark.timeout(SECONDS + 1800)
@pytest.mark.parametrize(
    "subject",
    [
        "pulsar",
        "state",
        "kafka",
        "kafka_state",
        "kafka_log",
        "tank",
        "tank_state",
        "tubemq",
        "tubemq_state",
        "json_values",
        "json_loose",
        "protobuf_values",
        "parquet",
    ],
)
def test_nothing_is_found(subject: str, record_property: Callable[[str, object], None]) -> None:
    command = [*UNDER, sys.executable, "-m", f"tests.fuzz.{subject}", "--seconds", str(SECONDS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    record_property("done", done.stdout.splitlines()[-1])
