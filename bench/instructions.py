"""Instructions a message of the scan loops, and a row of the Parquet encoder without its codec, counted by valgrind: a
figure that a busy machine does not change.

    python -m bench.instructions [--json] [--check | --save]

``--check`` compares with ``results/instructions.json`` and fails beyond 3 % in either direction: a better figure is
worth keeping, too. ``--save`` writes that file. Counts belong to a compiler: with another one than the file's there is
nothing to compare, which is said and is no failure.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .child import ROOT, Case, show
from .counting import VARIABLE, library
from .encoded import CASES as ROWS_OF
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
ENCODED = ("envelope, 100 B", "values of 1 KiB", "eight typed")
BASELINE = Path(__file__).parent / "results" / "instructions.json"
TOLERANCE = 0.03
ROUNDS = 8
ENCODER_ROUNDS = 2


def counts(toggle: str, command: Sequence[str], cases: int) -> list[int]:
    """Instructions inside the functions ``toggle`` for each case of a module, each within ``counted``."""
    with tempfile.TemporaryDirectory(prefix="fastwire-bench-") as folder:
        valgrind = [
            "valgrind",
            "--tool=callgrind",
            "--instr-atstart=no",
            f"--toggle-collect={toggle}",
            f"--callgrind-out-file={folder}/out",
            *(sys.executable, "-m", *command),
        ]
        env = os.environ | {VARIABLE: str(library(Path(folder)))}
        done = subprocess.run(valgrind, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
        parts = [Path(folder, f"out.{number}") for number in range(1, cases + 1)]
        if done.returncode or not all(part.exists() for part in parts):
            raise SystemExit(f"valgrind ended with {done.returncode}:\n{done.stderr[-2000:]}")
        found = [re.search(r"^(?:summary|totals): (\d+)", part.read_text(), re.MULTILINE) for part in parts]
        return [int(total[1]) for total in found if total]


def scanned(streams: list[tuple[str, bytes]]) -> list[int]:
    """Instructions inside ``Scanner.scan`` for ``ROUNDS`` rounds over the frames of each system."""
    with tempfile.TemporaryDirectory(prefix="fastwire-bench-") as folder:
        pairs = []
        for number, (system, data) in enumerate(streams):
            frames = Path(folder, f"frames{number}")
            frames.write_bytes(data)
            pairs += [system, str(frames)]
        return counts("*Scanner_*scan*", ["bench.scan_rounds", str(ROUNDS), *pairs], len(streams))


def measure() -> list[dict[str, Any]]:
    """Instructions a message in each case, without what is done once."""
    made = [STREAMS[system](case) for system, case in CASES]
    counted = scanned([(system, data) for (system, _), (data, _) in zip(CASES, made, strict=True)])
    return [
        {
            "bench": "instructions",
            "system": system,
            **case.fields(),
            "instructions_per_message": round(count / (entries * case.batch * ROUNDS), 1),
        }
        for (system, case), (_, entries), count in zip(CASES, made, counted, strict=True)
    ]


def measure_encoder() -> list[dict[str, Any]]:
    """Instructions a row of each set of rows."""
    rows = [sum(batch.num_rows for batch in ROWS_OF[name]()) for name in ENCODED]
    command = ["bench.encode_rounds", str(ENCODER_ROUNDS), *ENCODED]
    counted = counts("*pw*ParquetWriter_*write_row_group*", command, len(ENCODED))
    return [
        {"bench": "instructions", "system": "parquet", "rows": name, "instructions_per_message": round(per, 1)}
        for name, per in zip(
            ENCODED, (each / (n * ENCODER_ROUNDS) for each, n in zip(counted, rows, strict=True)), strict=True
        )
    ]


def compiler() -> str:
    """The compiler's own name and version; modules are believed to come from it."""
    return subprocess.run(["cc", "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[0]


def foreign() -> str | None:
    """Why the baseline says nothing about this machine's build, or None."""
    kept = json.loads(BASELINE.read_text(encoding="utf-8"))["compiler"]
    return None if kept == compiler() else f"nothing to compare: the baseline is of {kept}"


def told(row: dict[str, Any]) -> str:
    """The case of a row."""
    case = row["rows"] if "rows" in row else Case(row["size"], row["batch"], row["codec"])
    return f"{row['system']} {case}"


def check(rows: list[dict[str, Any]]) -> int:
    """Compare with the baseline; the exit code."""
    if reason := foreign():
        print(reason)
        return 0
    kept = json.loads(BASELINE.read_text(encoding="utf-8"))
    changed = [
        f"{told(row)}: {row['instructions_per_message']}, was {was}"
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
    rows = measure() + measure_encoder()
    show(rows)
    if "--save" in sys.argv:
        counts = [row["instructions_per_message"] for row in rows]
        BASELINE.parent.mkdir(exist_ok=True)
        BASELINE.write_text(json.dumps({"compiler": compiler(), "instructions_per_message": counts}, indent=1) + "\n")
    return check(rows) if "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
