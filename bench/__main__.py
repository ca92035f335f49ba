"""All benches, one after the other: JSON lines as they come, then tables.

    python -m bench [--all] [--save NAME]

``--all`` takes every size, batch and codec instead of those that have a target. ``--save`` writes the lines with
machine and versions to ``bench/results/NAME.json``.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from .child import ROOT, machine, table

BENCHES = ("scan_decode", "discard", "to_parquet", "shared", "partitions", "start", "spark_job")
RESULTS = Path(__file__).parent / "results"


def lines_of(bench: str) -> list[dict[str, Any]]:
    """The figures of one bench, printed while they come."""
    command = [sys.executable, "-m", f"bench.{bench}", "--json", *(["--all"] if "--all" in sys.argv else [])]
    found = []
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            found.append(json.loads(line))
    if process.returncode:
        raise SystemExit(f"bench {bench} ended with {process.returncode}")
    return found


def main() -> None:
    """Run, print, and save if asked."""
    where = machine()
    print(json.dumps({"bench": "machine", **where}), flush=True)
    rows = {bench: lines_of(bench) for bench in BENCHES}
    for bench, figures in rows.items():
        print(f"\n{bench}\n{table([{k: v for k, v in row.items() if k != 'bench'} for row in figures])}")
    if "--save" in sys.argv:
        RESULTS.mkdir(exist_ok=True)
        path = RESULTS / f"{sys.argv[sys.argv.index('--save') + 1]}.json"
        path.write_text(json.dumps({"machine": where, **rows}, indent=1) + "\n", encoding="utf-8")
        print(f"\n{path}")


if __name__ == "__main__":
    main()
