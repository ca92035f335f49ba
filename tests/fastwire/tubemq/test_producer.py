"""A producer: registration, partitions in turn, sends that are repeated."""

from typing import Any

import pytest
from google.protobuf.message import Message

from fastwire.errors import ProtocolError
from fastwire.tubemq import tubemq_pb2 as pb
from fastwire.tubemq.format.error import BrokerError
from fastwire.tubemq.format.frame import Method
from fastwire.tubemq.groups.master import ClientSettings, State
from fastwire.tubemq.producing.producer import Producer
from tests.support.tubemq.golden import EXAMPLES

GOLDEN: dict[str, Any] = {one.name: one.body for one in EXAMPLES if "message" in one.entry}
SETTINGS = ClientSettings(client_id="127.0.0.1-100-1-1-fw", host="127.0.0.1", topics=("gold",))
CHECK = 1795248042567


def beat(*topics: str, code: int = 200, **fields: Any) -> pb.HeartResponseM2P:
    return pb.HeartResponseM2P(
        success=code == 200, errCode=code, errMsg="said", brokerCheckSum=CHECK, topicInfos=topics, **fields
    )


def step(one: Producer, now: float, answer: Message, method: Method) -> Any:
    made = one.take_request(now)
    assert made is not None
    assert made[0] is method
    one.answered(answer, now)
    return made[1]


def ready(*topics: str) -> Producer:
    one = Producer(SETTINGS, address=0x7F000001)
    step(one, 0.0, GOLDEN["e16_response"], Method.PRODUCER_REGISTER)
    step(one, 0.0, beat(*topics), Method.PRODUCER_HEARTBEAT)
    return one


def stored(code: int = 200) -> pb.SendMessageResponseB2P:
    return pb.SendMessageResponseB2P(success=code == 200, errCode=code, errMsg="said")


def chosen(one: Producer, count: int, now: float = 0.0) -> list[str | None]:
    found = [one.choose("gold", now) for _ in range(count)]
    return [None if each is None else each.name for each in found]


def test_the_real_conversation() -> None:
    one = Producer(SETTINGS, address=0x7F000001)
    made = step(one, 0.0, GOLDEN["e16_response"], Method.PRODUCER_REGISTER)
    made.ClearField("appdConfig")
    assert made == GOLDEN["e16_request"]
    assert one.message_bytes("gold") == 1 << 20
    made = step(one, 0.0, beat("gold#1:2:1#"), Method.PRODUCER_HEARTBEAT)
    assert (made.brokerCheckSum, made.appdConfig.configId) == (CHECK, 1795248928290)
    place = one.choose("gold", 0.0)
    assert place is not None
    assert one.request(place, b"hello") == GOLDEN["e17_request"]
    assert one.sent(place, GOLDEN["e17_response"], 0.0)
    assert one.next_at() == 10.0
    one.close(1.0)
    step(one, 1.0, pb.CloseResponseM2P(success=True, errCode=200, errMsg="OK!"), Method.PRODUCER_CLOSE)
    assert one.state is State.CLOSED


def test_messages_go_to_all_partitions_in_turn() -> None:
    one = ready("gold#1:2:2#")
    assert chosen(one, 5) == ["1:0", "1:1", "1:10000", "1:10001", "1:0"]


def test_a_message_may_be_for_some_of_the_partitions() -> None:
    one = ready("gold#1:2:2#")
    found = [one.choose("gold", 0.0, lambda partition: partition.number in (1, 10_001)) for _ in range(3)]
    assert [each and each.name for each in found] == ["1:1", "1:10001", "1:1"]
    assert one.choose("gold", 0.0, lambda partition: False) is None


def test_partitions_come_and_go_with_heartbeats() -> None:
    one = ready()
    assert chosen(one, 1) == [None]
    step(one, 10.0, beat("gold#1:2:1#", "other#1:1:1#"), Method.PRODUCER_HEARTBEAT)
    assert chosen(one, 2) == ["1:0", "1:1"]
    step(one, 20.0, beat("gold#1:1:1,2:1:1#", brokerInfos=["1:a:1", "2:b:2"]), Method.PRODUCER_HEARTBEAT)
    assert sorted(map(str, chosen(one, 2))) == ["1:0", "2:0"]
    step(one, 30.0, beat("gold#3:1:1#"), Method.PRODUCER_HEARTBEAT)  # of a broker that is not known
    assert chosen(one, 1) == [None]


def test_a_list_without_end_changes_nothing() -> None:
    one = ready("gold#1:2:1#")
    with pytest.raises(ProtocolError, match="names 300,000 partitions"):
        step(one, 10.0, beat(*["gold#1:100:1000#"] * 3), Method.PRODUCER_HEARTBEAT)
    assert chosen(one, 2) == ["1:0", "1:1"]


def test_a_send_that_fails_is_repeated_elsewhere() -> None:
    one = ready("gold#1:2:1#")
    first = one.choose("gold", 0.0)
    assert first is not None
    assert not one.sent(first, None, 0.0)  # the response was lost
    assert chosen(one, 2) == ["1:1", "1:1"]
    second = one.choose("gold", 0.5)
    assert second is not None
    assert not one.sent(second, stored(419), 0.5)
    assert chosen(one, 1, 0.9) == [None]
    assert chosen(one, 2, 1.1) == ["1:0", "1:0"]
    assert sorted(map(str, chosen(one, 2, 1.6))) == ["1:0", "1:1"]


def test_a_closed_partition_is_asked_about_at_once() -> None:
    one = ready("gold#1:2:1#")
    place = one.choose("gold", 3.0)
    assert place is not None
    assert not one.sent(place, stored(403), 3.0)
    assert one.next_at() == 3.0


@pytest.mark.parametrize("code", [400, 415])
def test_a_message_that_no_partition_stores(code: int) -> None:
    one = ready("gold#1:2:1#")
    place = one.choose("gold", 0.0)
    assert place is not None
    with pytest.raises(BrokerError):
        one.sent(place, stored(code), 0.0)


def test_the_size_of_a_message() -> None:
    one = ready("gold#1:1:1#10")
    place = one.choose("gold", 0.0)
    assert place is not None
    assert one.request(place, bytes(10)).data == bytes(10)
    with pytest.raises(ValueError, match="a message of 11 bytes: gold stores 10 at most"):
        one.request(place, bytes(11))
    step(one, 10.0, beat("gold#1:1:1#"), Method.PRODUCER_HEARTBEAT)
    assert one.message_bytes("gold") == 1 << 20


def test_a_master_that_does_not_know_the_producer_is_registered_at_again() -> None:
    one = ready("gold#1:2:1#")
    step(one, 10.0, beat(code=411), Method.PRODUCER_HEARTBEAT)
    assert chosen(one, 1) == ["1:0"]  # brokers store without the Master
    made = step(one, 10.0, GOLDEN["e16_response"], Method.PRODUCER_REGISTER)
    assert made.brokerCheckSum == CHECK


def test_a_lost_heartbeat_is_repeated() -> None:
    one = ready("gold#1:2:1#")
    assert one.take_request(10.0) is not None
    one.failed(20.0)
    assert one.next_at() == 21.0
    step(one, 21.0, beat("gold#1:1:1#"), Method.PRODUCER_HEARTBEAT)
