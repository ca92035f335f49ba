"""Logs, positions, spans and coverage: the representation of consumer progress, common to all systems.

A *log* is one partition of one incarnation of a topic. A *position* lies between two of its entries (an entry is
landed, acknowledged and deduplicated as a whole). A *span* is the range between two positions that one reader was
given. *Coverage* is the sum of all landed spans. Everything here is pure computation, and all durable state is written
in these terms.

Each system defines the meaning, the text form and the order of its positions by a :class:`Positions` in its own
package. The process registers it with :func:`register`.
"""

import re
from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

__all__ = [
    "Coverage",
    "Gap",
    "Log",
    "NumberPositions",
    "OffsetPositions",
    "OverlapError",
    "PairPositions",
    "Position",
    "Positions",
    "Span",
    "UndeclaredGapError",
    "Until",
    "format_position",
    "nest",
    "parse_position",
    "positions_of",
    "register",
    "unnest",
]

_LARGEST = (1 << 63) - 1


class OverlapError(ValueError):
    """A span contains records that have already landed."""


class UndeclaredGapError(ValueError):
    """A span starts beyond the end of what has landed, and no gap was declared in between."""


class Position(NamedTuple):
    """A place in a log, between two entries. The system of the log defines what ``a`` and ``b`` mean."""

    a: int
    b: int


class Positions(ABC):
    """The positions of one system: their text form, their order, and what a log's coverage can look like.

    ``system`` is the name that stands in durable state. ``pattern`` matches every text form, and ``form`` describes it
    with an example, for error messages.
    """

    system: str
    pattern: re.Pattern[str]
    form: str

    chained = True
    """Logs are always read in order, so that the coverage of a log is one interval."""

    ordered = True
    """``order`` compares any two positions of a log. Otherwise only equality and ``precedes`` mean anything; such a
    system must be ``chained``."""

    @abstractmethod
    def format(self, position: Position) -> str:
        """Return the one text form of ``position``, used in durable state, configuration, logs and commands."""

    @abstractmethod
    def read(self, match: re.Match[str]) -> Position:
        """Return the position of a text that ``pattern`` has matched."""

    def parse(self, text: str) -> Position:
        """Read what :meth:`format` returned. Raises ValueError with a message that names the expected form."""
        match = self.pattern.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is not a position of {self.system}: expected {self.form}")
        position = self.read(match)
        a, b = position
        if a > _LARGEST or b > _LARGEST or (a < 0 <= b):
            raise ValueError(f"{text!r} is not a position of {self.system}: a number is out of range")
        return position

    def order(self, position: Position) -> tuple[int, int]:
        """Return the key by which positions of one log compare; positions with equal keys are the same place."""
        return position

    def precedes(self, one: Position, other: Position) -> bool:
        """Return whether ``one`` is known to lie before ``other`` in their log."""
        return self.order(one) < self.order(other)

    scattered = False
    """One reader lands the entries of a log in any order, so that a hole means entries that are still to come."""

    number_columns: tuple[str, ...]
    """The columns of a row that hold the numbers of its position; none if rows do not have their positions."""

    def of_row(self, numbers: Sequence[int]) -> Position:
        """Return the position behind the row with these values of ``number_columns``."""
        return Position(*numbers)

    def same_segment(self, one: Position, other: Position) -> bool:
        """Return whether positions between ``one`` and ``other`` may hold records.

        False where the log went on in another segment of the broker, which leaves a range that holds none.
        """
        return True

    def misplaced(self, low: Position, high: Position, found: Mapping[str, tuple[int, int]]) -> str | None:
        """Compare the extremes of ``number_columns`` in some rows with the ends of the spans that land them.

        Returns what is wrong, "" if the rows can lie between ``low`` and ``high``, None if ``found`` does not show it.
        """
        return None


class OffsetPositions(Positions):
    """Positions whose ``a`` is the number of the next record, which the records have in the column ``offset``."""

    number_columns: tuple[str, ...] = ("offset",)

    def of_row(self, numbers: Sequence[int]) -> Position:
        """Return the position whose next record is the one after the offset of the row."""
        return self.parse(str(numbers[0] + 1))

    def misplaced(self, low: Position, high: Position, found: Mapping[str, tuple[int, int]]) -> str | None:
        """Compare offsets of rows with the ends of their spans."""
        if "offset" not in found:
            return None
        first, last = found["offset"]
        if first < low.a or last >= high.a:
            return f"has offsets {first} to {last}, outside of {low.a} to {high.a - 1}"
        return ""


class NumberPositions(Positions):
    """Positions that are one number: the number of the next entry, as ``a``. ``b`` is 0."""

    pattern = re.compile(r"([0-9]{1,19})")
    number_columns: tuple[str, ...] = ()

    def __init__(self, system: str, form: str) -> None:
        self.system = system
        self.form = form

    def format(self, position: Position) -> str:
        """Return the number as text."""
        return str(position.a)

    def read(self, match: re.Match[str]) -> Position:
        """Return the position of the matched number."""
        return Position(int(match[1]), 0)


class PairPositions(Positions):
    """Positions of two numbers, in any order: part ``b`` of the entry with number ``a`` is next."""

    pattern = re.compile(r"([0-9]{1,19})\.([0-9]{1,19})")
    number_columns: tuple[str, ...] = ()
    chained = False
    scattered = True

    def __init__(self, system: str, form: str) -> None:
        self.system = system
        self.form = form

    def format(self, position: Position) -> str:
        """Return the numbers with a dot between them."""
        return f"{position.a}.{position.b}"

    def read(self, match: re.Match[str]) -> Position:
        """Return the position of the matched numbers."""
        return Position(int(match[1]), int(match[2]))


_known: dict[str, Positions] = {}
_finders: list[Callable[[str], Positions]] = []


def register(*systems: Positions, find: Callable[[str], Positions] | None = None) -> None:
    """Make the positions of ``systems`` known under their names, for as long as the process runs.

    ``find`` is called with the names of others, and raises ValueError for an unknown one.
    """
    _known.update({positions.system: positions for positions in systems})
    if find is not None:
        _finders.append(find)


def positions_of(system: str) -> Positions:
    """Return the registered positions of ``system``. Raises ValueError if there are none."""
    found = _known.get(system)
    if found is not None:
        return found
    for find in _finders:
        with suppress(ValueError):
            register(find(system))
            return _known[system]
    raise ValueError(f"unknown system {system!r}: known are {', '.join(sorted(_known))}")


def format_position(system: str, position: Position) -> str:
    """Return the text form of ``position`` of ``system``. Raises ValueError for an unknown system."""
    return positions_of(system).format(position)


def parse_position(system: str, text: str) -> Position:
    """Read what :func:`format_position` returned. Raises ValueError, also for an unknown system."""
    return positions_of(system).parse(text)


@dataclass(frozen=True, slots=True)
class Log:
    """The log a position belongs to. All parts are text; ``partition`` is "-1" for an unpartitioned topic."""

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
    """A declared gap: the log has no record between the end of the gap's span and ``to``."""

    to: Position
    reason: str


class Until(NamedTuple):
    """The end of a bounded run in one log: nothing behind ``position`` lands. ``run`` names the run that it is of."""

    position: Position
    run: str


@dataclass(frozen=True, slots=True)
class Span:
    """The records of ``log`` after ``start`` up to and including ``end``, read by one reader; ``gap`` follows them.

    ``rows`` counts the rows of the span, also filtered ones and those of dead letters. One whose ``start`` equals its
    ``end`` makes a log known. ``held_from`` is set if records between it and ``start`` were received but land later
    with spans of their own (the first chunks of a chunked message); until then they are a hole.

    ``witness`` is what the system knows its entry before ``end`` by (64 bits: an id or a checksum), None without. A
    later reader compares it with what the broker has there, because another log can have the same positions.
    """

    log: Log
    start: Position
    end: Position
    rows: int
    gap: Gap | None = None
    held_from: Position | None = None
    witness: int | None = field(default=None, compare=False)  # it does not change which entries these are
    until: Until | None = field(default=None, compare=False)  # set with this commit; None: as before

    @property
    def reach(self) -> Position:
        """The position where the next span begins: the end, or the far side of the gap."""
        return self.end if self.gap is None else self.gap.to


class _Line:
    """The coverage of one log: its start, and disjoint intervals in order, none of them empty, adjacent ones merged.

    ``witness`` is that of the entry before the end, ``until`` the end of the newest bounded run.
    """

    __slots__ = ("intervals", "positions", "start", "until", "witness")

    def __init__(
        self,
        positions: Positions,
        start: Position,
        intervals: list[tuple[Position, Position]],
        witness: int | None = None,
        until: Until | None = None,
    ) -> None:
        self.positions = positions
        self.start = start
        self.intervals = intervals
        self.witness = witness
        self.until = until

    @property
    def end(self) -> Position:
        """The end of the last interval, or the start."""
        return self.intervals[-1][1] if self.intervals else self.start


class Coverage:
    """The landed part of all logs: per log its start position, and disjoint intervals of positions.

    The coverage of a log that is read in order is one interval, except for records that are held (see :class:`Span`).
    """

    __slots__ = ("_lines",)

    def __init__(self) -> None:
        self._lines: dict[Log, _Line] = {}

    def logs(self) -> list[Log]:
        """Return all known logs, in the order in which they became known."""
        return list(self._lines)

    def __contains__(self, log: Log) -> bool:
        return log in self._lines

    def __len__(self) -> int:
        return len(self._lines)

    def start(self, log: Log) -> Position | None:
        """Return the position where the coverage of ``log`` begins; None for an unknown log."""
        line = self._lines.get(log)
        return None if line is None else line.start

    def intervals(self, log: Log) -> tuple[tuple[Position, Position], ...]:
        """Return the landed intervals of ``log`` in order, as (after, up to) pairs."""
        line = self._lines.get(log)
        return () if line is None else tuple(line.intervals)

    def end(self, log: Log) -> Position | None:
        """Return where reading in order continues: the end of the last interval, or the start; None if unknown."""
        line = self._lines.get(log)
        return None if line is None else line.end

    def witness(self, log: Log) -> int | None:
        """Return the witness of the entry before ``end``, see :class:`Span`; None if it is not known."""
        line = self._lines.get(log)
        return None if line is None else line.witness

    def recall(self, log: Log, witness: int) -> None:
        """Set the witness of a known log, as :meth:`witness` has returned it. Raises KeyError for another log."""
        self._lines[log].witness = witness

    def until(self, log: Log) -> Until | None:
        """Return the end of the newest bounded run in ``log``; None if there was none."""
        line = self._lines.get(log)
        return None if line is None else line.until

    def end_at(self, log: Log, until: Until) -> None:
        """Set the end of a bounded run in a known log. Raises KeyError for another log."""
        self._lines[log].until = until

    def holes(self, log: Log) -> tuple[tuple[Position, Position], ...]:
        """Return the intervals that have not landed, between the start of the log and the end of its last landed
        interval.

        A hole need not contain a record: some distinct positions have nothing in between (two ledgers of Pulsar).
        """
        line = self._lines.get(log)
        if line is None:
            return ()
        order = line.positions.order
        holes = []
        before = line.start
        for start, end in line.intervals:
            if order(before) != order(start):
                holes.append((before, start))
            before = end
        return tuple(holes)

    def covers(self, log: Log, position: Position) -> bool:
        """Return whether the entry that ends at ``position`` has landed."""
        line = self._lines.get(log)
        if line is None or not line.intervals:
            return False
        positions = line.positions
        if not positions.ordered:
            start, end = line.intervals[0]
            within = position == end or positions.precedes(position, end)
            return within and not (position == start or positions.precedes(position, start))
        order = positions.order
        key = order(position)
        at = bisect_left(line.intervals, key, key=lambda interval: order(interval[1]))
        return at < len(line.intervals) and order(line.intervals[at][0]) < key

    def overlaps(self, span: Span) -> bool:
        """Return whether ``span`` contains records that have landed, or contradicts where its log begins."""
        return self._conflict(span) is not None

    def add(self, span: Span) -> None:
        """Add ``span`` and its gap.

        Raises OverlapError if :meth:`overlaps`, UndeclaredGapError if a log that is always read in order would get a
        hole, ValueError for a span that runs backwards or is of an unknown system; nothing is changed then.
        """
        if not self._append(span):
            self._put(span)
        if span.until is not None:
            self.end_at(span.log, span.until)

    def _put(self, span: Span) -> None:
        log, start, reach = span.log, span.start, span.reach
        positions = positions_of(log.system)
        order = positions.order
        _check(span, positions)
        conflict = self._conflict(span)
        if conflict is not None:
            raise OverlapError(f"{log}: {conflict}")
        line = self._lines.get(log)
        empty = order(start) == order(reach)
        if line is None:
            self._lines[log] = _Line(positions, start, [] if empty else [(start, reach)])
            self._lines[log].witness = span.witness if span.gap is None else None
            return
        if empty:
            return
        if not positions.chained:
            line.start = min(line.start, start, key=order)
        elif order(line.end) != order(start):
            raise UndeclaredGapError(
                f"{log}: a span starts at {positions.format(start)}, but what has landed ends at "
                f"{positions.format(line.end)}"
            )
        self._insert(line, start, reach)
        if line.end == reach:
            line.witness = span.witness if span.gap is None else None

    def raise_floor(self, log: Log, floor: Position) -> None:
        """Merge everything from the start to ``floor`` into one interval, because the broker holds it as acknowledged.

        This bounds the memory of logs that are not read in order. Raises ValueError for an unknown log, or one whose
        positions have no order.
        """
        line = self._lines.get(log)
        if line is None:
            raise ValueError(f"{log}: the log is unknown, so it has no floor")
        order = _ordered(log, line.positions).order
        top = order(floor)
        if top <= order(line.start):
            return
        kept = bisect_right(line.intervals, top, key=lambda interval: order(interval[0]))
        end = floor
        if kept and order(line.intervals[kept - 1][1]) > top:
            end = line.intervals[kept - 1][1]
        before = line.end
        line.intervals[:kept] = [(line.start, end)]
        if line.end != before:
            line.witness = None

    def uncovered(self, span: Span) -> list[tuple[Position, Position]]:
        """Return the parts of ``span`` that have not landed. Raises ValueError if its positions have no order."""
        log = span.log
        order = _ordered(log, positions_of(log.system)).order
        parts = []
        at = span.start
        for start, end in self.intervals(log):
            if order(end) <= order(at):
                continue
            if order(start) >= order(span.end):
                break
            if order(at) < order(start):
                parts.append((at, start))
            at = end
        if order(at) < order(span.end):
            parts.append((at, span.end))
        return parts

    def only(self, log: Log) -> "Coverage":
        """Return an independent Coverage of one known log."""
        line, other = self._lines[log], Coverage()
        other._lines[log] = _Line(line.positions, line.start, line.intervals.copy(), line.witness, line.until)
        return other

    def adopt(self, other: "Coverage") -> None:
        """Take the logs of ``other`` as they are there."""
        self._lines.update(other.copy()._lines)

    def copy(self) -> "Coverage":
        """Return an independent Coverage of the same value."""
        other = Coverage()
        other._lines = {
            log: _Line(line.positions, line.start, line.intervals.copy(), line.witness, line.until)
            for log, line in self._lines.items()
        }
        return other

    def update(self, other: "Coverage") -> None:
        """Take the logs of ``other`` in place of what is known of them."""
        self._lines.update(other.copy()._lines)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Coverage):
            return NotImplemented
        return self._value() == other._value()

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __repr__(self) -> str:
        return f"Coverage({self.to_json()!r})"

    def to_json(self) -> dict[str, Any]:
        """Return plain dicts and lists, nested by :func:`nest`.

        A log is ``[start]`` without an interval, ``[start, end]`` with one that begins at the start, and otherwise
        ``[start, [after, up to], …]``. Witnesses and ends of runs are not part of it.
        """
        return nest((log, _line_to_json(line)) for log, line in self._lines.items())

    @classmethod
    def from_json(cls, value: Any) -> "Coverage":
        """Read what :meth:`to_json` returned. Raises ValueError for anything else, and for an unknown system."""
        coverage = cls()
        for log, parts in unnest(value):
            coverage._lines[log] = _line_from_json(log, parts)
        return coverage

    def _value(self) -> dict[Log, tuple[Position, list[tuple[Position, Position]]]]:
        return {log: (line.start, line.intervals) for log, line in self._lines.items()}

    def _conflict(self, span: Span) -> str | None:
        """Return the reason why ``span`` cannot be added; None if it can, or if only an undeclared gap prevents it."""
        line = self._lines.get(span.log)
        if line is None:
            return None
        positions = line.positions
        order = positions.order
        start, reach = order(span.start), order(span.reach)
        if start == reach:
            return self._start_conflict(line, span.start)
        if not positions.ordered:
            if span.start == line.end:
                return None
            return f"a span starts at {positions.format(span.start)}, not at {positions.format(line.end)}"
        if positions.chained and start < order(line.start):
            # A chain is never extended before its start.
            return f"a span starts at {positions.format(span.start)}, before the known start of the log"
        at = bisect_right(line.intervals, start, key=lambda interval: order(interval[0]))
        for held in line.intervals[max(at - 1, 0) : at + 1]:
            if order(held[0]) < reach and start < order(held[1]):
                landed = _text(positions, held)
                return f"{_text(positions, (span.start, span.reach))} overlaps {landed}, which has landed"
        return None

    def _append(self, span: Span) -> bool:
        """Add a span after the last landed interval, as nearly every span is; return False for any other span."""
        line = self._lines.get(span.log)
        if line is None or not line.intervals or span.gap is not None or span.rows < 0 or not line.positions.ordered:
            return False
        order = line.positions.order
        first, last = line.intervals[-1]
        before, start, end = order(last), order(span.start), order(span.end)
        if not before <= start < end:
            return False
        if before == start:
            line.intervals[-1] = first, span.end
        elif line.positions.chained:
            return False
        else:
            line.intervals.append((span.start, span.end))
        line.witness = span.witness
        return True

    @staticmethod
    def _start_conflict(line: _Line, start: Position) -> str | None:
        """Check an empty span, which declares the start of a log: valid at the known start or in a landed interval."""
        positions = line.positions
        order = positions.order
        key = order(start)
        if key == order(line.start):
            return None
        for held in line.intervals:
            first, last = order(held[0]), order(held[1])
            if key == last or (positions.ordered and first <= key <= last):
                return None
        return f"a reader starts it at {positions.format(start)}, but its known start is {positions.format(line.start)}"

    @staticmethod
    def _insert(line: _Line, start: Position, end: Position) -> None:
        intervals = line.intervals
        if not line.positions.ordered:
            # There is one interval, and the span continues it.
            line.intervals = [(intervals[0][0] if intervals else start, end)]
            return
        order = line.positions.order
        at = bisect_right(intervals, order(start), key=lambda interval: order(interval[0]))
        first = last = at
        if at and order(intervals[at - 1][1]) == order(start):
            first, start = at - 1, intervals[at - 1][0]
        if at < len(intervals) and order(intervals[at][0]) == order(end):
            last, end = at + 1, intervals[at][1]
        intervals[first:last] = [(start, end)]


def _ordered(log: Log, positions: Positions) -> Positions:
    if not positions.ordered:
        raise ValueError(f"{log}: positions of {positions.system} have no order")
    return positions


def _line_to_json(line: _Line) -> list[Any]:
    text = line.positions.format
    start = text(line.start)
    if len(line.intervals) == 1 and line.intervals[0][0] == line.start:
        return [start, text(line.intervals[0][1])]
    return [start, *([text(a), text(b)] for a, b in line.intervals)]


def _line_from_json(log: Log, parts: Any) -> _Line:
    if not isinstance(parts, list) or not parts or not isinstance(parts[0], str):
        raise ValueError(f"{log}: coverage must be a list that begins with a position")
    positions = positions_of(log.system)
    start = positions.parse(parts[0])
    if len(parts) == 2 and isinstance(parts[1], str):
        return _Line(positions, start, [(start, positions.parse(parts[1]))])
    intervals = []
    for part in parts[1:]:
        if not isinstance(part, list) or len(part) != 2 or not all(isinstance(text, str) for text in part):
            raise ValueError(f"{log}: an interval must be two positions, not {part!r}")
        intervals.append((positions.parse(part[0]), positions.parse(part[1])))
    if positions.ordered:
        ends = [positions.order(position) for interval in intervals for position in interval]
        if any(ends[i] >= ends[i + 1] for i in range(len(ends) - 1)) or (ends and ends[0] < positions.order(start)):
            raise ValueError(f"{log}: intervals are not disjoint and in order")
    if positions.chained and len(intervals) > 1:
        raise ValueError(f"{log}: a log of {positions.system} has one interval")
    return _Line(positions, start, intervals)


def _check(span: Span, positions: Positions) -> None:
    """Raise ValueError for an impossible span: reversed, or with rows but no extent."""
    places = (span.start, span.end, span.reach)
    if positions.precedes(span.end, span.start) or positions.precedes(span.reach, span.end):
        raise ValueError(f"{span.log}: {_text(positions, places)} runs backwards")
    if span.rows < 0 or (span.rows and positions.order(span.start) == positions.order(span.end)):
        raise ValueError(f"{span.log}: {span.rows} rows in {_text(positions, places)} are impossible")


def _text(positions: Positions, places: Iterable[Position]) -> str:
    return "(" + ", ".join(positions.format(place) for place in places) + "]"


def nest(values: Iterable[tuple[Log, Any]]) -> dict[str, Any]:
    """Return values by log as nested dicts: system, cluster, topic, incarnation, partition. Each name occurs once."""
    tree: dict[str, Any] = {}
    for log, value in values:
        topics = tree.setdefault(log.system, {}).setdefault(log.cluster, {})
        topics.setdefault(log.topic, {}).setdefault(log.incarnation, {})[log.partition] = value
    return tree


def unnest(tree: Any) -> Iterator[tuple[Log, Any]]:
    """Yield the pairs that :func:`nest` was given. Raises ValueError for anything else, and for an unknown system."""
    for system, clusters in _level(tree, "systems"):
        positions_of(system)
        for cluster, topics in _level(clusters, "clusters"):
            for topic, incarnations in _level(topics, "topics"):
                for incarnation, partitions in _level(incarnations, "incarnations"):
                    for partition, value in _level(partitions, "partitions"):
                        yield Log(system, cluster, topic, partition, incarnation), value


def _level(tree: Any, what: str) -> Iterable[tuple[str, Any]]:
    if not isinstance(tree, Mapping):
        raise ValueError(f"expected {what} by name, not {tree!r:.60}")
    return tree.items()
