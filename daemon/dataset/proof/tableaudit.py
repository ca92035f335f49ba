"""Compares the table of a dataset with its log: each file is in it, or was, and the number of its rows is right.

The table is read first, so each of its files has a log entry by the time the log is read.
"""

from collections.abc import Mapping

from ...runtime.amounts import counted
from ..description import Description
from ..place import table_of
from ..storage.base import Storage
from ..tableformat import Seen, TableStoppedError
from ..tables.publication import check_fields
from .findings import Problem
from .report import TableReport, VerifyReport


class TableAudit:
    """The table of a dataset at one moment; ``catalog`` is by default that of the creation."""

    def __init__(self, storage: Storage, description: Description, catalog: Mapping[str, str] | None = None) -> None:
        self.why = ""
        """The reason why the table takes no files, or cannot be read; "" without one."""
        self._files: Mapping[str, tuple[int, int | None]] = {}
        self._seen: Seen | None = None
        self._without = 0
        self._deleted = 0
        table = table_of(storage, description, catalog)
        self._url, self._title = table.url, table.title
        try:
            self._seen = table.look()
            if self._seen is not None:
                self._files = table.files()
                check_fields(table, self._seen, description, description.types)
        except TableStoppedError as exc:
            self.why = str(exc)

    @property
    def upto(self) -> int:
        """The log entry up to which the table has the files of the dataset; 0: none."""
        return 0 if self._seen is None else self._seen.upto

    def is_without(self, name: str, number: int) -> bool:
        """Return True if the table had the file of log entry ``number``, and was rewritten without it."""
        return number <= self.upto and name not in self._files

    def compare(self, landed: Mapping[str, tuple[int, int, int]], report: VerifyReport) -> None:
        """Compare the table with the files that have ``landed``: by name, log entry, size in bytes and rows."""
        if self.why:
            report.problems.append(Problem("table", self._url, self.why))
        published = {name: file for name, file in landed.items() if file[0] <= self.upto}
        report.pending += sorted(landed.keys() - published.keys() - set(report.pending))
        if self._seen is None:
            return
        for name in self._files.keys() & published.keys():
            number, nbytes, landed_rows = published[name]
            if self._files[name][0] != nbytes or self._files[name][1] not in (landed_rows, None):
                text = "{:,} bytes and {} rows".format(*self._files[name])
                text = f"the table says {text}, log entry {number} says {nbytes:,} and {landed_rows}"
                report.problems.append(Problem("table", name, text))
        self._without = len(published.keys() - self._files.keys())
        counts = [rows for _, rows in self._files.values() if rows is not None]
        rows = sum(counts) if len(counts) == len(self._files) else None
        report.table = TableReport(self._title, self._seen.version, self.upto, len(self._files), rows, self._without)
        if rows is None:
            return
        self._deleted = sum(landed_rows for _, _, landed_rows in published.values()) - rows
        if self._deleted < 0:
            text = (
                f"has {counted(-self._deleted, 'row')} more than have landed: others write into it, or rows are twice"
            )
            report.problems.append(Problem("table", self._url, text))
        elif self._deleted and report.strict:
            report.problems.append(Problem("table", self._url, f"{counted(self._deleted, 'row')} were deleted from it"))

    def explain(self, report: VerifyReport) -> None:
        """Add what the comparison proves, if it has found no problem."""
        table = report.table
        if not report.ok or table is None:
            return
        if table.rows is not None and not self._deleted:
            rows = counted(table.rows, "row")
            report.proven.append(f"the table has all {rows} of log entries 1 to {table.upto}, once")
        elif self._deleted:
            report.trusted.append(f"{counted(self._deleted, 'row')} were deleted from the table on purpose")
        if self._without:
            report.trusted.append(
                f"the writers that replaced {counted(self._without, 'file')} of the table kept the rows as they were"
            )
