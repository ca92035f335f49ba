"""Numbers of records by what became of them, for each log: the books of a table that ``verify`` reads."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from fastwire.columns.chunk import DeadLetter
from fastwire.position import Log, Span

from .rows import Letter, Ready


class Fates(NamedTuple):
    """Records of one log in one roll."""

    records: int
    """Records of the spans."""
    landed: int
    dead_letters: int
    filtered: int
    """Rows that a query has left out, and change events without a row."""


def fates_of(
    spans: Iterable[Span],
    given: Mapping[Log, int],
    ready: Iterable[Ready],
    entries: Iterable[DeadLetter],
    values: Iterable[DeadLetter],
    refused: Iterable[tuple[Letter, DeadLetter]],
) -> dict[Log, Fates]:
    """Return the numbers of a roll by log.

    ``given`` are rows that came. Of these ``values`` could not be decoded, and ``refused`` ones the table cannot have.
    ``entries`` are dead letters that came as such.
    """
    records, landed, letters, kept = Counter[Log](), Counter[Log](), Counter[Log](), Counter[Log]()
    for span in spans:
        records[span.log] += span.rows
    for each in ready:
        for log, rows in _rows_of(each):
            landed[log] += rows
            kept[log] += rows
    for entry in entries:
        letters[entry.log] += entry.rows
    for value in values:
        letters[value.log] += 1
        kept[value.log] += 1
    for where, letter in refused:
        letters[letter.log] += 1
        if where.put:
            landed[letter.log] -= 1
        else:
            kept[letter.log] += 1
    logs = dict.fromkeys((*records, *given, *letters))
    return {log: Fates(records[log], landed[log], letters[log], given.get(log, 0) - kept[log]) for log in logs}


def _rows_of(ready: Ready) -> Iterable[tuple[Log, int]]:
    """Yield the rows of each log; their numbers ascend."""
    for log, first, rows in ready.gathered.runs:
        yield log, bisect_left(ready.numbers, first + rows) - bisect_left(ready.numbers, first)
