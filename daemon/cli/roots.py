"""The lines that commands print of many datasets: totals first, and details of those with problems."""

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from .say import say

if TYPE_CHECKING:
    from ..dataset.proof.report import VerifyReport

__all__ = ["Verified"]

COUNTED = ("log_entries", "files", "rows", "bytes", "dead_letters", "filtered_rows", "expired_files")


class Verified:
    """The sum of the reports of ``verify`` on the datasets in ``root``."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._datasets = 0
        self._totals: Counter[str] = Counter()
        self._sick: list[VerifyReport] = []

    def add(self, report: "VerifyReport") -> None:
        """Count a report; only one with problems is kept."""
        self._datasets += 1
        told = report.to_json()
        self._totals.update({name: told[name] for name in COUNTED})
        if not report.ok:
            self._sick.append(report)

    @property
    def ok(self) -> bool:
        """True if no dataset has a problem."""
        return not self._sick

    def to_json(self) -> dict[str, Any]:
        """Return the totals, and the whole reports with problems."""
        return {
            "path": self._root,
            "ok": self.ok,
            "datasets": self._datasets,
            **{name: self._totals[name] for name in COUNTED},
            "unsound": [report.to_json() for report in self._sick],
        }

    def show(self, *, as_json: bool) -> None:
        """Print the totals, and the reports with problems."""
        if as_json:
            say(json.dumps(self.to_json()))
            return
        from ..service.progress import format_bytes
        from .printed import show_report

        totals = self._totals
        sound = self._datasets - len(self._sick)
        say(f"{self._root}: {sound:,} of {self._datasets:,} datasets are sound")
        say(f"  {totals['rows']:,} rows in {totals['files']:,} files, {format_bytes(totals['bytes'])}")
        if totals["dead_letters"]:
            say(f"  {totals['dead_letters']:,} dead letters")
        for report in self._sick:
            show_report(report)
