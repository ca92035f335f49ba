"""Redelivery deadlines: negative acks with backoff, and ack timeouts (spec: pulsar 16)."""

from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import count

Run = tuple[int, int, int]  # ledger, first entry, last entry


@dataclass(frozen=True, slots=True)
class RedeliveryBackoff:
    """Delay of a negative ack: ``first_s``, multiplied by ``factor`` with each redelivery, up to ``most_s``.

    The default is that of the official clients, a constant minute. Raises ValueError for inconsistent times.
    """

    first_s: float = 60.0
    factor: float = 1.0
    most_s: float = 60.0

    def __post_init__(self) -> None:
        if not (0.0 <= self.first_s <= self.most_s) or self.factor < 1.0:
            raise ValueError("a backoff has 0 <= first_s <= most_s and factor >= 1")

    def delay_s(self, redeliveries: int) -> float:
        """Return the delay in seconds for an entry that was redelivered ``redeliveries`` times."""
        delay = self.first_s
        for _ in range(redeliveries):
            if delay >= self.most_s or self.factor == 1.0:
                break
            delay *= self.factor
        return min(delay, self.most_s)


class Deadlines:
    """Deadlines of entries by consumer, rounded up to ``tick_s`` so that they group.

    Entries cannot be removed before their deadline; the caller of ``take`` checks which of them still matter.
    """

    def __init__(self, tick_s: float) -> None:
        self._tick_s = tick_s
        self._heap: list[tuple[int, int, int, tuple[Run, ...]]] = []  # tick, number, consumer id, runs
        self._numbers = count()

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, consumer_id: int, runs: Iterable[Run], due: float) -> None:
        """Add ``runs`` with deadline ``due``; they come out up to one tick later."""
        tick = -int(-due // self._tick_s)
        heappush(self._heap, (tick, next(self._numbers), consumer_id, tuple(runs)))

    def take(self, now: float) -> dict[int, list[Run]]:
        """Return the runs that are due, by consumer."""
        found: dict[int, list[Run]] = {}
        while self._heap and self._heap[0][0] * self._tick_s <= now:
            _, _, consumer_id, runs = heappop(self._heap)
            found.setdefault(consumer_id, []).extend(runs)
        return found

    def forget(self, consumer_id: int) -> None:
        """Drop all runs of a consumer."""
        self._heap = [one for one in self._heap if one[2] != consumer_id]
        heapify(self._heap)
