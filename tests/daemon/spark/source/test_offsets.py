"""Offsets as they stand in the checkpoint, and how a budget is shared."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastwire.position import Position
from fastwire.pulsar.position import PULSAR_EARLIEST
from fastwire_daemon.spark.source.batchplan import pieces, share
from fastwire_daemon.spark.source.offsets import Lag, OffsetError, Offsets, behind, read_offsets
from fastwire_daemon.spark.source.ranges import QueryPartition

numbers = st.integers(0, (1 << 63) - 1)
partitions = st.builds(
    QueryPartition, st.sampled_from(["persistent://p/d/a", "persistent://p/d/b"]), st.integers(-1, 12)
)
positions = st.dictionaries(partitions, st.just(PULSAR_EARLIEST) | st.builds(Position, numbers, numbers))
offsets = st.builds(Offsets, st.just("pulsar"), positions, st.none() | positions, positions)

GOLDEN = (
    '{"init": {"persistent://p/d/a": {"0": "-1:-1"}}, '
    '"p": {"persistent://p/d/a": {"0": "12:34", "2": "12:36", "10": "12:35"}}, "sys": "pulsar", "v": 1}'
)


def test_golden() -> None:
    a = "persistent://p/d/a"
    found = Offsets(
        "pulsar",
        {
            QueryPartition(a, 2): Position(12, 36),
            QueryPartition(a, 10): Position(12, 35),
            QueryPartition(a, 0): Position(12, 34),
        },
        {QueryPartition(a, 0): PULSAR_EARLIEST},
    )
    assert json.dumps(found.document()) == GOLDEN
    assert read_offsets(json.loads(GOLDEN), "pulsar") == found


def test_how_many_partitions_are_behind() -> None:
    def text(**positions: int) -> str:
        return json.dumps(
            Offsets("pulsar", {QueryPartition(t, -1): Position(1, b) for t, b in positions.items()}).document()
        )

    assert behind(text(a=1, b=2, c=3), text(a=1, b=5, c=3, d=0)) == Lag(2, None)
    assert behind(text(a=1), text(a=1)) == Lag(0, None)
    counted = (json.dumps(Offsets("kafka", {QueryPartition("a", 0): Position(end, -1)}).document()) for end in (7, 19))
    assert behind(*counted) == Lag(1, 12)
    same = (json.dumps(Offsets("kafka", {QueryPartition("a", 0): Position(7, epoch)}).document()) for epoch in (-1, 3))
    assert behind(*same) == Lag(0, 0)
    assert behind(text(a=1), None) is None
    assert behind(text(a=1), "null") is None
    assert behind("{'sys': 'pulsar'}", "None") is None
    assert behind('{"logOffset":0}', '{"logOffset":1}') is None


def test_golden_of_kafka() -> None:
    text = (
        '{"inc": {"a": "AAAA", "b": "BBBB"}, "new": {"b": {"0": "7"}}, '
        '"p": {"a": {"0": "12@3", "1": "5"}, "b": {"0": "9@0"}}, "sys": "kafka", "v": 1}'
    )
    found = Offsets(
        "kafka",
        {
            QueryPartition("b", 0): Position(9, 0),
            QueryPartition("a", 1): Position(5, -1),
            QueryPartition("a", 0): Position(12, 3),
        },
        new={QueryPartition("b", 0): Position(7, -1)},
        incarnations={"b": "BBBB", "a": "AAAA"},
    )
    assert json.dumps(found.document()) == text
    assert read_offsets(json.loads(text), "kafka") == found


@given(offsets)
def test_what_is_written_is_read(one: Offsets) -> None:
    assert read_offsets(json.loads(json.dumps(one.document())), "pulsar") == one


@given(positions, st.randoms())
def test_the_text_does_not_depend_on_the_order(one: dict[QueryPartition, Position], random: Any) -> None:
    items = list(one.items())
    random.shuffle(items)
    text = json.dumps(Offsets("pulsar", one).document())
    assert json.dumps(Offsets("pulsar", dict(items)).document()) == text


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"logOffset": 3}, "was written over another source"),
        ({"v": 2, "sys": "pulsar", "p": {}}, "has version 2, this fastwire knows 1"),
        ({"v": 1, "sys": "kafka", "p": {}}, "a checkpoint belongs to one query"),
        ({"v": 1, "sys": "pulsar"}, "cannot be understood"),
        ({"v": 1, "sys": "pulsar", "p": {"t": {"0": "x"}}}, "cannot be understood: 'x' is not a position"),
        ({"v": 1, "sys": "pulsar", "p": {"t": "x"}}, "cannot be understood"),
    ],
)
def test_what_is_not_ours(document: dict[str, Any], said: str) -> None:
    with pytest.raises(OffsetError, match=said):
        read_offsets(document, "pulsar")


def test_a_batch_knows_where_it_began() -> None:
    one, two, three = (QueryPartition("t", index) for index in range(3))
    end = {one: Position(9, 9), two: Position(9, 9), three: Position(9, 9)}
    moved = Offsets("pulsar", {one: Position(5, 5), two: Position(5, 5)})
    first = Offsets("pulsar", end, init={one: Position(1, 1), two: Position(2, 2), three: PULSAR_EARLIEST})
    assert first.begun(moved) == first.init
    later = Offsets("pulsar", end, new={three: PULSAR_EARLIEST})
    assert later.begun(moved) == {**moved.positions, three: PULSAR_EARLIEST}


backlogs = st.dictionaries(
    st.builds(QueryPartition, st.just("t"), st.integers(0, 99)), st.integers(1, 1 << 40), min_size=1
)


@given(st.integers(1, 1 << 30), backlogs)
def test_nobody_starves(budget: int, backlog: dict[QueryPartition, int]) -> None:
    shares = share(budget, backlog)
    assert shares.keys() == backlog.keys()
    assert min(shares.values()) >= 1
    assert sum(shares.values()) <= budget + len(backlog)
    order = sorted(backlog, key=lambda each: backlog[each])
    assert [shares[each] for each in order] == sorted(shares.values())


@given(backlogs, st.integers(1, 500), st.integers(1, 1 << 40))
def test_pieces_follow_the_rows(rows: dict[QueryPartition, int], least: int, most: int) -> None:
    assert set(pieces(rows, None, None).values()) == {1}
    assert all(rows[each] <= count * most for each, count in pieces(rows, None, most).items())
    split = pieces(rows, least, None)
    assert min(split.values()) >= 1
    assert sum(split.values()) >= min(least, len(rows)) - len(rows) / 2
