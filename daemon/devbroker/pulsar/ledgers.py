"""The log of a topic, with ledger and entry numbers for its entries (spec: pulsar 14)."""

import sys
from bisect import bisect_right
from collections.abc import Callable

from fastwire.pulsar.names.topic import partition_index

from ..topiclog import TopicLog

EARLIEST = (1 << 64) - 1  # ledger and entry of the id that means "from the beginning"
LATEST = (1 << 63) - 1


class Ledgers:
    """Turns the index of an entry into (ledger, entry) and back; a new ledger begins every ``capacity`` entries.

    Ids come from ``next_id``, which serves the whole broker: they grow, with gaps, and are never used again.
    """

    def __init__(self, next_id: Callable[[], int], capacity: int) -> None:
        self._next_id = next_id
        self._capacity = capacity
        self._ids = [next_id()]
        self._firsts = [0]  # index of the first entry of each ledger

    @property
    def current(self) -> int:
        """The ledger that is being written."""
        return self._ids[-1]

    def place(self, index: int) -> None:
        """Give the entry ``index``, the newest one, its place."""
        if index - self._firsts[-1] >= self._capacity:
            self.roll(index)

    def roll(self, end: int) -> None:
        """Begin a new ledger at ``end``, unless the current one is empty."""
        if self._firsts[-1] < end:
            self._ids.append(self._next_id())
            self._firsts.append(end)

    def position(self, index: int) -> tuple[int, int]:
        """Return ledger and entry number of an entry."""
        at = bisect_right(self._firsts, index) - 1
        return self._ids[at], index - self._firsts[at]

    def before(self, index: int) -> tuple[int, int]:
        """Return the position in front of ``index``: the entry before it in its ledger, -1 at the ledger's start.

        With nothing behind ``index`` in a fresh ledger it is the last entry of the ledger before.
        """
        if index == 0:
            return self._ids[0], -1
        return self.position(index - 1)

    def index(self, ledger: int, entry: int) -> int | None:
        """Return the index of a position; entry -1 is the one in front of the ledger. None: no such place."""
        at = bisect_right(self._ids, ledger) - 1
        if at < 0 or self._ids[at] != ledger or entry < -1:
            return None
        index = self._firsts[at] + entry
        return index if at + 1 == len(self._ids) or index < self._firsts[at + 1] else None

    def at_or_after(self, ledger: int, entry: int) -> int:
        """Return the index of a position, or of what follows where it would be; it may lie behind the log's end."""
        at = bisect_right(self._ids, ledger) - 1
        if at < 0:
            return 0
        end = self._firsts[at + 1] if at + 1 < len(self._ids) else None
        if self._ids[at] != ledger:  # a ledger that does not exist, behind this one
            return sys.maxsize if end is None else end
        index = self._firsts[at] + max(entry, 0)
        return index if end is None else min(index, end)

    def is_past(self, ledger: int) -> bool:
        """Tell whether a ledger is older than everything here."""
        return ledger < self._ids[0]


class ManagedLedger(TopicLog):
    """The log of one topic or partition.

    ``broker_time``: entries are found by the time at which they were stored, else by the producer's publish time.
    """

    def __init__(self, name: str, next_ledger: Callable[[], int], capacity: int, *, broker_time: bool) -> None:
        super().__init__()
        self.name = name
        self.partition = partition_index(name)
        self.ledgers = Ledgers(next_ledger, capacity)
        self.terminated = False
        self._broker_time = broker_time

    def append(self, body: bytes, messages: int, time_ms: int, stored_ms: int) -> int:
        """See ``TopicLog``; the entry gets its ledger and entry number."""
        index = super().append(body, messages, time_ms, stored_ms)
        self.ledgers.place(index)
        return index

    def at_time(self, time_ms: int) -> int:
        """Return the index of the first entry of that time or later; else ``end``."""
        return self.find_time(time_ms, stored=self._broker_time)

    def at_id(self, ledger: int, entry: int) -> int:
        """Return the index that a message id means as a place to start: that entry is delivered again."""
        if ledger == EARLIEST:
            return self.start
        if ledger == LATEST:
            return self.end
        return min(max(self.ledgers.at_or_after(ledger, signed(entry)), self.start), self.end)


def signed(number: int) -> int:
    """Return an unsigned 64-bit number of the protocol as the signed one that it stands for: entry -1 is 2^64 - 1."""
    return number - (1 << 64) if number >> 63 else number
