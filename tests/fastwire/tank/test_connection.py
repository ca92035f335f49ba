"""One connection: the handshake, requests, answers in any order, deadlines."""

import pytest

from fastwire.errors import ProtocolError
from fastwire.position import Log, Position
from fastwire.tank.format.message import (
    PING,
    DiscoverPartitions,
    DiscoverTopology,
    MessageType,
    PartitionRange,
    PartitionRanges,
    Topology,
    encode_frame,
)
from fastwire.tank.producing.bundle import encode_values
from fastwire.tank.protocol.connection import Connection, Request, State
from fastwire.tank.protocol.consume import ConsumeRequest, FetchPartition, PartitionAnswer, encode_consume_answer
from fastwire.tank.protocol.event import ChunkReady, Connected, CorruptFound, Event, FetchDone, Lost, More, Reply
from fastwire.tank.protocol.produce import PartitionBundle, ProduceAnswer, ProduceRequest, ProduceResult
from fastwire.tank.reading.response import Planned
from fastwire.tank.reading.scan import Scanner
from fastwire.tank.reading.slot import SlotTable
from fastwire.wire.pool import Pool
from fastwire.wire.writer import encode_varint


class Wire:
    """A connection, its slots and a clock that stands still."""

    def __init__(self, *, ready: bool = True, started: bool = True) -> None:
        self.slots = SlotTable()
        self.slots.attach(self.slots.add(Log("tank", "c", "t", "0")), Position(1, 0), 1)
        self.connection = Connection(Scanner(self.slots, Pool(1 << 26)), request_timeout_s=5.0)
        if started:
            self.connection.connect(0.0)
        if ready:
            assert self.feed(PING) == [Connected()]
            assert self.connection.take_outbound() == [PING]

    def feed(self, data: bytes, now: float = 0.0) -> list[Event]:
        room = self.connection.get_buffer(-1)
        room[: len(data)] = data
        room.release()
        return list(self.connection.receive(len(data), now))

    def fetch(self, sequence: int = 1, wait_ms: int = 0) -> int:
        request = ConsumeRequest((("t", (FetchPartition(0, sequence, 100),)),), wait_ms)
        request_id = self.connection.fetch(request, Planned({b"t": {0: (0, 1)}}), 0.0)
        assert self.connection.take_outbound() == [encode_frame(MessageType.CONSUME, request.encode(request_id))]
        return request_id

    def ask(self, request: Request) -> int:
        request_id = self.connection.request(request, 0.0)
        self.connection.take_outbound()
        return request_id


def answer(request_id: int, *values: bytes) -> bytes:
    bundle = encode_values(values, 0, compress=False) if values else b""
    chunk = bytes((len(bundle),)) + bundle if values else b""
    part = PartitionAnswer(0, 0, 1, 99, chunk)
    return encode_frame(MessageType.CONSUME, encode_consume_answer(request_id, [("t", 1, [part])]))


def test_nothing_is_asked_before_the_ping() -> None:
    wire = Wire(ready=False)
    with pytest.raises(ValueError, match="ping"):
        wire.connection.request(DiscoverTopology(), 0.0)
    assert wire.connection.tick(9.9) == ()
    (lost,) = wire.connection.tick(10.0)
    assert isinstance(lost, Lost)
    assert wire.feed(PING[:3]) == []
    assert wire.feed(PING[3:]) == [Connected()]
    assert wire.connection.ready
    assert wire.feed(PING) == []


def test_a_ping_that_comes_before_the_start() -> None:
    wire = Wire(ready=False, started=False)
    assert wire.feed(PING) == []
    assert not wire.connection.ready
    assert wire.connection.connect(0.0) == (Connected(),)
    assert wire.connection.take_outbound() == [PING]
    assert wire.connection.ready


def test_answers_come_in_any_order() -> None:
    wire = Wire()
    waiting = wire.fetch(wait_ms=1000)
    topology = wire.ask(DiscoverTopology())
    found = wire.ask(DiscoverPartitions("t"))
    assert wire.connection.awaiting
    ranges = PartitionRanges("t", (PartitionRange(1, 2),), 1)
    said = Topology()
    frames = encode_frame(MessageType.DISCOVER_PARTITIONS, ranges.encode(found)) + PING
    events = wire.feed(frames + encode_frame(MessageType.DISCOVER_TOPOLOGY, said.encode(topology)))
    assert events == [Reply(found, ranges), Reply(topology, said)]
    assert not wire.connection.awaiting
    assert wire.connection.fetches_outstanding == 1
    (done,) = wire.feed(answer(waiting, b"a", b"b"))
    assert isinstance(done, FetchDone)
    assert done.fetched.request_id == waiting
    assert wire.connection.fetches_outstanding == 0
    chunk = wire.connection.take_chunk()
    assert chunk is not None
    assert chunk.rows == 2
    assert wire.slots.position(0) == Position(3, 0)


def test_the_answer_to_a_request_with_sequences_is_of_another_type() -> None:
    wire = Wire()
    request = ProduceRequest((("t", (PartitionBundle(0, b"x", 7),)),))
    request_id = wire.ask(request)
    reply = ProduceAnswer((ProduceResult("t", 0, 0),))
    assert wire.feed(encode_frame(MessageType.PRODUCE, reply.encode(request_id))) == [Reply(request_id, reply)]


def test_answers_to_requests_given_up_are_dropped() -> None:
    wire = Wire()
    topology = wire.ask(DiscoverTopology())
    wire.connection.give_up(topology)
    assert wire.feed(encode_frame(MessageType.DISCOVER_TOPOLOGY, Topology().encode(topology))) == []
    assert wire.feed(answer(77, b"a")) == []


def test_an_answer_of_another_type_is_a_protocol_error() -> None:
    wire = Wire()
    topology = wire.ask(DiscoverTopology())
    with pytest.raises(ProtocolError, match="message type at byte 0"):
        wire.feed(encode_frame(MessageType.DISCOVER_TOPICS, Topology().encode(topology)))
    wire = Wire()
    fetch = wire.fetch()
    with pytest.raises(ProtocolError, match="0xc answers request"):
        wire.feed(encode_frame(MessageType.DISCOVER_TOPOLOGY, Topology().encode(fetch)))
    with pytest.raises(ProtocolError, match="request id"):
        Wire().feed(encode_frame(MessageType.DISCOVER_TOPOLOGY, b"\1"))


def test_what_came_before_a_broken_frame_is_not_lost() -> None:
    wire = Wire()
    bundle = encode_values([b"x"] * 1000, 0, compress=False)
    part = PartitionAnswer(0, 0, 1, 99_999, (encode_varint(len(bundle)) + bundle) * 40)
    answered = encode_frame(MessageType.CONSUME, encode_consume_answer(wire.fetch(), [("t", 1, [part])]))
    events = wire.feed(answered + b"\xff" * 16)
    assert [type(event) for event in events] == [ChunkReady, ChunkReady, FetchDone, More]
    rows = sum(event.chunk.rows for event in events if isinstance(event, ChunkReady))
    assert wire.connection.more
    with pytest.raises(ProtocolError, match="message type at byte 0"):
        wire.connection.receive(0, 0.0)
    rest = wire.connection.take_chunk()
    assert rest is not None
    assert rows + rest.rows == wire.slots.position(0).a - 1 == 40_000


def test_a_request_has_a_deadline_and_a_wait_extends_it() -> None:
    wire = Wire()
    wire.fetch(wait_ms=2000)
    assert wire.connection.tick(7.9) == ()
    (lost,) = wire.connection.tick(8.0)
    assert lost == Lost("consume was not answered in time")
    wire = Wire()
    wire.ask(DiscoverTopology())
    wire.connection.suspend(1.0)
    assert wire.connection.tick(100.0) == ()
    wire.connection.resume(101.0)
    assert wire.connection.tick(104.9) == ()
    assert isinstance(wire.connection.tick(105.0)[0], Lost)


def test_a_long_answer_that_keeps_coming_is_not_late() -> None:
    wire = Wire()
    frame = answer(wire.fetch(), b"a" * 90)
    assert wire.feed(frame[:50], 4.0) == []
    assert wire.connection.tick(8.0) == ()
    assert isinstance(wire.connection.tick(9.0)[0], Lost)


def test_a_request_that_is_passed_over_is_late_in_the_end() -> None:
    wire = Wire()
    wire.ask(DiscoverTopology())
    lost: list[Event] = []
    for now in range(1, 60):
        wire.feed(answer(wire.fetch(), b"a"), now)
        lost += wire.connection.tick(now)
        if lost:
            break
    assert (now, lost) == (50, [Lost("discover_topology was not answered in time")])


def test_corrupt_bundles_and_full_chunks_are_events_in_order() -> None:
    wire = Wire()
    part = PartitionAnswer(0, 0, 1, 99, b"\x02\x04\x02\x00")
    request_id = wire.fetch()
    events = wire.feed(encode_frame(2, encode_consume_answer(request_id, [("t", 1, [part])])))
    # The first bundle is damaged and becomes a dead letter; the second one is empty.
    assert [type(event) for event in events] == [CorruptFound, FetchDone]
    chunk = wire.connection.take_chunk()
    assert chunk is not None
    assert len(chunk.dead_letters) == 1
    assert ChunkReady not in map(type, events)


def test_a_closed_connection_forgets_its_requests() -> None:
    wire = Wire()
    wire.fetch()
    wire.ask(DiscoverTopology())
    wire.connection.close()
    assert wire.connection.state is State.CLOSED
    assert (wire.connection.awaiting, wire.connection.fetches_outstanding) == (False, 0)
    assert wire.connection.tick(1000.0) == ()
