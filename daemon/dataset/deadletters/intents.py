"""The state of a dataset's replays, folded from its log: the dead letters that are marked, and those in hand.

A command records an intent before it sends dead letters, and marks them afterwards. Where two intents name the same
letter, the earlier one counts and the later one is void as a whole: the order of the log decides, so each reader comes
to the same result. An intent is over when an entry closes it; an intent that closes another one takes its dead letters
over.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import itemgetter

from ..commitlog.chain import entries_behind
from ..commitlog.entry import LogEntry, Replayed, Replaying, entry_name
from ..storage.base import Storage

_READ_AHEAD = 64  # log entries


@dataclass(frozen=True, slots=True)
class Intent:
    """An open intent: that of log entry ``number``, recorded by the dataset's writer ``writer``."""

    number: int
    writer: str
    facts: Replaying


class DeadLetterRanges:
    """A set of dead letters: by log entry disjoint ranges of their numbers, in order, no two of them adjacent."""

    def __init__(self) -> None:
        self._of: dict[int, list[tuple[int, int]]] = {}

    def add(self, ranges: Iterable[Replayed]) -> None:
        """Add dead letters, of which some may be there."""
        for entry, first, last in ranges:
            known = self._of.setdefault(entry, [])
            begin, end = _within(known, first - 1, last + 1)
            touched = known[begin:end]
            low, high = (touched[0][0], touched[-1][1]) if touched else (first, last)
            known[begin:end] = [(min(low, first), max(high, last))]

    def remove(self, ranges: Iterable[Replayed]) -> None:
        """Remove dead letters, of which some may be missing."""
        for entry, first, last in ranges:
            known = self._of.get(entry, [])
            begin, end = _within(known, first, last)
            if begin < end:
                parts = [(known[begin][0], first - 1), (last + 1, known[end - 1][1])]
                known[begin:end] = [part for part in parts if part[0] <= part[1]]

    def meets(self, entry: int, first: int, last: int) -> bool:
        """Return True if one of the dead letters of a range is there."""
        begin, end = _within(self._of.get(entry, []), first, last)
        return begin < end


def _within(known: list[tuple[int, int]], first: int, last: int) -> tuple[int, int]:
    """Return the slice of the ranges that have a number from ``first`` to ``last``."""
    return bisect_left(known, first, key=itemgetter(1)), bisect_right(known, last, key=itemgetter(0))


class Replays:
    """The marks and open intents of a dataset, up to the end of its log at the last look.

    Making it looks. Raises DatasetDamagedError for a log that cannot be read.
    """

    def __init__(self, storage: Storage) -> None:
        self.open: dict[int, Intent] = {}
        """The open intents, by the numbers of their log entries."""
        self._storage = storage
        self._number = 0
        self._marked = DeadLetterRanges()
        self._held = DeadLetterRanges()
        self.look()

    def look(self) -> None:
        """Read the log further to its end."""
        while found := entries_behind(self._storage, self._number, _READ_AHEAD):
            for data in found:
                self._number += 1
                self._fold(LogEntry.decode(data, self._storage.path(entry_name(self._number))))

    def _fold(self, entry: LogEntry) -> None:
        over = self.open.pop(entry.closes, None)
        if over is not None:
            self._held.remove(over.facts.dead_letters)
        self._marked.add(entry.replayed)
        intent = entry.replaying
        if intent is None or (entry.closes and over is None):
            return  # another one has taken the dead letters over before
        if not any(ranges.meets(*each) for each in intent.dead_letters for ranges in (self._marked, self._held)):
            self._held.add(intent.dead_letters)
            self.open[self._number] = Intent(self._number, entry.writer, intent)

    def is_marked(self, entry: int, number: int) -> bool:
        """Return True if this dead letter was written back to a topic."""
        return self._marked.meets(entry, number, number)

    def is_held(self, entry: int, number: int) -> bool:
        """Return True if an open intent has this dead letter."""
        return self._held.meets(entry, number, number)

    def unmarked(self, intent: Intent) -> Iterator[tuple[int, int]]:
        """Yield entry and number of the dead letters of an intent that have no mark."""
        for entry, first, last in intent.facts.dead_letters:
            yield from ((entry, number) for number in range(first, last + 1) if not self.is_marked(entry, number))
