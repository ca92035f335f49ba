"""State of one partition of a topic."""

import asyncio
import math
from dataclasses import dataclass, field

from fastwire.coverage import Coverage
from fastwire.position import Position
from fastwire.tubemq.format.text import BrokerPartition
from fastwire.tubemq.protocol.request import ConsumerRequests
from fastwire.tubemq.reading.flow import Pace

from ...reading.stage import Stage, StagedPartition
from ...source import Assignment
from ..link import Link

_ENDS = {Stage.STOPPED}


@dataclass(slots=True, eq=False)
class Partition(StagedPartition):
    """One partition of TubeMQ. ``place`` has the address of its Broker; offsets are -1 where they are not known."""

    TRANSITIONS = {  # noqa: RUF012 - the base declares it as a ClassVar
        Stage.IDLE: frozenset({Stage.IDLE, Stage.PENDING, Stage.ASSIGNED, *_ENDS}),
        Stage.ASSIGNED: frozenset({Stage.IDLE, Stage.PENDING, Stage.ASSIGNED, Stage.READING, *_ENDS}),
        Stage.PENDING: frozenset({Stage.IDLE, Stage.ASSIGNED, *_ENDS}),
        Stage.READING: frozenset({Stage.IDLE, Stage.ASSIGNED, *_ENDS}),
        Stage.STOPPED: frozenset(),
    }

    place: BrokerPartition
    pace: Pace
    ours: bool = field(default=False, init=False)  # the balance has given it to this member, and has not taken it back
    leaving: bool = field(default=False, init=False)  # it is given up: no more GETs
    lock: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)  # held while registering and unregistering
    owner: ConsumerRequests | None = field(default=None, init=False)  # under which the Broker may have registered it
    registered: bool = field(default=False, init=False)  # the Broker has said so, and has not taken it away
    link: Link | None = field(default=None, init=False)  # on which it was registered last, for GETs and COMMITs
    tries: int = field(default=0, init=False)  # registrations that have failed in a row
    lost_at: float = field(default=math.inf, init=False)  # the loop's time since which no Broker gives it
    again_at: float = field(default=0.0, init=False)  # the loop's time of the next one, in the stage PENDING
    until: Position | None = field(default=None, init=False)  # the end of a bounded run
    ended: bool = field(default=False, init=False)  # it was read: no more GETs
    moved_at: float = field(default=-math.inf, init=False)  # the loop's time at which the Broker was elsewhere last
    session: int = field(default=0, init=False)  # counts grants: responses to GETs of earlier ones are ignored
    stored: int = field(default=-1, init=False)  # the group's offset at the first registration, or the oldest
    oldest: int = field(default=-1, init=False)
    end: int = field(default=-1, init=False)  # of its store, as the Broker has reported it last
    in_flight: bool = field(default=False, init=False)  # a GET
    queued: bool = field(default=False, init=False)  # a GET that waits for its turn on the connection
    committing: bool = field(default=False, init=False)
    dirty: bool = field(default=False, init=False)  # the Broker has moved its position since the last COMMIT
    held: bool = field(default=False, init=False)  # no GETs until what was fetched has landed and is confirmed
    confirmed_at: float = field(default=0.0, init=False)  # the loop's time of the last COMMIT, or of the grant
    lag_bytes: int = field(default=-1, init=False)
    backlog: int = field(default=-1, init=False)  # entries of the store behind the last GET
    read_at: int = field(default=-1, init=False)  # where the last GET began
    at_end: bool = field(default=False, init=False)  # the last GET found no message

    @property
    def head(self) -> Position | None:
        """The end of the partition's store; None for an empty or unknown one."""
        return Position(self.end, 0) if self.end > 0 else None

    def offer(self) -> Assignment:
        """Make the assignment that is in force from here on."""
        cursor = Position(max(self.stored, 0), 0)
        assignment = Assignment(self.index, self.log, self.head, cursor, self.stored > self.oldest)
        self.assign(assignment)
        return assignment

    def end_at(self, until: Position | None, at: Position) -> None:
        """Send no GET behind ``until``, the end of a bounded run (None: there is none), reading from ``at`` on."""
        self.until, self.ended = until, until is not None and at.a >= until.a

    def look_at_end(self) -> None:
        """Note after a GET whether it has reached the end of a bounded run.

        One that has found no message has read all of the store, which had the end when that was looked up.
        """
        self.ended |= self.until is not None and (self.at_end or self.read_at >= self.until.a)

    def position(self, coverage: Coverage) -> Position:
        """Return the position to continue from."""
        landed = coverage.end(self.log) or self.began
        assert landed is not None  # its first position is committed before anything is asked for
        return landed
