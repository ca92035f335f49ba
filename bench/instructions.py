"""Instructions a message of the scan loop, counted by valgrind: a figure that a busy machine does not change.

    python -m bench.instructions [--json] [--check | --save]

``--check`` compares with ``results/instructions.json`` and fails beyond 3 % in either direction: a better figure is
worth keeping, too. ``--save`` writes that file. Counts belong to a compiler: with another one than the file's there is
nothing to compare, which is said and is no failure.
"""

import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from .child import ROOT, Case, show
from .scan_decode import STREAMS

CASES = (
    ("pulsar", Case(100, 1000, "none")),
    ("pulsar", Case(100, 1, "none")),
    ("pulsar", Case(100, 1000, "lz4")),
    ("kafka", Case(100, 1000, "none")),
    ("tank", Case(100, 1000, "none")),
    ("tank", Case(100, 1000, "snappy")),
    ("tubemq", Case(100, 3450, "none")),
)
BASELINE = Path(__file__).parent / "results" / "instructions.json"
TOLERANCE = 0.03
ROUNDS = 8


def counts(streams: list[tuple[str, bytes]]) -> list[int]:
    """Instructions inside ``Scanner.scan`` for ``ROUNDS`` rounds over the frames of each system."""
    with tempfile.TemporaryDirectory(prefix="fastwire-bench-") as folder:
        pairs = []
        for number, (system, data) in enumerate(streams):
            frames = Path(folder, f"frames{number}")
            frames.write_bytes(data)
            pairs += [system, str(frames)]
        command = [
            "valgrind",
            "--tool=callgrind",
            "--toggle-collect=*Scanner_*scan*",
            "--dump-before=getppid",
            f"--callgrind-out-file={folder}/out",
            *(sys.executable, "-m", "bench.scan_rounds", str(ROUNDS), *pairs),
        ]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        # One file for each call of getppid: what was counted since the one before.
        parts = [Path(folder, f"out.{number}") for number in range(1, len(pairs) + 1)]
        if done.returncode or not all(part.exists() for part in parts):
            raise SystemExit(f"valgrind ended with {done.returncode}:\n{done.stderr[-2000:]}")
        found = [re.search(r"^(?:summary|totals): (\d+)", part.read_text(), re.MULTILINE) for part in parts[1::2]]
        return [int(total[1]) for total in found if total]


def measure() -> list[dict[str, Any]]:
    """Instructions a message in each case, without what is done once."""
    made = [STREAMS[system](case) for system, case in CASES]
    counted = counts([(system, data) for (system, _), (data, _) in zip(CASES, made, strict=True)])
    return [
        {
            "bench": "instructions",
            "system": system,
            **case.fields(),
            "instructions_per_message": round(count / (entries * case.batch * ROUNDS), 1),
        }
        for (system, case), (_, entries), count in zip(CASES, made, counted, strict=True)
    ]


def compiler() -> str:
    """The compiler's own name and version; modules are believed to come from it."""
    return subprocess.run(["cc", "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[0]


def foreign() -> str | None:
    """Why the baseline says nothing about this machine's build, or None."""
    kept = json.loads(BASELINE.read_text(encoding="utf-8"))["compiler"]
    return None if kept == compiler() else f"nothing to compare: the baseline is of {kept}"


def check(rows: list[dict[str, Any]]) -> int:
    """Compare with the baseline; the exit code."""
    if reason := foreign():
        print(reason)
        return 0
    kept = json.loads(BASELINE.read_text(encoding="utf-8"))
    changed = [
        f"{row['system']} {Case(row['size'], row['batch'], row['codec'])}: {row['instructions_per_message']}, was {was}"
        for row, was in zip(rows, kept["instructions_per_message"], strict=True)
        if abs(row["instructions_per_message"] - was) > was * TOLERANCE
    ]
    print("\n".join(changed) or f"within {TOLERANCE:.0%} of the baseline")
    return 1 if changed else 0


def main() -> int:
    """Measure and print."""
    if not shutil.which("valgrind"):
        print("valgrind is not installed: apt-get install valgrind")
        return 0
    rows = measure()
    show(rows)
    if "--save" in sys.argv:
        counts = [row["instructions_per_message"] for row in rows]
        BASELINE.parent.mkdir(exist_ok=True)
        BASELINE.write_text(json.dumps({"compiler": compiler(), "instructions_per_message": counts}, indent=1) + "\n")
    return check(rows) if "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
