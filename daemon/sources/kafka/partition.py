"""One partition of a topic, as far as its source knows it."""

from dataclasses import dataclass
from enum import Enum

from fastwire.position import Coverage, Gap, Log, Position, Span, format_position

from ...kafka.link import Link
from ..base import Assignment, First, LogStopped

__all__ = ["Partition", "Stage"]


class Stage(Enum):
    """What a partition is doing, in the words of the status page."""

    IDLE = "not ours"
    ASSIGNED = "assigned"
    READING = "reading"
    STOPPED = "stopped"


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
    began: Position | None = None
    link: Link | None = None  # by which it is read
    checked_epoch: int = -1  # of the leader that has confirmed our position
    error: str = ""

    @property
    def head(self) -> Position | None:
        """Where the log ended when it was last asked; None for an empty one."""
        return Position(self.end, -1) if self.end > max(self.log_start, 0) else None

    def offer(self) -> Assignment:
        """Make the assignment that is in force from here on."""
        self.stage = Stage.ASSIGNED
        self.granted = False
        self.assignment = Assignment(self.index, self.log, self.head, self.committed, self.committed is not None)
        return self.assignment

    def resolve_known(self, coverage: Coverage) -> First | None:
        """What has to be committed before a known log is read on: a declared gap, if any. Raises LogStopped."""
        at = coverage.end(self.log) or coverage.start(self.log)
        assert at is not None
        if 0 <= self.end < at.a:
            self.refuse_truncated(at, self.end)
        if self.log_start > at.a:
            gap = Gap(Position(self.log_start, -1), "the log begins here: what lay before was deleted by retention")
            return First(self.index, Span(self.log, at, at, 0, gap))
        return None

    def refuse_truncated(self, at: Position, end: int) -> None:
        """Raise LogStopped: the broker holds less than what has landed."""
        raise LogStopped(
            f"{self.log}: {format_position('kafka', at)} has landed, but the leader's log ends at {end}: records were "
            "lost by an unclean election, or the log was truncated"
        )

    def position(self, coverage: Coverage) -> Position:
        """Where to read on."""
        landed = coverage.end(self.log) or coverage.start(self.log) or self.began
        assert landed is not None  # its first position is committed before anything is asked for
        return landed
