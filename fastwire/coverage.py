"""Coverage: what has landed of each log, as disjoint intervals of positions; common to all systems.

Everything here is pure computation: who may extend a Coverage, and when, is decided by the dataset.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import Any

from fastwire.position import (
    Log,
    Position,
    Positions,
    Span,
    Until,
    nest,
    positions_of,
    unnest,
)


class OverlapError(ValueError):
    """A span contains records that have already landed."""


class UndeclaredGapError(ValueError):
    """A span starts beyond the end of what has landed, and no gap was declared in between."""


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
