"""The report of ``verify``: what is in a dataset, what is proven, and what is not."""

from dataclasses import asdict, dataclass, field
from typing import Any

from fastwire.position import Log

from .findings import Problem

# Names in JSON, where they are others.
_NAMES = {
    "entries": "log_entries", "nbytes": "bytes", "filtered": "filtered_rows", "unselected": "unselected_rows",
    "sent": "sent_rows", "replayed": "replayed_entries", "pending": "pending_files", "undeleted": "undeleted_files",
    "erased": "erased_rows", "unerased": "unerased_files", "removed": "removed_files",
}  # fmt: skip


@dataclass(slots=True)
class TableReport:
    """The table in which a dataset is published: its ``format`` and ``version``, and what it has.

    It has the files of the log entries up to ``upto``. ``rows`` is None if the table does not say how many each of its
    ``files`` has. ``rewritten`` files were in it and are not any more: their rows are in other files, or deleted.
    """

    format: str
    version: int
    upto: int
    files: int
    rows: int | None
    rewritten: int = 0


@dataclass(slots=True)
class LogReport:
    """The committed positions and rows of one log.

    ``holes`` lie between intervals. With a shared subscription they may still be filled; so may the ``held`` ones among
    them, which are parts of chunked messages that were incomplete.
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
    """The result of ``verify``. ``rows``, ``files`` and ``nbytes`` are those of the log, ``counted_rows`` of the files.

    Every byte of ``read_files`` files was compared; the positions of the rows of ``placed_files`` files were compared.
    ``expired_files`` were deleted by ``expire``, and it has left ``undeleted`` if it was interrupted or still runs.
    ``erased`` rows were taken out of their files by ``erase``, and it has left them in ``unerased`` ones likewise.
    ``proven`` are facts for the user, ``trusted`` what the proof takes on trust, ``unproven`` what was not checked.
    """

    path: str
    strict: bool
    deep: bool = False
    problems: list[Problem] = field(default_factory=list)
    system: str = ""
    entries: int = 0
    files: int = 0
    rows: int = 0
    nbytes: int = 0
    counted_files: int = 0
    counted_rows: int = 0
    read_files: int = 0
    placed_files: int = 0
    filtered: int = 0
    unselected: int = 0
    sent: int = 0
    dead_letters: int = 0
    dead_letter_rows: int = 0
    replayed: int = 0
    pending: list[str] = field(default_factory=list)
    expired_files: int = 0
    undeleted: list[str] = field(default_factory=list)
    erased: int = 0
    unerased: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    table: TableReport | None = None
    logs: list[LogReport] = field(default_factory=list)
    proven: list[str] = field(default_factory=list)
    trusted: list[str] = field(default_factory=list)
    unproven: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """True if no problem was found."""
        return not self.problems

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain dicts, lists, strings and numbers."""
        told = {_NAMES.get(name, name): value for name, value in asdict(self).items()}
        problems = [{**asdict(each), "todo": each.todo} for each in self.problems]
        logs = [_log_to_json(each) for each in self.logs]
        return {"path": self.path, "ok": self.ok, **told, "problems": problems, "logs": logs}


def _log_to_json(report: LogReport) -> dict[str, Any]:
    told = asdict(report)
    told |= {name: [list(each) for each in told[name]] for name in ("intervals", "holes")}
    told["gaps"] = [{"from": a, "to": b, "reason": reason} for a, b, reason in report.gaps]
    return {**told.pop("log"), **told}
