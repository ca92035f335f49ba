"""A thousand partitions instead of one, at the same total rate, into ``discard``; and a thousand that are idle.

    python -m bench.partitions [--json]

What a message costs and what a partition costs (to find, subscribe, begin and leave it) are told apart by two runs of
different length: ``steady`` is the difference of their CPU by that of their messages, ``setup`` is what is left. The
idle row is the daemon's CPU as a share of one core while nothing comes. Each run is the better of two.
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
FEW_MESSAGES, MANY_MESSAGES = 8_000_000, 40_000_000
MANY = 1000
ROUNDS = 2
SETTLE_S = 20.0  # the first commit is over by then
LOOK_S = 15.0
SINK = 'type = "discard"'


def run(partitions: int, messages: int) -> dict[str, Any]:
    """The better of some runs."""
    runs = []
    for _ in range(ROUNDS):
        with serving(CASE, messages, partitions) as told, tempfile.TemporaryDirectory() as folder:
            runs.append(ours(told, SINK, Path(folder)))
    return min(runs, key=lambda figures: figures["process_cpu_s"])


def busy() -> list[dict[str, Any]]:
    """The same messages from one partition and from many."""
    rows: list[dict[str, Any]] = []
    began = 0.0
    for partitions in (1, MANY):
        short, long = run(partitions, FEW_MESSAGES), run(partitions, MANY_MESSAGES)
        steady_us = (long["process_cpu_s"] - short["process_cpu_s"]) / (MANY_MESSAGES - FEW_MESSAGES) * 1e6
        setup_s = short["process_cpu_s"] - steady_us * FEW_MESSAGES / 1e6
        rows.append(
            {
                "bench": "partitions",
                **CASE.fields(),
                "partitions": partitions,
                "steady_us_per_message": round(steady_us, 4),
                "times_one": round(steady_us / rows[0]["steady_us_per_message"], 2) if rows else 1.0,
                "setup_ms_per_partition": round((setup_s - began) / (MANY - 1) * 1e3, 2) if rows else "",
                "all_us_per_message": round(long["cpu_us_per_row"], 3),
                "peak_rss_mib": max(short["peak_rss_mib"], long["peak_rss_mib"]),
            }
        )
        began = setup_s
    return rows


def cpu_s(pid: int) -> float:
    """User and system time of a process, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def idle() -> dict[str, Any]:
    """Measure many idle partitions, which had one entry each."""
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
