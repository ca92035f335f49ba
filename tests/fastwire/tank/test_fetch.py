"""Scheduling of consume requests: which partitions a request names, from which sequence, and whether it waits."""

from collections.abc import Sequence

import pytest

from fastwire.position import Log, Position
from fastwire.tank.format.message import FRAME_HEAD, PING, MessageType, encode_frame
from fastwire.tank.producing.bundle import Message, encode_bundle
from fastwire.tank.protocol.connection import Connection
from fastwire.tank.protocol.consume import ConsumeRequest, PartitionAnswer, encode_consume_answer
from fastwire.tank.protocol.event import FetchDone
from fastwire.tank.protocol.fetch import LEAST_FETCH, Fetcher, FetchLimits, Target
from fastwire.tank.reading.response import Fetched
from fastwire.tank.reading.scan import Scanner
from fastwire.tank.reading.slot import SlotTable
from fastwire.wire.pool import Pool
from fastwire.wire.writer import encode_varint

BUNDLE = encode_bundle([Message(value=b"v" * 100)] * 10)


class Broker:
    """The other end of a connection; ``asked`` are the consume requests that it has not answered, by id."""

    def __init__(self, partitions: Sequence[tuple[str, int]], limits: FetchLimits | None = None) -> None:
        self.slots = SlotTable()
        self.fetcher = Fetcher(self.slots, limits or FetchLimits(), "test")
        self.connection = Connection(Scanner(self.slots, Pool(1 << 26)))
        self.connection.connect(0.0)
        self._receive(PING)
        self.connection.take_outbound()
        self.asked: dict[int, ConsumeRequest] = {}
        for topic, number in partitions:
            index = self.slots.add(Log("tank", "c", topic, str(number)))
            self.slots.attach(index, Position(1, 0), 1)
            self.fetcher.add(Target(index, topic, number, 1))

    def _receive(self, data: bytes) -> list[FetchDone[Fetched]]:
        self.connection.get_buffer(len(data))[: len(data)] = data
        return [event for event in self.connection.receive(len(data), 0.0) if isinstance(event, FetchDone)]

    def pump(self) -> list[ConsumeRequest]:
        """Return the new requests."""
        self.fetcher.pump(self.connection, 0.0)
        new = [ConsumeRequest.decode(frame[FRAME_HEAD:]) for frame in self.connection.take_outbound()]
        self.asked |= dict(new)
        return [request for _, request in new]

    def answer(self, *filled: int, high_watermark: int = 10, chunk: bytes | None = None) -> None:
        """Answer the oldest request: a bundle for the partitions ``filled``, nothing for the others."""
        request_id, request = next(iter(self.asked.items()))
        del self.asked[request_id]
        full = encode_varint(len(BUNDLE)) + BUNDLE if chunk is None else chunk
        topics: list[tuple[str, int, list[PartitionAnswer] | None]] = []
        for topic, partitions in request.topics:
            answers = [
                PartitionAnswer(
                    one.partition,
                    base=one.sequence if one.partition in filled else 0,
                    high_watermark=high_watermark,
                    chunk=full if one.partition in filled else b"",
                )
                for one in partitions
            ]
            topics.append((topic, len(answers), answers))
        payload = encode_consume_answer(request_id, topics)
        [done] = self._receive(encode_frame(MessageType.CONSUME, payload))
        self.fetcher.done(done.fetched)


def places(request: ConsumeRequest) -> list[tuple[str, int, int]]:
    """Return topic, partition and sequence of each partition of a request."""
    return [(topic, one.partition, one.sequence) for topic, partitions in request.topics for one in partitions]


def test_partitions_that_lag_are_split_over_two_requests_that_do_not_wait() -> None:
    broker = Broker([("t", number) for number in range(3)])
    one, two = broker.pump()
    assert [places(one), places(two)] == [[("t", 0, 1), ("t", 1, 1)], [("t", 2, 1)]]
    assert (one.max_wait_ms, two.max_wait_ms, one.client_id) == (0, 0, "test")
    assert broker.pump() == []
    broker.answer(0, 1, high_watermark=20)
    [again] = broker.pump()
    assert places(again) == [("t", 0, 11), ("t", 1, 11)]


def test_partitions_at_their_end_wait_together_and_hold_up_no_other() -> None:
    broker = Broker([("t", 0), ("t", 1), ("u", 0)])
    broker.pump()
    broker.answer(0, high_watermark=10)  # of both partitions of t; both are at their end
    [waiting] = broker.pump()
    assert (places(waiting), waiting.max_wait_ms) == ([("t", 1, 1), ("t", 0, 11)], 1000)
    broker.answer(0, high_watermark=20)
    [behind] = broker.pump()
    assert (places(behind), behind.max_wait_ms) == ([("u", 0, 11)], 0)


def test_the_high_watermark_of_an_empty_answer_does_not_count() -> None:
    broker = Broker([("t", 0)])
    broker.pump()
    broker.answer(high_watermark=1000)
    [waiting] = broker.pump()
    assert (places(waiting), waiting.max_wait_ms) == ([("t", 0, 1)], 1000)


def test_a_bundle_that_was_cut_off_is_requested_whole() -> None:
    broker = Broker([("t", 0)], FetchLimits(partition_bytes=LEAST_FETCH))
    [first] = broker.pump()
    assert first.topics[0][1][0].fetch_bytes == LEAST_FETCH
    broker.answer(0, chunk=encode_varint(200_000) + b"\x04" + bytes(100))
    [again] = broker.pump()
    assert (places(again), again.topics[0][1][0].fetch_bytes) == ([("t", 0, 1)], 200_003)
    broker.answer(0, high_watermark=20)
    [later] = broker.pump()
    assert (places(later), later.topics[0][1][0].fetch_bytes) == ([("t", 0, 11)], LEAST_FETCH)


@pytest.mark.parametrize("topic", ["t", None])
def test_a_request_has_room_for_255_names(topic: str | None) -> None:
    """A request has a limit of partitions of a topic, and of topics. The others follow in the next requests."""
    broker = Broker([(topic or f"t{number}", number) for number in range(600)], FetchLimits(answer_bytes=1 << 30))
    assert [len(places(request)) for request in broker.pump()] == [255, 255]
    broker.answer()
    assert sorted(len(places(request)) for request in broker.pump()) == [90, 255]


def test_the_sum_of_fetch_sizes_is_the_limit_of_an_answer() -> None:
    broker = Broker([("t", number) for number in range(100)], FetchLimits(answer_bytes=32 * LEAST_FETCH))
    for request in broker.pump():
        assert len(places(request)) == 32
        assert {one.fetch_bytes for one in request.topics[0][1]} == {LEAST_FETCH}


def test_a_partition_that_is_dropped_is_not_requested_again() -> None:
    broker = Broker([("t", 0), ("t", 1)])
    broker.pump()
    broker.fetcher.drop(0)
    broker.answer(0)
    assert broker.pump() == []
    assert not broker.fetcher.may_ask
    broker.answer(1, high_watermark=20)
    assert [places(request) for request in broker.pump()] == [[("t", 1, 11)]]
    broker.fetcher.lost()
    assert [places(request) for request in broker.pump()] == [[("t", 1, 11)]]
