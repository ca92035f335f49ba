"""A thousand partitions instead of one, at the same total rate, into ``discard``; and a thousand that are idle.

    python -m bench.partitions [--json]

CPU a message and memory are those of the daemon's process; the idle row is its CPU as a share of one core while
nothing comes.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from .child import ROOT, Case, serving, show
from .pipeline import configured, ours

CASE = Case(100, 1000, "none")
MESSAGES = 24_000_000
MANY = 1000
SETTLE_S = 20.0  # the first commit is over by then
LOOK_S = 15.0
SINK = 'type = "discard"'


def busy() -> list[dict[str, Any]]:
    """The same messages from one partition and from many."""
    rows: list[dict[str, Any]] = []
    for partitions in (1, MANY):
        with serving(CASE, MESSAGES, partitions) as told, tempfile.TemporaryDirectory() as folder:
            figures = ours(told, SINK, Path(folder))
        cpu = figures["cpu_us_per_row"]
        rows.append(
            {
                "bench": "partitions",
                **CASE.fields(),
                "partitions": partitions,
                "cpu_us_per_message": round(cpu, 3),
                "times_one": round(cpu / rows[0]["cpu_us_per_message"], 2) if rows else 1.0,
                "peak_rss_mib": figures["peak_rss_mib"],
            }
        )
    return rows


def cpu_s(pid: int) -> float:
    """User and system time of a process, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def idle() -> dict[str, Any]:
    """What many partitions cost that have nothing to say; they had one entry each."""
    with serving(CASE, MANY * CASE.batch, MANY) as told, tempfile.TemporaryDirectory() as folder:
        config = configured(told, SINK, Path(folder))
        command = [sys.executable, "-m", "fastwire_daemon.cli", "run", str(config)]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            time.sleep(SETTLE_S)
            before, began = cpu_s(process.pid), time.monotonic()
            time.sleep(LOOK_S)
            share = (cpu_s(process.pid) - before) / (time.monotonic() - began)
            process.send_signal(signal.SIGTERM)
    return {"bench": "partitions", "partitions": MANY, "idle_cpu_percent": round(share * 100, 2)}


def main() -> None:
    """Measure and print."""
    show([*busy(), idle()])


if __name__ == "__main__":
    main()
