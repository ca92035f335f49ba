"""From the start of the process to the first record, with files and modules in the page cache.

    python -m bench.start [--json]

The daemon reads 4 partitions into ``stdout``: the first line there is the first record that has passed through all of
it. ``imports`` is how long Python takes for the modules alone.
"""

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


def first_record(config: Path) -> tuple[float, float]:
    """Wall and CPU seconds until the first line of output."""
    began = time.monotonic()
    command = [sys.executable, "-m", "fastwire_daemon.cli", "run", str(config)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        seconds = time.monotonic() - began
        fields = Path(f"/proc/{process.pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
        process.kill()
    assert line.startswith(b"{"), line
    return seconds, (int(fields[11]) + int(fields[12])) / 100


def imports() -> float:
    """Seconds of the modules that such a run needs."""
    began = time.monotonic()
    modules = "import fastwire_daemon.cli, fastwire_daemon.service, fastwire_daemon.sources.pulsar.source"
    subprocess.run([sys.executable, "-c", modules], cwd=ROOT, check=True)
    return time.monotonic() - began


def main() -> None:
    """Measure and print; the best of several, for what comes between is not ours."""
    with serving(CASE, 4_000) as told, tempfile.TemporaryDirectory() as folder:
        config = configured(told, 'type = "stdout"', Path(folder))
        runs = [first_record(config) for _ in range(ROUNDS)]
    row: dict[str, Any] = {
        "bench": "start",
        "partitions": 4,
        "first_record_s": round(min(seconds for seconds, _ in runs), 3),
        "cpu_s": round(min(cpu for _, cpu in runs), 2),
        "imports_s": round(min(imports() for _ in range(ROUNDS)), 3),
    }
    show([row])


if __name__ == "__main__":
    main()
