"""Ranges of TANK's sequences, read ahead on a thread, and what the driver asks; losses are said, holes are none."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any

import pytest

from fastwire.errors import FastwireError
from fastwire.position import Position
from fastwire.tank.format.error import PartitionStatus
from fastwire.tank.format.message import MessageType, encode_frame
from fastwire.tank.producing.bundle import Message, encode_bundle
from fastwire.tank.protocol.consume import FetchPartition, PartitionAnswer, encode_consume_answer
from fastwire_daemon.devbroker.tank import TankDevBroker
from fastwire_daemon.spark.source.ranges import DataLossError, QueryPartition, Range
from tests.support.ranges import ALL, Ranges, T
from tests.support.spark_scene import TankScene, numbers_of
from tests.support.tank.bundles import bundle, bundles
from tests.support.waiting import eventually

RANGES = Ranges(TankScene, "5000")
options, client, asking, values, part = RANGES.options, RANGES.client, RANGES.asking, RANGES.values, RANGES.part


@pytest.fixture(autouse=True)
def _soon_certain(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic that a broker does not know is missing after a moment."""
    monkeypatch.setattr("fastwire_daemon.systems.tank.cluster.MISSING_S", 0.05)


@contextmanager
def serving(count: int = 0, **settings: Any) -> Iterator[TankDevBroker]:
    with RANGES.serving(count, **settings) as scene:
        yield scene.broker


def lossy(broker: TankDevBroker, wanted: Range, why: str) -> list[bytes]:
    return RANGES.lossy(broker.url, wanted, why)


def test_what_compaction_leaves_are_holes_and_no_losses() -> None:
    with serving() as broker:
        keys = (b"a", b"b", b"c")
        for round_ in range(4):
            broker.append("t", [encode_bundle([Message(value=b"%d" % round_, key=key) for key in keys])])
        broker.append("t", [bundle(7, 1)])
        broker.roll("t")
        broker.compact("t")
        with closing(client(broker.url)) as one:
            assert RANGES.numbers(one, part(0, 13)) == [9, 10, 11, 12]
            assert RANGES.numbers(one, part(1, 10)) == [9]
            assert RANGES.numbers(one, part(1, 8)) == []


def test_a_bundle_that_is_larger_than_the_fetch_size() -> None:
    with serving() as broker, closing(client(broker.url, fetchMaxBytes="100")) as one:
        broker.append("t", bundles(0, 5, size=10_000))
        assert numbers_of(values(one, part(0, 50))) == list(range(5))


# --- what happens to connections


def test_a_topic_that_is_not_known_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a broker that has just started in its cluster: neither the task nor the driver takes it for a loss."""
    monkeypatch.setattr("fastwire_daemon.systems.tank.cluster.MISSING_S", 30.0)
    with serving(50) as broker, closing(client(broker.url, fetchMaxBytes="1000")) as one, asking(broker.url) as driver:
        assert driver.heads([T]) == {T: Position(501, 0)}
        questions = (lambda: values(one, part(0, 500), fail=False), lambda: driver.heads([T]))
        assert [_asked_while_unknown(broker, ask) for ask in questions] == [ALL, {T: Position(501, 0)}]


def _asked_while_unknown(broker: TankDevBroker, ask: Callable[[], object]) -> object:
    hidden = broker.call(lambda: broker.topics.pop("t"))
    asked = broker.requests["DISCOVER_PARTITIONS"]
    with ThreadPoolExecutor(1) as thread:
        answer = thread.submit(ask)
        eventually(lambda: broker.requests["DISCOVER_PARTITIONS"] > asked, "the broker was asked")
        broker.call(lambda: broker.topics.update(t=hidden))
        return answer.result(20)


@pytest.mark.parametrize("status", [PartitionStatus.NO_LEADER, PartitionStatus.SYSTEM_FAULT])
def test_faults_of_the_partition_pass(status: PartitionStatus) -> None:
    with serving(50) as broker, closing(client(broker.url, fetchMaxBytes="1000")) as one:
        broker.refuse_reads(status, 2)
        assert values(one, part(0, 500)) == ALL


# --- what is lost


def answering(
    broker: TankDevBroker, answer: Callable[[], PartitionAnswer], *, after: int = 0, times: int = 1 << 30
) -> None:
    """Let ``answer`` replace answers to consume requests, behind the first ``after`` ones."""
    seen = 0

    def tamper(frame: bytes) -> bytes:
        nonlocal seen
        if frame[0] != MessageType.CONSUME:
            return frame
        seen += 1
        if not after < seen <= after + times:
            return frame
        request_id = int.from_bytes(frame[9:13], "little")
        return encode_frame(MessageType.CONSUME, encode_consume_answer(request_id, [("t", 1, [answer()])]))

    broker.tamper = tamper


@pytest.mark.parametrize("fail", [True, False])
def test_what_retention_takes_before_an_empty_answer(fail: bool) -> None:
    """Records before it do not count as lost, whether they were passed on or not."""

    def empty() -> PartitionAnswer:
        broker.trim("t", 201)
        return PartitionAnswer(0, high_watermark=300)

    with serving(30) as broker, closing(client(broker.url)) as one:
        answering(broker, empty, after=1, times=1)
        if fail:
            with pytest.raises(DataLossError, match="nothing from 101 up to 201 can be read"):
                values(one, part(0, 300))
        else:
            assert numbers_of(values(one, part(0, 300), fail=False)) == [*range(10), *range(20, 30)]


def test_a_boundary_failure_within_the_log_is_no_loss() -> None:
    """A broker that contradicts itself is asked again with a pause, and left when patience ends."""
    with serving(10) as broker, closing(client(broker.url)) as one:
        boundary = PartitionAnswer(0, PartitionStatus.BOUNDARY, high_watermark=100, first=1)
        answering(broker, lambda: boundary)
        with pytest.raises(FastwireError, match=r"nothing came for 0\.3 s"):
            values(one, part(0, 100), patience_s=0.3, fail=False)
        assert broker.requests["CONSUME"] < 30
        answering(broker, lambda: boundary, times=1)
        assert numbers_of(values(one, part(0, 100))) == list(range(10))


def test_empty_answers_are_no_end() -> None:
    with serving(10) as broker, closing(client(broker.url)) as one:
        answering(broker, lambda: PartitionAnswer(0, high_watermark=42))
        with pytest.raises(FastwireError, match=r"at last: from 21 on: the leader sends no records"):
            values(one, part(20, 100), patience_s=0.3)
        answering(broker, lambda: PartitionAnswer(0, high_watermark=42), times=3)
        assert numbers_of(values(one, part(20, 100))) == list(range(2, 10))


def test_messages_that_are_not_committed_yet_are_waited_for() -> None:
    with serving(10) as broker, closing(client(broker.url)) as one:
        chunk = broker.topics["t"][0].bundles[2].framed
        answering(broker, lambda: PartitionAnswer(0, base=21, high_watermark=15, chunk=chunk), times=3)
        assert numbers_of(values(one, part(20, 100))) == list(range(2, 10))


def test_a_bundle_that_an_old_broker_cuts_off_is_asked_for_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def spied(partition: int, sequence: int, fetch_bytes: int) -> FetchPartition:
        asked.append(fetch_bytes)
        return FetchPartition(partition, sequence, fetch_bytes)

    monkeypatch.setattr("fastwire.tank.protocol.fetch.FetchPartition", spied)
    with serving() as broker, closing(client(broker.url, fetchMaxBytes="3000")) as one:
        broker.append("t", bundles(0, 5, size=1000))
        whole = broker.topics["t"][0].bundles[0].framed
        answering(broker, lambda: PartitionAnswer(0, base=1, high_watermark=50, chunk=whole[:3000]), times=1)
        assert numbers_of(values(one, part(0, 50))) == list(range(5))
        assert asked[:2] == [3000, len(whole)]


def test_a_topic_that_was_made_again() -> None:
    with serving(10) as broker:
        broker.delete_topic("t")
        assert lossy(broker, part(0, 100), "the broker does not know the topic") == []
        broker.create_topic("t")
        broker.append("t", bundles(50, 2))
        assert numbers_of(lossy(broker, part(0, 100), "the log ends at 21, before the range does")) == [50, 51]


def test_a_topic_that_is_made_again_while_it_is_read() -> None:
    with serving(8000) as broker, closing(client(broker.url, fetchMaxBytes=RANGES.few)) as one:
        stream = RANGES.reading(one, part(0, 80_000))
        next(stream)
        broker.call(lambda: (broker.delete_topic("t"), broker.create_topic("t"), broker.append("t", bundles(0, 1))))
        with pytest.raises(DataLossError, match=r"^t partition 0 from 1 to 80001: the log ends at 11, before"):
            list(stream)


def test_a_bundle_that_cannot_be_decoded() -> None:
    with serving(5) as broker:
        damaged = bundle(5)[:-1] + b"\0\0"
        broker.append("t", [damaged, *bundles(6, 4)])
        left = lossy(broker, part(0, 100), "the records from 51 up to 61 cannot be decoded: CorruptMessage")
        assert numbers_of(left) == [0, 1, 2, 3, 4, 6, 7, 8, 9]
        assert lossy(broker, part(40, 55), "the records from 51 up to 56 cannot be decoded") == ALL[40:50]
        with closing(client(broker.url)) as one:  # outside of a range it is nobody's loss
            assert values(one, part(0, 50)) == ALL[:50]
            assert values(one, part(60, 100)) == ALL[60:100]


def test_a_log_that_cannot_be_read_further() -> None:
    with serving(5) as broker:
        broker.call(lambda: broker.topics["t"][0].bundles.__setitem__(2, _without_count(broker)))
        with closing(client(broker.url)) as one:
            for fail in (True, False):
                why = r"^t partition 0 from 1 to 51: .*: the bundle at 21 cannot be decoded \(MetadataError"
                with pytest.raises(DataLossError, match=why):
                    values(one, part(0, 50), fail=fail)
            assert values(one, part(0, 20)) == ALL[:20]


def _without_count(broker: TankDevBroker) -> Any:
    stored = broker.topics["t"][0].bundles[2]
    return replace(stored, data=b"\0\0" + stored.data[2:])


def test_a_hole_that_cannot_be_read() -> None:
    with serving(5) as broker:
        broker.skip("t", 100)
        why = "nothing from 51 up to 151 can be read: the broker cannot deliver the messages from here"
        assert lossy(broker, part(20, 150), why) == ALL[20:50]
        broker.append("t", bundles(5, 5))
        with closing(client(broker.url)) as one:
            assert numbers_of(values(one, part(0, 200))) == list(range(10))


# --- what the driver asks


def test_heads_and_beginnings() -> None:
    with serving(30, nodes=2) as broker:
        broker.create_topic("many", 2)
        one, two, missing = QueryPartition("many", 0), QueryPartition("many", 1), QueryPartition("no", 0)
        broker.append("many", bundles(0, 1), 1)
        broker.trim("t", 201)
        with asking(broker.url) as asked:
            wanted = [T, one, two, missing, QueryPartition("t", 5)]
            assert asked.heads(wanted) == {T: Position(301, 0), one: Position(1, 0), two: Position(11, 0)}
            questions = broker.requests["DISCOVER_PARTITIONS"]
            assert asked.beginnings([T, one, two]) == {T: Position(201, 0), one: Position(1, 0), two: Position(1, 0)}
            assert broker.requests["DISCOVER_PARTITIONS"] == questions  # one answer has both
            assert asked.rows(T, Position(25, 0), Position(301, 0)) == 276
            assert asked.limited(T, Position(25, 0), Position(301, 0), 100) == Position(125, 0)
            assert asked.limited(T, Position(25, 0), Position(301, 0), 1000) == Position(301, 0)
        with asking(broker.url) as asked:
            assert asked.beginnings(wanted) == {T: Position(201, 0), one: Position(1, 0), two: Position(1, 0)}


def test_a_partition_without_a_leader_does_not_delay_the_others() -> None:
    with serving(30, nodes=2) as broker:
        broker.create_topic("many", 2)
        broker.move_leader("many", 0, -1)
        one, two = QueryPartition("many", 0), QueryPartition("many", 1)
        with asking(broker.url) as asked:
            known = {T: Position(1, 0), one: Position(1, 0), two: Position(1, 0)}
            assert asked.heads([T, one, two], known) == {T: Position(301, 0), one: Position(1, 0), two: Position(1, 0)}


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ({"startingTimestamp": "1"}, "startingTimestamp: is not an option of TANK, which has startingOffsets instead"),
        ({"groupId": "g"}, "groupId: is not an option of TANK"),
        ({"commitOffsets": "true"}, "commitOffsets: is not an option of TANK"),
        ({"receiverQueueSize": "9"}, "receiverQueueSize: is not an option of TANK, which has fetchMaxBytes instead"),
    ],
)
def test_options_that_only_others_have(given: dict[str, str], hint: str) -> None:
    with pytest.raises(FastwireError, match=hint):
        options("tank://127.0.0.1", **given)


@pytest.mark.parametrize(("given", "expected"), [({}, "fastwire-spark"), ({"clientId": "orders-job"}, "orders-job")])
def test_the_client_id_is_that_of_the_options(given: dict[str, Any], expected: str) -> None:
    with serving(1) as broker, closing(client(broker.url, **given)) as one:
        assert one.cluster.source.cluster.client_id == expected
