"""Small rolls of numbered JSON lines, for tests of datasets without a broker and without an encoder."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from crc32c import crc32c

from fastwire.coverage import Coverage
from fastwire.position import Log, Position, Span
from fastwire.pulsar.position import PULSAR_EARLIEST
from fastwire_daemon.dataset.commitlog.entry import LogEntry, entry_name
from fastwire_daemon.dataset.description import DatasetOptions
from fastwire_daemon.dataset.staging import StagedFile
from fastwire_daemon.dataset.storage.bucket import Bucket
from fastwire_daemon.dataset.storage.disk import Disk
from fastwire_daemon.dataset.writer import DatasetWriter

LEDGER = 7


def options(**changes: Any) -> DatasetOptions:
    fixed: dict[str, Any] = {
        "system": "pulsar",
        "cluster": "broker:6650",
        "columns": ("value",),
        "extension": "jsonl",
    }
    return DatasetOptions(**(fixed | changes))


def writer(
    path: Path, medium: Disk | Bucket | None = None, reached: Callable[[str], None] = lambda step: None, **changes: Any
) -> DatasetWriter:
    return DatasetWriter(path, options(**changes), medium, reached)


class Stopped(Exception):  # noqa: N818 - nothing failed
    """A test stops the writer here."""


def stop_at(wanted: str, times: int = 1) -> Callable[[str], None]:
    """For ``reached``: the end of a writer that comes to step ``wanted`` for the ``times``-th time."""
    left = [times]

    def reached(step: str) -> None:
        if step == wanted:
            left[0] -= 1
            if left[0] == 0:
                raise Stopped(step)

    return reached


def log(partition: int | str = 0) -> Log:
    return Log("pulsar", "broker:6650", "persistent://public/default/orders", str(partition))


def begun(partition: int | str = 0) -> Span:
    """The resolved first position of a log."""
    return Span(log(partition), PULSAR_EARLIEST, PULSAR_EARLIEST, 0)


def span(start: int, end: int, partition: int | str = 0, rows: int | None = None) -> Span:
    """Entries ``start`` + 1 to ``end`` of one ledger, one row each; -1 starts a partition from nothing."""
    first = PULSAR_EARLIEST if start < 0 else Position(LEDGER, start)
    return Span(log(partition), first, Position(LEDGER, end), end - start if rows is None else rows)


def stage(writer: DatasetWriter, numbers: Sequence[int], directory: str = "") -> StagedFile:
    """A staged file with one line for each number."""
    staged = writer.stage(directory)
    for number in numbers:
        staged.file.write(json.dumps({"value": number}).encode() + b"\n")
    staged.rows = len(numbers)
    return staged


def land(writer: DatasetWriter, start: int, end: int, partition: int | str = 0) -> Coverage:
    """Commit entries ``start`` + 1 to ``end``, whose rows are these numbers, in one file."""
    return writer.commit([stage(writer, range(start + 1, end + 1))], [span(start, end, partition)])


def end_of(coverage: Coverage, partition: int | str = 0) -> int:
    """The last landed entry; -1: none."""
    end = coverage.end(log(partition))
    return -1 if end is None or end == PULSAR_EARLIEST else end.b


def visible(path: Path) -> dict[str, list[int]]:
    """Return the rows of a plain reader, by file name in listing order."""
    found = sorted(file for file in path.rglob("*.jsonl") if "_fastwire" not in file.parts)
    return {
        str(file.relative_to(path)): [json.loads(line)["value"] for line in file.read_text().splitlines()]
        for file in found
    }


def rows(path: Path) -> list[int]:
    """All numbers that a plain reader finds, in listing order."""
    return [number for numbers in visible(path).values() for number in numbers]


def entry(path: Path, number: int) -> LogEntry:
    return LogEntry.decode((path / entry_name(number)).read_bytes(), entry_name(number))


def entries(path: Path) -> int:
    return len(list((path / "_fastwire/log").rglob("*.json")))


def staging(path: Path) -> list[str]:
    return sorted(str(file.relative_to(path / "_fastwire/staging")) for file in path.glob("_fastwire/staging/*/*"))


def rewrite(path: Path, number: int, **changes: Any) -> None:
    """Forge a log entry, and those behind it, so that they follow it."""
    forged = replace(entry(path, number), **changes)
    (path / entry_name(number)).write_bytes(data := forged.encode())
    while (following := path / entry_name(number := number + 1)).exists():
        following.write_bytes(data := replace(entry(path, number), before=crc32c(data)).encode())
