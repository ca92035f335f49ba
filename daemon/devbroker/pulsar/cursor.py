"""Cursors of subscriptions: which entries, and which elements of batches, are acknowledged (spec: pulsar 15)."""

from bisect import bisect_right
from collections.abc import Iterator

from ..topiclog import TopicLog


class Ranges:
    """A set of integers as disjoint half-open runs in ascending order; touching runs are merged."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def add(self, start: int, end: int) -> None:
        """Add the numbers from ``start`` up to and without ``end``."""
        if end <= start:
            return
        if self._ends and self._ends[-1] == start:  # the run goes on: nearly every call
            self._ends[-1] = end
            return
        first = bisect_right(self._ends, start - 1)  # the first run that reaches start
        last = bisect_right(self._starts, end)  # one past the last run that begins at or before end
        if first < last:
            start = min(start, self._starts[first])
            end = max(end, self._ends[last - 1])
        self._starts[first:last] = [start]
        self._ends[first:last] = [end]

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self._starts, number) - 1
        return at >= 0 and number < self._ends[at]

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(zip(self._starts, self._ends, strict=True))

    def __bool__(self) -> bool:
        return bool(self._starts)

    def after(self, number: int) -> int:
        """Return the first number that is not in the set, from ``number`` on."""
        at = bisect_right(self._starts, number) - 1
        return self._ends[at] if at >= 0 and number < self._ends[at] else number

    def drop_below(self, number: int) -> None:
        """Remove the numbers below ``number``."""
        at = bisect_right(self._ends, number)
        del self._starts[:at], self._ends[:at]
        if self._starts and self._starts[0] < number:
            self._starts[0] = number

    def clear(self) -> None:
        """Remove all numbers."""
        self._starts.clear()
        self._ends.clear()


class Cursor:
    """Acknowledgements by index of the log. All entries below ``mark`` are acknowledged: the mark-delete position."""

    def __init__(self, log: TopicLog, mark: int) -> None:
        self.log = log
        self.mark = mark
        self.partial: dict[int, int] = {}  # entry -> bits of the elements that are not acknowledged
        self.delivered = Ranges()  # entries that were ever sent to a consumer
        self._acked = Ranges()  # entries above the mark

    def is_acked(self, index: int) -> bool:
        """Tell whether a whole entry is acknowledged."""
        return index < self.mark or index in self._acked

    def next_unacked(self, index: int) -> int:
        """Return the first entry from ``index`` on that is stored and not acknowledged, or the end of the log."""
        return self._acked.after(max(index, self.mark, self.log.start))

    def remaining(self, index: int) -> int:
        """Count the messages of an entry that are not acknowledged: the permits that its delivery takes."""
        if self.is_acked(index):
            return 0
        bits = self.partial.get(index)
        return self.log[index].messages if bits is None else bits.bit_count()

    def ack(self, index: int) -> None:
        """Acknowledge one entry."""
        if index < self.mark:
            return
        self.partial.pop(index, None)
        self._acked.add(index, index + 1)
        self._advance(self._acked.after(self.mark))

    def ack_to(self, index: int) -> None:
        """Acknowledge an entry and everything before it."""
        if index >= self.mark:
            self._advance(self._acked.after(index + 1))

    def ack_elements(self, index: int, left: int) -> None:
        """Acknowledge the elements of a batch whose bits are not in ``left``."""
        if self.is_acked(index):
            return
        bits = self.partial.get(index, (1 << self.log[index].messages) - 1) & left
        if bits:
            self.partial[index] = bits
        else:
            self.ack(index)

    def reset(self, index: int, left: int | None = None) -> None:
        """Move the mark to ``index``; if ``left`` is given, only those elements of that entry are not acknowledged."""
        self.mark = index
        self._acked.clear()
        self.partial.clear()
        if left is not None and index < self.log.end:
            self.ack_elements(index, left)

    def follow_trim(self) -> None:
        """Move the mark over entries that the log has lost."""
        if self.log.start > self.mark:
            self._advance(self._acked.after(self.log.start))

    def backlog(self) -> int:
        """Count the messages that are not acknowledged."""
        left = self.log.messages - self.log.messages_before(self.mark)
        for start, end in self._acked:
            left -= self.log.messages_before(end) - self.log.messages_before(start)
        for index, bits in self.partial.items():
            left -= self.log[index].messages - bits.bit_count()
        return left

    def entries(self) -> int:
        """Count the entries that are not wholly acknowledged."""
        return self.log.end - self.mark - sum(end - start for start, end in self._acked)

    def _advance(self, mark: int) -> None:
        self.mark = mark
        self._acked.drop_below(mark)
        for index in [index for index in self.partial if index < mark]:
            del self.partial[index]
