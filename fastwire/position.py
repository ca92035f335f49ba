"""Logs, positions, spans and coverage: the one notion of "how far" that all systems share.

A *log* is one partition of one incarnation of a topic. A *position* lies between two of its atoms (what is landed,
acked and cut as a whole); a *span* is what one reader was given between two positions; *coverage* is the sum of all
spans that are durable. Everything here is pure computation; whatever is durable is written in these terms.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

__all__ = [
    "PULSAR_EARLIEST",
    "PULSAR_LATEST",
    "SYSTEMS",
    "Coverage",
    "Gap",
    "Log",
    "OverlapError",
    "Position",
    "Span",
    "UndeclaredGapError",
    "format_position",
    "nest",
    "order",
    "parse_position",
    "unnest",
]

# Four brokers, and what a Spark query lands: its log is the query, its atoms are batches.
SYSTEMS = ("pulsar", "kafka", "tank", "tubemq", "spark")

# Where a log has one interval for ever, because whoever reads it reads it in order. A Pulsar log may be read in order
# (Exclusive, Failover) or not (Shared, Key_Shared); which of them cannot be seen from the log.
_CHAINED = frozenset({"kafka", "tank", "tubemq", "spark"})


class OverlapError(ValueError):
    """A span holds something that has landed already."""


class UndeclaredGapError(ValueError):
    """A span starts beyond the end of what has landed, and no gap was declared in between."""


class Position(NamedTuple):
    """A place in a log, between two atoms; what ``a`` and ``b`` mean is the system's business.

    Pulsar: ledger and entry that were consumed last. Kafka: next offset, and the leader epoch of the record before it
    (-1: not known). TANK: next sequence number, 0. TubeMQ: offset at which a GET began, and rows taken since. Spark:
    number of the next batch, 0.
    """

    a: int
    b: int


PULSAR_EARLIEST = Position(-1, -1)
PULSAR_LATEST = Position(0x7FFFFFFFFFFFFFFF, 0x7FFFFFFFFFFFFFFF)  # both stand on the wire like that

_FORMS: dict[str, tuple[re.Pattern[str], str]] = {
    "pulsar": (re.compile(r"(-1|[0-9]{1,19}):(-1|[0-9]{1,19})"), "ledger:entry, for example 12:34, or -1:-1"),
    "kafka": (re.compile(r"([0-9]{1,19})(?:@([0-9]{1,10}))?"), "offset or offset@epoch, for example 1234 or 1234@5"),
    "tank": (re.compile(r"([0-9]{1,19})"), "a sequence number, for example 1234"),
    "tubemq": (re.compile(r"([0-9]{1,19})\+([0-9]{1,19})"), "offset+rows, for example 84+17"),
    "spark": (re.compile(r"([0-9]{1,19})"), "the number of a batch, for example 12"),
}
_LARGEST = (1 << 63) - 1


def _form(system: str) -> tuple[re.Pattern[str], str]:
    try:
        return _FORMS[system]
    except KeyError:
        raise ValueError(f"unknown system {system!r}; there are {', '.join(SYSTEMS)}") from None


def format_position(system: str, position: Position) -> str:
    """The one text form of ``position``, as it stands in logs, configuration and the output of the command line."""
    _form(system)
    a, b = position
    if system == "pulsar":
        return f"{a}:{b}"
    if system == "tubemq":
        return f"{a}+{b}"
    return f"{a}@{b}" if system == "kafka" and b >= 0 else str(a)


def parse_position(system: str, text: str) -> Position:
    """Read what :func:`format_position` wrote. Raises ValueError with a text that names the expected form."""
    pattern, form = _form(system)
    match = pattern.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a position of {system}: expected {form}")
    a = int(match[1])
    b = (-1 if system == "kafka" else 0) if match.lastindex == 1 else int(match[2])
    if a > _LARGEST or b > _LARGEST or (a < 0 <= b):
        raise ValueError(f"{text!r} is not a position of {system}: a number is out of range")
    return Position(a, b)


def order(system: str, position: Position) -> tuple[int, int]:
    """A key by which positions of one log compare. TubeMQ has no order: there only equality of keys means anything."""
    return (position.a, 0) if system == "kafka" else (position.a, position.b)


@dataclass(frozen=True, slots=True)
class Log:
    """What a position belongs to. All parts are text; ``partition`` is "-1" for an unpartitioned topic."""

    system: str
    cluster: str
    topic: str
    partition: str
    incarnation: str = "0"

    def __str__(self) -> str:
        again = "" if self.incarnation == "0" else f" (incarnation {self.incarnation})"
        return f"{self.topic}{again}" if self.partition == "-1" else f"{self.topic} partition {self.partition}{again}"


@dataclass(frozen=True, slots=True)
class Gap:
    """Declared absence: nothing between the end of its span and ``to`` will ever come."""

    to: Position
    reason: str


@dataclass(frozen=True, slots=True)
class Span:
    """What one reader was given of ``log`` after ``start`` up to and including ``end``; ``gap`` lies behind it.

    ``rows`` counts the rows in it whatever became of them. A span whose ``start`` is its ``end`` makes a log known.
    What lies between ``held_from`` and ``start`` was received and is not landed yet: parts of a chunked message whose
    last part has not come (Pulsar). It stays a hole until the message is landed.
    """

    log: Log
    start: Position
    end: Position
    rows: int
    gap: Gap | None = None
    held_from: Position | None = None

    @property
    def reach(self) -> Position:
        """Where the next span begins: the end, or the far side of the gap."""
        return self.end if self.gap is None else self.gap.to


class _Line:
    """Coverage of one log: disjoint intervals in order, none of them empty, adjacent ones merged."""

    __slots__ = ("intervals", "start")

    def __init__(self, start: Position, intervals: list[tuple[Position, Position]]) -> None:
        self.start = start
        self.intervals = intervals


class Coverage:
    """What has landed, per log: where the log began for us, and disjoint intervals of positions.

    A log that is read in order has one interval, but for parts of chunked messages that are held (Pulsar). ``covers``
    takes the position *behind* an atom: for Pulsar its ledger and entry, for Kafka, TANK and Spark the number after its
    own, for TubeMQ the rows taken with it.
    """

    __slots__ = ("_lines",)

    def __init__(self) -> None:
        self._lines: dict[Log, _Line] = {}

    def logs(self) -> list[Log]:
        """All logs that are known, in the order in which they became known."""
        return list(self._lines)

    def __contains__(self, log: Log) -> bool:
        return log in self._lines

    def __len__(self) -> int:
        return len(self._lines)

    def start(self, log: Log) -> Position | None:
        """Where ``log`` began for us; None for an unknown log."""
        line = self._lines.get(log)
        return None if line is None else line.start

    def intervals(self, log: Log) -> tuple[tuple[Position, Position], ...]:
        """What has landed of ``log``: (after, up to) pairs in order."""
        line = self._lines.get(log)
        return () if line is None else tuple(line.intervals)

    def end(self, log: Log) -> Position | None:
        """Where reading in order goes on: the end of the last interval, or the start; None for an unknown log."""
        line = self._lines.get(log)
        if line is None:
            return None
        return line.intervals[-1][1] if line.intervals else line.start

    def holes(self, log: Log) -> tuple[tuple[Position, Position], ...]:
        """What lies between start and intervals, and between intervals; where Pulsar ledgers meet it may be nothing."""
        line = self._lines.get(log)
        if line is None:
            return ()
        holes = []
        before = line.start
        for start, end in line.intervals:
            if order(log.system, before) != order(log.system, start):
                holes.append((before, start))
            before = end
        return tuple(holes)

    def covers(self, log: Log, position: Position) -> bool:
        """Whether the atom that ends at ``position`` has landed."""
        line = self._lines.get(log)
        if line is None or not line.intervals:
            return False
        if log.system == "tubemq":
            # Within one GET rows are counted; between two of them nothing is known but equality.
            start, end = line.intervals[0]
            return position.a == end.a and position.b <= end.b and (start.a != end.a or position.b > start.b)
        key = order(log.system, position)
        at = bisect_left(line.intervals, key, key=lambda interval: order(log.system, interval[1]))
        return at < len(line.intervals) and order(log.system, line.intervals[at][0]) < key

    def overlaps(self, span: Span) -> bool:
        """Whether ``span`` holds something that has landed, or contradicts where its log begins."""
        return self._conflict(span) is not None

    def add(self, span: Span) -> None:
        """Take ``span`` in, gap and all.

        Raises OverlapError if :meth:`overlaps`, UndeclaredGapError if a log that is always read in order would get a
        hole, ValueError for a span that runs backwards; nothing is changed then.
        """
        if self._append(span):
            return
        log, start, reach = span.log, span.start, span.reach
        system = log.system
        _check(span)
        conflict = self._conflict(span)
        if conflict is not None:
            raise OverlapError(f"{log}: {conflict}")
        line = self._lines.get(log)
        empty = order(system, start) == order(system, reach)
        if line is None:
            self._lines[log] = _Line(start, [] if empty else [(start, reach)])
            return
        if empty:
            return
        if system in _CHAINED:
            before = line.intervals[-1][1] if line.intervals else line.start
            if order(system, before) != order(system, start):
                raise UndeclaredGapError(
                    f"{log}: a span starts at {format_position(system, start)}, but what has landed ends at "
                    f"{format_position(system, before)}"
                )
        line.start = min(line.start, start, key=lambda position: order(system, position))
        self._insert(line, system, start, reach)

    def settle(self, log: Log, floor: Position) -> None:
        """Everything from the start to ``floor`` is settled, on the broker's word: it becomes one interval.

        Bounds the memory of logs that are not read in order. Raises ValueError for an unknown log, or one of TubeMQ,
        whose positions have no order.
        """
        line = self._lines.get(log)
        if line is None:
            raise ValueError(f"{log}: nothing is known of it, so nothing can be settled")
        if log.system == "tubemq":
            raise ValueError(f"{log}: positions of tubemq have no order")
        system = log.system
        top = order(system, floor)
        if top <= order(system, line.start):
            return
        kept = bisect_right(line.intervals, top, key=lambda interval: order(system, interval[0]))
        end = floor
        if kept and order(system, line.intervals[kept - 1][1]) > top:
            end = line.intervals[kept - 1][1]
        line.intervals[:kept] = [(line.start, end)]

    def cut(self, span: Span) -> list[tuple[Position, Position]]:
        """The parts of ``span`` that have not landed. Not for TubeMQ, whose positions have no order."""
        log = span.log
        if log.system == "tubemq":
            raise ValueError(f"{log}: positions of tubemq have no order")
        parts = []
        at = span.start
        for start, end in self.intervals(log):
            if order(log.system, end) <= order(log.system, at):
                continue
            if order(log.system, start) >= order(log.system, span.end):
                break
            if order(log.system, at) < order(log.system, start):
                parts.append((at, start))
            at = end
        if order(log.system, at) < order(log.system, span.end):
            parts.append((at, span.end))
        return parts

    def copy(self) -> "Coverage":
        """An independent Coverage of the same value."""
        other = Coverage()
        other._lines = {log: _Line(line.start, line.intervals.copy()) for log, line in self._lines.items()}
        return other

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Coverage):
            return NotImplemented
        return self._value() == other._value()

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __repr__(self) -> str:
        return f"Coverage({self.to_json()!r})"

    def to_json(self) -> dict[str, Any]:
        """As plain dicts and lists, nested by :func:`nest`.

        A log is ``[start]`` without an interval, ``[start, end]`` with one that begins at the start, and otherwise
        ``[start, [after, up to], …]``.
        """
        return nest((log, self._line_to_json(log.system, line)) for log, line in self._lines.items())

    @classmethod
    def from_json(cls, value: Any) -> "Coverage":
        """Read what :meth:`to_json` gave. Raises ValueError if it cannot be that."""
        coverage = cls()
        for log, parts in unnest(value):
            coverage._lines[log] = _line_from_json(log, parts)
        return coverage

    def _value(self) -> dict[Log, tuple[Position, list[tuple[Position, Position]]]]:
        return {log: (line.start, line.intervals) for log, line in self._lines.items()}

    def _conflict(self, span: Span) -> str | None:
        """Why ``span`` cannot be added to what is there, in words; None if it can, or if only a gap is in the way."""
        line = self._lines.get(span.log)
        if line is None:
            return None
        system = span.log.system
        start, reach = order(system, span.start), order(system, span.reach)
        if start == reach:
            return self._start_conflict(line, span)
        if system == "tubemq":
            before = line.intervals[-1][1] if line.intervals else line.start
            if span.start == before:
                return None
            return f"a span starts at {format_position(system, span.start)}, not at {format_position(system, before)}"
        if system in _CHAINED and start < order(system, line.start):
            # Before the start of a chain nothing can be appended any more.
            return f"a span starts at {format_position(system, span.start)}, before the log began for us"
        at = bisect_right(line.intervals, start, key=lambda interval: order(system, interval[0]))
        for held in line.intervals[max(at - 1, 0) : at + 1]:
            if order(system, held[0]) < reach and start < order(system, held[1]):
                return f"{_text(system, (span.start, span.reach))} overlaps {_text(system, held)}, which has landed"
        return None

    def _append(self, span: Span) -> bool:
        """What nearly every span does: it lies behind all that has landed. False: look closer."""
        line = self._lines.get(span.log)
        system = span.log.system
        if line is None or not line.intervals or span.gap is not None or span.rows < 0 or system == "tubemq":
            return False
        first, last = line.intervals[-1]
        before, start, end = order(system, last), order(system, span.start), order(system, span.end)
        if not before <= start < end:
            return False
        if before == start:
            line.intervals[-1] = first, span.end
        elif system in _CHAINED:
            return False
        else:
            line.intervals.append((span.start, span.end))
        return True

    @staticmethod
    def _start_conflict(line: _Line, span: Span) -> str | None:
        """An empty span says "the log begins here": true at the start, harmless within what has landed."""
        system = span.log.system
        position = order(system, span.start)
        if position == order(system, line.start):
            return None
        for held in line.intervals:
            first, last = order(system, held[0]), order(system, held[1])
            if position == last or (system != "tubemq" and first <= position <= last):
                return None
        return (
            f"a reader began it at {format_position(system, span.start)}, "
            f"but it is known from {format_position(system, line.start)}"
        )

    @staticmethod
    def _insert(line: _Line, system: str, start: Position, end: Position) -> None:
        intervals = line.intervals
        if system == "tubemq":
            # The only interval, and the span continues it.
            line.intervals = [(intervals[0][0] if intervals else start, end)]
            return
        at = bisect_right(intervals, order(system, start), key=lambda interval: order(system, interval[0]))
        first = last = at
        if at and order(system, intervals[at - 1][1]) == order(system, start):
            first, start = at - 1, intervals[at - 1][0]
        if at < len(intervals) and order(system, intervals[at][0]) == order(system, end):
            last, end = at + 1, intervals[at][1]
        intervals[first:last] = [(start, end)]

    @staticmethod
    def _line_to_json(system: str, line: _Line) -> list[Any]:
        start = format_position(system, line.start)
        if len(line.intervals) == 1 and line.intervals[0][0] == line.start:
            return [start, format_position(system, line.intervals[0][1])]
        return [start, *([format_position(system, a), format_position(system, b)] for a, b in line.intervals)]


def _line_from_json(log: Log, parts: Any) -> _Line:
    if not isinstance(parts, list) or not parts or not isinstance(parts[0], str):
        raise ValueError(f"{log}: coverage must be a list that begins with a position")
    system = log.system
    start = parse_position(system, parts[0])
    if len(parts) == 2 and isinstance(parts[1], str):
        return _Line(start, [(start, parse_position(system, parts[1]))])
    intervals = []
    for part in parts[1:]:
        if not isinstance(part, list) or len(part) != 2 or not all(isinstance(text, str) for text in part):
            raise ValueError(f"{log}: an interval must be two positions, not {part!r}")
        intervals.append((parse_position(system, part[0]), parse_position(system, part[1])))
    if system != "tubemq":
        ends = [order(system, position) for interval in intervals for position in interval]
        if any(ends[i] >= ends[i + 1] for i in range(len(ends) - 1)) or (ends and ends[0] < order(system, start)):
            raise ValueError(f"{log}: intervals are not disjoint and in order")
    if system in _CHAINED and len(intervals) > 1:
        raise ValueError(f"{log}: a log of {system} has one interval")
    return _Line(start, intervals)


def _check(span: Span) -> None:
    """Refuse what no reader can have been given."""
    log = span.log
    system = log.system
    _form(system)
    places = (span.start, span.end, span.reach)
    if system == "tubemq":
        backwards = any(x.a == y.a and x.b > y.b for x, y in ((places[0], places[1]), (places[1], places[2])))
    else:
        start, end, reach = (order(system, place) for place in places)
        backwards = not start <= end <= reach
    if backwards:
        raise ValueError(f"{log}: {_text(system, places)} runs backwards")
    if span.rows < 0 or (span.rows and order(system, span.start) == order(system, span.end)):
        raise ValueError(f"{log}: {span.rows} rows in {_text(system, places)} cannot be")


def _text(system: str, places: Iterable[Position]) -> str:
    return "(" + ", ".join(format_position(system, place) for place in places) + "]"


def nest(values: Iterable[tuple[Log, Any]]) -> dict[str, Any]:
    """Values by log as nested dicts: system, cluster, topic, incarnation, partition. Names stand once, not per log."""
    tree: dict[str, Any] = {}
    for log, value in values:
        topics = tree.setdefault(log.system, {}).setdefault(log.cluster, {})
        topics.setdefault(log.topic, {}).setdefault(log.incarnation, {})[log.partition] = value
    return tree


def unnest(tree: Any) -> Iterator[tuple[Log, Any]]:
    """The reverse of :func:`nest`. Raises ValueError for anything else."""
    for system, clusters in _level(tree, "systems"):
        _form(system)
        for cluster, topics in _level(clusters, "clusters"):
            for topic, incarnations in _level(topics, "topics"):
                for incarnation, partitions in _level(incarnations, "incarnations"):
                    for partition, value in _level(partitions, "partitions"):
                        yield Log(system, cluster, topic, partition, incarnation), value


def _level(tree: Any, what: str) -> Iterable[tuple[str, Any]]:
    if not isinstance(tree, Mapping):
        raise ValueError(f"expected {what} by name, not {tree!r:.60}")
    return tree.items()
