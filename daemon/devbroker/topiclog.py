"""The log of one partition: entries in the order of arrival, in memory.

An entry is what a broker stores and hands out as a whole: Pulsar's entry, Kafka's record batch, TANK's bundle.
"""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass


@dataclass(slots=True)
class StoredEntry:
    """One entry; ``body`` are the bytes that go to consumers behind a header of their own."""

    body: bytes
    messages: int
    first: int  # number of messages in front of it since the log began
    time_ms: int  # the producer's clock
    stored_ms: int  # the broker's clock
    damaged: bool = False  # on the disk, so ``body`` is not what was appended
    key: bytes | None = None  # what consumers that share by key look at; None: not looked up yet


class TopicLog:
    """Entries by index. An index is never given twice; entries below ``start`` are gone."""

    def __init__(self) -> None:
        self.start = 0
        self.messages = 0  # ever appended
        self._entries: list[StoredEntry] = []

    @property
    def end(self) -> int:
        """The index that the next entry will get."""
        return self.start + len(self._entries)

    def append(self, body: bytes, messages: int, time_ms: int, stored_ms: int) -> int:
        """Store one entry and return its index."""
        self._entries.append(StoredEntry(body, messages, self.messages, time_ms, stored_ms))
        self.messages += messages
        return self.start + len(self._entries) - 1

    def __getitem__(self, index: int) -> StoredEntry:
        if index < self.start:
            raise IndexError(f"entry {index} is gone, the log starts at {self.start}")
        return self._entries[index - self.start]

    def messages_before(self, index: int) -> int:
        """Count the messages in front of ``index``, those that are gone included."""
        return self[index].first if index < self.end else self.messages

    def find_time(self, time_ms: int, *, stored: bool = False) -> int:
        """Return the index of the first entry published (or ``stored``) at ``time_ms`` or later; else ``end``."""
        place = bisect_left(self._entries, time_ms, key=lambda entry: entry.stored_ms if stored else entry.time_ms)
        return self.start + place

    def find_message(self, number: int) -> int:
        """Return the index of the entry that holds message ``number`` of the log; ``end`` if there is none yet."""
        if number >= self.messages:
            return self.end
        return self.start + max(0, bisect_right(self._entries, number, key=lambda entry: entry.first) - 1)

    def trim(self, start: int) -> None:
        """Forget the entries below ``start``, as retention does."""
        start = min(start, self.end)
        if start > self.start:
            del self._entries[: start - self.start]
            self.start = start

    def truncate(self, end: int) -> None:
        """Lose the entries from ``end`` on, as an unclean election does; their numbers are given again."""
        end = max(end, self.start)
        if end < self.end:
            self.messages = self[end].first
            del self._entries[end - self.start :]
