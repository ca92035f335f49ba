"""State of one partition of a topic."""

from dataclasses import dataclass, field

from fastwire.kafka.protocol.metadata import NO_ID
from fastwire.position import Position

from ...reading.pulled import PulledPartition
from ...source import Assignment
from ..link import Link
from ..replica import ReplicaChoice


@dataclass(slots=True, eq=False)
class Partition(PulledPartition[Link]):
    """One partition of Kafka."""

    SEPARATOR = "-"

    topic_id: bytes = NO_ID
    committed: Position | None = field(default=None, init=False)  # what the group has
    # The end of what has landed as it was resolved, before a gap that may have been declared behind it.
    landed: Position | None = field(default=None, init=False)
    replaced_at: Position | None = field(default=None, init=False)  # the record before it is another one
    resumes_at: Position | None = field(default=None, init=False)  # behind a break
    checked_epoch: int = field(default=-1, init=False)  # of the leader that has confirmed the position
    replica: ReplicaChoice = field(default_factory=ReplicaChoice, init=False)

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
