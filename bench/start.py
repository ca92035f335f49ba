"""From the start of the process to the first record, with files and modules in the page cache.

    python -m bench.start [--json]

The daemon reads 4 partitions into ``stdout``: the first line there is the first record that has passed through all of
it. ``imports`` is what Python takes for the modules alone, ``python`` for none. Compiled modules are kept, as an
installation has them, whatever the environment says; the first run makes them and does not count.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from .child import ROOT, Case, serving, show
from .pipeline import configured

CASE = Case(100, 10, "none")
ROUNDS = 5
MODULES = (
    "import fastwire_daemon.cli.app, fastwire_daemon.service.service, "
    "fastwire_daemon.systems.pulsar.source.pulsarsource"
)
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def first_record(config: Path) -> tuple[float, float]:
    """Wall and CPU seconds until the first line of output."""
    began = time.monotonic()
    command = [sys.executable, "-m", "fastwire_daemon.cli", "run", str(config)]
    with subprocess.Popen(
        command, cwd=ROOT, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        seconds = time.monotonic() - began
        # In nanoseconds, of all threads; without waits for a processor.
        tasks = Path(f"/proc/{process.pid}/task").glob("*/schedstat")
        cpu_s = sum(int(task.read_text(encoding="ascii").split()[0]) for task in tasks) / 1e9
        process.kill()
    assert line.startswith(b"{"), line
    return seconds, cpu_s


def alone(program: str) -> float:
    """CPU seconds of Python for a program."""
    process = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, env=ENVIRONMENT)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Measure and print; the best of several, for what comes between is not ours."""
    with serving(CASE, 4_000) as told, tempfile.TemporaryDirectory() as folder:
        config = configured(told, 'type = "stdout"', Path(folder))
        runs = [first_record(config) for _ in range(ROUNDS + 1)][1:]
    row: dict[str, Any] = {
        "bench": "start",
        "partitions": 4,
        "first_record_s": round(min(seconds for seconds, _ in runs), 3),
        "cpu_s": round(min(cpu for _, cpu in runs), 3),
        "imports_cpu_s": round(min(alone(MODULES) for _ in range(ROUNDS)), 3),
        "python_cpu_s": round(min(alone("pass") for _ in range(ROUNDS)), 3),
    }
    show([row])


if __name__ == "__main__":
    main()
