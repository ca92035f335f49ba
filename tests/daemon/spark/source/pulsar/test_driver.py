"""Requests of the driver to Pulsar's brokers: heads, positions, limits, and acknowledgements."""

import threading
from itertools import pairwise

import pytest

from fastwire.errors import FastwireError
from fastwire.position import Position
from fastwire.pulsar.position import PULSAR_EARLIEST
from fastwire_daemon.devbroker.pulsar import PulsarDevBroker, running
from fastwire_daemon.spark.source.options import parse_options
from fastwire_daemon.spark.source.pulsar.driver import PulsarBroker
from fastwire_daemon.spark.source.ranges import QueryPartition
from tests.support.source_pipe import entries
from tests.support.spark_source import TOPIC, T, asking, at, client, eventually, numbers, read, serving

SECOND_0 = 1_700_000_000_000  # when entry 0 was published; each next one is a second younger


def test_partitions_of_each_kind_of_topic() -> None:
    with serving() as broker:
        broker.create_topic("many", 3)
        many = "persistent://public/default/many"
        with asking(broker.url, subscribe="t,many,missing") as one:
            assert one.partitions() == [QueryPartition(many, 0), QueryPartition(many, 1), QueryPartition(many, 2), T]
            assert one.topics() == {TOPIC, many}
        with asking(broker.url, subscribe="many-partition-1") as one:
            assert one.partitions() == [QueryPartition(many, 1)]


def test_a_pattern_finds_what_is_there() -> None:
    with serving() as broker:
        broker.create_topic("many", 2)
        broker.create_topic("other")
        given = {"servers": broker.url, "subscribePattern": "m.*|t"}
        one = PulsarBroker(client(broker.url), parse_options(given, streaming=True))
        assert [str(each) for each in one.partitions()] == [
            "persistent://public/default/many partition 0",
            "persistent://public/default/many partition 1",
            TOPIC,
        ]
        one.close()


def test_heads() -> None:
    with serving(30) as broker:
        broker.create_topic("empty")
        empty, missing = (
            QueryPartition("persistent://public/default/empty", -1),
            QueryPartition("persistent://public/default/no", -1),
        )
        with asking(broker.url) as one:
            assert one.heads([T, empty, missing]) == {T: at(broker, 29), empty: PULSAR_EARLIEST}
            broker.append("t", entries(30, 1))
            eventually(lambda: one.heads([T, empty, missing])[T] == at(broker, 30))
            assert broker.accepted == 1


def test_heads_are_asked_for_now_and_then() -> None:
    with serving(30) as broker, asking(broker.url, offsetPollIntervalMs="1000000") as one:
        first = one.heads([T])
        broker.append("t", entries(30, 1))
        assert one.heads([T]) == first


def test_a_broker_that_restarts_is_waited_for() -> None:
    broker = PulsarDevBroker()
    with running(broker):
        broker.create_topic("t")
        broker.append("t", entries(0, 3))
        port = broker.port
        one = asking(f"pulsar://127.0.0.1:{port}")
        asked = one.__enter__()
        asked.heads([T])
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.append(asked.heads([T])))
    thread.start()
    with running(broker):
        thread.join(60)
        assert found == [{T: at(broker, 2)}]
        one.__exit__(None, None, None)


def test_a_topic_that_moves_is_followed() -> None:
    with serving(3) as broker, asking(broker.url, subscription="s") as one:
        one.heads([T])
        broker.unload("t")
        broker.append("t", entries(3, 1))
        eventually(lambda: one.heads([T]) == {T: at(broker, 3)})


# --- places


def test_places_of_times() -> None:
    with serving(50) as broker, asking(broker.url) as one:
        for number in (0, 7, 20, 49):
            found = one.at_time(T, SECOND_0 + number * 1000)
            assert found is not None
            first = at(broker, number)
            assert found == Position(first.a, first.b - 1)
        assert one.at_time(T, SECOND_0 + 6_001) == at(broker, 6)
        assert one.at_time(T, SECOND_0 + 49_001) is None
        assert one.at_time(T, 1 << 43) is None


@pytest.mark.parametrize(
    ("start", "rows", "end"),
    [
        (None, 50, 4),  # in the first ledger
        (None, 200, 19),  # just all of it
        (None, 250, 20),  # beyond it: the entry that comes then
        (10, 50, 15),
        (19, 50, 24),
        (41, 30, 44),  # in the ledger of the end
        (41, 1000, 49),
        (39, 1000, 49),
        (48, 1, 49),
    ],
)
def test_limits_end_at_entries_that_exist(start: int | None, rows: int, end: int) -> None:
    with serving(50) as broker, asking(broker.url) as one:
        begin = PULSAR_EARLIEST if start is None else at(broker, start)
        head = one.heads([T])[T]
        one._entry_rows = 10.0
        assert one.limited(T, begin, head, rows) == at(broker, end)


def test_limits_cross_everything_in_steps() -> None:
    with serving(95) as broker, asking(broker.url) as one:
        head, position, steps = one.heads([T])[T], PULSAR_EARLIEST, []
        while position != head:
            position = one.limited(T, position, head, 130)
            steps.append(position)
        assert len(steps) >= 8
        assert steps == sorted(set(steps))
        assert set(steps) <= {at(broker, index) for index in range(95)}


def test_rows_are_estimated_by_what_was_seen() -> None:
    with serving(50) as broker, asking(broker.url) as one:
        for _ in range(40):
            one.heads([T])
        assert one.rows(T, at(broker, 40), at(broker, 49)) == pytest.approx(90, abs=1)
        assert one.rows(T, at(broker, 49), at(broker, 49)) == 0
        assert one.rows(T, PULSAR_EARLIEST, at(broker, 49)) > 1000  # ledgers in between cannot be counted
        before = one.bytes_per_row()
        assert 0 < before < 100


@pytest.mark.parametrize(("start", "end"), [(None, 19), (3, 18), (19, 39), (45, 49), (None, 49)])
@pytest.mark.parametrize("pieces", [1, 2, 3, 7, 100])
def test_pieces_tile_a_range(start: int | None, end: int, pieces: int) -> None:
    with serving(50) as broker, asking(broker.url) as one:
        begin = PULSAR_EARLIEST if start is None else at(broker, start)
        ranges = one.ranges(T, begin, at(broker, end), pieces)
        assert 1 <= len(ranges) <= pieces
        assert (ranges[0].start, ranges[-1].end) == (begin, at(broker, end))
        assert all(one.end == two.start and one.start < one.end for one, two in pairwise(ranges))
        if (start, end) in ((3, 18), (None, 19), (19, 39)):
            assert len(ranges) == min(pieces, 20 if start != 3 else 15)
        reading = client(broker.url)
        found = [number for each in ranges for number in numbers(read(reading, each))]
        assert found == list(range(0 if start is None else start + 1, end + 1))
        reading.close()


# --- acknowledging


def test_the_cursor_follows_commits() -> None:
    with serving(50) as broker, asking(broker.url, subscription="spark") as one:
        one.heads([T])
        assert broker.backlog("t", "spark") == 500
        one.commit({T: at(broker, 29)})
        assert broker.backlog("t", "spark") == 200
        one.commit({T: at(broker, 19)})  # never back
        one.commit({T: PULSAR_EARLIEST})
        assert broker.backlog("t", "spark") == 200
        broker.unload("t")
        one.commit({T: at(broker, 49)})
        assert broker.backlog("t", "spark") == 0
    assert broker.subscriptions("t") == ["spark"]


def test_without_a_subscription_nothing_is_acknowledged() -> None:
    with serving(50) as broker, asking(broker.url) as one:
        one.heads([T])
        one.commit({T: at(broker, 29)})
        [name] = broker.subscriptions("t")
        assert broker.backlog("t", name) == 0  # a reader at the end


def test_commit_can_be_off() -> None:
    with serving(50) as broker, asking(broker.url, subscription="spark", commitOffsets="false") as one:
        one.heads([T])
        one.commit({T: at(broker, 29)})
        assert broker.backlog("t", "spark") == 500


def test_what_the_subscription_has_held_is_not_looked_for() -> None:
    with serving(50) as broker, asking(broker.url, subscription="spark") as one:
        start, end = at(broker, 19), at(broker, 49)

        def looks() -> bool:
            one.heads([T])
            return one.ranges(T, start, end, 1)[0].start_exists

        one.heads([T])
        one.commit({T: start})
        eventually(lambda: not looks())
        # Somebody has let go of what we have not read: then it matters what comes.
        broker.trim("t", *at(broker, 30))
        eventually(looks)


def test_a_subscription_that_somebody_has_is_waited_for_and_said() -> None:
    with serving(5) as broker, asking(broker.url, subscription="spark") as one:
        one.heads([T])
        with asking(broker.url, subscription="spark", pollTimeoutMs="50") as other:
            with pytest.raises(FastwireError, match="asking where topics end: ConsumerBusy"):
                other.heads([T])
