"""The input of a task: a range of one partition, small and picklable, without a secret in it."""

from dataclasses import dataclass
from typing import NamedTuple

from fastwire.errors import FastwireError
from fastwire.position import Position, format_position


class DataLossError(FastwireError):
    """Requested records no longer exist, or cannot be read."""


@dataclass(frozen=True, slots=True, order=True)
class QueryPartition:
    """One partition of a topic that a query reads; ``index`` is -1 for a topic that has none."""

    topic: str
    index: int

    def __str__(self) -> str:
        return self.topic if self.index < 0 else f"{self.topic} partition {self.index}"


class Witness(NamedTuple):
    """The record that ends at ``position`` of ``partition``; ``value`` is what ``Span.witness`` is."""

    partition: QueryPartition
    position: Position
    value: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """The records of ``partition`` after ``start`` up to and including ``end``, or whatever positions of a system mean.

    ``start_exists`` and ``end_exists``: if what stands there does not come, it was lost. False where the position is
    the beginning, was made by arithmetic, or the broker is known to have held everything. ``incarnation`` is that of
    the topic when the range was planned, "" where there is no telling.
    """

    system: str
    partition: QueryPartition
    start: Position
    end: Position
    start_exists: bool = True
    end_exists: bool = True
    incarnation: str = ""

    def __str__(self) -> str:
        start, end = (format_position(self.system, each) for each in (self.start, self.end))
        return f"{self.partition} from {start} to {end}"
