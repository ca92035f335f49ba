"""Groups at the broker: owners of partitions and the positions that the broker remembers (spec: tubemq 11)."""

import math
from dataclasses import dataclass

from .topics import Batch, Store


@dataclass(slots=True)
class Window:
    """The bytes that were read in the current window of time, which rules of flow control limit (spec: tubemq 14)."""

    seconds: float
    began_s: float = -math.inf
    nbytes: int = 0

    def add(self, nbytes: int, now: float) -> int:
        """Count bytes, and return all of this window."""
        if now - self.began_s >= self.seconds:
            self.began_s, self.nbytes = now, 0
        self.nbytes += nbytes
        return self.nbytes


@dataclass(slots=True)
class Owner:
    """The client that has registered a partition."""

    client: str
    seen_s: float
    types: frozenset[str]
    window: Window
    fresh: bool = True  # no GET since the registration
    lag: int = 0  # bytes behind the last batch


class Progress:
    """The position of a group in a partition: what it has committed, and what it has read since (``delta``)."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.committed: int | None = None  # None: the group has never registered it
        self.delta = 0
        self.owner: Owner | None = None

    def begin(self, status: int, offset: int | None) -> int:
        """Return the position of a new registration by its ``readStatus`` and ``currOffset``."""
        if offset is not None and offset >= 0 and status != 2:
            self.committed = offset
        elif status == 2 or (status == 1 and self.committed is None):
            self.committed = self.store.end
        self.committed = self.store.place(self.committed or 0)
        self.delta = 0
        return self.committed

    def read(self, partition: int, limit: int, *, manual: bool, confirm: bool) -> Batch | None:
        """Return the next batch and move the position; None at the end (spec: tubemq 11.3)."""
        assert self.owner is not None
        if not manual:
            if confirm:
                self.commit(True)
            self.delta = 0
        start = self.store.place((self.committed or 0) + self.delta)
        if start >= self.store.end:
            return None
        batch = self.store.read(partition, start, limit, self.owner.types)
        if manual:
            self.delta = start + batch.scanned - (self.committed or 0)
        elif batch.messages:
            self.committed, self.delta = start, batch.scanned
        else:
            self.committed = start + batch.scanned
        return batch

    def commit(self, consumed: bool) -> int:
        """Confirm what was read, or go back to what was confirmed; return the position."""
        self.committed = (self.committed or 0) + (self.delta if consumed else 0)
        self.delta = 0
        return self.committed

    def backlog(self, partition: int) -> int:
        """Count the messages of a partition that are not confirmed."""
        return sum(each.partition == partition for each in self.store.after(self.committed or 0))
