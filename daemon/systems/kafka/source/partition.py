"""State of one partition of a topic."""

from dataclasses import dataclass, field
from math import inf

from fastwire.kafka.metadata import NO_ID
from fastwire.position import Position

from ...pulled import PulledPartition
from ...source import Assignment
from ..link import Link

__all__ = ["Partition"]


@dataclass(slots=True, eq=False)
class Partition(PulledPartition[Link]):
    """One partition of Kafka."""

    topic_id: bytes = NO_ID
    committed: Position | None = field(default=None, init=False)  # what the group has
    resumes_at: Position | None = field(default=None, init=False)  # behind a break
    checked_epoch: int = field(default=-1, init=False)  # of the leader that has confirmed the position
    replica: int = field(default=-1, init=False)  # the node to read from instead of the leader's
    near: bool = field(default=True, init=False)  # whether the leader may name one
    choice_ends: float = field(default=inf, init=False)  # when the leader is to be asked again, by the loop's clock

    @staticmethod
    def before(offset: int) -> Position:
        """Return the position before the record ``offset``, after one of an unknown epoch."""
        return Position(offset, -1)

    def offer(self) -> Assignment:
        """Make the assignment that is in force from here on."""
        # What was committed before a break is no progress in the log behind it.
        progress = self.committed is not None and self.resumes_at is None
        assignment = Assignment(self.index, self.log, self.head, self.committed, progress)
        self.assign(assignment)
        return assignment
