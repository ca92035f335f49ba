"""Ranges of numbered records in each system that has them, read ahead on a thread, and what the driver asks."""

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import pairwise

import pytest

from fastwire.errors import FastwireError
from fastwire.position import Position
from fastwire_daemon.devbroker.kafka import KafkaDevBroker
from fastwire_daemon.devbroker.server import running
from fastwire_daemon.spark.source.ranges import QueryPartition
from tests.support.ranges import ALL, Ranges, T
from tests.support.spark_scene import ROWS, KafkaScene, Scene, TankScene, numbers, numbers_of
from tests.support.tcp_proxy import Proxy

MORE = 8000  # entries: more than is read ahead of a task that takes nothing
KINDS: dict[str, tuple[type[Scene], str]] = {"kafka": (KafkaScene, "50000"), "tank": (TankScene, "5000")}


@pytest.fixture(params=sorted(KINDS))
def ranges(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Ranges:
    """The ranges of each system. A topic that a broker does not know is missing after a moment."""
    monkeypatch.setattr(f"fastwire_daemon.systems.{request.param}.cluster.MISSING_S", 0.05)
    monkeypatch.setattr("fastwire_daemon.spark.source.offsetrangereader.SHORT_S", 0.05)
    return Ranges(*KINDS[request.param])


@pytest.mark.parametrize(("start", "end"), [(0, 500), (0, 1), (7, 8), (5, 15), (10, 20), (123, 456), (499, 500)])
def test_a_range_is_all_between_its_ends(ranges: Ranges, start: int, end: int) -> None:
    with ranges.serving(50) as scene, closing(ranges.client(scene.url, fetchMaxBytes="1000")) as one:
        for _ in range(2):  # and again over the same connection
            assert ranges.values(one, ranges.part(start, end)) == ALL[start:end]
        assert scene.broker.accepted == 2


@pytest.mark.parametrize("pieces", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize(("start", "end"), [(0, 500), (33, 77)])
def test_pieces_tile_a_range(ranges: Ranges, start: int, end: int, pieces: int) -> None:
    with ranges.serving(50) as scene, ranges.asking(scene.url) as one:
        one.heads([T])
        first, last = ranges.place(start), ranges.place(end)
        found = one.ranges(T, first, last, pieces)
        assert len(found) == min(pieces, end - start)
        assert (found[0].start, found[-1].end) == (first, last)
        assert all(one.end == two.start and one.start < one.end for one, two in pairwise(found))
        assert {each.incarnation for each in found} == {one.incarnation("t")}
        if pieces < 100:
            with closing(ranges.client(scene.url)) as other:
                assert [value for each in found for value in ranges.values(other, each)] == ALL[start:end]


# --- what happens to connections


def test_a_connection_lost_while_nobody_takes_rows_is_made_anew(ranges: Ranges) -> None:
    with ranges.serving(MORE) as scene, closing(ranges.client(scene.url, fetchMaxBytes=ranges.few)) as one:
        stream = ranges.reading(one, ranges.part(0, MORE * ROWS))
        found = [next(stream)]
        scene.broker.drop_connections()
        assert numbers([*found, *stream]) == list(range(MORE))
        assert scene.broker.accepted == 4


def test_a_leader_that_moves_is_followed(ranges: Ranges) -> None:
    with ranges.serving(3000, nodes=3) as scene, closing(ranges.client(scene.url, fetchMaxBytes=ranges.few)) as one:
        stream = ranges.reading(one, ranges.part(0, 30_000))
        found = [next(stream)]
        scene.broker.move_leader("t")
        found.append(next(stream))
        scene.broker.move_leader("t")
        assert numbers([*found, *stream]) == list(range(3000))


def test_a_broker_that_restarts_is_waited_for(ranges: Ranges) -> None:
    with ranges.serving(10) as scene:
        broker, url = scene.broker, scene.url
    with ThreadPoolExecutor(2) as threads, closing(ranges.client(url)) as one, ranges.asking(url) as driver:
        read = threads.submit(ranges.values, one, ranges.part(0, 100))
        asked = threads.submit(driver.heads, [T])
        with running(broker, port=broker.port):
            assert read.result(20) == ALL[:100]
            assert asked.result(20)[T].a == ranges.place(100).a


def test_a_silent_broker_is_left_when_patience_ends(ranges: Ranges, monkeypatch: pytest.MonkeyPatch) -> None:
    with ranges.serving(5) as scene, closing(ranges.client(scene.url, request_timeout_s=0.1)) as one:
        monkeypatch.setattr(f"fastwire.{scene.system}.protocol.connection.CONNECT_TIMEOUT_S", 0.1)
        ranges.values(one, ranges.part(0, 50))
        scene.broker.muted = True
        with pytest.raises(FastwireError, match=r"nothing came for 0\.3 s"):
            ranges.values(one, ranges.part(0, 50), patience_s=0.3)


def test_a_task_that_ends_early_cancels_its_reading(ranges: Ranges) -> None:
    with ranges.serving(3000) as scene, closing(ranges.client(scene.url, fetchMaxBytes=ranges.few)) as one:
        stream = ranges.reading(one, ranges.part(0, 30_000))
        next(stream)
        stream.close()
        assert not [thread for thread in threading.enumerate() if thread.name == "fastwire-read"]
        assert ranges.values(one, ranges.part(0, 500)) == ALL  # nothing of it is left on the connections


# --- no row twice


def test_what_was_asked_for_another_range_is_no_part_of_this_one(ranges: Ranges) -> None:
    """A range ends while answers to what was asked for it are still to come, and the next one is read at once."""
    with ranges.serving(3000) as scene, closing(ranges.client(scene.url, fetchMaxBytes=ranges.few)) as one:
        for start, end in pairwise([*range(0, 30_000, 1111), 30_000]):
            assert ranges.numbers(one, ranges.part(start, end)) == list(range(start, end))
        # And one that begins before the place where the last one has ended.
        for _ in range(2):
            assert ranges.numbers(one, ranges.part(5, 25)) == list(range(5, 25))
        assert scene.broker.accepted == 2


def test_a_part_of_an_answer_counts_once(ranges: Ranges) -> None:
    """Connections end within an answer, behind more and more whole ones."""
    with ranges.serving(3000) as scene, Proxy(scene.broker.port, scheme=scene.system) as proxy:
        if isinstance(scene.broker, KafkaDevBroker):
            scene.broker.advertise(0, "127.0.0.1", proxy.port)
        with closing(ranges.client(proxy.url, fetchMaxBytes=ranges.few)) as one:
            for number, (start, end) in enumerate(pairwise(range(3, 29_997, 4997))):
                proxy.cut_in_frame(number)
                assert ranges.numbers(one, ranges.part(start, end)) == list(range(start, end))
        assert proxy.cuts >= 3


@pytest.mark.parametrize("seed", range(4))
def test_each_record_once_through_whatever_happens(ranges: Ranges, seed: int) -> None:
    """Leaders move to and fro, connections go, retention takes what was read, on connections that are used again."""
    dice = random.Random(seed)
    with ranges.serving(3000, nodes=2) as scene, closing(ranges.client(scene.url, fetchMaxBytes=ranges.few)) as one:
        cuts = sorted(dice.sample(range(1, 30_000), 4))
        for start, end in pairwise([0, *cuts, 30_000]):
            with ranges.asking(scene.url) as driver:
                driver.heads([T])  # as whoever plans a range does
            found: list[int] = []
            for each in ranges.reading(one, ranges.part(start, end)):
                found += ranges.numbers_in(each)
                match dice.randrange(6):
                    case 0:
                        scene.broker.move_leader("t")
                    case 1:
                        scene.broker.drop_connections()
                    case 2:
                        scene.broker.trim("t", ranges.place(found[-1]).a)
            assert found == list(range(start, end))


# --- what is lost


def test_what_retention_took(ranges: Ranges) -> None:
    with ranges.serving(50) as scene:
        scene.trim(20)
        begin, start = ranges.place(200).a, ranges.place(100).a
        why = f"nothing from {start} up to {begin} can be read: the log begins here: what lay before was deleted"
        assert ranges.lossy(scene.url, ranges.part(100, 300), why) == ALL[200:300]
        assert ranges.lossy(scene.url, ranges.part(100, 150), why) == []
        with closing(ranges.client(scene.url)) as one:
            assert ranges.values(one, ranges.part(200, 300)) == ALL[200:300]


def test_what_retention_takes_while_it_is_read(ranges: Ranges) -> None:
    """Records before it are not given up with it."""
    with ranges.serving(MORE) as scene, closing(ranges.client(scene.url, fetchMaxBytes=ranges.few)) as one:
        stream = ranges.reading(one, ranges.part(0, MORE * ROWS), fail=False)
        found = [next(stream)]
        scene.trim(MORE - 10)
        left = numbers_of(value for each in [*found, *stream] for value in each.column("value").to_pylist())
        assert left == [*range(len(left) - 10), *range(MORE - 10, MORE)]
        assert len(left) < MORE


def test_a_log_that_ends_before_the_range(ranges: Ranges) -> None:
    with ranges.serving(10) as scene:
        why = f"the log ends at {ranges.place(100).a}, before the range does"
        assert ranges.lossy(scene.url, ranges.part(20, 200), why) == ALL[20:100]
        assert ranges.lossy(scene.url, ranges.part(120, 200), why) == []


def test_a_topic_that_is_gone(ranges: Ranges) -> None:
    with ranges.serving(10) as scene:
        scene.delete("t")
        assert ranges.lossy(scene.url, ranges.part(0, 100), "the broker does not know the topic") == []


# --- what the driver asks


def test_topics_by_name_and_by_pattern(ranges: Ranges) -> None:
    with ranges.serving() as scene:
        scene.create("many", 3)
        scene.create("other")
        many = [QueryPartition("many", index) for index in range(3)]
        with ranges.asking(scene.url, subscribe="t,many,missing") as one:
            assert one.partitions() == [*many, T]
            assert one.topics() == {"t", "many"}
        with ranges.asking(scene.url, subscribePattern="m.*|t") as one:
            assert one.partitions() == [*many, T]


def test_beginnings_sizes_and_limits(ranges: Ranges) -> None:
    with ranges.serving(30, nodes=2) as scene:
        scene.create("many", 2)
        scene.append(0, 1, "many", 1)
        scene.trim(20)
        one, two = QueryPartition("many", 0), QueryPartition("many", 1)
        known = {T: ranges.place(200), one: ranges.place(0), two: ranges.place(0)}
        wanted = [*known, QueryPartition("no", 0), QueryPartition("t", 5)]
        with ranges.asking(scene.url) as asked:
            heads = asked.heads(wanted)
            ends = {T: 300, one: 0, two: 10}
            assert {each: head.a for each, head in heads.items()} == {at: ranges.place(n).a for at, n in ends.items()}
            for _ in range(2):
                assert asked.beginnings(wanted) == known
            start, end = ranges.place(25), Position(ranges.place(300).a, 7)
            assert asked.rows(T, start, end) == 275
            assert asked.limited(T, start, end, 100) == Position(ranges.place(125).a, 7)
            assert asked.limited(T, start, end, 1000) == end
        with ranges.asking(scene.url) as asked:
            assert asked.beginnings(wanted) == known


def test_the_size_of_records_is_looked_at_once(ranges: Ranges) -> None:
    with ranges.serving(50) as scene, ranges.asking(scene.url) as one:
        one.heads([T])
        values = sum(map(len, ALL[-100:])) / 100
        assert values <= one.bytes_per_row() < 100  # from 100 on it comes nearer
        asked = scene.broker.requests.total()
        one.bytes_per_row()
        assert scene.broker.requests.total() == asked
