"""State of one partition of a topic."""

from dataclasses import dataclass, field
from math import inf

from fastwire.kafka.position import POSITIONS
from fastwire.position import Coverage, Gap, Position, Span

from ....net.backoff import Backoff
from ...source import Assignment, First, LogStopped
from ...stage import Stage, StagedPartition
from ..link import Link

__all__ = ["LogBroken", "Partition"]


MOST_REFUSED_S = 30.0  # between two requests for what a leader refuses


class LogBroken(LogStopped):
    """The cluster has lost landed records; its log has other records from ``position`` on, if any."""

    def __init__(self, message: str, position: Position) -> None:
        self.position = position
        super().__init__(message)


_ENDS = {Stage.STOPPED, Stage.REPLACED, Stage.GONE}


@dataclass(slots=True, eq=False)
class Partition(StagedPartition):
    """One partition. ``place`` is topic and number; offsets are -1 where they are not known."""

    TRANSITIONS = {  # noqa: RUF012 - the base declares it as a ClassVar
        Stage.IDLE: frozenset({Stage.IDLE, Stage.ASSIGNED, *_ENDS}),
        Stage.PENDING: frozenset({Stage.IDLE, Stage.ASSIGNED, *_ENDS}),
        Stage.ASSIGNED: frozenset({Stage.IDLE, Stage.PENDING, Stage.ASSIGNED, Stage.READING, *_ENDS}),
        Stage.READING: frozenset({Stage.IDLE, Stage.ASSIGNED, *_ENDS}),
        Stage.STOPPED: frozenset({Stage.REPLACED}),
        Stage.GONE: frozenset({Stage.IDLE, Stage.REPLACED}),
        Stage.REPLACED: frozenset(),
    }

    place: tuple[str, int]
    topic_id: bytes
    session: int = 0
    log_start: int = -1
    end: int = -1  # of the log, as it was last asked for
    committed: Position | None = None  # what the group has
    resumes_at: Position | None = None  # behind a break
    link: Link | None = None  # by which it is read
    checked_epoch: int = -1  # of the leader that has confirmed the position
    refusals: Backoff = field(default_factory=lambda: Backoff(most_s=MOST_REFUSED_S))  # by leaders, one after the other
    replica: int = -1  # the node to read from instead of the leader's
    near: bool = True  # whether the leader may name one
    choice_ends: float = inf  # when the leader is to be asked again, by the loop's clock

    @property
    def head(self) -> Position | None:
        """The last known end of the log; None for an empty log."""
        return Position(self.end, -1) if self.end > max(self.log_start, 0) else None

    def offer(self) -> Assignment:
        """Make the assignment that is in force from here on."""
        # What was committed before a break is no progress in the log behind it.
        progress = self.committed is not None and self.resumes_at is None
        assignment = Assignment(self.index, self.log, self.head, self.committed, progress)
        self.assign(assignment)
        return assignment

    def gap(self, at: Position) -> First | None:
        """Return the gap to commit if the log now begins behind ``at``; None if it does not."""
        if self.log_start <= at.a:
            return None
        gap = Gap(Position(self.log_start, -1), "the log begins here: what lay before was deleted by retention")
        return First(self.index, Span(self.log, at, at, 0, gap))

    def broken(self, at: Position, end: Position) -> LogBroken:
        """Return the error for a leader's log that ends, or diverges, at ``end``, before the landed position ``at``."""
        return LogBroken(
            f"{self.log}: {POSITIONS.format(at)} has landed, but the leader's log ends at {end.a}: records "
            "were lost by an unclean election, or the log was truncated",
            end,
        )

    def position(self, coverage: Coverage) -> Position:
        """Return the position to continue from."""
        landed = coverage.end(self.log) or coverage.start(self.log) or self.began
        assert landed is not None  # its first position is committed before anything is asked for
        return landed
