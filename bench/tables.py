"""Time of a commit into a dataset in a folder, alone and published in a table, by the number of files that it has.

    python -m bench.tables [--json]

A commit adds one small file. What it takes is mostly syncs of the disk, so the rows of one run are compared.
"""

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from fastwire_daemon.dataset.writer import DatasetWriter
from tests.support import icebergs, rolls, tables

from .child import show

FILES = (100, 1_000, 10_000)
AT_ONCE = 500  # files of a commit that only makes them more
COMMITS = 15  # measured, at each number of files
FORMATS = ("", "delta", "iceberg")


class _Landing:
    """A dataset that is written entry by entry."""

    def __init__(self, writer: DatasetWriter) -> None:
        self._writer = writer
        self._end = -1
        self.files = 0
        writer.open()

    def commit(self, files: int) -> float:
        """Commit so many files with one row each; return the seconds."""
        staged = [tables.stage(self._writer, [self._end + 1 + number]) for number in range(files)]
        first, self._end = self._end, self._end + files
        began = time.perf_counter()
        self._writer.commit(staged, [rolls.span(first, self._end)])
        self.files += files
        return time.perf_counter() - began

    def close(self) -> None:
        """Close the dataset."""
        self._writer.close()


def times(table: str, folder: Path) -> list[dict[str, Any]]:
    """The median time of a commit at each number of files."""
    landing = _Landing(icebergs.writer(folder) if table == "iceberg" else tables.writer(folder, table=table))
    found = []
    try:
        for files in FILES:
            while landing.files < files - COMMITS:
                landing.commit(min(AT_ONCE, files - COMMITS - landing.files))
            took = statistics.median(landing.commit(1) for _ in range(COMMITS))
            found.append(
                {"bench": "tables", "who": table or "files alone", "files": files, "commit_ms": round(took * 1e3, 1)}
            )
    finally:
        landing.close()
    return found


def main() -> None:
    """Measure and print."""
    rows = []
    for table in FORMATS:
        with tempfile.TemporaryDirectory(prefix="fastwire-bench-") as folder:
            rows += times(table, Path(folder))
    show(rows)


if __name__ == "__main__":
    main()
