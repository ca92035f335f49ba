"""Logs, positions and spans: the representation of consumer progress, common to all systems.

A *log* is one partition of one incarnation of a topic. A *position* lies between two of its entries (an entry is
landed, acknowledged and deduplicated as a whole). A *span* is the range between two positions that one reader was
given; the sum of all landed spans is the *Coverage*, see ``fastwire.coverage``. Everything here is pure computation,
and all durable state is written in these terms.

Each system defines the meaning, the text form and the order of its positions by a :class:`Positions` in its own
package. The process registers it with :func:`register`.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

_LARGEST = (1 << 63) - 1


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

    def passed(self, cursor: Position, end: Position) -> bool:
        """Return whether the ``cursor`` of a group at its brokers is known to lie behind ``end``."""
        return self.order(cursor) > self.order(end)

    scattered = False
    """One reader lands the entries of a log in any order, so that a hole means entries that are still to come."""

    number_columns: tuple[str, ...]
    """The columns of a row that hold the numbers of its position; none if rows do not have their positions."""

    sequence_columns: tuple[tuple[str, int], ...] = ()
    """The columns that number the records of a log, so that a later record has a larger number: the most significant
    one first, each with its bits, 63 together. None if another read may number a record differently."""

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
    sequence_columns = (("offset", 63),)

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
