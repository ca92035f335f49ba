"""Program that runs a command and measures its resident memory: ``measured.py FILE COMMAND...``.

FILE gets the samples and the peak in MiB, as JSON. The kernel reports the peak of a process to its parent only, and
counts the parent's memory at the fork: so the parent must be smaller than a process with tests. Samples alone miss the
exit, in which libraries are touched once more.
"""

import json
import resource
import subprocess
import sys
import time
from pathlib import Path


def main(file: str, *command: str) -> int:
    """Run ``command`` to its end, and return its exit code."""
    looks: list[float] = []
    with subprocess.Popen(command) as child:
        while child.poll() is None:
            looks += resident_mib(child.pid)
            time.sleep(0.005)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    Path(file).write_text(json.dumps({"looks": looks, "peak": peak}))
    return child.returncode


def resident_mib(pid: int) -> list[float]:
    """Return the resident memory of a process; nothing if it has ended."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return [int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS:")]


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
