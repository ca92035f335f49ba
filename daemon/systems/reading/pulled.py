"""State of one partition that is read by requests for the records from an offset on, each at the partition's leader."""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

from fastwire.coverage import Coverage
from fastwire.position import Gap, Position, Span, format_position

from ...config import Start
from ...net.backoff import Backoff
from ..links.link import BrokerLink
from ..source import Assignment, First, LogStopped
from .stage import Stage, StagedPartition

MOST_REFUSED_S = 30.0  # between two requests for what a leader refuses

_ENDS = {Stage.STOPPED, Stage.REPLACED, Stage.GONE}

L = TypeVar("L", bound=BrokerLink[Any, Any, Any])


class LogBroken(LogStopped):
    """The cluster has lost landed records; its log has other records from ``position`` on, if any."""

    def __init__(self, message: str, position: Position) -> None:
        self.position = position
        super().__init__(message, "lost")


@dataclass(slots=True, eq=False)
class PulledPartition(StagedPartition, Generic[L]):
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

    SEPARATOR: ClassVar[str] = "/"
    """Between topic and number in the name of a partition."""

    place: tuple[str, int]
    # Its topic was deleted and created again: no position of before applies to it.
    recreated: bool = field(default=False, init=False)
    answers: int = field(default=0, init=False)  # with a result of it while it was granted
    session: int = field(default=0, init=False)  # counts grants: answers to requests of earlier ones are ignored
    log_start: int = field(default=-1, init=False)
    end: int = field(default=-1, init=False)  # of the log, as it was last asked for
    until: Position | None = field(default=None, init=False)  # the end of a bounded run
    link: L | None = field(default=None, init=False)  # by which it is read
    refusals: Backoff = field(default_factory=lambda: Backoff(most_s=MOST_REFUSED_S), init=False)  # by leaders

    @staticmethod
    def before(offset: int) -> Position:
        """Return the position before the record ``offset``."""
        return Position(offset, 0)

    @property
    def head(self) -> Position | None:
        """The last known end of the log; None for an empty log."""
        return self.before(self.end) if self.end > max(self.log_start, 0) else None

    @property
    def beginning(self) -> Position:
        """See ``StagedPartition.beginning``."""
        return self.before(max(self.log_start, 0))

    def offer(self) -> Assignment:
        """Make the assignment that is in force from here on."""
        assignment = Assignment(self.index, self.log, self.head)
        self.assign(assignment)
        return assignment

    def gap(self, at: Position) -> First | None:
        """Return the gap to commit if the log now begins behind ``at``; None if it does not."""
        if self.log_start <= at.a:
            return None
        gap = Gap(self.before(self.log_start), "the log begins here: what lay before was deleted by retention")
        return First(self.index, Span(self.log, at, at, 0, gap))

    def broken(self, at: Position, end: Position, why: str) -> LogBroken:
        """Return the error for a leader's log that ends, or diverges, at ``end``, before the landed position ``at``."""
        landed = format_position(self.log.system, at)
        return LogBroken(f"{self.log}: {landed} has landed, but the leader's log ends at {end.a}: {why}", end)

    def position(self, coverage: Coverage) -> Position:
        """Return the position to continue from."""
        landed = coverage.end(self.log) or coverage.start(self.log) or self.began
        assert landed is not None  # its first position is committed before anything is asked for
        return landed

    @property
    def start_name(self) -> str:
        """The name of the partition in a table ``start``."""
        topic, number = self.place
        return f"{topic}{self.SEPARATOR}{number}"

    def is_unnamed(self, start: Start, coverage: Coverage) -> bool:
        """Return True if ``start``, a table, decides where the log begins, and does not name it."""
        decided = self.late or self.recreated or coverage.start(self.log) is not None
        return not decided and self.start_name not in start.positions

    def start_offset(self, start: Start) -> int | None:
        """Return the first offset by ``start`` for a log from which nothing has landed; None for a time or a group.

        Raises LogStopped if ``start`` does not name it, or lies outside of the log.
        """
        name = self.start_name
        at = None if self.recreated else start.positions.get(name)
        if at is not None:
            if at.a < 0:
                return self._within(self.end + at.a)
            if not self.log_start <= at.a <= self.end:
                held = f"begins at {self.log_start} and ends before {self.end}"
                raise LogStopped(f"{self.log}: the start {at.a} lies outside of the log, which {held}", "start")
            return at.a
        if self.late or self.recreated or start.kind == "earliest":
            return self.log_start
        if start.offset is not None:
            return self._within(start.offset + (self.end if start.offset < 0 else 0))
        if start.kind == "latest":
            return self.end
        if start.kind in ("time", "group"):
            return None
        raise LogStopped(f"{self.log}: start names no position for {name}", "start")

    def _within(self, offset: int) -> int:
        """Return the nearest offset that the log holds."""
        return min(max(offset, self.log_start), self.end)
