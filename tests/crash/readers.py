"""Independent readers that look at a dataset's folder all the time while it is written.

As a program, ``readers.py PATH REPORT ACCESS``: looks until standard input closes, by DuckDB, Polars and pyarrow in
turn, each listing the folder (or, with an ACCESS as JSON, the bucket) by itself, and writes what it saw as JSON.
:class:`Watch` runs that program and judges the report.
"""

import json
import os
import re
import select
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import duckdb
import polars
import pyarrow.dataset
from pyarrow.fs import FileType

from tests.stores.place import Place
from tests.stores.reading import s3_files, s3_for_duckdb
from tests.support.sequence_audit import DIGITS, numbers_of, visible_files
from tests.support.waiting import eventually

ROOT = Path(__file__).parents[2]
# The machine is for the writers: a reader has one thread, and all rest twice as long as they looked.
PAUSE = 0.1
REST = 2
ONE_THREAD = {"POLARS_MAX_THREADS": "1"}
END_LIMIT = 300.0  # seconds for the last look, of a process that gives way to all others

# One look: the file names that a reader saw, and the numbers of all rows it read from them.
Look = tuple[set[str], list[int]]
# See ``Place.reading``; empty for a folder.
Access = dict[str, str]

# Polars and pyarrow walk through every folder, hidden ones too, and give up when one goes while they do. That is no
# look at all, which must not be taken for a look at an empty folder.
VANISHED = re.compile(r"_fastwire/staging/\S+.*No such file or directory", re.DOTALL)


def look_with_duckdb(path: str, access: Access) -> Look:
    """DuckDB's own glob, and its own Parquet reader."""
    try:
        with duckdb.connect(config={"threads": 1}) as connection:
            if access:
                connection.register_filesystem(s3_for_duckdb(access))
            rows = connection.execute(
                f"SELECT filename, CAST(decode(value[1:{DIGITS}]) AS BIGINT) "
                f"FROM read_parquet('{path}/**/*.parquet', filename = true)"
            ).fetchall()
    except duckdb.IOException as error:
        if "No files found" in str(error):
            return set(), []
        raise
    return {Path(name).name for name in {name for name, _ in rows}}, [number for _, number in rows]


def look_with_polars(path: str, access: Access) -> Look:
    """Polars' own glob, and its own Parquet reader."""
    try:
        frame = (
            polars.scan_parquet(f"{path}/**/*.parquet", include_file_paths="file", storage_options=access or None)
            .select("file", polars.col("value").bin.slice(0, DIGITS).cast(polars.String).cast(polars.Int64))
            .collect()
        )
    except (polars.exceptions.ComputeError, FileNotFoundError) as error:
        if "expanded paths were empty" in str(error):
            return set(), []
        raise
    return {Path(name).name for name in frame["file"].unique()}, frame["value"].to_list()


def look_with_pyarrow(path: str, access: Access) -> Look:
    """pyarrow's dataset, as Spark does: whatever is in the folder and not hidden."""
    files = s3_files(access) if access else None
    if files is not None and files.get_file_info(path.removeprefix("s3://")).type == FileType.NotFound:
        return set(), []
    found = pyarrow.dataset.dataset(path.removeprefix("s3://"), format="parquet", filesystem=files)
    if not found.files:
        return set(), []
    numbers = numbers_of(found.to_table(columns=["value"], use_threads=False)["value"]).to_pylist()
    return {Path(name).name for name in found.files}, numbers


READERS: dict[str, Callable[[str, Access], Look]] = {
    "DuckDB": look_with_duckdb,
    "Polars": look_with_polars,
    "pyarrow": look_with_pyarrow,
}


def watch(path: str, rounds: Path, access: Access) -> dict[str, Any]:
    """Look until standard input closes, and once more; return what was seen and what was wrong."""
    listings: list[list[str]] = []
    wrong: list[str] = []
    looks = 0
    ending = False
    pause = PAUSE
    while not ending:
        ending = bool(select.select([sys.stdin], [], [], pause)[0])
        began = time.monotonic()
        for reader, look in READERS.items():
            looks += 1
            try:
                files, numbers = look(path, access)
            except Exception as error:
                if VANISHED.search(str(error)):
                    continue
                # Whatever else a reader stumbles over is the finding.
                wrong.append(f"{reader}: {type(error).__name__}: {error}")
                continue
            if len(set(numbers)) != len(numbers):
                wrong.append(f"{reader} saw {len(numbers) - len(set(numbers))} rows twice in {sorted(files)[-3:]}")
            listing = sorted(files)
            if listings[-1:] != [listing]:
                listings.append(listing)
        rounds.write_text("." * (looks // len(READERS)))
        pause = max(PAUSE, REST * (time.monotonic() - began))
    return {"looks": looks, "listings": listings, "wrong": wrong[:20]}


class Watch:
    """Runs the readers beside a test; ``finish`` ends them and returns everything that no reader should have seen."""

    def __init__(self, place: Place, report: Path) -> None:
        if not place.reading:
            Path(place.url).mkdir(parents=True, exist_ok=True)
        self._place = place
        self._report = report
        self._rounds = Path(f"{report}.rounds")
        self.looks = 0
        program = [sys.executable, "-m", "tests.crash.readers", place.url, str(report), json.dumps(place.reading)]
        self._process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "nice", *program],
            stdin=subprocess.PIPE,
            cwd=ROOT,
            env={**os.environ, **ONE_THREAD},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def wait_for_rounds(self, count: int) -> None:
        """Until every reader has looked ``count`` more times, at least."""
        wanted = self._round() + count
        eventually(lambda: self._round() >= wanted, "the readers look", self._round)

    def _round(self) -> int:
        return self._rounds.stat().st_size if self._rounds.exists() else 0

    def finish(self) -> list[str]:
        """Stop looking; the violations in words, empty when every look was as promised."""
        self._end()
        report = json.loads(self._report.read_text())
        self.looks = report["looks"]
        wrong: list[str] = report["wrong"]
        return wrong + misordered(report["listings"], [file.name for file in visible_files(self._place.local())])

    def _end(self) -> None:
        if self._process.stdin is not None and not self._process.stdin.closed:
            self._process.stdin.close()
        self._process.wait(END_LIMIT)


def misordered(listings: list[list[str]], final: list[str]) -> list[str]:
    """Listings that break log order, or take back what an earlier one showed.

    A listing may lack files of its newest log entry, and of no older one; ``final`` has them all. Small folders are
    read by one system call, so a listing is one moment.
    """
    wrong = []
    before: set[str] = set()
    for listing in listings:
        files = set(listing)
        if not files >= before:
            wrong.append(f"gone again: {sorted(before - files)[:3]}")
        before = files
        newest = max(map(_entry, files), default=0)
        early = [name for name in final if _entry(name) < newest and name not in files]
        if early:
            wrong.append(f"log entry {newest} was visible before {early[:3]}")
    return wrong


def _entry(name: str) -> int:
    return int(name.partition("-")[0])


if __name__ == "__main__":
    started = time.monotonic()
    found = watch(sys.argv[1], Path(sys.argv[2] + ".rounds"), json.loads(sys.argv[3]))
    found["seconds"] = round(time.monotonic() - started, 1)
    Path(sys.argv[2]).write_text(json.dumps(found))
