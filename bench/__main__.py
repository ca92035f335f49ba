"""All benches, one after the other: JSON lines as they come, then tables, at last the targets and what has met them.

    python -m bench [--all] [--json] [--save NAME] [BENCH ...]

``--all`` takes every size, batch and codec instead of those that have a target. ``--json`` leaves the tables out.
``--save`` writes the lines with machine and versions to ``bench/results/NAME.json``; benches that did not run or failed
keep there what an earlier run has measured, and are named as such. Names choose benches. A bench that fails leaves the
others their figures; the exit code is then 1.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from .child import ROOT, machine, table
from .targets import judged

BENCHES = (
    "scan_decode",
    "decode_values",
    "discard",
    "kafka",
    "tank",
    "tubemq",
    "tubemq_broker",
    "parquet",
    "to_parquet",
    "store",
    "tables",
    "postgresql",
    "topics",
    "connect_iceberg",
    "shared",
    "broker",
    "write_rows",
    "partitions",
    "fanout",
    "start",
    "spark_job",
    "spark_source",
    "spark_kafka",
)
RESULTS = Path(__file__).parent / "results"


def lines_of(bench: str, every: bool) -> list[dict[str, Any]]:
    """The figures of one bench, printed while they come. Raises ChildProcessError if it fails."""
    command = [sys.executable, "-m", f"bench.{bench}", "--json", *(["--all"] if every else [])]
    found = []
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            found.append(json.loads(line))
    if process.returncode:
        raise ChildProcessError(f"bench {bench} ended with {process.returncode}")
    return found


def together(
    where: dict[str, str | int | float], figures: dict[str, list[dict[str, Any]]], before: dict[str, Any]
) -> dict[str, Any]:
    """Return the figures of a run with those of other benches, the ``earlier`` ones, that were saved before."""
    earlier = [bench for bench in BENCHES if not figures.get(bench) and bench in before]
    saved = {bench: figures.get(bench) or before.get(bench, []) for bench in BENCHES}
    known = {bench: rows for bench, rows in saved.items() if rows}
    return {"machine": where, "earlier": earlier, **known, "targets": judged(known)}


def show(figures: dict[str, list[dict[str, Any]]]) -> None:
    """Tables of what there is to show."""
    for bench, rows in figures.items():
        if rows:
            print(f"\n{bench}\n{table([{k: v for k, v in row.items() if k != 'bench'} for row in rows])}")


def main() -> None:
    """Run, print, and save if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("benches", nargs="*", metavar="BENCH", help=", ".join(BENCHES))
    parser.add_argument("--all", action="store_true", help="every size, batch and codec")
    parser.add_argument("--json", action="store_true", help="no tables")
    parser.add_argument(
        "--save", metavar="NAME", help="keep the lines in bench/results/NAME.json; readme: the README's"
    )
    args = parser.parse_args()
    if unknown := set(args.benches) - set(BENCHES):
        parser.error(f"no such bench: {', '.join(sorted(unknown))}")
    where = machine()
    print(json.dumps({"bench": "machine", **where}), flush=True)
    figures: dict[str, list[dict[str, Any]]] = {}
    took, failures = [], []
    for bench in args.benches or BENCHES:
        began = time.monotonic()
        try:
            figures[bench] = lines_of(bench, args.all)
        except ChildProcessError as error:
            print(error, file=sys.stderr, flush=True)
            failures.append(str(error))
        took.append({"bench": "seconds", "of": bench, "seconds": round(time.monotonic() - began)})
    targets = judged(figures)
    for line in (*took, *targets):
        print(json.dumps(line), flush=True)
    if not args.json:
        show({**figures, "seconds": took, "targets": targets})
    if args.save:
        RESULTS.mkdir(exist_ok=True)
        path = RESULTS / f"{args.save}.json"
        before = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        path.write_text(json.dumps(together(where, figures, before), indent=1) + "\n", encoding="utf-8")
        print(f"\n{path}", file=sys.stderr)
    if failures:
        raise SystemExit("; ".join(failures))


if __name__ == "__main__":
    main()
