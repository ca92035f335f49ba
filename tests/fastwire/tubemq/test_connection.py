"""A connection: requests by serial number, deadlines, responses in any order."""

from collections.abc import Sequence

import pytest

from fastwire.columns.chunk import Chunk
from fastwire.errors import ProtocolError
from fastwire.position import Log, Position, register
from fastwire.tubemq import tubemq_pb2 as pb
from fastwire.tubemq.format.error import Refused
from fastwire.tubemq.format.frame import Method, decode_request, encode_refusal, encode_response
from fastwire.tubemq.position import POSITIONS
from fastwire.tubemq.protocol.connection import REQUEST_TIMEOUT_S, Connection
from fastwire.tubemq.protocol.event import CorruptFound, Event, FetchDone, FetchRefused, Lost, Reply
from fastwire.tubemq.reading.fetched import Planned
from fastwire.tubemq.reading.scan import Scanner
from fastwire.tubemq.reading.slot import SlotTable
from fastwire.wire.pool import Pool
from tests.support.tubemq.golden import content_of

register(POSITIONS)

CLOSE = pb.CloseRequestC2M(clientId="c", groupName="g")
CLOSED = pb.CloseResponseM2C(success=True, errCode=200, errMsg="OK!")
GET = pb.GetMessageRequestC2B(clientId="c", partitionId=0, groupName="g", topicName="gold")
EMPTY = pb.GetMessageResponseB2C(success=True, errCode=200, errMsg="OK!", currOffset=0, maxOffset=0)


class Bed:
    def __init__(self, **options: str) -> None:
        slots = SlotTable()
        self.index = slots.add(Log("tubemq", "c", "gold", "1:0"))
        slots.attach(self.index, Position(0, 0), 1)
        self.connection = Connection(Scanner(slots, Pool(64 << 20), **options))  # type: ignore[arg-type]

    def feed(self, data: bytes, now: float = 0.0) -> Sequence[Event]:
        view = self.connection.get_buffer(len(data))
        view[: len(data)] = data
        view.release()
        return self.connection.receive(len(data), now)


def test_requests_are_numbered_and_answered_in_any_order() -> None:
    bed = Bed()
    first = bed.connection.request(Method.CONSUMER_CLOSE, CLOSE, 0.0)
    second = bed.connection.request(Method.CONSUMER_CLOSE, CLOSE, 0.0)
    sent = bed.connection.take_outbound()
    assert [int.from_bytes(frame[4:8]) for frame in sent] == [first, second] == [1, 2]
    assert [decode_request(content_of(frame)).timeout_ms for frame in sent] == [10_000, 10_000]
    assert bed.connection.awaiting
    answers = [encode_response(serial, Method.CONSUMER_CLOSE, CLOSED) for serial in (second, first)]
    assert bed.feed(b"".join(answers)) == [Reply(second, CLOSED), Reply(first, CLOSED)]
    assert not bed.connection.awaiting


def test_an_answer_that_nothing_waits_for_is_ignored() -> None:
    bed = Bed()
    serial = bed.connection.request(Method.CONSUMER_CLOSE, CLOSE, 0.0)
    refused = Refused("x.ServiceStoppingException", "", False)
    answer = encode_response(serial, Method.CONSUMER_CLOSE, CLOSED)
    assert bed.feed(encode_refusal(serial, refused) + answer) == [Reply(serial, refused)]
    assert refused.stopping


def test_a_request_without_an_answer_loses_the_connection() -> None:
    bed = Bed()
    bed.connection.request(Method.CONSUMER_CLOSE, CLOSE, 0.0)
    assert bed.connection.tick(REQUEST_TIMEOUT_S - 0.1) == ()
    (lost,) = bed.connection.tick(REQUEST_TIMEOUT_S)
    assert isinstance(lost, Lost)
    assert lost.reason == "CONSUMER_CLOSE (request 1) was not answered in time"


def test_bytes_postpone_the_response_in_arrival_and_those_behind_it() -> None:
    bed = Bed()
    first = bed.connection.get(GET, Planned(bed.index, 1), 0.0)
    bed.connection.request(Method.CONSUMER_CLOSE, CLOSE, 0.0)
    frame = encode_response(first, Method.GET, EMPTY)
    for at in range(5):
        assert bed.feed(frame[at : at + 1], at * 9.0) == ()
        assert bed.connection.tick(at * 9.0 + 8.9) == ()
    bed.feed(frame[5:], 45.0)
    assert bed.connection.tick(54.9) == ()
    assert len(bed.connection.tick(55.0)) == 1


def test_bytes_do_not_postpone_a_request_that_was_passed_over() -> None:
    bed = Bed()
    bed.connection.request(Method.CONSUMER_CLOSE, CLOSE, 0.0)
    second = bed.connection.request(Method.CONSUMER_CLOSE, CLOSE, 0.0)
    bed.feed(encode_response(second, Method.CONSUMER_CLOSE, CLOSED), 9.0)
    (lost,) = bed.connection.tick(10.0)
    assert isinstance(lost, Lost)
    assert "(request 1)" in lost.reason


def test_a_rest_moves_all_deadlines() -> None:
    bed = Bed()
    bed.connection.request(Method.CONSUMER_CLOSE, CLOSE, 0.0)
    bed.connection.suspend(5.0)
    assert bed.connection.tick(100.0) == ()
    bed.connection.resume(105.0)
    assert bed.connection.tick(109.9) == ()
    assert len(bed.connection.tick(110.0)) == 1


def test_a_get_is_done_or_refused() -> None:
    bed = Bed()
    planned = Planned(bed.index, 1)
    first = bed.connection.get(GET, planned, 0.0)
    second = bed.connection.get(GET, planned, 0.0)
    assert (bed.connection.fetches_outstanding, bed.connection.awaiting) == (2, False)
    (done,) = bed.feed(encode_response(first, Method.GET, EMPTY))
    assert isinstance(done, FetchDone)
    assert done.fetched.serial == first
    refused = Refused("java.lang.Exception", "No service 2 found on the server", False)
    assert bed.feed(encode_refusal(second, refused)) == [FetchRefused(second, refused)]
    assert bed.connection.fetches_outstanding == 0


def test_rows_stay_in_the_open_chunk_and_damage_is_told() -> None:
    bed = Bed(on_corrupt="stop")
    serial = bed.connection.get(GET, Planned(bed.index, 1), 0.0)
    body = pb.GetMessageResponseB2C()
    body.CopyFrom(EMPTY)
    body.messages.add(messageId=1, checkSum=0, payLoadData=b"", flag=0)
    body.messages.add(messageId=2, checkSum=9, payLoadData=b"", flag=0)
    corrupt, done = bed.feed(encode_response(serial, Method.GET, body), 7.0)
    assert isinstance(corrupt, CorruptFound)
    assert isinstance(done, FetchDone)
    assert bed.connection.open_since == 7.0
    chunk = bed.connection.take_chunk()
    assert isinstance(chunk, Chunk)
    assert chunk.rows == 1


def test_a_closed_connection_takes_no_request() -> None:
    bed = Bed()
    bed.connection.request(Method.CONSUMER_CLOSE, CLOSE, 0.0)
    bed.connection.close()
    assert bed.connection.take_outbound() == []
    assert bed.connection.tick(99.0) == ()
    with pytest.raises(ValueError, match="closed"):
        bed.connection.request(Method.CONSUMER_CLOSE, CLOSE, 0.0)


def test_a_get_is_not_sent_as_another_request() -> None:
    with pytest.raises(ValueError, match="GET"):
        Bed().connection.request(Method.GET, GET, 0.0)


def test_an_answer_of_another_method_is_a_protocol_error() -> None:
    bed = Bed()
    serial = bed.connection.request(Method.CONSUMER_CLOSE, CLOSE, 0.0)
    heart = pb.HeartResponseM2C(success=True, errCode=200, errMsg="")
    with pytest.raises(ProtocolError, match="5 answers a request of 6"):
        bed.feed(encode_response(serial, Method.CONSUMER_HEARTBEAT, heart))
