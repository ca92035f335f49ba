"""Commands on many datasets: one that fails holds up no other; totals first, and details of those with problems."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from fastwire.errors import FastwireError

from ..runtime.amounts import counted, format_bytes
from .exits import EXIT_FAILED
from .say import say

if TYPE_CHECKING:
    from ..dataset.erasure.erasure import Erasure
    from ..dataset.expiry import Expired
    from ..dataset.proof.report import VerifyReport
    from ..dataset.storage.bucket import Bucket

T = TypeVar("T")
_MOST_TOLD = 20  # datasets, or reasons of several, that have lines of their own
_MOST_NAMED = 3  # datasets with one reason


class Each:
    """The datasets that a command takes on, one after the other. The failure of one of several is kept in ``failed``.

    ``of_each`` are further errors, beside FastwireError and OSError, that are of one dataset.
    """

    def __init__(self, places: "Sequence[tuple[str, Bucket | None]]", *of_each: type[Exception]) -> None:
        self.places = places
        self.failed: dict[str, str] = {}
        self._of_each: tuple[type[Exception], ...] = (FastwireError, OSError, *of_each)

    def results(self, act: "Callable[[str, Bucket | None], Iterable[T]]") -> Iterator[T]:
        """Yield the results of ``act`` on each dataset. Raises the error of one that stands alone."""
        for place, bucket in self.places:
            try:
                yield from act(place, bucket)
            except self._of_each as exc:
                if len(self.places) == 1:
                    raise
                self.failed[place] = str(exc)

    def end(self, *, as_json: bool) -> None:
        """Print what failed: as an object a line, or a line a reason on standard error. Raises typer.Exit if it did."""
        if as_json:
            for place, why in self.failed.items():
                say(json.dumps({"path": place, "error": why}))
        else:
            _tell_failed(self.failed, err=True)
        if self.failed:
            raise typer.Exit(EXIT_FAILED)


def _tell_failed(failed: Mapping[str, str], *, err: bool = False) -> None:
    """Print why datasets failed: those with one reason together, the first reasons only."""
    reasons: dict[str, list[str]] = {}
    for place, why in failed.items():
        reasons.setdefault(why.removeprefix(f"{place}: ").replace(place, "it"), []).append(place)
    for reason, places in islice(reasons.items(), _MOST_TOLD):
        if len(places) == 1:
            say(f"{places[0]}: {failed[places[0]]}", err=err)
        else:
            say(f"{counted(len(places), 'dataset')}, such as {', '.join(places[:_MOST_NAMED])}: {reason}", err=err)
    if more := sum(map(len, islice(reasons.values(), _MOST_TOLD, None))):
        say(f"and {more:,} more: --json names all", err=err)


def show_all_erased(root: str, found: "Sequence[Erasure]", *, dry_run: bool) -> None:
    """Print the sum of the erasures from the datasets in ``root``, and the datasets with something to tell."""
    from .printed import show_erased

    meant = [each for each in found if each.rows or each.dead_letters]
    rows, what = sum(each.rows for each in meant), "would be erased" if dry_run else "erased"
    say(f"{root}: {counted(rows, 'row')} {what}, in {len(meant):,} of {counted(len(found), 'dataset')}")
    if without := sum(not each.known for each in found):
        say(f"  without the columns of the condition: {counted(without, 'dataset')}")
    for each in found:
        if each in meant or each.finished or each.open_rolls or each.unread:
            show_erased(each, dry_run=dry_run)


def show_all_expired(root: str, found: "Sequence[Expired]", *, dry_run: bool) -> None:
    """Print the sum of what has expired in the datasets in ``root``, and the first in which something has."""
    from .printed import show_expired

    some = [each for each in found if each.entries or each.deleted]
    rows, files = (sum(getattr(each, name) for each in some) for name in ("rows", "files"))
    said = f"{counted(rows, 'row')} in {counted(files, 'file')} {'would expire' if dry_run else 'expired'}"
    say(f"{root}: {said}, in {len(some):,} of {counted(len(found), 'dataset')}")
    for each in some[:_MOST_TOLD]:
        show_expired(each, dry_run=dry_run)
    if len(some) > _MOST_TOLD:
        say(f"and {len(some) - _MOST_TOLD:,} more: --json names all")


COUNTED = ("log_entries", "files", "rows", "bytes", "dead_letters", "filtered_rows", "expired_files")


class Verified:
    """The sum of the reports of ``verify`` on the datasets in ``root``; ``failed`` are those without a report."""

    def __init__(self, root: str, failed: dict[str, str]) -> None:
        self._root = root
        self._failed = failed
        self._sound = 0
        self._totals: Counter[str] = Counter()
        self._sick: list[VerifyReport] = []

    def add(self, report: "VerifyReport") -> None:
        """Count a report; only one with problems is kept."""
        self._sound += report.ok
        told = report.to_json()
        self._totals.update({name: told[name] for name in COUNTED})
        if not report.ok:
            self._sick.append(report)

    @property
    def ok(self) -> bool:
        """True if no dataset has a problem."""
        return not self._sick and not self._failed

    @property
    def _datasets(self) -> int:
        return self._sound + len(self._sick) + len(self._failed)

    def to_json(self) -> dict[str, Any]:
        """Return the totals, and the whole reports with problems."""
        return {
            "path": self._root,
            "ok": self.ok,
            "datasets": self._datasets,
            **{name: self._totals[name] for name in COUNTED},
            "unsound": [
                *(report.to_json() for report in self._sick),
                *({"path": place, "ok": False, "error": why} for place, why in self._failed.items()),
            ],
        }

    def show(self, *, as_json: bool) -> None:
        """Print the totals, and the reports with problems."""
        if as_json:
            say(json.dumps(self.to_json()))
            return
        from .printed import show_report

        totals = self._totals
        say(f"{self._root}: {self._sound:,} of {self._datasets:,} datasets are sound")
        files = counted(totals["files"], "file")
        say(f"  {counted(totals['rows'], 'row')} in {files}, {format_bytes(totals['bytes'])}")
        if totals["dead_letters"]:
            say(f"  {counted(totals['dead_letters'], 'dead letter')}")
        for report in self._sick:
            show_report(report)
        _tell_failed(self._failed)
