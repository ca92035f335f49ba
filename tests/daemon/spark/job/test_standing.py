"""A batch beside its table: what has landed of it, by positions."""

from collections.abc import Sequence

import pytest

from fastwire.coverage import Coverage
from fastwire.position import Log, Position, Span
from fastwire_daemon.spark.job.planned import Planned, joined, landed_ranges
from fastwire_daemon.spark.job.standing import extended, standing_of
from fastwire_daemon.spark.source.landed import _end
from fastwire_daemon.spark.source.offsets import Offsets
from fastwire_daemon.spark.source.ranges import QueryPartition

LINE = Span(Log("spark", "orders", "query", "-1"), Position(0, 0), Position(2, 0), 7)


def log(partition: int = 0, incarnation: str = "0") -> Log:
    return Log("kafka", "", "t", str(partition), incarnation)


def span(start: int, end: int, partition: int = 0, incarnation: str = "0") -> Span:
    return Span(log(partition, incarnation), Position(start, -1), Position(end, -1), 0)


def covered(*spans: Span) -> Coverage:
    coverage = Coverage()
    for each in (LINE, *spans):
        coverage.add(each)
    return coverage


TABLE = covered(span(10, 20), span(5, 9, partition=1))


@pytest.mark.parametrize(
    ("spans", "begun", "what"),
    [
        ([span(10, 20), span(5, 9, 1)], [], "all"),
        ([span(12, 20), span(9, 9, 1)], [], "all"),
        ([span(20, 30), span(9, 9, 1)], [], "none"),
        ([span(20, 30), span(0, 4, 2)], [log(2)], "none"),
        ([span(20, 30, 0, "again")], [log(0, "again")], "none"),
        ([span(0, 30, 0, "again")], [log(0, "again")], "none"),
        ([span(20, 30, 0, "id")], [], "none"),  # the cluster has learnt to give topics ids
        ([span(20, 20)], [], "unknown"),
        ([span(2, 10)], [], "unknown"),  # from before the table remembered positions
    ],
)
def test_what_a_table_has_of_a_batch(spans: Sequence[Span], begun: Sequence[Log], what: str) -> None:
    assert standing_of(TABLE, Planned(tuple(spans), begun)) == (what, "", frozenset())


@pytest.mark.parametrize(
    ("spans", "begun", "why"),
    [
        ([span(10, 30)], [], "it reads t partition 0 from 10 to 30, and the table has it up to 20"),
        ([span(20, 30), span(5, 9, 1)], [], "it reads t partition 1 from 5 to 9, and the table has it up to 9"),
        ([span(21, 30)], [], "it reads t partition 0 from 21 to 30, and the table has it up to 20"),
        ([span(8, 30)], [log()], "it reads t partition 0 from 8 to 30, and the table has it up to 20"),
        ([span(20, 30), span(4, 9, 2)], [], "it reads t partition 2 from 4 to 9, and the table has nothing of it"),
        ([span(0, 30, 0, "id")], [], "it reads t partition 0 from 0 to 30, and the table has it up to 20"),
    ],
)
def test_a_batch_that_does_not_fit(spans: Sequence[Span], begun: Sequence[Log], why: str) -> None:
    what, text, _ = standing_of(TABLE, Planned(tuple(spans), begun))
    assert (what, text.replace(" (incarnation id)", "")) == ("some", why)


def test_a_table_that_remembers_no_positions() -> None:
    assert standing_of(covered(), Planned((span(0, 5),))).what == "unknown"


def file(number: int, index: int = 0, of: str = "one") -> Span:
    return Span(Log("dataset", "", of, "-1"), Position(number, index), Position(number, index + 1), 0)


def test_files_that_have_landed_are_named() -> None:
    table = covered(file(1), file(2), file(2, 1))
    files = {"1": file(1), "2-1": file(2, 1), "3": file(3), "9": file(9)}

    def planned(*names: str) -> Planned:
        return Planned(tuple(joined([files[name] for name in names])), (), {name: files[name] for name in names})

    assert standing_of(table, planned("1", "2-1")).what == "all"
    assert standing_of(table, planned("3", "9")) == ("none", "", frozenset())
    assert standing_of(table, planned("2-1", "3", "9")) == ("some", "", frozenset({"2-1"}))
    assert planned("2-1", "3").news(table, {"2-1"}) == [files["3"]]
    other = Planned((file(3, of="two"),), (), {"3": file(3, of="two")})
    assert standing_of(table, other).why == "it reads the dataset two, and the table was made of the dataset one"


def test_positions_of_dead_letters_join() -> None:
    """Batches without dead letters are not in their table: the next ones reach back to the one before."""
    planned = Planned((span(20, 30), span(9, 12, 1), span(0, 3, 2)))
    bad = covered(span(10, 14))
    assert extended(bad, planned, TABLE) == [span(14, 30), span(5, 12, 1), span(0, 3, 2)]
    assert extended(covered(span(10, 30)), Planned((span(30, 30), span(9, 12, 1))), TABLE) == [span(5, 12, 1)]


def test_a_table_gets_no_spans_without_an_extent_but_those_that_make_a_log_known() -> None:
    planned = Planned((span(20, 30), span(9, 9, 1), span(4, 4, 2)))
    assert planned.news(TABLE) == [span(20, 30), span(4, 4, 2)]


def p(index: int) -> QueryPartition:
    return QueryPartition("t", index)


def offsets(ends: Sequence[int], init: Sequence[int] | None = None, incarnation: str = "") -> Offsets:
    return Offsets(
        "kafka",
        {p(index): Position(end, -1) for index, end in enumerate(ends)},
        init=None if init is None else {p(index): Position(end, -1) for index, end in enumerate(init)},
        incarnations={"t": incarnation} if incarnation else {},
    )


def test_the_end_of_a_table_is_an_end_of_a_batch() -> None:
    landed = landed_ranges(TABLE, None)
    assert landed == offsets([20, 9], [10, 5])
    assert landed is not None
    assert _end(offsets([20, 9]), landed, first=False) is None
    assert _end(offsets([25, 9]), landed, first=False) is None
    older = _end(offsets([12]), landed, first=False)
    assert older is not None
    assert (older.positions, older.new) == (landed.positions, {p(1): Position(5, -1)})
    # Batch 0 is lost: it begins where the table begins.
    first = _end(offsets([10, 5]), landed, first=True)
    assert first is not None
    assert first.document() == landed.document()


def test_the_incarnation_of_the_checkpoint_counts() -> None:
    table = covered(span(10, 20), span(0, 5, 0, "again"))
    assert landed_ranges(table, offsets([4], incarnation="again")) == offsets([5], [0], "again")
    assert landed_ranges(table, offsets([4], incarnation="third")) is None
    (again,) = [landed_ranges(table, offsets([4], incarnation="again"))]
    assert again is not None
    assert _end(offsets([20]), again, first=False) == Offsets(
        "kafka", {p(0): Position(5, -1)}, new={p(0): Position(0, -1)}, incarnations={"t": "again"}
    )
