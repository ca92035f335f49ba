"""Evidence for the first offsets of batches, which no checksum covers (spec: kafka 6).

A broker sends batches in the order of the log. Intact batches whose offsets join confirm each other; of batches that
contradict each other, those lie without which most of the others agree.
"""

from dataclasses import dataclass, field

from fastwire.position import Position
from fastwire.reason import Reason

MOST_RUNS = 16  # the search for the liars is quadratic, and a peer chooses what there is to search
_LIAR = 1 << 32  # the weight of a batch that lies; a hole weighs 1


@dataclass(frozen=True, slots=True)
class CorruptBatch:
    """A batch behind which its partition is not read any further: a damaged one for ``on_corrupt="stop"``.

    It is sound if it is ``replaced``: the record before the position is another one than the one that was read.
    """

    index: int
    position: Position
    reason: Reason
    detail: str
    replaced: bool = False


@dataclass(slots=True)
class Run:
    """Consecutive batches: intact ones whose offsets join, or damaged ones, about which nothing is known.

    ``base`` is the first offset by the first intact head, -1 of damaged ones, and ``end`` the one behind the last;
    ``claim`` is the one behind the first batch. ``least`` offsets are taken by the batches at least. ``found`` has
    bytes and details of the damaged batches, or of the first intact one.
    """

    base: int
    end: int
    least: int
    found: list[tuple[bytes, str]]
    claim: int = -1
    count: int = 1

    @property
    def damaged(self) -> bool:
        """True if nothing is known about the batches."""
        return self.base < 0


@dataclass(slots=True)
class Evidence:
    """The batches of a response from the first one on whose place is in doubt.

    ``size`` counts the bytes that are kept of them. ``torn``: the first one is incomplete.
    """

    runs: list[Run] = field(default_factory=list)
    size: int = 0
    torn: bool = False

    @property
    def full(self) -> bool:
        """True if no more runs are wanted."""
        return len(self.runs) >= MOST_RUNS

    @property
    def only_damage(self) -> bool:
        """True if no batch is intact."""
        return all(run.damaged for run in self.runs)

    @property
    def least(self) -> int:
        """The offsets that all batches take at least."""
        return sum(run.least for run in self.runs)

    @property
    def first(self) -> Run:
        """The run that the response begins with, or reading stopped at."""
        return self.runs[0]

    def joins(self, base: int, start: int) -> bool:
        """Return True if a batch at ``base`` only lengthens the last run: its bytes need not be kept.

        A run does not go across ``start``, where reading goes on.
        """
        last = self.runs[-1] if self.runs else None
        return last is not None and not last.damaged and last.end == base != start

    def add_damaged(self, payload: bytes, detail: str, size: int) -> None:
        """Add a damaged batch, of which ``size`` bytes of memory are kept."""
        self.size += size
        if self.runs and self.runs[-1].damaged:
            last = self.runs[-1]
            last.found.append((payload, detail))
            last.least += 1
            last.count += 1
        else:
            self.runs.append(Run(-1, -1, 1, [(payload, detail)]))

    def add(self, base: int, end: int, payload: bytes, detail: str, size: int) -> None:
        """Add an intact batch with the offsets from ``base`` to before ``end``."""
        self.size += size
        self.runs.append(Run(base, end, end - base, [(payload, detail)], end))

    def lengthen(self, end: int) -> None:
        """Add an intact batch that ``joins`` the last run."""
        last = self.runs[-1]
        last.least += end - last.end
        last.end = end
        last.count += 1

    def forget(self) -> None:
        """Keep the first batch only: there are too many bytes."""
        del self.runs[1:]
        del self.first.found[1:]

    def holds(self, payload: bytes) -> bool:
        """Return True if a batch with these bytes is among them; the shorter of two says how many are compared."""
        for run in self.runs:
            for one, _ in run.found:
                size = min(len(one), len(payload))
                if one[:size] == payload[:size]:
                    return True
        return False

    def before(self, run: Run) -> list[tuple[bytes, str]]:
        """Return bytes and details of the batches before ``run``."""
        return [one for other in self.runs[: self.runs.index(run)] for one in other.found]

    def confirmed(self, start: int, limit: int, *, aligned: bool, asked: int = -1) -> Run | None:
        """Return the first run whose offsets are certain, where reading goes on from ``start``; None without one.

        ``limit`` is the end of the log, -1 if it is not known. ``aligned``: a batch ended at ``start``, so none begins
        before it. ``asked``: the broker says that this offset is in the first batch.
        """
        search = _Search(self.runs, start, limit, aligned)
        best = search.cost(None)
        # Fewer holes decide between liars only if there are none at all: compaction leaves as many as it likes.
        weight = _LIAR if best % _LIAR else 1
        certain = [place for place in search.possible if search.cost(place) // weight > best // weight]
        if not certain:
            return None
        place = certain[0]
        run, before = self.runs[place], self.runs[:place]
        if any(other.count > 1 and not other.damaged and other.end > start for other in before):
            return None  # several intact batches agree upon something else
        if search.cost(place) // _LIAR == best // _LIAR and run.count == 1 and run.end != limit:
            return None  # what follows has to join it, too: one may fill a hole by chance
        damage = any(other.damaged for other in before)
        least = start + sum(other.least for other in before)
        fits = (run.base == least and not damage) or (run.base == start and any(one.end == start for one in before))
        others = sum(self.runs[later].count for later in certain[1:])
        ascends = others > 1 and not any(one.damaged for one in self.runs[: certain[1]])
        # Neighbours may lie by the same bit: behind a hole, two that join are not enough against what follows.
        behind = [one for one in self.runs[place + 1 :] if not one.damaged]
        follows = bool(behind) and all(one.base >= run.end for one in behind)
        joined = run.count > 2 or (run.count > 1 and (run.base <= start or run.end == limit or follows))
        if joined or fits or (ascends and run.base >= least):
            return run
        # The length of damage is not known, so it leaves a hole on either side, and nothing says where in it one batch
        # lies. The broker's answers say it, but not against what follows.
        return self.runs[certain[1]] if before and others > 1 and run.base <= asked else None


class _Search:
    """The least that must be wrong for some of the runs to be right."""

    def __init__(self, runs: list[Run], start: int, limit: int, aligned: bool) -> None:
        self._runs = runs
        self._start = start
        self._aligned = aligned
        self.possible = [
            place
            for place, run in enumerate(runs)
            if not run.damaged and run.end > start and (limit < 0 or run.end <= limit)
        ]
        self._liars, self._least, self._damaged = [0], [0], [0]  # of the runs before each place
        for run in runs:
            self._liars.append(self._liars[-1] + (0 if run.damaged else run.count))
            self._least.append(self._least[-1] + run.least)
            self._damaged.append(self._damaged[-1] + run.damaged)

    def cost(self, without: int | None) -> int:
        """Return the weight of the best choice of runs that are right; ``without`` is none of them."""
        best = self._liars[-1] * _LIAR
        costs: dict[int, int] = {}
        for place in self.possible:
            if place == without:
                continue
            ways = [self._way(None, place), *(cost + self._way(one, place) for one, cost in costs.items())]
            costs[place] = min(ways)
            best = min(best, costs[place] + (self._liars[-1] - self._liars[place + 1]) * _LIAR)
        return best

    def _way(self, one: int | None, other: int) -> int:
        """Return the weight of what lies between two runs that are right; the first may be the start."""
        runs, first = self._runs, 0 if one is None else one + 1
        base = runs[other].base
        edge = self._start if one is None else runs[one].end
        liars = (self._liars[other] - self._liars[first]) * _LIAR
        if one is None and (base == edge or (base < edge and not self._aligned)):
            return liars  # what precedes it in the response was read before
        room = base - edge - (self._least[other] - self._least[first])
        if room < 0:
            return (self._liars[-1] + 1) * _LIAR
        return liars + (room > 0 and self._damaged[other] == self._damaged[first])
