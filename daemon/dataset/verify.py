"""Proves from files and log that a dataset holds each row once, and says what such a proof cannot reach.

Safe beside running writers: files are listed before the log is read, so whatever the listing shows must be in the log.
Nothing is changed and no lock is taken.
"""

import gzip
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset
import pyarrow.fs
import pyarrow.parquet as pq
import zstandard

from fastwire.position import Coverage, Log, OverlapError, Position, Span, UndeclaredGapError, format_position

from ..errors import DatasetDamagedError, DatasetError
from .checkpoint import Checkpoint, checkpoint_name, checkpoint_numbers
from .description import DESCRIPTION, Description, read_description
from .disk import Disk
from .diverted import read_letters
from .log import DIVERTED, LOG, STAGING, LogEntry, entry_name
from .patience import Impatience
from .storage import Storage

__all__ = ["LogReport", "Problem", "VerifyReport", "counted", "verify"]

# Footers are small and far apart: the disk is waited for, not the processor.
_THREADS = 8
_PIECE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that must not be.

    ``kind`` is one of: no-dataset, damaged, log-hole (the log lacks a number), overlap (landed twice), gap (skipped
    without a word), sum (rows that were given and neither landed nor filtered), missing, removed (only if strict),
    stray, unreadable, rows, size (a file that is not what its log entry says), checkpoint.
    """

    kind: str
    where: str
    text: str


@dataclass(slots=True)
class LogReport:
    """What has landed of one log.

    ``holes`` lie between intervals: with a shared subscription they may still fill, and so may the ``held`` ones among
    them, which are parts of chunked messages that were not complete.
    """

    log: Log
    start: str
    end: str
    rows: int = 0
    spans: int = 0
    intervals: list[tuple[str, str]] = field(default_factory=list)
    gaps: list[tuple[str, str, str]] = field(default_factory=list)
    holes: list[tuple[str, str]] = field(default_factory=list)
    held: int = 0
    ledger_changes: int = 0
    shared: bool = False


@dataclass(slots=True)
class VerifyReport:
    """The outcome. ``rows``, ``files`` and ``nbytes`` are what the log says, ``counted_rows`` what the files hold."""

    path: str
    strict: bool
    problems: list[Problem] = field(default_factory=list)
    system: str = ""
    entries: int = 0
    files: int = 0
    rows: int = 0
    nbytes: int = 0
    counted_files: int = 0
    counted_rows: int = 0
    filtered: int = 0
    diverted_entries: int = 0
    diverted_rows: int = 0
    pending: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    logs: list[LogReport] = field(default_factory=list)
    proven: list[str] = field(default_factory=list)
    trusted: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether there is no problem."""
        return not self.problems

    def to_json(self) -> dict[str, Any]:
        """As plain dicts, lists, texts and numbers."""
        return {
            "path": self.path,
            "ok": self.ok,
            "strict": self.strict,
            "system": self.system,
            "problems": [{"kind": each.kind, "where": each.where, "text": each.text} for each in self.problems],
            "log_entries": self.entries,
            "files": self.files,
            "rows": self.rows,
            "bytes": self.nbytes,
            "counted_files": self.counted_files,
            "counted_rows": self.counted_rows,
            "filtered_rows": self.filtered,
            "diverted_entries": self.diverted_entries,
            "diverted_rows": self.diverted_rows,
            "pending_files": self.pending,
            "removed_files": self.removed,
            "logs": [_log_to_json(each) for each in self.logs],
            "proven": self.proven,
            "trusted": self.trusted,
        }


def _log_to_json(report: LogReport) -> dict[str, Any]:
    log = report.log
    return {
        "system": log.system,
        "cluster": log.cluster,
        "topic": log.topic,
        "partition": log.partition,
        "incarnation": log.incarnation,
        "start": report.start,
        "end": report.end,
        "rows": report.rows,
        "spans": report.spans,
        "intervals": [list(each) for each in report.intervals],
        "gaps": [{"from": a, "to": b, "reason": reason} for a, b, reason in report.gaps],
        "holes": [list(each) for each in report.holes],
        "held": report.held,
        "ledger_changes": report.ledger_changes,
        "shared": report.shared,
    }


def verify(path: str | os.PathLike[str], strict: bool = False, disk: Disk | None = None) -> VerifyReport:
    """Check the dataset at ``path``. ``strict``: files that somebody took away since are problems too.

    Raises OSError for what cannot be read at all (permissions, a failing disk).
    """
    disk = disk or Disk()
    return _Verification(Storage(os.fspath(path), disk, Impatience(disk)), strict).run()


@dataclass(frozen=True, slots=True)
class _Expected:
    """A file that a log entry names."""

    number: int
    staged: str
    rows: int
    nbytes: int


class _Verification:
    def __init__(self, storage: Storage, strict: bool) -> None:
        self._storage = storage
        self._report = VerifyReport(storage.root, strict)
        self._logs: dict[Log, LogReport] = {}
        self._broken: set[Log] = set()
        self._letters: dict[str, tuple[int, int]] = {}
        self._floors = 0
        self._held: dict[Log, list[tuple[Position, Position]]] = {}
        self._uncounted = False

    def run(self) -> VerifyReport:
        report = self._report
        data = self._storage.read(DESCRIPTION)
        if data is None:
            self._problem("no-dataset", DESCRIPTION, "there is no dataset here")
            return report
        try:
            description = read_description(data, self._storage.root)
        except DatasetError as exc:
            self._problem("damaged", DESCRIPTION, str(exc))
            return report
        report.system = description.system
        # In this order: what is listed has a log entry by the time the log is read.
        seen = dict.fromkeys(self._visible())
        letters = dict.fromkeys(f"{DIVERTED}/{name}" for name in self._storage.list(DIVERTED))
        linked = [name for name in self._storage.disk.walk(self._storage.path(LOG)) if name.endswith(".json")]
        checkpoints = checkpoint_numbers(self._storage)
        expected, state = self._read_log(description, checkpoints)
        self._check_numbers(linked, state.number)
        newest = max((number for number in checkpoints if number <= state.number), default=0)
        self._check_files(expected, seen | letters, newest, description.extension)
        for name in (seen | letters).keys() - expected.keys():
            self._problem("stray", name, "no log entry names this file")
        self._summarize(state)
        self._explain(description)
        return report

    def _problem(self, kind: str, where: str, text: str) -> None:
        self._report.problems.append(Problem(kind, where, text))

    # --- the log

    def _visible(self) -> Iterator[str]:
        """Files that plain readers would read: those in no folder, and of no name, that begins with "_" or "."."""
        for name in self._storage.disk.walk(self._storage.root):
            if not any(part.startswith(("_", ".")) for part in name.split("/")):
                yield name

    def _read_log(self, description: Description, checkpoints: list[int]) -> tuple[dict[str, _Expected], Checkpoint]:
        expected: dict[str, _Expected] = {}
        state = Checkpoint()
        while (data := self._storage.read(name := entry_name(state.number + 1))) is not None:
            try:
                entry = LogEntry.decode(data, name)
            except DatasetDamagedError as exc:
                self._problem("damaged", name, str(exc))
                entry = LogEntry(writer="0" * 16, roll=0, at="")
            self._fold(entry, name, state)
            moves = list(entry.moves(state.number, description.extension))
            for file, (staged, target) in zip((*entry.files, *entry.letters), moves, strict=True):
                expected[target] = _Expected(state.number, staged, file.rows, file.nbytes)
            if entry.letters:
                entries = sum(part.entries for part in entry.diverted)
                self._letters[moves[-1][1]] = (entries, sum(part.rows for part in entry.diverted))
            if state.number in checkpoints:
                self._check_checkpoint(state)
        for number in checkpoints:
            if number > state.number:
                self._problem("checkpoint", checkpoint_name(number), f"the log ends with entry {state.number}")
        return expected, state

    def _fold(self, entry: LogEntry, name: str, state: Checkpoint) -> None:
        report = self._report
        for span in entry.spans:
            log_report = self._logs.setdefault(span.log, LogReport(span.log, "", ""))
            log_report.rows += span.rows
            log_report.spans += 1
            log_report.shared |= entry.shared
            self._fold_span(span, name, state.coverage, log_report)
        for log, floor in entry.floors:
            self._floors += 1
            if log in self._broken:
                continue
            try:
                state.coverage.settle(log, floor)
            except ValueError as exc:
                self._problem("damaged", name, str(exc))
        given = sum(span.rows for span in entry.spans)
        if given != entry.rows + entry.filtered:
            self._problem(
                "sum", name, f"{given} rows were given, {entry.rows} are in files and {entry.filtered} were filtered"
            )
        report.filtered += entry.filtered
        report.diverted_entries += sum(part.entries for part in entry.diverted)
        report.diverted_rows += sum(part.rows for part in entry.diverted)
        state.number += 1
        state.rows += entry.rows
        state.files += len(entry.files)
        state.nbytes += entry.nbytes

    def _fold_span(self, span: Span, name: str, coverage: Coverage, log_report: LogReport) -> None:
        system = span.log.system
        if span.gap is not None:
            ends = format_position(system, span.end), format_position(system, span.gap.to)
            log_report.gaps.append((*ends, span.gap.reason))
        if _changes_ledger(span):
            log_report.ledger_changes += 1
        if span.held_from is not None:
            self._held.setdefault(span.log, []).append((span.held_from, span.start))
        if span.log in self._broken:
            return  # one mistake, one message
        try:
            coverage.add(span)
            return
        except OverlapError as exc:
            self._problem("overlap", name, str(exc))
        except UndeclaredGapError as exc:
            self._problem("gap", name, str(exc))
        except ValueError as exc:
            self._problem("damaged", name, str(exc))
        self._broken.add(span.log)

    def _check_checkpoint(self, state: Checkpoint) -> None:
        name = checkpoint_name(state.number)
        data = self._storage.read(name)
        try:
            if data is not None and Checkpoint.decode(data, state.number) != state and not self._broken:
                self._problem("checkpoint", name, "is not what the log says")
        except ValueError as exc:
            self._problem("checkpoint", name, f"is damaged: {exc}")

    def _check_numbers(self, linked: list[str], last: int) -> None:
        beyond = sorted(name for name in linked if f"{LOG}/{name}" > entry_name(last))
        if beyond:
            self._problem(
                "log-hole", entry_name(last + 1), f"is not there, but {len(beyond)} later ones are, up to {beyond[-1]}"
            )

    # --- the files

    def _check_files(self, expected: dict[str, _Expected], seen: dict[str, None], newest: int, extension: str) -> None:
        present = [name for name in expected if name in seen or self._has_appeared(name, expected[name], newest)]
        count = _counter(extension)
        self._uncounted = count is None and any(not name.startswith(DIVERTED) for name in present)
        with ThreadPoolExecutor(_THREADS, "verify") as threads:
            outcomes = threads.map(lambda name: self._check_file(name, expected[name], count), present)
            for name, outcome in zip(present, outcomes, strict=True):
                if isinstance(outcome, Problem):
                    self._report.problems.append(outcome)
                elif outcome is None:
                    self._is_gone(name, expected[name], newest)
                elif not name.startswith(DIVERTED):
                    self._report.counted_files += 1
                    self._report.counted_rows += outcome

    def _has_appeared(self, name: str, file: _Expected, newest: int) -> bool:
        """Look again for what the listing did not show: it may have been published since, or be about to be."""
        if self._storage.exists(name):
            return True
        if self._storage.exists(file.staged):
            self._report.pending.append(name)
            return False
        if self._storage.exists(name):
            return True
        self._is_gone(name, file, newest)
        return False

    def _is_gone(self, name: str, file: _Expected, newest: int) -> None:
        if file.number > newest:
            self._problem("missing", name, f"log entry {file.number} has landed {file.rows} rows in it")
            return
        self._report.removed.append(name)
        if self._report.strict:
            self._problem("removed", name, f"somebody took away {file.rows} rows of log entry {file.number}")

    def _check_file(self, name: str, file: _Expected, count: Callable[[str], int] | None) -> Problem | int | None:
        """Rows of a sound file; None if it is gone; or what is wrong with it."""
        path = self._storage.path(name)
        size = self._storage.disk.size(path)
        if size is None:
            return None
        if size != file.nbytes:
            return Problem("size", name, f"has {size} bytes, log entry {file.number} says {file.nbytes}")
        try:
            if name in self._letters:
                letters = read_letters(path)
                found = letters.num_rows, pc.sum(letters["rows"]).as_py() or 0
                if found != self._letters[name]:
                    return Problem("rows", name, f"has {found[0]} entries, log entry {file.number} says otherwise")
                return file.rows
            rows = file.rows if count is None else count(path)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, pa.ArrowException, zstandard.ZstdError, EOFError) as exc:
            return Problem("unreadable", name, str(exc))
        if rows != file.rows:
            return Problem("rows", name, f"has {rows} rows, log entry {file.number} says {file.rows}")
        return rows

    # --- the report

    def _summarize(self, state: Checkpoint) -> None:
        report, coverage = self._report, state.coverage
        report.entries, report.files, report.rows = state.number, state.files, state.rows
        report.nbytes = state.nbytes
        for log, log_report in self._logs.items():
            start, end = coverage.start(log), coverage.end(log)
            if start is None or end is None:
                continue
            log_report.start = format_position(log.system, start)
            log_report.end = format_position(log.system, end)
            log_report.intervals = [_texts(log, interval) for interval in coverage.intervals(log)]
            holes = coverage.holes(log)
            held = self._held.get(log, ())
            log_report.held = sum(any(a <= low and high <= b for a, b in held) for low, high in holes)
            log_report.holes = [_texts(log, hole) for hole in holes]
            log_report.ledger_changes += sum(1 for a, b in holes if log.system == "pulsar" and a.a not in (b.a, -1))
            if len(holes) > log_report.held and not log_report.shared and log not in self._broken:
                # Pulsar is the only system whose Coverage can have holes at all.
                skipped = [
                    _texts(log, hole) for hole in holes if not any(a <= hole[0] and hole[1] <= b for a, b in held)
                ]
                places = ", ".join(f"{a} to {b}" for a, b in skipped[:3])
                self._problem("gap", str(log), f"read in order, and nothing says why this never came: {places}")
        report.logs = list(self._logs.values())

    def _explain(self, description: Description) -> None:
        report = self._report
        if not report.ok:
            return
        ordered = [each for each in report.logs if not each.shared]
        shared = [each for each in report.logs if each.shared]
        changes = sum(each.ledger_changes for each in report.logs)
        gaps = sum(len(each.gaps) for each in report.logs)
        report.proven = [
            f"the log is whole: entries 1 to {report.entries}" if report.entries else "the log is empty",
            f"nothing landed twice: the spans of {counted(len(report.logs), 'partition')} do not overlap",
            "all rows that were given are in files, or were filtered on purpose",
        ]
        if not self._uncounted:
            files, rows = counted(report.counted_files, "file"), counted(report.counted_rows, "row")
            report.proven.append(f"{files} with {rows}: each is what the log says")
        if ordered:
            report.proven.append(
                f"no gap in {counted(len(ordered), 'partition')} read in order: each span begins where the one before "
                "ended" + (f", or behind {counted(gaps, 'declared gap')}" if gaps else "")
            )
        report.trusted = ["that a reader was given all that the broker had between the ends of each span"]
        if changes:
            report.trusted.append(
                "that nothing lies between the last entry of a ledger and the first of the next "
                f"({counted(changes, 'change')} of ledger)"
            )
        if shared:
            holes = sum(len(each.holes) for each in shared)
            report.trusted.append(
                f"that what is missing in {counted(len(shared), 'shared partition')} ({counted(holes, 'hole')}) is "
                "still to come, was never there, or was acked by somebody else"
            )
        if held := sum(each.held for each in ordered):
            report.trusted.append(
                f"that what is missing in {counted(held, 'place')} belongs to chunked messages that are not complete"
            )
        if self._floors:
            report.trusted.append(f"that everything below {counted(self._floors, 'confirmed position')} was settled")
        if gaps:
            report.trusted.append(f"that nothing could be had from {counted(gaps, 'declared gap')}")
        if report.removed:
            report.trusted.append(f"that {counted(len(report.removed), 'file')} no longer there went on purpose")
        if self._uncounted:
            report.trusted.append(f"that .{description.extension} files hold as many rows as the log says")
        if waiting := self._storage.list(STAGING):
            report.trusted.append(
                f"nothing of what {counted(len(waiting), 'writer')} may have in hand: it is not committed"
            )


def counted(count: int, thing: str) -> str:
    """A number of things, in words."""
    return f"{count:,} {thing}" if count == 1 else f"{count:,} {thing}s"


def _texts(log: Log, places: tuple[Position, Position]) -> tuple[str, str]:
    return format_position(log.system, places[0]), format_position(log.system, places[1])


def _changes_ledger(span: Span) -> bool:
    return span.log.system == "pulsar" and span.start.a not in (span.end.a, -1)


# --- rows in files


def _counter(extension: str) -> Callable[[str], int] | None:
    """How rows are counted without reading them; None for a format that is not ours."""
    return {
        "parquet": _rows_in_parquet,
        "arrow": _rows_in_arrow,
        "jsonl": _rows_in_jsonl,
        "jsonl.gz": _rows_in_jsonl,
        "jsonl.zst": _rows_in_jsonl,
    }.get(extension)


def _rows_in_parquet(path: str) -> int:
    return int(pq.read_metadata(path).num_rows)


def _rows_in_arrow(path: str) -> int:
    # Reads the heads of the record batches only; their bodies need not be decompressed.
    files = pa.fs.LocalFileSystem()
    return int(pa.dataset.IpcFileFormat().make_fragment(path, filesystem=files).count_rows())


def _rows_in_jsonl(path: str) -> int:
    with open(path, "rb") as file:
        if path.endswith(".gz"):
            with gzip.open(file) as lines:
                return _count_lines(lines)
        if path.endswith(".zst"):
            with zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True) as lines:
                return _count_lines(lines)
        return _count_lines(file)


def _count_lines(file: BinaryIO | Any) -> int:
    count, last = 0, b"\n"
    while piece := file.read(_PIECE_BYTES):
        count += piece.count(b"\n")
        last = piece[-1:]
    if last != b"\n":
        raise ValueError("the last line has no end")
    return count
