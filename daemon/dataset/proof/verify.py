"""Checks from files and log that a dataset has each row once, and lists what such a check cannot prove.

Sizes, row counts, positions and the log are always compared; every byte is compared only if ``deep``. It is safe beside
running writers: files are listed before the log is read, so each listed file must be in the log. It changes nothing and
takes no lock.
"""

import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import zstandard
from crc32c import crc32c

from fastwire.coverage import Coverage, OverlapError, UndeclaredGapError
from fastwire.position import Log, Position, Span, format_position, positions_of

from ...runtime.amounts import counted
from ...runtime.errors import DatasetDamagedError, DatasetError, DatasetMismatchError
from ..commitlog.checkpoint import Checkpoint, checkpoint_name, checkpoint_numbers
from ..commitlog.deadletterfile import read_dead_letters
from ..commitlog.entry import DEAD_LETTERS, LOG, STAGING, Erased, LogEntry, entry_name
from ..commitlog.whole import noted_number, noted_numbers, parents, visible
from ..description import DESCRIPTION, Description, read_description
from ..place import storage_at
from ..storage.base import Storage
from ..storage.bucket import Bucket
from ..storage.disk import Disk
from .content import checksum_of, misplaced_rows, row_counter
from .findings import Problem
from .report import LogReport, VerifyReport

if TYPE_CHECKING:
    from .tableaudit import TableAudit

# Footers are small and far apart, so the disk is the limit and not the processor.
_THREADS = 8
# Formats whose rows are counted by reading the whole file: then the bytes are compared as well.
_READ_WHOLE = ("jsonl", "jsonl.gz", "jsonl.zst")


def verify(
    path: str | os.PathLike[str],
    strict: bool = False,
    medium: Disk | Bucket | None = None,
    *,
    deep: bool = False,
    catalog: Mapping[str, str] | None = None,
) -> VerifyReport:
    """Check the dataset at ``path``, or in the bucket ``medium``; a table in its ``catalog``, if it has one.

    ``strict``: files that were removed since are problems, too. ``deep``: read every byte of every file.

    Raises OSError for files that cannot be read (permissions, a failing disk).
    """
    return _Verification(storage_at(path, medium, patient=False), strict, deep, catalog).run()


@dataclass(frozen=True, slots=True)
class _Expected:
    """A file that a log entry names."""

    number: int
    staged: str
    rows: int
    nbytes: int
    checksum: int | None
    before: "_Expected | None" = None  # its last erasure
    exchange: str = ""  # the file that takes its place then

    def erased(self, by: Erased) -> "_Expected":
        """Return what an erasure makes of the file."""
        return replace(self, rows=by.rows, nbytes=by.nbytes, checksum=by.checksum, before=self, exchange=by.staged)


class _Content(NamedTuple):
    """The result for a sound file: ``summed`` if every byte was compared, ``placed`` if its positions were."""

    rows: int
    summed: bool
    placed: bool


_UNERASED = _Content(0, False, False)
"""The file still has rows that a log entry has erased, and the file that takes its place is there."""


class _Verification:
    def __init__(self, storage: Storage, strict: bool, deep: bool, catalog: Mapping[str, str] | None) -> None:
        self._storage = storage
        self._catalog = catalog
        self._report = VerifyReport(storage.root, strict, deep)
        self._unchained = 0
        self._unsummed = 0
        self._prefix = ""  # of the columns of records in files
        # Spans are read again when they are needed: those of all log entries may not fit into memory.
        self._spans_of = lru_cache(2 * _THREADS)(self._read_spans)
        self._logs: dict[Log, LogReport] = {}
        self._broken: set[Log] = set()
        self._dead_letters: dict[str, tuple[int, int]] = {}
        self._floors = 0
        self._held: dict[Log, list[tuple[Position, Position]]] = {}
        self._uncounted = False
        self._noted = 0
        self._last = 0  # the last log entry that was read
        self._read_to = 0  # the last one when the files were not looked at yet
        self._expired = 0  # files of the log entries up to this one may be gone
        self._table: TableAudit | None = None

    def run(self) -> VerifyReport:
        report = self._report
        data = self._storage.read(DESCRIPTION)
        if data is None:
            self._problem("no-dataset", DESCRIPTION, "there is no dataset here")
            return report
        try:
            description = read_description(data, self._storage.root)
        except DatasetMismatchError as exc:
            self._problem("format", DESCRIPTION, str(exc))
            return report
        except DatasetDamagedError as exc:
            self._problem("damaged", DESCRIPTION, str(exc).removeprefix(f"{self._storage.path(DESCRIPTION)} "))
            return report
        report.system = description.system
        self._prefix = description.prefix
        # In this order, each listed file, or file of the table, has a log entry by the time the log is read.
        if description.table:
            from .tableaudit import TableAudit

            self._table = TableAudit(self._storage, description, self._catalog)
        seen = dict.fromkeys(visible(self._storage))
        dead_letters = dict.fromkeys(f"{DEAD_LETTERS}/{name}" for name in self._storage.list(DEAD_LETTERS))
        linked = [name for name in self._storage.walk(LOG) if name.endswith(".json")]
        checkpoints = checkpoint_numbers(self._storage)
        self._noted = max(noted_numbers(self._storage), default=0)
        try:
            expected, state = self._read_log(description, checkpoints)
        except DatasetMismatchError as exc:
            self._problem("format", LOG, str(exc))
            return report
        self._check_numbers(linked, state.number)
        newest = max((number for number in checkpoints if number <= state.number), default=0)
        self._check_files(expected, seen | dead_letters, newest, description.extension)
        linked_folders = {parent for name in expected for parent in parents(name)}  # an operator may have moved one
        for name in (seen | dead_letters).keys() - expected.keys() - linked_folders if self._table is None else ():
            self._problem("stray", name, "no log entry names this file")
        self._summarize(state)
        if self._table is not None:
            landed = {name: file for name, file in expected.items() if not name.startswith(DEAD_LETTERS)}
            self._table.compare({name: (file.number, file.nbytes, file.rows) for name, file in landed.items()}, report)
        self._explain(description)
        if self._table is not None:
            self._table.explain(report)
        return report

    def _problem(self, kind: str, where: str, text: str) -> None:
        self._report.problems.append(Problem(kind, where, text))

    # --- the log

    def _read_log(self, description: Description, checkpoints: list[int]) -> tuple[dict[str, _Expected], Checkpoint]:
        expected: dict[str, _Expected] = {}
        state = Checkpoint()
        tail: int | None = 0
        while (data := self._storage.read(name := entry_name(state.number + 1))) is not None:
            try:
                entry = LogEntry.decode(data, name)
            except DatasetDamagedError as exc:
                self._problem("damaged", name, str(exc).removeprefix(f"{name} "))
                entry, tail = LogEntry(writer="0" * 16, roll=0, at=""), None
            else:
                self._check_chain(entry, name, tail)
                tail = crc32c(data)
            self._fold(entry, name, state)
            self._note_expiry(entry, state.number)
            moves = list(entry.moves(state.number, description.extension))
            for file, (staged, target) in zip((*entry.files, *entry.dead_letters), moves, strict=True):
                expected[target] = _Expected(state.number, staged, file.rows, file.nbytes, file.checksum)
            for each in entry.erased:
                if each.name not in expected:
                    self._problem("damaged", name, f"erases rows of {each.name}, which no log entry has landed")
                    continue
                self._report.erased += expected[each.name].rows - each.rows
                expected[each.name] = expected[each.name].erased(each)
            if entry.dead_letters:
                entries = sum(part.entries for part in entry.dead_letter_counts)
                self._dead_letters[moves[-1][1]] = (entries, sum(part.rows for part in entry.dead_letter_counts))
            if state.number in checkpoints:
                self._check_checkpoint(state)
        self._read_to = state.number
        for number in checkpoints:
            if number > state.number:
                self._problem("log-end", checkpoint_name(number), f"the log ends with entry {state.number}")
        return expected, state

    def _note_expiry(self, entry: LogEntry, number: int) -> None:
        self._last = number
        begun = () if entry.replaying is None else entry.replaying.dead_letters
        if any(each.entry >= number for each in (*entry.replayed, *begun)) or entry.closes >= number:
            self._problem("damaged", entry_name(number), "marks dead letters of log entries that come after it")
        if entry.expired >= number:
            self._problem("damaged", entry_name(number), "expires log entries that come after it")
        else:
            self._expired = max(self._expired, entry.expired)

    def _has_expired(self, number: int) -> bool:
        """Return True if files of log entry ``number`` may be deleted; reads what was committed meanwhile."""
        while number > self._expired and (data := self._storage.read(name := entry_name(self._last + 1))) is not None:
            try:
                self._note_expiry(LogEntry.decode(data, name), self._last + 1)
            except DatasetError:
                return False  # the next run reports it
        return number <= self._expired

    def _check_chain(self, entry: LogEntry, name: str, tail: int | None) -> None:
        """Compare ``tail``, the checksum of the entry before (None if that is damaged), with the recorded one."""
        if entry.before is None:
            self._unchained += 1
        elif tail not in (None, entry.before):
            self._problem("chain", name, "was written after another log entry than the one before it")

    def _read_spans(self, number: int) -> tuple[Span, ...]:
        name = entry_name(number)
        data = self._storage.read(name)
        return () if data is None else LogEntry.decode(data, name).spans

    def _fold(self, entry: LogEntry, name: str, state: Checkpoint) -> None:
        report = self._report
        for span in entry.spans:
            if span.log.system == "spark" and span.log not in self._logs:
                first = next((log.topic for log in self._logs if log.system == "spark"), span.log.topic)
                if first != span.log.topic:
                    text = f"query {span.log.topic} has written to the table of query {first}: rows may be there twice"
                    self._problem("overlap", name, text)
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
                state.coverage.raise_floor(log, floor)
            except ValueError as exc:
                self._problem("damaged", name, str(exc).removeprefix(f"{name} "))
        given = sum(span.rows for span in entry.spans)
        if given != entry.rows + entry.sent + entry.filtered or entry.unselected > entry.filtered:
            landed = entry.rows + entry.sent
            text = f"{given} rows were given, {landed} have landed and {entry.filtered} were filtered"
            self._problem("sum", name, text)
        report.filtered += entry.filtered
        report.unselected += entry.unselected
        report.sent += entry.sent
        report.dead_letters += sum(part.entries for part in entry.dead_letter_counts)
        report.dead_letter_rows += sum(part.rows for part in entry.dead_letter_counts)
        report.replayed += sum(each.last - each.first + 1 for each in entry.replayed)
        state.number += 1
        state.rows += entry.rows
        state.files += len(entry.files)
        state.nbytes += entry.nbytes
        state.types = entry.types or state.types

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
            return  # one problem is reported once
        try:
            coverage.add(span)
            return
        except OverlapError as exc:
            self._problem("overlap", name, str(exc))
        except UndeclaredGapError as exc:
            self._problem("gap", name, str(exc))
        except ValueError as exc:
            self._problem("damaged", name, str(exc).removeprefix(f"{name} "))
        self._broken.add(span.log)

    def _check_checkpoint(self, state: Checkpoint) -> None:
        name = checkpoint_name(state.number)
        data = self._storage.read(name)
        try:
            if data is not None and Checkpoint.decode(data, state.number) != state and not self._broken:
                self._problem("checkpoint", name, "differs from the log")
        except ValueError as exc:
            self._problem("checkpoint", name, f"is damaged: {exc}")

    def _check_numbers(self, linked: list[str], last: int) -> None:
        beyond = sorted(name for name in linked if f"{LOG}/{name}" > entry_name(last))
        if beyond:
            self._problem(
                "log-hole", entry_name(last + 1), f"is not there, but {len(beyond)} later ones are, up to {beyond[-1]}"
            )
        elif self._noted > last:
            text = f"is a copy of log entry {self._noted}, but the log ends with entry {last}"
            self._problem("log-end", noted_number(self._noted), text)

    # --- the files

    def _check_files(self, expected: dict[str, _Expected], seen: dict[str, None], newest: int, extension: str) -> None:
        present = [name for name in expected if name in seen or self._has_appeared(name, expected[name], newest)]
        count = row_counter(extension)
        read = self._report.deep or extension in _READ_WHOLE
        systems = {log.system for log in self._logs} or {self._report.system}  # a job's: that of its source, too
        place = extension == "parquet" and any(
            positions.ordered and positions.number_columns for positions in map(positions_of, systems)
        )
        self._uncounted = count is None and any(not name.startswith(DEAD_LETTERS) for name in present)
        with ThreadPoolExecutor(_THREADS, "verify") as threads:
            outcomes = threads.map(lambda name: self._check_file(name, expected[name], count, read, place), present)
            for name, outcome in zip(present, outcomes, strict=True):
                if outcome is None:
                    self._is_gone(name, expected[name], newest)
                    continue
                if expected[name].number <= self._expired:
                    self._report.undeleted.append(name)
                if outcome is _UNERASED:
                    self._report.unerased.append(name)
                elif isinstance(outcome, Problem):
                    self._report.problems.append(outcome)
                elif not name.startswith(DEAD_LETTERS):
                    self._report.counted_files += 1
                    self._report.counted_rows += outcome.rows
                    self._report.read_files += outcome.summed
                    self._report.placed_files += outcome.placed
                    self._unsummed += expected[name].checksum is None

    def _has_appeared(self, name: str, file: _Expected, newest: int) -> bool:
        """Look again for a file that was not listed: it may have been published since, or be about to be."""
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
        if self._has_expired(file.number):
            self._report.expired_files += 1
            return
        if self._table is not None and self._table.is_without(name, file.number):
            return
        if file.number > newest or self._table is not None:
            self._problem("missing", name, f"log entry {file.number} has landed {file.rows} rows in it")
            return
        self._report.removed.append(name)
        if self._report.strict:
            self._problem("removed", name, f"{file.rows} rows of log entry {file.number} were removed")

    def _check_file(
        self, name: str, file: _Expected, count: Callable[[BinaryIO], int] | None, read: bool, place: bool
    ) -> Problem | _Content | None:
        """Check one file; return None if it does not exist, _UNERASED if it is about to be exchanged."""
        outcome = self._compare(name, file, count, read, place)
        if not isinstance(outcome, Problem):
            return outcome
        # An erasure may have been committed meanwhile, and a file is exchanged behind its log entry.
        newest = self._erased_since(name, file)
        state = newest if newest is not file else file.before
        while state is not None:
            if isinstance(found := self._compare(name, state, count, read, place), _Content):
                if state is newest:
                    return found
                if self._storage.exists(newest.exchange):
                    return _UNERASED
                text = "holds rows that a log entry has erased: is it from a backup?"
                return Problem("erased", name, text)
            state = state.before
        return outcome

    def _erased_since(self, name: str, file: _Expected) -> _Expected:
        """Return the state of a file by the log entries that were committed since the log was read."""
        number = self._read_to
        while (data := self._storage.read(entry := entry_name(number + 1))) is not None:
            number += 1
            for each in LogEntry.decode(data, entry).erased:
                file = file.erased(each) if each.name == name else file
        return file

    def _compare(
        self, name: str, file: _Expected, count: Callable[[BinaryIO], int] | None, read: bool, place: bool
    ) -> Problem | _Content | None:
        size = self._storage.size(name)
        if size is None:
            return None
        if size != file.nbytes:
            return Problem("size", name, f"has {size} bytes, log entry {file.number} says {file.nbytes}")
        try:
            if name in self._dead_letters:
                with self._storage.reader(name) as content:
                    dead_letters = read_dead_letters(content)
                found = dead_letters.num_rows, pc.sum(dead_letters["rows"]).as_py() or 0
                if found != self._dead_letters[name]:
                    return Problem("rows", name, f"has {found[0]} entries, log entry {file.number} says otherwise")
                rows, misplaced, read = file.rows, None, True
            else:
                rows, misplaced = self._look_into(name, file, count, place)
            checksum = checksum_of(self._storage.pieces(name)) if read and file.checksum is not None else None
        except FileNotFoundError:
            return None
        except (OSError, ValueError, pa.ArrowException, zstandard.ZstdError, EOFError) as exc:
            return Problem("unreadable", name, str(exc))
        if rows != file.rows:
            return Problem("rows", name, f"has {rows} rows, log entry {file.number} says {file.rows}")
        if misplaced:
            return Problem("positions", name, f"{misplaced}, which log entry {file.number} does not land")
        if checksum is not None and checksum != file.checksum:
            return Problem("content", name, f"its bytes are not those that were written for log entry {file.number}")
        return _Content(rows, checksum is not None, misplaced is not None)

    def _look_into(
        self, name: str, file: _Expected, count: Callable[[BinaryIO], int] | None, place: bool
    ) -> tuple[int, str | None]:
        """Return the number of rows of a data file, and the result of :func:`misplaced_rows`."""
        if count is None:
            return file.rows, None
        with self._storage.reader(name) as content:
            rows = count(content)
            return rows, misplaced_rows(content, self._spans_of(file.number), self._prefix) if place else None

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
            log_report.ledger_changes += sum(not positions_of(log.system).same_segment(a, b) for a, b in holes)
            scattered = log_report.shared or positions_of(log.system).scattered
            if len(holes) > log_report.held and not scattered and log not in self._broken:
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
        shared = [each for each in report.logs if each.shared]
        scattered = [each for each in report.logs if positions_of(each.log.system).scattered]
        ordered = [each for each in report.logs if not each.shared and each not in scattered]
        changes = sum(each.ledger_changes for each in report.logs)
        gaps = sum(len(each.gaps) for each in report.logs)
        place = "the topic" if description.target else "files"
        report.proven = [
            f"nothing landed twice: no spans of {counted(len(report.logs), 'partition')} overlap",
        ]
        if ordered:
            declared = f", but for {counted(gaps, 'declared gap')}" if gaps else ""
            report.proven.append(
                f"nothing is missing in {counted(len(ordered), 'partition')} read in order: each span begins where the "
                f"one before ended{declared}"
            )
        report.proven += [
            f"every row is in {place}, or was filtered on purpose",
            f"the log has all entries from 1 to {report.entries}" if report.entries else "the log is empty",
        ]
        if not self._uncounted:
            files, rows = counted(report.counted_files, "file"), counted(report.counted_rows, "row")
            report.proven.append(f"{files} with {rows} are as the log describes them")
        if report.erased and not report.unerased:
            report.proven.append(f"{counted(report.erased, 'row')} were erased by a command")
        if report.expired_files:
            report.proven.append(f"{counted(report.expired_files, 'file')} had expired when they were deleted")
        if report.read_files:
            report.proven.append(f"every byte of {counted(report.read_files, 'file')} is as it was written (CRC-32C)")
        if report.placed_files:
            report.proven.append(
                f"the rows of {counted(report.placed_files, 'file')} are those of their log entries, judging by the "
                "minimum and maximum positions in the file"
            )
        report.trusted = ["the broker delivered every record between the ends of each span"]
        if changes:
            report.trusted.append(
                "nothing lies between the last entry of a ledger and the first of the next "
                f"({counted(changes, 'change')} of ledger)"
            )
        if shared:
            holes = sum(len(each.holes) for each in shared)
            report.trusted.append(
                f"the records of {counted(holes, 'hole')} in {counted(len(shared), 'shared partition')} are still to "
                "come, never existed, or were acknowledged by another consumer"
            )
        if holes := sum(len(each.holes) for each in scattered):
            report.trusted.append(f"the source had no file, or none any more, in {counted(holes, 'hole')}")
        if held := sum(each.held for each in ordered):
            report.trusted.append(
                f"the entries missing in {counted(held, 'place')} belong to chunked messages that are not complete"
            )
        if self._floors:
            report.trusted.append(f"the broker needs no record below {counted(self._floors, 'confirmed position')}")
        if gaps:
            report.trusted.append(f"the broker did not have the records of {counted(gaps, 'declared gap')}")
        if report.removed:
            report.trusted.append(f"{counted(len(report.removed), 'file')} that are gone were removed on purpose")
        if self._uncounted:
            report.trusted.append(f".{description.extension} files have as many rows as the log says")
        if waiting := self._storage.list(STAGING):
            report.trusted.append(
                f"{counted(len(waiting), 'writer')} may hold staged files: they are not committed, and not checked"
            )

        self._explain_limits()

    def _explain_limits(self) -> None:
        """List what only another check could find, or no check at all."""
        report = self._report
        if unread := report.counted_files - report.read_files - self._unsummed:
            report.unproven.append(f"the bytes of {counted(unread, 'file')} (verify --deep compares them)")
        if self._unsummed:
            report.unproven.append(
                f"the bytes of {counted(self._unsummed, 'file')}: an older version wrote them without a checksum"
            )
        if self._unchained:
            report.unproven.append(
                f"whether a log entry was replaced: an older version wrote {self._unchained:,} of them without the "
                "checksum of the entry before"
            )
        if report.entries:
            gone = "their files and their checkpoint" if self._noted == report.entries else "their files"
            report.unproven.append(
                f"whether log entry {report.entries} is the newest and unchanged: if later entries and {gone} were all "
                "deleted, no trace would remain"
            )


def _texts(log: Log, places: tuple[Position, Position]) -> tuple[str, str]:
    return format_position(log.system, places[0]), format_position(log.system, places[1])


def _changes_ledger(span: Span) -> bool:
    return not positions_of(span.log.system).same_segment(span.start, span.end)
