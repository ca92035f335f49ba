"""Ranges of Kafka's offsets, read ahead on a thread, and what the driver asks; losses are said, holes are none."""

import random
import threading
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest

from fastwire.errors import FastwireError
from fastwire.kafka.connection import Key
from fastwire.kafka.error import Code
from fastwire.kafka.message import decode_response, encode_response
from fastwire.kafka.payload import Compression, Record, encode_batch, encode_marker
from fastwire.position import Position
from fastwire_daemon.devbroker.kafka import KafkaDevBroker, Request
from fastwire_daemon.devbroker.server import running
from fastwire_daemon.spark.source.connections import Connections
from fastwire_daemon.spark.source.kafka.cluster import RangeCluster, fetch_limits, settings_of
from fastwire_daemon.spark.source.kafka.driver import KafkaBroker
from fastwire_daemon.spark.source.kafka.reading import KafkaRangeReader
from fastwire_daemon.spark.source.options import Options, parse_options
from fastwire_daemon.spark.source.prefetch import prefetched
from fastwire_daemon.spark.source.ranges import DataLossError, Partition, Range
from fastwire_daemon.spark.source.reading import ReadingRules
from tests.support.kafka.source_pipe import batch, batches
from tests.support.spark_scene import ROWS, KafkaScene, numbers, numbers_of, serve
from tests.support.tcp_proxy import Proxy

T = Partition("t", 0)
FEW = "50000"  # bytes at a time: many answers a range
ALL = [b"%d:%d" % (number, row) for number in range(50) for row in range(ROWS)]


@pytest.fixture(autouse=True)
def _soon_certain(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic that a broker does not know is missing after a moment, and so is what a log does not have."""
    monkeypatch.setattr("fastwire_daemon.spark.source.kafka.cluster.MISSING_S", 0.05)
    monkeypatch.setattr("fastwire_daemon.spark.source.kafka.reading.SHORT_S", 0.05)


@contextmanager
def serving(count: int = 0, **settings: Any) -> Iterator[KafkaDevBroker]:
    scene = KafkaScene(**settings)
    with serve(scene, count):
        yield scene.broker


def options(url: str, **given: str) -> Options:
    basic = {"servers": url, "subscribe": "t", "pollTimeoutMs": "20000", "offsetPollIntervalMs": "0"}
    return parse_options(basic | given, streaming=True)


def client(url: str, *, request_timeout_s: float = 30.0, **given: Any) -> Connections[RangeCluster]:
    wanted = options(url, **given)
    settings = replace(settings_of(wanted), request_timeout_s=request_timeout_s)
    return Connections(lambda: RangeCluster(settings, fetch_limits(wanted)))


@contextmanager
def asking(url: str, **given: Any) -> Iterator[KafkaBroker]:
    with closing(KafkaBroker(client(url, **given), options(url, **given))) as one:
        yield one


def part(start: int, end: int, epoch: int = -1, incarnation: str = "") -> Range:
    return Range(
        system="kafka", partition=T, start=Position(start, -1), end=Position(end, epoch), incarnation=incarnation
    )


def reading(
    one: Connections[RangeCluster], wanted: Range, *, patience_s: float = 20.0, fail: bool = True
) -> Generator[pa.RecordBatch, None, None]:
    """The batches of a range as a task takes them; the brokers are read ahead by as little as can be."""
    rules = ReadingRules(window=0, patience_s=patience_s, fail_on_data_loss=fail, name="test")
    return prefetched(one, KafkaRangeReader(one.cluster, wanted, rules).read, 1)


def values(one: Connections[RangeCluster], wanted: Range, **rules: Any) -> list[bytes]:
    found = []
    for each in reading(one, wanted, **rules):
        each.validate(full=True)
        found += each.column("value").to_pylist()
    return found


def offsets(one: Connections[RangeCluster], wanted: Range) -> list[int]:
    return [offset for each in reading(one, wanted) for offset in each.column("offset").to_pylist()]


@pytest.mark.parametrize(("start", "end"), [(0, 500), (0, 1), (7, 8), (5, 15), (10, 20), (123, 456), (499, 500)])
def test_a_range_is_all_between_its_offsets(start: int, end: int) -> None:
    with serving(50) as broker, closing(client(broker.url, fetchMaxBytes="1000")) as one:
        for _ in range(2):  # and again over the same connection
            assert values(one, part(start, end, epoch=0)) == ALL[start:end]
        assert broker.accepted == 1


@pytest.mark.parametrize("pieces", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize(("start", "end"), [(0, 500), (33, 77)])
def test_pieces_tile_a_range(start: int, end: int, pieces: int) -> None:
    with serving(50) as broker, asking(broker.url) as one:
        one.heads([T])
        ranges = one.ranges(T, Position(start, 0), Position(end, 0), pieces)
        assert len(ranges) == min(pieces, end - start)
        assert (ranges[0].start, ranges[-1].end) == (Position(start, 0), Position(end, 0))
        assert all(one.end == two.start and one.start < one.end for one, two in pairwise(ranges))
        assert {each.incarnation for each in ranges} == {one.incarnation("t")} != {""}
        if pieces < 100:
            with closing(client(broker.url)) as other:
                assert [value for each in ranges for value in values(other, each)] == ALL[start:end]


def test_what_transactions_leave_are_holes_and_no_losses() -> None:
    with serving() as broker:
        for producer, value in ((1, b"kept"), (2, b"gone")):
            stored = encode_batch([Record(value=value)], producer_id=producer, producer_epoch=0, transactional=True)
            broker.append("t", [stored])
        for producer in (1, 2):
            broker.append(
                "t", [encode_marker(commit=producer == 1, producer_id=producer, producer_epoch=0, timestamp=0)]
            )
        with asking(broker.url) as one:
            assert one.heads([T]) == {T: Position(4, 0)}
        for isolation, wanted in (("read_committed", [b"kept"]), ("read_uncommitted", [b"kept", b"gone"])):
            with closing(client(broker.url, isolationLevel=isolation)) as other:
                assert values(other, part(0, 4)) == wanted
                assert values(other, part(2, 4)) == []


def test_the_head_is_where_every_transaction_is_over() -> None:
    with serving(1) as broker:
        broker.append("t", [encode_batch([Record(value=b"x")], producer_id=1, producer_epoch=0, transactional=True)])
        for isolation, wanted in (("read_committed", 10), ("read_uncommitted", 11)):
            with asking(broker.url, isolationLevel=isolation) as one:
                assert one.heads([T])[T].a == wanted


# --- what happens to connections


def test_a_connection_lost_while_nobody_takes_rows_is_made_anew() -> None:
    with serving(3000) as broker, closing(client(broker.url, fetchMaxBytes=FEW)) as one:
        stream = reading(one, part(0, 30_000))
        found = [next(stream)]
        broker.drop_connections()
        assert numbers([*found, *stream]) == list(range(3000))
        assert broker.accepted == 2


def test_a_leader_that_moves_is_followed() -> None:
    with serving(3000, nodes=3) as broker, closing(client(broker.url, fetchMaxBytes=FEW)) as one:
        stream = reading(one, part(0, 30_000, epoch=0))
        found = [next(stream)]
        broker.move_leader("t")
        found.append(next(stream))
        broker.move_leader("t")
        assert numbers([*found, *stream]) == list(range(3000))


def test_a_broker_that_restarts_is_waited_for() -> None:
    broker = KafkaDevBroker()
    with running(broker):
        broker.create_topic("t")
        broker.append("t", batches(0, 10))
        port = broker.port
    asked: list[Any] = []

    def ask() -> None:
        with closing(client(f"kafka://127.0.0.1:{port}")) as one, asking(f"kafka://127.0.0.1:{port}") as driver:
            asked.extend((values(one, part(0, 100)), driver.heads([T])))

    thread = threading.Thread(target=ask)
    thread.start()
    with running(broker, port=port):
        thread.join(20)
        assert asked == [ALL[:100], {T: Position(100, 0)}]


def test_a_silent_broker_is_left_when_patience_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastwire.kafka.connection.CONNECT_TIMEOUT_S", 0.1)
    with serving(5) as broker, closing(client(broker.url, request_timeout_s=0.1)) as one:
        values(one, part(0, 50))
        broker.muted = True
        with pytest.raises(FastwireError, match=r"nothing came for 0\.3 s"):
            values(one, part(0, 50), patience_s=0.3)


def test_a_task_that_ends_early_cancels_its_reading() -> None:
    with serving(3000) as broker, closing(client(broker.url, fetchMaxBytes=FEW)) as one:
        stream = reading(one, part(0, 30_000))
        next(stream)
        stream.close()
        assert not [thread for thread in threading.enumerate() if thread.name == "fastwire-read"]
        assert values(one, part(0, 500)) == ALL  # nothing of it is left on the connections


# --- the nearest replica

RACKS = ("a", "b", "c")


def test_a_range_is_read_from_the_replica_in_our_rack() -> None:
    with serving(50, nodes=3, racks=RACKS) as broker:
        with closing(client(broker.url, fetchMaxBytes="1000", clientRack="c")) as one:
            for _ in range(2):
                assert values(one, part(0, 500, epoch=0)) == ALL
        assert set(broker.read_at) == {2}
        with closing(client(broker.url)) as one:
            assert values(one, part(0, 500, epoch=0)) == ALL
        assert set(broker.read_at) == {0, 2}


def test_the_head_is_looked_into_at_the_leader() -> None:
    with serving(50, nodes=3, racks=RACKS) as broker:
        with asking(broker.url, clientRack="c") as one:
            one.heads([T])
            assert one.bytes_per_row() > 0
        assert set(broker.read_at) == {0}


@pytest.mark.parametrize("fault", ["refuses", "cannot be reached", "lags behind"])
def test_a_replica_that_is_of_no_use_is_left_for_the_leader(fault: str) -> None:
    with serving(50, nodes=3, racks=RACKS) as broker:
        if fault == "refuses":
            broker.refuse_at_replicas(Code.OFFSET_OUT_OF_RANGE)
        elif fault == "cannot be reached":
            broker.advertise(2, "127.0.0.1", 1)
        else:
            emptied(broker, 1000, 0, rack="c")
        with closing(client(broker.url, fetchMaxBytes="1000", clientRack="c")) as one:
            assert values(one, part(0, 500)) == ALL
        assert broker.read_at[0] > 0


# --- answers without records


def emptied(broker: KafkaDevBroker, times: int, high_watermark: int | None = None, *, rack: str | None = None) -> None:
    """Take the records out of so many answers to a Fetch, and let them name this high watermark.

    ``rack``: only those to a reader that says it is there.
    """
    left = [times]

    def tamper(request: Request, frame: bytes) -> bytes:
        if request.api.key != Key.FETCH or not left[0] or rack not in (None, request.body["rack_id"]):
            return frame
        left[0] -= 1
        body = decode_response(Key.FETCH, request.version, frame[4:])
        for topic in body["responses"]:
            for one in topic["partitions"]:
                one["records"] = b""
                if high_watermark is not None:
                    one["high_watermark"] = one["last_stable_offset"] = high_watermark
        return encode_response(Key.FETCH, request.version, request.correlation_id, body)

    broker.tamper = tamper


@pytest.mark.parametrize("fail", [True, False])
def test_a_throttled_reader_gets_all_rows(fail: bool) -> None:
    with serving(50) as broker, closing(client(broker.url, fetchMaxBytes="1000")) as one:
        one.run(one.cluster.refresh(["t"]))
        broker.throttle(60, 10)
        assert values(one, part(0, 500, epoch=0), fail=fail) == ALL
        assert broker.take_throttle() == 0


def test_throttling_is_no_silence() -> None:
    """The reader has less patience than the throttle lasts."""
    with serving(5) as broker, closing(client(broker.url)) as one:
        one.run(one.cluster.refresh(["t"]))
        broker.throttle(800, 3)
        assert values(one, part(0, 50), patience_s=0.5) == ALL[:50]


def test_empty_answers_are_no_end() -> None:
    """As a broker gives them that is still fetching from tiered storage."""
    with serving(50) as broker, closing(client(broker.url)) as one:
        emptied(broker, 1000)
        with pytest.raises(FastwireError, match=r"answers without records from offset 20 on \(high watermark 500\)"):
            values(one, part(20, 500), patience_s=0.5)
        emptied(broker, 5)
        assert values(one, part(20, 500)) == ALL[20:500]


def test_a_high_watermark_that_lags_is_no_end_of_the_log() -> None:
    """A new leader holds all records before its followers have told it so."""
    with serving(50) as broker, closing(client(broker.url)) as one:
        emptied(broker, 1000, high_watermark=20)
        with pytest.raises(FastwireError, match=r"answers without records from offset 20 on \(high watermark 20\)"):
            values(one, part(20, 500, epoch=0), patience_s=0.5)
        emptied(broker, 5, high_watermark=20)
        assert values(one, part(20, 500, epoch=0)) == ALL[20:500]


# --- no row twice


@pytest.mark.parametrize("codec", list(Compression), ids=lambda codec: codec.name)
def test_a_range_begins_and_ends_within_batches(codec: Compression) -> None:
    with serving() as broker, closing(client(broker.url, fetchMaxBytes="1000")) as one:
        broker.append("t", [batch(number, ROWS, compression=codec) for number in range(50)])
        for start, end in ((0, 7), (7, 33), (33, 34), (34, 499), (499, 500)):
            assert values(one, part(start, end)) == ALL[start:end]


def test_what_was_asked_for_another_range_is_no_part_of_this_one() -> None:
    """A range ends while answers to what was asked for it are still to come, and the next one is read at once."""
    with serving(3000) as broker, closing(client(broker.url, fetchMaxBytes=FEW)) as one:
        for start, end in pairwise([*range(0, 30_000, 1111), 30_000]):
            assert offsets(one, part(start, end)) == list(range(start, end))
        # And one that begins before the place where the last one has ended.
        assert offsets(one, part(5, 25)) == offsets(one, part(5, 25)) == list(range(5, 25))
        assert broker.accepted == 1


def test_a_part_of_an_answer_counts_once() -> None:
    """Connections end within an answer, behind more and more whole ones."""
    with serving(3000) as broker, Proxy(broker.port, scheme="kafka") as proxy:
        broker.advertise(0, "127.0.0.1", proxy.port)
        with closing(client(proxy.url, fetchMaxBytes=FEW)) as one:
            for number, (start, end) in enumerate(pairwise(range(3, 29_997, 4997))):
                proxy.cut_in_frame(number)
                assert offsets(one, part(start, end)) == list(range(start, end))
        assert proxy.cuts >= 3


@pytest.mark.parametrize("seed", range(4))
def test_each_offset_once_through_whatever_happens(seed: int) -> None:
    """Leaders move to and fro, connections go, retention takes what was read, on connections that are used again."""
    dice = random.Random(seed)
    with serving(3000, nodes=2) as broker, closing(client(broker.url, fetchMaxBytes=FEW)) as one:
        cuts = sorted(dice.sample(range(1, 30_000), 4))
        for start, end in pairwise([0, *cuts, 30_000]):
            found: list[int] = []
            broker.call(lambda: broker.looked_up("t", 0))  # as whoever plans a range does
            for each in reading(one, part(start, end)):
                found += each.column("offset").to_pylist()
                match dice.randrange(6):
                    case 0:
                        broker.move_leader("t")
                    case 1:
                        broker.drop_connections()
                    case 2:
                        broker.trim("t", found[-1])
            assert found == list(range(start, end))


# --- what is lost


def lossy(broker: KafkaDevBroker, wanted: Range, why: str) -> list[bytes]:
    """Reading fails for this reason; and if losses may be, what is left."""
    with closing(client(broker.url)) as one:
        with pytest.raises(DataLossError, match=why):
            values(one, wanted)
        return values(one, wanted, fail=False)


def test_what_retention_took() -> None:
    with serving(50) as broker:
        broker.trim("t", 205)
        why = "the log begins at 205, behind 100: what lay before was deleted"
        assert lossy(broker, part(100, 300), why) == ALL[205:300]
        assert lossy(broker, part(100, 150), "the log begins at 205, behind 100") == []
        with closing(client(broker.url)) as one:
            assert values(one, part(205, 300)) == ALL[205:300]


def test_what_retention_takes_while_it_is_read() -> None:
    """What came before is not given up with it."""
    with serving(3000) as broker, closing(client(broker.url, fetchMaxBytes=FEW)) as one:
        stream = reading(one, part(0, 30_000), fail=False)
        found = [next(stream)]
        broker.trim("t", 29_990)
        left = numbers_of(value for each in [*found, *stream] for value in each.column("value").to_pylist())
        assert left == [*range(len(left) - 1), 2999]
        assert len(left) < 3000


def test_an_unclean_election() -> None:
    with serving(50) as broker:
        broker.truncate("t", 300)
        broker.append("t", batches(90, 40))
        assert lossy(broker, part(100, 500, epoch=0), "the log ends at 300, before the range does") == ALL[100:300]
        assert lossy(broker, part(400, 500, epoch=0), "the log ends at 300, before the range does") == []
        with closing(client(broker.url)) as one:  # what lies before is as it was
            assert values(one, part(100, 300, epoch=0)) == ALL[100:300]
            assert numbers_of(values(one, part(300, 700, epoch=1))) == list(range(90, 130))


def test_a_log_that_ends_before_the_range() -> None:
    with serving(10) as broker:
        why = "the log ends at 100, before the range does"
        assert lossy(broker, part(20, 200), why) == ALL[20:100]
        assert lossy(broker, part(120, 200), why) == []


def test_a_topic_that_was_made_again() -> None:
    with serving(10) as broker:
        with asking(broker.url) as one:
            one.heads([T])
            [wanted] = one.ranges(T, Position(0, -1), Position(100, 0), 1)
        broker.delete_topic("t")
        assert lossy(broker, wanted, "the broker does not know the topic") == []
        broker.create_topic("t")
        broker.append("t", batches(50, 10))
        assert lossy(broker, wanted, "the topic was deleted and made again") == []


def test_a_batch_that_cannot_be_decoded() -> None:
    with serving(10) as broker:
        broker.tamper = lambda request, frame: frame.replace(b"5:3", b"5:x")
        left = lossy(broker, part(0, 100), "the batch before 60@0 cannot be decoded: CorruptMessage")
        assert numbers_of(left) == [0, 1, 2, 3, 4, 6, 7, 8, 9]
        assert lossy(broker, part(40, 55), "cannot be decoded") == ALL[40:50]
        with closing(client(broker.url)) as one:  # outside of a range it is nobody's loss
            assert values(one, part(0, 50)) == ALL[:50]
            assert values(one, part(60, 100)) == ALL[60:100]


def test_a_leader_that_refuses_for_good_ends_the_task() -> None:
    with serving(10) as broker:
        broker.refuse_fetches(Code.CORRUPT_MESSAGE)
        with closing(client(broker.url)) as one, pytest.raises(FastwireError, match="CORRUPT_MESSAGE"):
            values(one, part(0, 100))


def test_records_without_a_time_have_none() -> None:
    with serving() as broker:
        broker.append("t", [encode_batch([Record(value=b"v", timestamp=-1)] * 3)])
        with closing(client(broker.url)) as one:
            times = [each.column("timestamp").to_pylist() for each in reading(one, part(0, 3))]
            assert times == [[None] * 3]


# --- what the driver asks


def test_topics_by_name_and_by_pattern() -> None:
    with serving() as broker:
        broker.create_topic("many", 3)
        broker.create_topic("other")
        many = [Partition("many", index) for index in range(3)]
        with asking(broker.url, subscribe="t,many,missing") as one:
            assert one.partitions() == [*many, T]
            assert one.topics() == {"t", "many"}
        given = {"servers": broker.url, "subscribePattern": "m.*|t"}
        with closing(KafkaBroker(client(broker.url), parse_options(given, streaming=True))) as one:
            assert one.partitions() == [*many, T]


def test_heads_and_beginnings() -> None:
    with serving(30, nodes=2) as broker:
        broker.create_topic("many", 2)
        one, two, missing = Partition("many", 0), Partition("many", 1), Partition("no", 0)
        broker.append("many", batches(0, 1), 1)
        broker.trim("t", 25)
        with asking(broker.url) as asked:
            wanted = [T, one, two, missing, Partition("t", 5)]
            assert asked.heads(wanted) == {T: Position(300, 0), one: Position(0, 0), two: Position(10, 0)}
            assert asked.beginnings(wanted) == {T: Position(25, -1), one: Position(0, -1), two: Position(0, -1)}
            broker.move_leader("t")
            assert asked.heads([T]) == {T: Position(300, 1)}
            assert asked.rows(T, Position(25, -1), Position(300, 0)) == 275
            assert asked.limited(T, Position(25, -1), Position(300, 7), 100) == Position(125, 7)
            assert asked.limited(T, Position(25, -1), Position(300, 7), 1000) == Position(300, 7)


def test_places_of_times() -> None:
    with serving(50) as broker, asking(broker.url) as one:
        assert one.at_time(T, 1_700_000_007_000) == Position(70, -1)
        assert one.at_time(T, 1_700_000_006_001) == Position(70, -1)
        assert one.at_time(T, 1_700_000_099_000) is None


def test_the_size_of_records_is_looked_at_once() -> None:
    with serving() as broker:
        broker.append("t", batches(0, 50, size=96))
        with asking(broker.url) as one:
            one.heads([T])
            assert 99 < one.bytes_per_row() < 103
            fetches = broker.requests["Fetch"]
            one.bytes_per_row()
            assert broker.requests["Fetch"] == fetches > 0


# --- commits


def test_a_group_is_told_what_it_does_not_know() -> None:
    with serving(50) as broker, asking(broker.url, groupId="g") as one:
        for _ in range(3):
            one.commit({T: Position(120, 0)})
        assert broker.offsets("g") == {("t", 0): 120}
        assert broker.requests["OffsetCommit"] == 1
        one.commit({T: Position(130, 0), Partition("gone", 0): Position(5, 0)})
        assert broker.offsets("g") == {("t", 0): 130}


@pytest.mark.parametrize("given", [{}, {"groupId": "g", "commitOffsets": "false"}])
def test_nothing_is_committed_that_nobody_wants(given: dict[str, str]) -> None:
    with serving(50) as broker, asking(broker.url, **given) as one:
        one.commit({T: Position(120, 0)})
        assert broker.requests["OffsetCommit"] == 0


def test_a_group_that_others_are_in_is_theirs() -> None:
    with serving(50) as broker, asking(broker.url, groupId="g") as one:
        broker.call(lambda: broker.group("g").members.update(somebody=None))  # type: ignore[call-overload]
        with pytest.raises(FastwireError, match="others are in the group, who commit for themselves"):
            one.commit({T: Position(120, 0)})
