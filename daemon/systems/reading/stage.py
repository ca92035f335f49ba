"""Stages of a partition in a source: a state machine, together with the assignment that is in force."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar

from fastwire.position import Log, Position

from ..source import Assignment


class Stage(Enum):
    """Stage of a partition, in the words of the status page. Each system has those of its table."""

    CONNECTING = "connecting"
    STAND_BY = "stand-by"
    IDLE = "not ours"
    PENDING = "pending"  # ours, to be offered again
    ASSIGNED = "assigned"
    SEEKING = "seeking"  # the consumer subscribes again behind the seek, and keeps its assignment
    READING = "reading"
    STOPPED = "stopped"
    REPLACED = "replaced"  # by another log of the same place
    GONE = "gone"  # the topic was deleted; the partition comes back with it


_HELD = frozenset({Stage.ASSIGNED, Stage.SEEKING, Stage.READING})
_OVER = frozenset({Stage.STOPPED, Stage.REPLACED, Stage.GONE})


class IllegalTransition(RuntimeError):  # noqa: N818 - named for the transition
    """A partition was to move to a stage that cannot follow its own: a bug of the source."""


@dataclass(slots=True, eq=False)
class StagedPartition:
    """State of one partition that sources of all systems share.

    ``TRANSITIONS`` has the stages of the system, the initial one first, and the stages that may follow each. There is
    an assignment in the stages ASSIGNED, SEEKING and READING, and in no other one.
    """

    TRANSITIONS: ClassVar[Mapping[Stage, frozenset[Stage]]]

    index: int
    log: Log
    late: bool = field(default=False, kw_only=True)  # appeared since reading began: read from its beginning
    error: str = field(default="", init=False)
    began: Position | None = field(default=None, init=False)  # the resolved first position, until Coverage knows it
    was_granted: bool = field(default=False, init=False)
    paused: bool = field(default=False, init=False)  # by a program: no records are requested
    _stage: Stage = field(init=False)
    _assignment: Assignment | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._stage = next(iter(self.TRANSITIONS))

    @property
    def beginning(self) -> Position:
        """The position where the log began at the last look, which is its end if ``heads`` leaves it out."""
        return Position(0, 0)

    @property
    def stage(self) -> Stage:
        """The current stage."""
        return self._stage

    @property
    def assignment(self) -> Assignment | None:
        """The assignment in force."""
        return self._assignment

    @property
    def granted(self) -> bool:
        """True while the partition is read."""
        return self._stage is Stage.READING

    @property
    def counts(self) -> bool:
        """True while the backlog is that of this instance: the partition is read, or has stopped and lands nothing."""
        return self._stage in (Stage.READING, Stage.STOPPED)

    @property
    def over(self) -> bool:
        """True if the partition is not read any more."""
        return self._stage in _OVER

    def assign(self, assignment: Assignment) -> None:
        """Move to ASSIGNED with a new assignment. Raises IllegalTransition."""
        self._follow(Stage.ASSIGNED)
        self._assignment = assignment

    def move(self, to: Stage) -> None:
        """Move to another stage; the assignment ends with the last stage that has one. Raises IllegalTransition."""
        if to not in _HELD:
            self._follow(to)
            self._assignment = None
            return
        if self._assignment is None:
            raise IllegalTransition(f"{self.log}: {to.name} needs an assignment")
        self._follow(to)
        self.was_granted |= to is Stage.READING

    def _follow(self, to: Stage) -> None:
        if to not in self.TRANSITIONS[self._stage]:
            raise IllegalTransition(f"{self.log}: {to.name} cannot follow {self._stage.name}")
        self._stage = to
