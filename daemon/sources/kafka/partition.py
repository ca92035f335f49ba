"""One partition of a topic, as far as its source knows it."""

from dataclasses import dataclass
from enum import Enum

from fastwire.position import Coverage, Gap, Log, Position, Span, format_position

from ...kafka.link import Link
from ..base import Assignment, First, LogStopped

__all__ = ["LogBroken", "Partition", "Stage"]


class LogBroken(LogStopped):
    """The cluster has lost some of what has landed; its log has other records from ``position`` on, if any."""

    def __init__(self, message: str, position: Position) -> None:
        self.position = position
        super().__init__(message)


class Stage(Enum):
    """What a partition is doing, in the words of the status page."""

    IDLE = "not ours"
    ASSIGNED = "assigned"
    READING = "reading"
    STOPPED = "stopped"
    REPLACED = "replaced"  # by another log of the same place
    GONE = "gone"  # the topic was deleted; should it come again with its id, so does the partition


@dataclass(slots=True, eq=False)
class Partition:
    """``place`` is topic and number; offsets are -1 where they are not known."""

    index: int
    log: Log
    place: tuple[str, int]
    topic_id: bytes
    late: bool = False  # came to a topic that we read already
    stage: Stage = Stage.IDLE
    assignment: Assignment | None = None
    granted: bool = False
    was_granted: bool = False
    session: int = 0
    log_start: int = -1
    end: int = -1  # of the log, as it was last asked for
    committed: Position | None = None  # what the group has
    resumes_at: Position | None = None  # behind a break
    began: Position | None = None
    link: Link | None = None  # by which it is read
    checked_epoch: int = -1  # of the leader that has confirmed our position
    refusals: int = 0  # by leaders, one after the other
    error: str = ""

    @property
    def over(self) -> bool:
        """Whether it is not to be read any more."""
        return self.stage in (Stage.STOPPED, Stage.REPLACED, Stage.GONE)

    @property
    def head(self) -> Position | None:
        """Where the log ended when it was last asked; None for an empty one."""
        return Position(self.end, -1) if self.end > max(self.log_start, 0) else None

    def offer(self) -> Assignment:
        """Make the assignment that is in force from here on."""
        self.stage = Stage.ASSIGNED
        self.granted = False
        # What was committed before a break is no progress in the log behind it.
        progress = self.committed is not None and self.resumes_at is None
        self.assignment = Assignment(self.index, self.log, self.head, self.committed, progress)
        return self.assignment

    def gap(self, at: Position) -> First | None:
        """What has to be committed before a log is read on from ``at``: a declared gap, if it begins later by now."""
        if self.log_start <= at.a:
            return None
        gap = Gap(Position(self.log_start, -1), "the log begins here: what lay before was deleted by retention")
        return First(self.index, Span(self.log, at, at, 0, gap))

    def broken(self, at: Position, end: Position) -> LogBroken:
        """What is to be raised where the leader's log ends, or parts from ours, before what has landed."""
        return LogBroken(
            f"{self.log}: {format_position('kafka', at)} has landed, but the leader's log ends at {end.a}: records "
            "were lost by an unclean election, or the log was truncated",
            end,
        )

    def position(self, coverage: Coverage) -> Position:
        """Where to read on."""
        landed = coverage.end(self.log) or coverage.start(self.log) or self.began
        assert landed is not None  # its first position is committed before anything is asked for
        return landed
