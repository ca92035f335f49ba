"""Program that runs a command and measures its resident memory: ``measured.py FILE COMMITS COMMAND...``.

FILE gets the peak in MiB, and the highest sample before each log entry in the folder COMMITS, as JSON. The kernel
reports the peak of a process to its parent only, and counts the parent's memory at the fork: so the parent must be
smaller than a process with tests. Samples alone miss the exit, in which libraries are touched once more.
"""

import json
import resource
import subprocess
import sys
import time
from pathlib import Path


def main(file: str, commits: str, *command: str) -> int:
    """Run ``command`` to its end, and return its exit code."""
    highest: dict[int, float] = {}  # by the number of log entries
    with subprocess.Popen(command) as child:
        while child.poll() is None:
            entries = sum(1 for _ in Path(commits).glob("*/*.json"))
            highest[entries] = max(resident_mib(child.pid), highest.get(entries, 0.0))
            time.sleep(0.005)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    Path(file).write_text(json.dumps({"by_commit": list(highest.values()), "peak": peak}))
    return child.returncode


def resident_mib(pid: int) -> float:
    """Return the resident memory of a process; 0 if it has ended."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS:")), 0.0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
