"""Scripts that mount file systems, in a mount namespace of their own."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.source_tree import ROOT


def unshared(script: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    """Run a Python ``script`` that may mount and is given ``folder``; skips the test where that is not permitted."""
    unshare = shutil.which("unshare")
    if unshare is None or subprocess.run([unshare, "-m", "true"], capture_output=True, check=False).returncode:
        pytest.skip("no right to mount a file system of its own (unshare -m)")
    command = [unshare, "-m", sys.executable, "-c", script, os.fspath(folder)]
    env = os.environ | {"PYTHONPATH": "."}
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
