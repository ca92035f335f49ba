"""State of one partition of a topic."""

from dataclasses import dataclass, field

from fastwire.position import Gap, Position, Span

from ...reading.pulled import PulledPartition
from ...source import First
from ..link import Link

UNREADABLE = "the broker cannot deliver the messages from here to the end of the log"


@dataclass(slots=True, eq=False)
class Partition(PulledPartition[Link]):
    """One partition of TANK."""

    behind_since: float | None = field(default=None, init=False)  # the leader's log ends before what has landed
    unreadable_at: int = field(default=-1, init=False)  # the sequence that the broker has and cannot deliver

    def gap(self, at: Position) -> First | None:
        """Return the gap to commit: what retention has deleted, or what the broker cannot deliver."""
        if at.a != self.unreadable_at or self.end <= at.a:
            return PulledPartition.gap(self, at)
        return First(self.index, Span(self.log, at, at, 0, Gap(self.before(self.end), UNREADABLE)))
