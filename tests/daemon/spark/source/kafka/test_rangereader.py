"""Ranges of Kafka's offsets, read ahead on a thread, and what the driver asks; losses are said, holes are none."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from fastwire.errors import FastwireError
from fastwire.kafka.format.error import Code
from fastwire.kafka.format.message import decode_response, encode_response
from fastwire.kafka.producing.payload import Compression, Record, encode_batch
from fastwire.kafka.protocol.connection import Key
from fastwire.position import Position
from fastwire_daemon.devbroker.kafka import KafkaDevBroker, Request
from fastwire_daemon.spark.source.ranges import QueryPartition, Range
from tests.support.kafka.markers import encode_marker
from tests.support.kafka.source_pipe import batch, batches
from tests.support.ranges import ALL, Ranges, T
from tests.support.spark_scene import ROWS, KafkaScene, numbers, numbers_of, serve

RANGES = Ranges(KafkaScene, "50000")
options, client, asking, values, reading = RANGES.options, RANGES.client, RANGES.asking, RANGES.values, RANGES.reading


@pytest.fixture(autouse=True)
def _soon_certain(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic that a broker does not know is missing after a moment, and so is what a log does not have."""
    monkeypatch.setattr("fastwire_daemon.systems.kafka.cluster.MISSING_S", 0.05)
    monkeypatch.setattr("fastwire_daemon.spark.source.offsetrangereader.SHORT_S", 0.05)


@contextmanager
def serving(count: int = 0, **settings: Any) -> Iterator[KafkaDevBroker]:
    scene = KafkaScene(**settings)
    with serve(scene, count):
        yield scene.broker


def part(start: int, end: int, epoch: int = -1, incarnation: str = "") -> Range:
    return Range(
        system="kafka", partition=T, start=Position(start, -1), end=Position(end, epoch), incarnation=incarnation
    )


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


def test_a_leader_that_moves_is_followed() -> None:
    with serving(3000, nodes=3) as broker, closing(client(broker.url, fetchMaxBytes=RANGES.few)) as one:
        stream = reading(one, part(0, 30_000, epoch=0))
        found = [next(stream)]
        broker.move_leader("t")
        found.append(next(stream))
        broker.move_leader("t")
        assert numbers([*found, *stream]) == list(range(3000))


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
        one.run(one.cluster.source.find(("t", 0)))
        broker.throttle(60, 10)
        assert values(one, part(0, 500, epoch=0), fail=fail) == ALL
        assert broker.take_throttle() == 0


def test_throttling_is_no_silence() -> None:
    """The reader has less patience than the throttle lasts."""
    with serving(5) as broker, closing(client(broker.url)) as one:
        one.run(one.cluster.source.find(("t", 0)))
        broker.throttle(800, 3)
        assert values(one, part(0, 50), patience_s=0.5) == ALL[:50]


def test_empty_answers_are_no_end() -> None:
    """As a broker gives them that is still fetching from tiered storage."""
    with serving(50) as broker, closing(client(broker.url)) as one:
        emptied(broker, 1000)
        with pytest.raises(FastwireError, match=r"at last: from 20 on: the leader sends no records"):
            values(one, part(20, 500), patience_s=0.5)
        emptied(broker, 5)
        assert values(one, part(20, 500)) == ALL[20:500]


def test_a_high_watermark_that_lags_is_no_end_of_the_log() -> None:
    """A new leader holds all records before its followers have told it so."""
    with serving(50) as broker, closing(client(broker.url)) as one:
        emptied(broker, 1000, high_watermark=20)
        with pytest.raises(FastwireError, match=r"at last: from 20 on: the leader sends no records"):
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


# --- what is lost


def lossy(broker: KafkaDevBroker, wanted: Range, why: str) -> list[bytes]:
    return RANGES.lossy(broker.url, wanted, why)


def test_an_unclean_election() -> None:
    with serving(50) as broker:
        broker.truncate("t", 300)
        broker.append("t", batches(90, 40))
        assert lossy(broker, part(100, 500, epoch=0), "the log ends at 300, before the range does") == ALL[100:300]
        assert lossy(broker, part(400, 500, epoch=0), "the log ends at 300, before the range does") == []
        with closing(client(broker.url)) as one:  # what lies before is as it was
            assert values(one, part(100, 300, epoch=0)) == ALL[100:300]
            assert numbers_of(values(one, part(300, 700, epoch=1))) == list(range(90, 130))


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
        left = lossy(broker, part(0, 100), "the records from 50@0 up to 60@0 cannot be decoded: CorruptMessage")
        assert numbers_of(left) == [0, 1, 2, 3, 4, 6, 7, 8, 9]
        assert lossy(broker, part(40, 55), "the records from 50@0 up to 55@0 cannot be decoded") == ALL[40:50]
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


def test_times_that_do_not_fit_are_told_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr("fastwire_daemon.spark.source.connections._told_unfit", False)
    with serving() as broker:
        broker.append("t", [encode_batch([Record(value=b"v", timestamp=1 << 60)])] * 2)
        with closing(client(broker.url)) as one:
            for _ in range(2):
                assert values(one, part(0, 2)) == [b"v", b"v"]
    assert sum("do not fit" in each.message for each in caplog.records) == 1


# --- what the driver asks


def test_heads_and_beginnings() -> None:
    with serving(30, nodes=2) as broker:
        broker.create_topic("many", 2)
        one, two, missing = QueryPartition("many", 0), QueryPartition("many", 1), QueryPartition("no", 0)
        broker.append("many", batches(0, 1), 1)
        broker.trim("t", 25)
        with asking(broker.url) as asked:
            wanted = [T, one, two, missing, QueryPartition("t", 5)]
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


# --- commits


def test_a_group_is_told_what_it_does_not_know() -> None:
    with serving(50) as broker, asking(broker.url, groupId="g") as one:
        for _ in range(3):
            one.commit({T: Position(120, 0)})
        assert broker.offsets("g") == {("t", 0): 120}
        assert broker.requests["OffsetCommit"] == 1
        one.commit({T: Position(130, 0), QueryPartition("gone", 0): Position(5, 0)})
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
