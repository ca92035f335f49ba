"""Messages until they are stored: partitions in turn, repeated requests, results."""

from typing import Any

import pytest

from fastwire.errors import FastwireError
from fastwire.producer import NotConfirmed
from fastwire.tubemq import tubemq_pb2 as pb
from fastwire.tubemq.format.error import BrokerError
from fastwire.tubemq.format.frame import Method
from fastwire.tubemq.format.text import Broker
from fastwire.tubemq.groups.master import ClientSettings
from fastwire.tubemq.producing.outbox import Outbox, OutgoingMessage, Sending
from fastwire.tubemq.producing.producer import Producer

ONE, TWO = Broker(1, "a", 1), Broker(2, "b", 2)
BOTH = {ONE, TWO}


def message(value: bytes = b"v", number: int | None = None) -> OutgoingMessage:
    return OutgoingMessage(value, number=number)


class Bed:
    """An outbox whose topic has the partitions 0 and 1 on each of two Brokers."""

    def __init__(self, topics: str = "t#1:2:1,2:2:1#", **options: Any) -> None:
        producer = Producer(ClientSettings(client_id="h-1-1-fw", host="h", topics=("t",)))
        self.producer = producer
        self.step(
            pb.RegisterResponseM2P(
                success=True, errCode=200, errMsg="", brokerCheckSum=1, brokerInfos=["1:a:1", "2:b:2"]
            )
        )
        self.step(pb.HeartResponseM2P(success=True, errCode=200, errMsg="", brokerCheckSum=1, topicInfos=[topics]))
        self.box = Outbox(producer, "t", **options)

    def step(self, body: pb.RegisterResponseM2P | pb.HeartResponseM2P) -> None:
        found = self.producer.take_request(0.0)
        assert found is not None
        assert found[0] in (Method.PRODUCER_REGISTER, Method.PRODUCER_HEARTBEAT)
        self.producer.answered(body, 0.0)

    def take(self, brokers: set[Broker] = BOTH, now: float = 0.0) -> Sending:
        found = self.box.take(brokers, now)
        assert found is not None
        sending, request = found
        assert sending.partition is not None
        assert (request.data, request.partitionId) == (sending.message.value, sending.partition.number)
        return sending

    def name(self, brokers: set[Broker] = BOTH, now: float = 0.0) -> str:
        partition = self.take(brokers, now).partition
        assert partition is not None
        return partition.name

    def answer(self, sending: Sending, code: int = 200, offset: int = 28, now: float = 0.0) -> None:
        body = pb.SendMessageResponseB2P(success=code == 200, errCode=code, errMsg="said", appendOffset=offset)
        self.box.answered(sending, body, "", now)

    def lose(self, sending: Sending, now: float = 0.0) -> None:
        self.box.answered(sending, None, "the connection was lost", now)


def test_messages_go_round_the_partitions_of_connected_brokers() -> None:
    bed = Bed()
    for number in range(6):
        bed.box.send(message(), number, 0.0)
    assert [bed.name() for _ in range(3)] == ["1:0", "1:1", "2:0"]
    assert [bed.name({ONE}) for _ in range(2)] == ["1:0", "1:1"]
    assert bed.box.take(set(), 0.0) is None
    assert bed.name({TWO}) == "2:0"
    assert bed.box.take(BOTH, 0.0) is None
    assert not bed.box.idle


def test_a_stored_message_has_its_place() -> None:
    bed = Bed()
    bed.box.send(message(b"value"), "ticket", 0.0)
    assert bed.box.weight == 205
    sending = bed.take()
    bed.answer(sending, offset=56)
    (stored,) = bed.box.take_results()
    assert stored.partition is not None
    assert (stored.ticket, stored.size, stored.partition.name, stored.offset, stored.error) == (
        "ticket", 5, "1:0", 56, None,
    )  # fmt: skip
    assert (bed.box.weight, bed.box.idle, bed.box.take_results()) == (0, True, [])


def test_a_message_for_a_partition_waits_for_it_and_delays_no_other() -> None:
    bed = Bed()
    bed.box.send(message(number=1), "for 1", 0.0)
    places = []
    for _ in range(2):
        sending = bed.take()
        assert sending.partition is not None
        places.append(sending.partition.name)
        bed.lose(sending)
    assert places == ["1:1", "2:1"]  # both rest
    bed.box.send(message(), "any", 0.0)
    assert bed.name() == "1:0"
    assert bed.box.take(BOTH, 0.5) is None
    assert bed.name(now=1.1) == "1:1"


@pytest.mark.parametrize("code", [419, 403, 503, 0])
def test_a_message_that_is_not_stored_goes_elsewhere_before_the_others(code: int) -> None:
    bed = Bed()
    for number in range(2):
        bed.box.send(message(b"%d" % number), number, 0.0)
    first = bed.take()
    if code:
        bed.answer(first, code)
    else:
        bed.lose(first)
    again = bed.take()
    assert again is first
    assert again.partition is not None
    assert again.partition.name == "1:1"
    assert bed.take().message.value == b"1"


def test_messages_of_a_lost_connection_keep_their_order() -> None:
    bed = Bed()
    for number in range(5):
        bed.box.send(message(b"%d" % number, number=0), number, 0.0)
    in_flight = [bed.take({ONE}) for _ in range(4)]
    for sending in (in_flight[0], in_flight[2], in_flight[1], in_flight[3]):
        bed.lose(sending)
    assert [bed.take({ONE}, now=2.0).message.value for _ in range(5)] == [b"0", b"1", b"2", b"3", b"4"]


def test_a_message_that_is_not_stored_in_time_fails_with_the_last_reason() -> None:
    bed = Bed(send_timeout_s=10)
    assert bed.box.deadline is None
    bed.box.send(message(), "first", 0.0)
    bed.box.send(message(), "second", 4.0)
    assert bed.box.deadline == 10.0
    sending = bed.take()
    bed.box.tick(10.0)
    assert bed.box.take_results() == []  # its response may come
    bed.answer(sending, 419, now=11.0)
    bed.box.tick(11.0)
    (failed,) = bed.box.take_results()
    assert failed.ticket == "first"
    assert isinstance(failed.error, NotConfirmed)
    assert str(failed.error).startswith("not stored within 10 s: 1:a:1#t:0: SERVER_RECEIVE_OVERFLOW (419): said")
    assert bed.box.deadline == 14.0


def test_a_message_that_no_partition_stores_fails_alone() -> None:
    bed = Bed("t#1:2:1,2:2:1#10")
    for value in (b"bad", bytes(11), b"good"):
        bed.box.send(message(value), value, 0.0)
    bed.answer(bed.take(), 400)
    bed.answer(bed.take())
    refused, large, stored = bed.box.take_results()
    assert isinstance(refused.error, BrokerError)
    assert str(large.error) == "a message of 11 bytes: t stores 10 at most"
    assert (refused.ticket, large.ticket, stored.ticket, stored.error) == (b"bad", bytes(11), b"good", None)
    assert bed.box.failure is None


def test_refused_credentials_end_the_producer() -> None:
    bed = Bed()
    for number in range(3):
        bed.box.send(message(), number, 0.0)
    first, second = bed.take(), bed.take()
    bed.answer(first, 415)
    assert sorted(str(one.ticket) for one in bed.box.take_results()) == ["0", "1", "2"]
    assert isinstance(bed.box.failure, BrokerError)
    bed.answer(second)
    assert (bed.box.take_results(), bed.box.weight, bed.box.idle) == ([], 0, True)
    with pytest.raises(BrokerError):
        bed.box.send(message(), 3, 0.0)


def test_a_broker_has_a_limit_of_requests_in_flight() -> None:
    bed = Bed("t#1:2:1#", most_in_flight=2)
    for number in range(3):
        bed.box.send(message(), number, 0.0)
    first = bed.take()
    bed.take()
    assert bed.box.take(BOTH, 0.0) is None
    bed.answer(first)
    assert bed.name() == "1:0"


def test_an_end_fails_all_messages() -> None:
    bed = Bed()
    for number in range(3):
        bed.box.send(message(number=number % 2), number, 0.0)
    bed.take()
    error = FastwireError("closed")
    bed.box.fail(error)
    results = bed.box.take_results()
    assert sorted(str(one.ticket) for one in results) == ["0", "1", "2"]
    assert all(one.error is error for one in results)
    assert (bed.box.weight, bed.box.idle) == (0, True)


def test_a_message_whose_response_is_lost_fails_if_it_must_not_be_sent_twice() -> None:
    bed = Bed(resend=False)
    bed.box.send(message(b"a"), "a", 0.0)
    bed.box.send(message(b"b"), "b", 0.0)
    lost, refused = bed.take(), bed.take()
    bed.lose(lost)
    bed.answer(refused, 503)  # it is not stored
    (stored,) = bed.box.take_results()
    assert stored.ticket == "a" and isinstance(stored.error, NotConfirmed)
    assert bed.take(now=10.0).message.value == b"b"
