"""A member of a client-balanced group: registration, metadata, its share, refusals, the operator's jump."""

from typing import Any

import pytest
from google.protobuf.message import Message

from fastwire.errors import ProtocolError
from fastwire.tubemq import tubemq_pb2 as pb
from fastwire.tubemq.format.error import BrokerError
from fastwire.tubemq.format.frame import Method
from fastwire.tubemq.format.text import Broker, BrokerPartition
from fastwire.tubemq.groups.client_membership import ClientMembership, NodeSettings
from fastwire.tubemq.groups.master import Change, State
from tests.support.tubemq.golden import EXAMPLES

GOLDEN: dict[str, Any] = {one.name: one.body for one in EXAMPLES if "message" in one.entry}
BROKER = Broker(1, "127.0.0.1", 18123)
ZERO, ONE, TWO = (BrokerPartition(BROKER, "gold", number) for number in range(3))
MS = 1_700_000_000_000


def member(source_count: int = 1, node_id: int = 0, **settings: Any) -> ClientMembership:
    return ClientMembership(
        NodeSettings(
            client_id="fwb_127.0.0.1-100-1-1-Balance-fw",
            group="fwb",
            host="127.0.0.1",
            topics=("gold",),
            source_count=source_count,
            node_id=node_id,
            **settings,
        )
    )


def step(one: ClientMembership, now: float, answer: Message, method: Method) -> Any:
    made = one.take_request(now)
    assert made is not None
    assert made[0] is method
    assert one.take_request(now) is None  # one at a time
    one.answered(answer, now, MS)
    return made[1]


def ready(**settings: Any) -> ClientMembership:
    one = member(**settings)
    step(one, 0.0, GOLDEN["e13_response"], Method.CLIENT_REGISTER)
    step(one, 0.0, GOLDEN["e14_response"], Method.CLIENT_METADATA)
    return one


def test_a_number_that_is_taken_is_asked_for_until_the_master_frees_it() -> None:
    """A member that was killed has it for 30 s."""
    one, now = member(), 0.0
    while now < 31:
        step(one, now, pb.RegisterResponseM2CV2(errCode=430, errMsg="taken"), Method.CLIENT_REGISTER)
        at = one.next_at()
        assert at is not None
        assert at - now <= 5
        now = at


def metadata(topic_id: int, *texts: str) -> pb.GetPartMetaResponseM2C:
    return pb.GetPartMetaResponseM2C(errCode=200, errMsg="OK!", topicMetaInfoId=topic_id, topicMetaInfoList=texts)


def test_the_real_conversation() -> None:
    one = member(filters={"gold": ["bbb", "aaa"]})
    made = step(one, 0.0, GOLDEN["e13_response"], Method.CLIENT_REGISTER)
    made.sourceCount = made.nodeId = -2
    made.ClearField("opsTaskInfo")
    assert made == GOLDEN["e13_request"]
    assert one.token.visit == 1795248762351
    assert step(one, 0.0, GOLDEN["e14_response"], Method.CLIENT_METADATA) == GOLDEN["e14_request"]
    assert one.take_share(0.0) == Change(take=(ZERO, ONE))
    assert one.take_share(0.0) is None
    one.took(ZERO)
    one.took(ONE)
    made = step(one, 0.0, GOLDEN["e15_response"], Method.CLIENT_HEARTBEAT)
    made.ClearField("opsTaskInfo")
    assert made == GOLDEN["e15_request"]
    assert one.next_at() == 10.0
    one.close(1.0)
    made = one.take_request(1.0)
    assert made is not None
    assert made[0] is Method.CONSUMER_CLOSE
    one.answered(GOLDEN["e12_response"], 1.0, MS)
    assert one.state is State.CLOSED


def test_metadata_and_heartbeats_have_their_own_times() -> None:
    one = ready()
    step(one, 3.0, GOLDEN["e15_response"], Method.CLIENT_HEARTBEAT)  # late
    assert one.next_at() == 10.0
    step(one, 10.0, metadata(1), Method.CLIENT_METADATA)
    assert one.next_at() == 13.0
    step(one, 13.0, GOLDEN["e15_response"], Method.CLIENT_HEARTBEAT)
    assert one.next_at() == 20.0


def test_the_period_of_heartbeats_is_a_setting() -> None:
    one = ready(heartbeat_s=2.0)
    step(one, 0.0, GOLDEN["e15_response"], Method.CLIENT_HEARTBEAT)
    assert one.next_at() == 2.0


def test_nodes_share_the_partitions() -> None:
    shares = [ready(source_count=2, node_id=node).take_share(0.0) for node in (0, 1)]
    taken = [each for found in shares if found is not None for each in found.take]
    assert sorted(taken) == [ZERO, ONE]
    with pytest.raises(ValueError, match="node_id 2"):
        member(2, 2)


def test_partitions_that_come_and_go() -> None:
    one = ready()
    one.take_share(0.0)
    one.took(ZERO)
    one.took(ONE)
    step(one, 0.0, GOLDEN["e15_response"], Method.CLIENT_HEARTBEAT)
    step(one, 10.0, metadata(7, "gold#1:1:3:1"), Method.CLIENT_METADATA)
    assert one.take_share(10.0) == Change(take=(TWO,))
    one.took(TWO)
    step(one, 10.0, GOLDEN["e15_response"], Method.CLIENT_HEARTBEAT)
    step(one, 20.0, metadata(8, "gold#1:1:3:0"), Method.CLIENT_METADATA)  # not to be subscribed any more
    assert one.take_share(20.0) == Change(give_up=(ZERO, ONE, TWO))
    assert not one.held
    made = step(one, 20.0, GOLDEN["e15_response"], Method.CLIENT_HEARTBEAT)
    assert (made.subRepInfo.reportSubInfo, list(made.subRepInfo.partSubInfo)) == (True, [])


def test_partitions_of_other_topics_and_without_end_are_not_taken() -> None:
    one = ready()
    share = one.take_share(0.0)
    step(one, 0.0, GOLDEN["e15_response"], Method.CLIENT_HEARTBEAT)
    step(one, 10.0, metadata(7, "secrets#1:1:3:1", "gold#1:1:2:1"), Method.CLIENT_METADATA)
    assert share == Change(take=(ZERO, ONE))
    assert one.take_share(10.0) is None
    step(one, 10.0, GOLDEN["e15_response"], Method.CLIENT_HEARTBEAT)
    with pytest.raises(ProtocolError, match="names 300,000 partitions"):
        step(one, 20.0, metadata(8, *["gold#1:1000:100:1"] * 3), Method.CLIENT_METADATA)
    assert one.chosen == frozenset({ZERO.key, ONE.key})


def test_a_partition_that_left_while_it_was_registered_is_given_up() -> None:
    one = ready()
    one.take_share(0.0)
    step(one, 0.0, GOLDEN["e15_response"], Method.CLIENT_HEARTBEAT)
    step(one, 10.0, metadata(7, "gold#1:1:1:1"), Method.CLIENT_METADATA)
    one.took(ONE)
    assert one.take_share(10.0) == Change(give_up=(ONE,))


def test_a_refused_partition_is_tried_again_after_5_s() -> None:
    one = ready()
    one.take_share(0.0)
    one.took(ZERO)
    one.refused(ONE, 1.0)
    step(one, 1.0, GOLDEN["e15_response"], Method.CLIENT_HEARTBEAT)
    assert one.next_at() == 6.0
    assert one.take_share(5.9) is None
    assert one.take_request(6.0) is None  # it is the time of a share only
    assert one.take_share(6.0) == Change(take=(ONE,))
    assert one.next_at() == 10.0


def test_a_lost_partition_is_reported_and_registered_again_later() -> None:
    one = ready()
    one.take_share(0.0)
    one.took(ZERO)
    one.took(ONE)
    step(one, 0.0, GOLDEN["e15_response"], Method.CLIENT_HEARTBEAT)
    body = pb.HeartBeatResponseB2C(success=True, errCode=200, errMsg="", hasPartFailure=True)
    body.failureInfo.append(f"412:{ONE}")
    assert one.broker_answered(BROKER, body, 2.0) == [ONE]
    made = step(one, 2.0, GOLDEN["e15_response"], Method.CLIENT_HEARTBEAT)
    assert list(made.subRepInfo.partSubInfo) == ["gold#1:0"]
    assert one.take_share(6.9) is None
    assert one.take_share(7.0) == Change(take=(ONE,))


def test_the_operator_moves_members_to_the_end_once() -> None:
    one = ready()
    one.take_share(0.0)
    answer = pb.HeartResponseM2CV2(errCode=200, errMsg="")
    answer.opsTaskInfo.csmFrmMaxOffsetCtrlId = MS - 1  # before the registration
    step(one, 0.0, answer, Method.CLIENT_HEARTBEAT)
    assert one.take_share(0.0) is None
    answer.opsTaskInfo.csmFrmMaxOffsetCtrlId = MS + 1
    for share in (Change(to_end=True), None):
        step(one, 10.0, metadata(1), Method.CLIENT_METADATA)
        made = step(one, 10.0, answer, Method.CLIENT_HEARTBEAT)
        assert one.take_share(10.0) == share
        one._metadata_at = one._heartbeat_at = one._due = 10.0
    assert made.opsTaskInfo.csmFrmMaxOffsetCtrlId == MS + 1


def test_a_master_that_does_not_know_the_client_is_registered_at_again() -> None:
    one = ready()
    one.take_share(0.0)
    one.took(ZERO)
    step(one, 0.0, pb.HeartResponseM2CV2(errCode=411, errMsg="who"), Method.CLIENT_HEARTBEAT)
    made = step(one, 0.0, GOLDEN["e13_response"], Method.CLIENT_REGISTER)
    assert list(made.subRepInfo.partSubInfo) == ["gold#1:0"]


def test_a_lost_response_is_asked_for_again() -> None:
    one = ready()
    one.take_share(0.0)
    one.took(ZERO)
    assert one.take_request(0.0) is not None
    one.failed(10.0)
    assert one.next_at() == 11.0
    step(one, 11.0, metadata(1), Method.CLIENT_METADATA)
    made = step(one, 11.0, GOLDEN["e15_response"], Method.CLIENT_HEARTBEAT)
    assert made.subRepInfo.reportSubInfo


@pytest.mark.parametrize("code", [415, 424, 429])
def test_a_registration_that_is_refused_for_good(code: int) -> None:
    one = member()
    with pytest.raises(BrokerError):
        step(one, 0.0, pb.RegisterResponseM2CV2(errCode=code, errMsg="no"), Method.CLIENT_REGISTER)
