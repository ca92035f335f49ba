"""Order, merging, cutting, gaps and floors of positions, against sets of atoms that are too small to be wrong."""

import json
import re
from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import fastwire.position
from fastwire.coverage import Coverage, OverlapError, UndeclaredGapError
from fastwire.position import (
    Gap,
    Log,
    NumberPositions,
    Position,
    Positions,
    Span,
    format_position,
    nest,
    parse_position,
    positions_of,
    register,
    unnest,
)
from fastwire.pulsar.position import PULSAR_EARLIEST
from fastwire.systems import positions_named

LEDGERS, ENTRIES = 4, 6
LARGE = st.integers(0, (1 << 63) - 1)
ORDERED = ("pulsar", "kafka", "tank", "spark")
SYSTEMS = (*ORDERED, "tubemq")


class TubeMQPositions(Positions):
    """The offset at which a GET began, and the rows taken since: two GETs compare by equality only."""

    system = "tubemq"
    pattern = re.compile(r"([0-9]{1,19})\+([0-9]{1,19})")
    form = "offset+rows, for example 84+17"
    ordered = False

    def format(self, position: Position) -> str:
        return f"{position.a}+{position.b}"

    def read(self, match: re.Match[str]) -> Position:
        return Position(int(match[1]), int(match[2]))

    def precedes(self, one: Position, other: Position) -> bool:
        return one.a == other.a and one.b < other.b


@pytest.fixture(autouse=True, scope="module")
def _two_more_systems() -> Iterator[None]:
    """Systems that fastwire does not know bring their positions with them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fastwire.position._known", {**fastwire.position._known})
        register(NumberPositions("tank", "a sequence number, for example 1234"), TubeMQPositions())
        yield


def order(system: str, position: Position) -> tuple[int, int]:
    return positions_of(system).order(position)


def log_of(system: str, partition: str = "0") -> Log:
    return Log(system, "broker:1", "persistent://public/default/orders", partition)


def place(system: str, at: int) -> Position:
    """The position with number ``at`` on a small line of places; 0 is before everything."""
    if system == "pulsar":
        return PULSAR_EARLIEST if at == 0 else Position((at - 1) // ENTRIES + 1, (at - 1) % ENTRIES)
    if system == "kafka":
        return Position(at, at % 3 - 1)  # epochs must not matter
    if system in ("tank", "spark"):
        return Position(at, 0)
    return Position(28 * (at // 5), at % 5)


PLACES = LEDGERS * ENTRIES


def span_of(system: str, start: int, end: int, rows: int | None = None, gap_to: int | None = None) -> Span:
    gap = None if gap_to is None else Gap(place(system, gap_to), "retention")
    return Span(log_of(system), place(system, start), place(system, end), end - start if rows is None else rows, gap)


def atoms(coverage: Coverage, system: str) -> set[int]:
    """Numbers of the places whose atom has landed."""
    return {at for at in range(1, PLACES + 1) if coverage.covers(log_of(system), place(system, at))}


def assert_sound(coverage: Coverage, system: str) -> None:
    """Intervals are not empty, in order, and apart from each other."""
    intervals = coverage.intervals(log_of(system))
    ends = [order(system, position) for interval in intervals for position in interval]
    assert all(a < b for a, b in pairwise(ends))
    start = coverage.start(log_of(system))
    assert start is not None
    assert not ends or order(system, start) <= ends[0]


@st.composite
def cuts(draw: st.DrawFn) -> list[tuple[int, int]]:
    """The line of places cut into pieces, some of them, in any order."""
    marks = sorted(draw(st.sets(st.integers(0, PLACES), min_size=2)))
    pieces = draw(st.lists(st.sampled_from(list(pairwise(marks))), unique=True))
    return draw(st.permutations(pieces))


# --- text


@pytest.mark.parametrize(
    ("system", "position", "text"),
    [
        ("kafka", Position(1234, 5), "1234@5"),
        ("kafka", Position(1234, -1), "1234"),
        ("kafka", Position(0, 0), "0@0"),
        ("tank", Position(1234, 0), "1234"),
        ("pulsar", Position(12, 34), "12:34"),
        ("pulsar", Position(12, -1), "12:-1"),
        ("pulsar", PULSAR_EARLIEST, "-1:-1"),
        ("tubemq", Position(84, 17), "84+17"),
        ("spark", Position(12, 0), "12"),
    ],
)
def test_each_system_has_one_text_form(system: str, position: Position, text: str) -> None:
    assert format_position(system, position) == text
    assert parse_position(system, text) == position


@given(st.sampled_from(SYSTEMS), LARGE, LARGE)
def test_text_and_back(system: str, a: int, b: int) -> None:
    position = Position(a, {"tank": 0, "spark": 0, "kafka": b % (1 << 31)}.get(system, b))
    assert parse_position(system, format_position(system, position)) == position


@given(st.sampled_from(SYSTEMS), st.text("0123456789-+:@ x", max_size=12))
def test_whatever_parses_is_written_the_same_way(system: str, text: str) -> None:
    try:
        position = parse_position(system, text)
    except ValueError as exc:
        assert repr(text) in str(exc) and system in str(exc)  # noqa: PT017 - half of the inputs
    else:
        assert parse_position(system, format_position(system, position)) == position


@pytest.mark.parametrize(
    ("system", "text"),
    [
        ("pulsar", "12"),
        ("pulsar", "-1:5"),
        ("pulsar", "12:-2"),
        ("pulsar", "99999999999999999999:0"),
        ("pulsar", "9223372036854775808:0"),
        ("kafka", "-1"),
        ("kafka", "5@-1"),
        ("tank", "5:0"),
        ("tank", "٣"),
        ("tubemq", "84"),
        ("tubemq", "84+-1"),
    ],
)
def test_what_is_no_position(system: str, text: str) -> None:
    with pytest.raises(ValueError, match="is not a position of"):
        parse_position(system, text)


@pytest.mark.parametrize(
    ("system", "numbers", "text"),
    [("pulsar", (7, 12), "7:12"), ("kafka", (12,), "13"), ("tank", (12,), "13"), ("tubemq", (84, 17), "84+18")],
)
def test_the_position_of_a_row_is_behind_it(system: str, numbers: tuple[int, ...], text: str) -> None:
    places = positions_named(system)
    assert len(places.number_columns) == len(numbers)
    assert places.format(places.of_row(numbers)) == text


def test_an_unknown_system_is_named() -> None:
    with pytest.raises(ValueError, match="unknown system 'rabbit': known are dataset, kafka, pulsar, "):
        format_position("rabbit", PULSAR_EARLIEST)


# --- order


@pytest.mark.parametrize("system", ORDERED)
def test_places_are_in_order(system: str) -> None:
    keys = [order(system, place(system, at)) for at in range(PLACES + 1)]
    assert all(a < b for a, b in pairwise(keys))


def test_kafka_epochs_do_not_order() -> None:
    coverage = Coverage()
    log = log_of("kafka")
    coverage.add(Span(log, Position(0, -1), Position(10, 3), 10))
    coverage.add(Span(log, Position(10, -1), Position(20, 4), 10))
    assert coverage.intervals(log) == ((Position(0, -1), Position(20, 4)),)
    assert coverage.covers(log, Position(10, 99))
    assert not coverage.covers(log, Position(21, 0))


# --- adding


@given(cuts())
def test_pieces_land_in_any_order(pieces: list[tuple[int, int]]) -> None:
    coverage = Coverage()
    landed: set[int] = set()
    for start, end in pieces:
        piece = span_of("pulsar", start, end)
        assert not coverage.overlaps(piece)
        coverage.add(piece)
        landed |= set(range(start + 1, end + 1))
        assert atoms(coverage, "pulsar") == landed
        assert_sound(coverage, "pulsar")
        assert coverage.overlaps(piece)
    runs = sum(1 for at in landed if at - 1 not in landed)
    assert len(coverage.intervals(log_of("pulsar"))) == runs


@given(cuts(), st.integers(0, PLACES), st.integers(1, PLACES))
def test_an_overlap_is_refused_and_changes_nothing(pieces: list[tuple[int, int]], start: int, length: int) -> None:
    assume(pieces)
    coverage = Coverage()
    for piece in pieces:
        coverage.add(span_of("pulsar", *piece))
    before = coverage.copy()
    end = min(start + length, PLACES + 3)
    span = span_of("pulsar", start, end)
    meets = bool(atoms(coverage, "pulsar") & set(range(start + 1, end + 1)))
    assert coverage.overlaps(span) == meets
    if meets:
        with pytest.raises(OverlapError, match="has landed"):
            coverage.add(span)
        assert coverage == before
    else:
        coverage.add(span)
        assert coverage != before


@given(cuts(), st.integers(0, PLACES), st.integers(0, PLACES))
def test_cutting_leaves_what_has_not_landed(pieces: list[tuple[int, int]], start: int, end: int) -> None:
    assume(start <= end)
    coverage = Coverage()
    for piece in pieces:
        coverage.add(span_of("pulsar", *piece))
    left = coverage.uncovered(span_of("pulsar", start, end))
    number = {place("pulsar", at): at for at in range(PLACES + 1)}
    kept = {at for a, b in left for at in range(number[a] + 1, number[b] + 1)}
    assert kept == set(range(start + 1, end + 1)) - atoms(coverage, "pulsar")
    assert all(a[1] < b[0] for a, b in pairwise(left))


@pytest.mark.parametrize("system", ["kafka", "tank", "spark"])
@given(st.integers(0, 5), st.lists(st.integers(1, 4), max_size=5), st.integers(0, PLACES), st.integers(1, 4))
def test_a_chain_is_continued_at_its_end_only(
    system: str, begin: int, lengths: list[int], start: int, length: int
) -> None:
    coverage = Coverage()
    coverage.add(span_of(system, begin, begin))
    at = begin
    for each in lengths:
        coverage.add(span_of(system, at, at + each))
        at += each
    assert len(coverage.intervals(log_of(system))) == bool(lengths)
    before = coverage.copy()
    span = span_of(system, start, start + length)
    assert coverage.overlaps(span) == (start < at)
    if start < at:
        with pytest.raises(OverlapError):
            coverage.add(span)
    elif start > at:
        with pytest.raises(UndeclaredGapError, match="what has landed ends at"):
            coverage.add(span)
    else:
        coverage.add(span)
        assert order(system, coverage.end(log_of(system)) or PULSAR_EARLIEST) == order(system, span.end)
        return
    assert coverage == before


def test_tubemq_knows_equality_only() -> None:
    coverage = Coverage()
    log = log_of("tubemq", "1:0")
    coverage.add(Span(log, Position(0, 0), Position(84, 17), 40))
    coverage.add(Span(log, Position(84, 17), Position(84, 20), 3))
    # The next GET may begin anywhere, also at a smaller number.
    coverage.add(Span(log, Position(84, 20), Position(28, 5), 5))
    assert coverage.intervals(log) == ((Position(0, 0), Position(28, 5)),)
    assert coverage.end(log) == Position(28, 5)
    assert coverage.covers(log, Position(28, 5))
    assert coverage.covers(log, Position(28, 1))
    assert not coverage.covers(log, Position(28, 6))
    for start in (Position(84, 20), Position(28, 4), Position(28, 6), Position(0, 0)):
        span = Span(log, start, Position(56, 1), 1)
        assert coverage.overlaps(span)
        with pytest.raises(OverlapError):
            coverage.add(span)
    with pytest.raises(ValueError, match="no order"):
        coverage.raise_floor(log, Position(28, 5))
    with pytest.raises(ValueError, match="no order"):
        coverage.uncovered(Span(log, Position(28, 5), Position(56, 1), 1))


@pytest.mark.parametrize("system", SYSTEMS)
def test_an_empty_span_makes_a_log_known(system: str) -> None:
    coverage = Coverage()
    log = log_of(system)
    assert log not in coverage
    assert coverage.start(log) is None and coverage.end(log) is None and coverage.intervals(log) == ()
    coverage.add(span_of(system, 3, 3))
    assert log in coverage and len(coverage) == 1 and coverage.logs() == [log]
    assert coverage.start(log) == coverage.end(log) == place(system, 3)
    assert coverage.intervals(log) == () and not coverage.covers(log, place(system, 3))
    coverage.add(span_of(system, 3, 3))  # said again: nothing new
    # Somebody who began elsewhere did not know of this.
    assert coverage.overlaps(span_of(system, 7, 7))
    with pytest.raises(OverlapError, match="its known start is"):
        coverage.add(span_of(system, 7, 7))
    coverage.add(span_of(system, 3, 7))
    coverage.add(span_of(system, 7, 7))
    assert coverage.start(log) == place(system, 3) and coverage.end(log) == place(system, 7)


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_declared_gap_is_covered(system: str) -> None:
    coverage = Coverage()
    log = log_of(system)
    coverage.add(span_of(system, 1, 3, gap_to=8))
    assert coverage.intervals(log) == ((place(system, 1), place(system, 8)),)
    assert coverage.covers(log, place(system, 8))
    coverage.add(span_of(system, 8, 9))
    coverage.add(span_of(system, 9, 9, gap_to=12))  # nothing but a gap
    assert coverage.intervals(log) == ((place(system, 1), place(system, 12)),)
    assert coverage.holes(log) == ()
    if system != "tubemq":
        assert coverage.overlaps(span_of(system, 5, 6))


@pytest.mark.parametrize("system", ORDERED)
def test_what_runs_backwards_is_refused(system: str) -> None:
    coverage = Coverage()
    log = log_of(system)
    for span in (
        Span(log, place(system, 5), place(system, 4), 0),
        Span(log, place(system, 5), place(system, 6), 1, Gap(place(system, 5), "odd")),
    ):
        with pytest.raises(ValueError, match="runs backwards"):
            coverage.add(span)
    for rows in (-1, 1):
        with pytest.raises(ValueError, match="are impossible"):
            coverage.add(Span(log, place(system, 5), place(system, 5), rows))
    assert len(coverage) == 0


# --- floors


@given(cuts(), st.integers(0, PLACES), st.integers(0, PLACES))
def test_a_floor_settles_all_below_it(pieces: list[tuple[int, int]], start: int, floor: int) -> None:
    coverage = Coverage()
    coverage.add(span_of("pulsar", start, start))
    for piece in pieces:
        if piece[0] >= start:
            coverage.add(span_of("pulsar", *piece))
    before = atoms(coverage, "pulsar")
    coverage.raise_floor(log_of("pulsar"), place("pulsar", floor))
    assert atoms(coverage, "pulsar") == before | set(range(start + 1, floor + 1))
    assert_sound(coverage, "pulsar")
    assert coverage.start(log_of("pulsar")) == place("pulsar", start)


def test_a_floor_needs_a_known_log() -> None:
    with pytest.raises(ValueError, match="the log is unknown"):
        Coverage().raise_floor(log_of("pulsar"), Position(1, 1))


@given(cuts())
def test_holes_and_intervals_are_the_whole(pieces: list[tuple[int, int]]) -> None:
    assume(pieces)
    coverage = Coverage()
    coverage.add(span_of("pulsar", 0, 0))
    for piece in pieces:
        coverage.add(span_of("pulsar", *piece))
    log = log_of("pulsar")
    parts = sorted([*coverage.intervals(log), *coverage.holes(log)])
    assert parts[0][0] == place("pulsar", 0) and parts[-1][1] == coverage.end(log)
    assert all(a[1] == b[0] for a, b in pairwise(parts))


# --- values


@given(cuts(), st.sampled_from(["0", "7", "-1", "1:3"]), st.sampled_from(["0", "1", "Zm9v"]))
def test_json_and_back(pieces: list[tuple[int, int]], partition: str, incarnation: str) -> None:
    coverage = Coverage()
    other = Log("pulsar", "elsewhere:6650", "persistent://a/b/c", partition, incarnation)
    coverage.add(Span(other, Position(3, -1), Position(3, -1), 0))
    for start, end in pieces:
        coverage.add(span_of("pulsar", start, end))
    coverage.add(Span(Log("kafka", "k", "t", "0", "Zm9v"), Position(0, -1), Position(9, 2), 9))
    coverage.add(Span(Log("tubemq", "q", "t", "1:0"), Position(0, 0), Position(84, 17), 9))
    again = Coverage.from_json(json.loads(json.dumps(coverage.to_json())))
    assert again == coverage
    assert again.logs() == coverage.logs()


def test_json_says_each_name_once() -> None:
    coverage = Coverage()
    for partition in range(1000):
        log = log_of("pulsar", str(partition))
        coverage.add(Span(log, PULSAR_EARLIEST, Position(123456, 7890), 5))
    text = json.dumps(coverage.to_json(), separators=(",", ":"))
    assert text.count("orders") == 1
    assert len(text) < 40 * 1000


@pytest.mark.parametrize(
    "value",
    [
        [],
        {"rabbit": {}},
        {"pulsar": {"c": {"t": {"0": {"0": []}}}}},
        {"pulsar": {"c": {"t": {"0": {"0": ["1:0", ["1:0"]]}}}}},
        {"pulsar": {"c": {"t": {"0": {"0": ["1:0", ["1:5", "1:3"]]}}}}},
        {"pulsar": {"c": {"t": {"0": {"0": ["1:0", ["1:1", "1:3"], ["1:2", "1:5"]]}}}}},
        {"pulsar": {"c": {"t": {"0": {"0": ["1:9", ["1:1", "1:3"]]}}}}},
        {"kafka": {"c": {"t": {"0": {"0": ["0", ["1", "3"], ["5", "6"]]}}}}},
        {"pulsar": {"c": {"t": {"0": {"0": "1:0"}}}}},
        {"pulsar": {"c": {"t": 5}}},
    ],
)
def test_json_that_is_no_coverage(value: object) -> None:
    with pytest.raises(ValueError, match=r".+"):
        Coverage.from_json(value)


def test_a_copy_is_independent() -> None:
    coverage = Coverage()
    coverage.add(span_of("pulsar", 0, 3))
    copy = coverage.copy()
    copy.add(span_of("pulsar", 3, 5))
    copy.add(Span(log_of("pulsar", "1"), Position(1, 0), Position(1, 1), 1))
    assert atoms(coverage, "pulsar") == {1, 2, 3} and len(coverage) == 1
    assert coverage != copy


def test_nest_and_back() -> None:
    logs = [Log("pulsar", c, t, p, i) for c in "ab" for t in "xy" for i in "01" for p in ("0", "1:2")]
    pairs = [(log, number) for number, log in enumerate(logs)]
    assert dict(unnest(nest(pairs))) == dict(pairs)


def test_a_log_names_itself() -> None:
    assert str(Log("pulsar", "c", "orders", "-1")) == "orders"
    assert str(Log("pulsar", "c", "orders", "3", "2")) == "orders partition 3 (incarnation 2)"


# --- landed, staged, new


@given(st.data(), st.booleans())
def test_each_atom_lands_once_whatever_is_redelivered(data: st.DataObject, ordered: bool) -> None:
    """A reader that cuts landed and staged atoms writes each once, through redelivery and void rolls."""
    system, log = "pulsar", log_of("pulsar")
    landed, staged = Coverage(), Coverage()
    landed.add(span_of(system, 0, 0))
    open_roll: list[int] = []
    written: list[int] = []
    acked: set[int] = set()
    next_atom = 1
    for _ in range(data.draw(st.integers(1, 40))):
        action = data.draw(st.sampled_from(["deliver", "deliver", "deliver", "redeliver", "commit", "void"]))
        if action == "deliver":
            at = next_atom if ordered else data.draw(st.integers(1, PLACES))
            if at > PLACES or at in acked:
                continue
            next_atom += 1
            if landed.covers(log, place(system, at)):
                acked.add(at)  # landed: cut and acked
            elif not staged.covers(log, place(system, at)):  # staged: cut and not acked
                staged.add(span_of(system, at - 1, at))
                open_roll.append(at)
        elif action == "redeliver":
            next_atom = min(set(range(1, PLACES + 2)) - acked)
        else:
            if action == "commit":
                for interval in staged.intervals(log):
                    landed.add(Span(log, *interval, rows=1))
                written += open_roll
                acked |= set(open_roll)
            else:
                next_atom = min(set(range(1, PLACES + 2)) - acked)
            staged, open_roll = Coverage(), []
        assert acked <= atoms(landed, system)
    assert len(written) == len(set(written))
    assert set(written) == atoms(landed, system)
