"""Topics as the embedded TubeMQ broker stores them: partitions that share the store's index (spec: tubemq 1, 11)."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import islice

ENTRY = 28  # bytes of an entry of the index, in which offsets count
HEAD = 52  # bytes of a message in the data file, beside its payload
WINDOW = 1000  # entries of the index that one read looks at
STORE = 10_000  # the ids of the partitions of store n begin at n times this


@dataclass(slots=True)
class StoredMessage:
    """One message of a partition."""

    partition: int
    id: int
    payload: bytes
    flag: int
    checksum: int
    type: str | None  # by which filters choose
    start: int = 0  # in the data file

    @property
    def size(self) -> int:
        """The bytes of the message in the data file."""
        return len(self.payload) + HEAD


@dataclass(slots=True)
class Batch:
    """The result of a read: ``scanned`` bytes of the index hold its messages and those it skipped.

    ``lag`` counts the bytes of the data file behind its last message, or behind those it skipped if it has none.
    """

    offset: int
    messages: list[StoredMessage]
    scanned: int
    lag: int = 0


class Store:
    """The messages of several partitions in the order of arrival. ``first`` is the offset of the oldest one."""

    def __init__(self) -> None:
        self.first = 0
        self.messages: list[StoredMessage] = []
        self._size = 0  # of the data file

    @property
    def end(self) -> int:
        """The offset of the next message."""
        return self.first + ENTRY * len(self.messages)

    def end_of(self, partition: int) -> int:
        """Return the offset behind the last message of a partition; where the store begins if there is none."""
        last = max((at for at, each in enumerate(self.messages, 1) if each.partition == partition), default=0)
        return self.first + ENTRY * last

    def append(self, message: StoredMessage) -> int:
        """Store a message and return its offset."""
        message.start = self._size
        self._size += message.size
        self.messages.append(message)
        return self.end - ENTRY

    def place(self, offset: int) -> int:
        """Return the offset at which a read that names ``offset`` begins."""
        return max(self.first, min(offset, self.end) // ENTRY * ENTRY)

    def after(self, offset: int) -> Iterator[StoredMessage]:
        """Yield the messages from ``offset`` on."""
        return islice(self.messages, (self.place(offset) - self.first) // ENTRY, None)

    def _lag(self, offset: int) -> int:
        message = next(self.after(offset), None)
        return 0 if message is None else self._size - message.start

    def read(self, partition: int, offset: int, limit: int, types: Collection[str]) -> Batch:
        """Return messages of a partition; the one that reaches ``limit`` bytes is the last one."""
        batch = Batch(self.place(offset), [], 0)
        size = 0
        for message in self.after(offset):
            if size >= limit or batch.scanned == WINDOW * ENTRY:
                break
            batch.scanned += ENTRY
            if message.partition == partition and (not types or message.type in types):
                batch.messages.append(message)
                size += message.size
        if batch.messages:
            batch.lag = self._size - batch.messages[-1].start - batch.messages[-1].size
        else:
            batch.lag = self._lag(batch.offset + batch.scanned)
        return batch

    def trim(self, offset: int) -> None:
        """Delete the messages below ``offset``, as retention does."""
        place = self.place(offset)
        del self.messages[: (place - self.first) // ENTRY]
        self.first = place

    def lose(self, count: int) -> None:
        """Forget the last ``count`` messages, as a crash of the machine before they are flushed."""
        del self.messages[len(self.messages) - count :]
        self._size = self.messages[-1].start + self.messages[-1].size if self.messages else 0


class Topic:
    """A topic on the one broker. ``open`` says whether it may be subscribed and published."""

    def __init__(self, name: str, stores: int, partitions: int) -> None:
        self.name = name
        self.stores = [Store() for _ in range(stores)]
        self.partitions = partitions  # of each store
        self.open = True

    def numbers(self) -> list[int]:
        """Return the ids of all partitions."""
        return [store * STORE + number for store in range(len(self.stores)) for number in range(self.partitions)]

    def store(self, number: int) -> Store | None:
        """Return the store of a partition; None if the topic has no such partition."""
        store, rest = divmod(number, STORE)
        return self.stores[store] if 0 <= store < len(self.stores) and rest < self.partitions else None
