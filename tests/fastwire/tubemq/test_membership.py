"""A member of a server-balanced group: registration, heartbeats, events and their results, losses."""

import dataclasses
from contextlib import suppress
from typing import Any

import pytest

from fastwire.errors import ProtocolError
from fastwire.tubemq import tubemq_pb2 as pb
from fastwire.tubemq.format.error import BrokerError
from fastwire.tubemq.format.frame import Method
from fastwire.tubemq.format.text import Broker, BrokerPartition
from fastwire.tubemq.groups import membership
from fastwire.tubemq.groups.master import Change
from fastwire.tubemq.groups.membership import EventType, Membership, Settings, State
from fastwire.tubemq.reading.flow import NO_RULES
from tests.support.tubemq.golden import EXAMPLES

GOLDEN = {one.name: one for one in EXAMPLES}
CLIENT = "fw_127.0.0.1-100-1-1-Pull-fw"
SETTINGS = Settings(client_id=CLIENT, group="fw", host="127.0.0.1", topics=("gold",), session_time_ms=1_700_000_000_000)
BROKER = Broker(1, "127.0.0.1", 18123)
ZERO, ONE = (BrokerPartition(BROKER, "gold", number) for number in (0, 1))
CLOSED = pb.CloseResponseM2C(success=True, errCode=200, errMsg="OK!")


def request(member: Membership, now: float) -> Any:
    made = member.take_request(now)
    assert made is not None
    assert member.take_request(now) is None  # one at a time
    return made[1]


def beat(event: tuple[int, int, tuple[BrokerPartition, ...]] | None = None, code: int = 200) -> pb.HeartResponseM2C:
    body = pb.HeartResponseM2C(success=code == 200, errCode=code, errMsg="said")
    if event is not None:
        number, kind, partitions = event
        texts = [each.subscription(CLIENT, "fw") for each in partitions]
        body.event.CopyFrom(pb.EventProto(rebalanceId=number, opType=kind, subscribeInfo=texts))
    return body


def registered() -> Membership:
    member = Membership(SETTINGS)
    request(member, 0.0)
    assert member.answered(GOLDEN["e01_response"].body, 0.0) is None
    return member


def heartbeat(member: Membership, now: float, answer: pb.HeartResponseM2C) -> tuple[pb.HeartRequestC2M, Any]:
    made = request(member, now)
    assert isinstance(made, pb.HeartRequestC2M)
    return made, member.answered(answer, now)


def test_the_real_conversation_byte_for_byte() -> None:
    member = Membership(SETTINGS)
    assert request(member, 0.0) == GOLDEN["e01_request"].body
    member.answered(GOLDEN["e01_response"].body, 0.0)
    assert member.token.visit == 1795248762351
    made, assignment = heartbeat(member, 0.0, GOLDEN["e02_response"].body)  # type: ignore[arg-type]
    assert made == GOLDEN["e02_request"].body
    assert assignment == Change(take=(ONE, ZERO), rebalance_id=114)
    member.took(ONE)
    member.took(ZERO)
    assert member.finished(114, 3.0)
    made, assignment = heartbeat(member, 3.0, GOLDEN["e03_response"].body)  # type: ignore[arg-type]
    assert made == GOLDEN["e03_request"].body
    assert assignment is None
    member.close(4.0)
    assert request(member, 4.0) == GOLDEN["e12_request"].body
    member.answered(CLOSED, 4.0)
    assert member.state is State.CLOSED
    assert member.next_at() is None


def test_a_login_that_is_refused_is_repeated_ever_later() -> None:
    member, now = Membership(SETTINGS), 0.0
    member.logs_in_again = True
    waits = []
    for _ in range(8):
        request(member, now)
        member.answered(pb.RegisterResponseM2C(success=False, errCode=415, errMsg="said"), now)
        at = member.next_at()
        assert at is not None
        waits.append(at - now)
        now = at
    assert waits == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]
    request(member, now)
    member.answered(GOLDEN["e01_response"].body, now)
    for _ in range(3):
        heartbeat(member, now, beat(code=415))
        assert member.next_at() == now + SETTINGS.heartbeat_s, "the Master would forget it"
        now += SETTINGS.heartbeat_s


def test_each_result_is_sent_once() -> None:
    member = registered()
    _, assignment = heartbeat(member, 0.0, beat((7, EventType.CONNECT, (ZERO,))))
    assert assignment == Change(take=(ZERO,), rebalance_id=7)
    made, _ = heartbeat(member, 10.0, beat())
    assert not made.HasField("event")  # the work goes on
    assert member.finished(7, 12.0)
    assert not member.finished(7, 12.0)
    made, _ = heartbeat(member, 12.0, beat())
    assert (made.event.rebalanceId, made.event.status, made.reportSubscribeInfo) == (7, 2, True)
    assert list(made.subscribeInfo) == []  # it could not be registered
    assert not member.finished(7, 13.0)
    made, _ = heartbeat(member, 22.0, beat())
    assert not made.HasField("event")


def test_a_disconnect_is_an_assignment_too() -> None:
    member = registered()
    member.took(ZERO)
    member.took(ONE)
    _, assignment = heartbeat(member, 0.0, beat((8, EventType.ONLY_DISCONNECT, (ZERO,))))
    assert assignment == Change(give_up=(ZERO,), rebalance_id=8)
    member.gave_up(assignment.give_up)
    member.finished(8, 1.0)
    made, _ = heartbeat(member, 1.0, beat())
    assert list(made.subscribeInfo) == [ONE.subscription(CLIENT, "fw")]


def test_an_event_without_work_is_finished_at_once() -> None:
    member = registered()
    _, assignment = heartbeat(member, 0.0, beat((9, EventType.REPORT, ())))
    assert assignment is None
    made, _ = heartbeat(member, 0.0, beat())
    assert (made.event.rebalanceId, made.event.opType) == (9, EventType.REPORT)


def test_a_newer_event_replaces_one_that_the_master_has_cleared() -> None:
    member = registered()
    heartbeat(member, 0.0, beat((1, EventType.CONNECT, (ZERO,))))
    _, assignment = heartbeat(member, 10.0, beat((2, EventType.CONNECT, (ONE,))))
    assert assignment == Change(take=(ONE,), rebalance_id=2)
    assert not member.finished(1, 11.0)
    assert member.finished(2, 11.0)


def test_a_lost_heartbeat_closes_and_registers_again() -> None:
    """Its response may have carried an event, which blocks the group."""
    member = registered()
    member.took(ZERO)
    heartbeat(member, 0.0, beat((1, EventType.CONNECT, (ONE,))))
    request(member, 10.0)
    member.failed(20.0)
    assert isinstance(request(member, 20.0), pb.CloseRequestC2M)
    member.failed(30.0)
    assert isinstance(request(member, 31.0), pb.CloseRequestC2M)
    member.answered(CLOSED, 31.0)
    again = request(member, 31.0)
    assert isinstance(again, pb.RegisterRequestC2M)
    assert list(again.subscribeInfo) == [ZERO.subscription(CLIENT, "fw")]
    member.answered(GOLDEN["e01_response"].body, 31.0)
    assert not member.finished(1, 32.0)  # of the old registration
    made, _ = heartbeat(member, 32.0, beat())
    assert not made.HasField("event")
    assert made.reportSubscribeInfo


def test_a_heartbeat_that_was_not_sent_is_repeated_with_its_result() -> None:
    member = registered()
    heartbeat(member, 0.0, beat((1, EventType.CONNECT, (ONE,))))
    member.finished(1, 1.0)
    assert request(member, 1.0).event.rebalanceId == 1
    member.failed(1.0, unsent=True)
    assert member.next_at() == 2.0
    made, _ = heartbeat(member, 2.0, beat())
    assert made.event.rebalanceId == 1
    assert made.reportSubscribeInfo


def test_a_master_that_does_not_know_the_client_is_registered_at_again() -> None:
    member = registered()
    member.took(ZERO)
    heartbeat(member, 0.0, beat(code=411))
    assert member.state is State.UNREGISTERED
    again = request(member, 0.0)
    assert list(again.subscribeInfo) == [ZERO.subscription(CLIENT, "fw")]


def test_a_lost_partition_is_reported_at_once() -> None:
    member = registered()
    member.took(ZERO)
    member.took(ONE)
    heartbeat(member, 0.0, beat())
    assert member.next_at() == 10.0
    member.lost([ONE], 3.0)
    made, _ = heartbeat(member, 3.0, beat())
    assert made.reportSubscribeInfo
    assert list(made.subscribeInfo) == [ZERO.subscription(CLIENT, "fw")]
    member.lost([ONE], 4.0)
    assert member.next_at() == 13.0


def test_partitions_that_a_broker_does_not_know_are_lost() -> None:
    member = registered()
    heartbeat(member, 0.0, beat())
    member.took(ZERO)
    member.took(ONE)
    answer = pb.HeartBeatResponseB2C(success=True, errCode=200, errMsg="OK!", hasPartFailure=True)
    answer.failureInfo.extend([f"411:{ONE}", "411:1:127.0.0.1:18123#gold:9"])
    assert member.broker_answered(BROKER, answer, 3.0) == [ONE]
    made, _ = heartbeat(member, 3.0, beat())
    assert list(made.subscribeInfo) == [ZERO.subscription(CLIENT, "fw")]
    answer.failureInfo.append("nonsense")
    with pytest.raises(ProtocolError):
        member.broker_answered(BROKER, answer, 4.0)
    busy = pb.HeartBeatResponseB2C(success=False, errCode=500, errMsg="busy")
    assert member.broker_answered(BROKER, busy, 4.0) == []
    refused = pb.HeartBeatResponseB2C(success=False, errCode=415, errMsg="token")
    assert member.broker_answered(Broker(2, "127.0.0.1", 18123), refused, 4.0) == []
    assert member.broker_answered(BROKER, refused, 4.0) == [ZERO]
    assert member.next_at() == 4.0


def test_a_member_knows_whether_the_partitions_are_shared_out() -> None:
    member = Membership(SETTINGS)
    request(member, 0.0)
    member.answered(GOLDEN["e01_response"].body, 0.0)
    assert member.unallocated
    answer = beat((1, EventType.CONNECT, (ZERO,)))
    answer.notAllocated = False
    heartbeat(member, 0.0, answer)
    assert not member.unallocated
    heartbeat(member, 10.0, beat(code=411))
    assert not member.unallocated


def test_every_sixth_heartbeat_has_the_full_report() -> None:
    member = registered()
    reports = [heartbeat(member, at * 10.0, beat())[0].reportSubscribeInfo for at in range(12)]
    assert reports == [False, False, False, False, False, True] * 2


def test_the_period_of_heartbeats_is_a_setting() -> None:
    member = Membership(dataclasses.replace(SETTINGS, heartbeat_s=0.5))
    request(member, 0.0)
    member.answered(GOLDEN["e01_response"].body, 0.0)
    heartbeat(member, 0.0, beat())
    assert member.next_at() == 0.5


def test_heartbeats_that_fail_go_on() -> None:
    """A Master forgets a member after 30 s without one."""
    member = registered()
    now, waits = 0.0, []
    for _ in range(6):
        heartbeat(member, now, beat(code=500))
        at = member.next_at()
        assert at is not None
        waits.append(at - now)
        now = at
    assert waits == [10, 10, 10, 10, 10, 10]
    heartbeat(member, now, beat())
    assert member.next_at() == now + 10


def test_requests_without_an_answer_are_repeated_before_the_master_forgets_the_member() -> None:
    member = registered()
    now, waits = 0.0, []
    for _ in range(6):
        assert member.take_request(now) is not None
        member.failed(now)
        at = member.next_at()
        assert at is not None
        waits.append(at - now)
        now = at
    assert max(waits) == 5


@pytest.mark.parametrize("code", [415, 424, 425, 426, 431, 450, 455])
def test_a_registration_that_is_refused_for_good(code: int) -> None:
    member = Membership(SETTINGS)
    request(member, 0.0)
    with pytest.raises(BrokerError) as refused:
        member.answered(pb.RegisterResponseM2C(success=False, errCode=code, errMsg="no"), 0.0)
    assert refused.value.code == code


def test_a_member_that_was_registered_waits_for_its_topics() -> None:
    """A Master that has just become active knows none before the Brokers have found it."""
    member = registered()
    heartbeat(member, 0.0, beat(code=411))
    for now in (0.0, 5.0, 10.0, 15.0, 20.0, 25.0):
        request(member, now)
        member.answered(pb.RegisterResponseM2C(success=False, errCode=431, errMsg="no"), now)
        assert member.next_at() == now + 5.0
    request(member, 30.0)
    member.answered(pb.RegisterResponseM2C(success=True, errCode=200, errMsg=""), 30.0)
    assert member.state is State.REGISTERED


def test_a_registration_is_repeated_after_other_errors() -> None:
    member = Membership(SETTINGS)
    request(member, 0.0)
    member.answered(pb.RegisterResponseM2C(success=False, errCode=500, errMsg="no"), 0.0)
    assert member.next_at() == 1.0


def test_an_event_that_cannot_be_read_counts_as_lost() -> None:
    member = registered()
    answer = beat((3, EventType.CONNECT, ()))
    answer.event.subscribeInfo.append("nonsense")
    request(member, 0.0)
    with pytest.raises(ProtocolError):
        member.answered(answer, 0.0)
    assert isinstance(request(member, 1.0), pb.CloseRequestC2M)


def test_a_master_that_always_names_others_does_not_grow_the_member(monkeypatch: pytest.MonkeyPatch) -> None:
    """The source keeps all that was named for as long as the process lives, so a refusal does not begin anew."""
    monkeypatch.setattr(membership, "MOST_PARTITIONS", 4)
    member = registered()
    taken: set[int] = set()
    for number in range(1, 30, 2):
        named = tuple(BrokerPartition(BROKER, "gold", each) for each in (number, number + 1))
        if member.state is not State.REGISTERED:
            request(member, 100.0 * number)
            member.answered(CLOSED, 100.0 * number)
            request(member, 100.0 * number)
            member.answered(GOLDEN["e01_response"].body, 100.0 * number)
        with suppress(ProtocolError):
            _, assignment = heartbeat(member, 100.0 * number, beat((number, EventType.CONNECT, named)))
            taken |= {each.number for each in assignment.take}
    assert taken == {1, 2, 3, 4}


def test_flow_rules_are_kept_until_their_id_changes() -> None:
    member = registered()
    rules = '[{"type":1,"rule":[{"zeroCnt":3,"freqInMs":700}]}]'
    first = beat()
    first.groupFlowCheckId, first.groupFlowControlInfo = 5, rules
    heartbeat(member, 0.0, first)
    assert member.group_rules.empties == ((3, 700),)
    same = beat()
    same.groupFlowCheckId, same.groupFlowControlInfo = 5, " "
    made, _ = heartbeat(member, 10.0, same)
    assert made.groupFlowCheckId == 5
    assert member.group_rules.empties == ((3, 700),)
    gone = beat()
    gone.groupFlowCheckId, gone.groupFlowControlInfo = -2, " "
    heartbeat(member, 20.0, gone)
    assert member.group_rules is NO_RULES


def test_rules_that_cannot_be_read_leave_the_rest_of_the_response() -> None:
    """The Master sends an event once: it must not be lost because an operator's rules are wrong."""
    member = registered()
    answer = beat((3, EventType.CONNECT, (ZERO,)))
    answer.defFlowCheckId, answer.defFlowControlInfo = 5, "nonsense"
    _, event = heartbeat(member, 0.0, answer)
    assert event is not None
    assert event.rebalance_id == 3
    assert "nonsense" in member.rules_fault
    assert member.cluster_rules is NO_RULES


def test_a_request_that_no_master_has_handled_is_sent_again_soon() -> None:
    """While one Master takes over from another, clients go round for as long as it takes."""
    member = registered()
    now = 0.0
    for _ in range(10):
        request(member, now)
        member.failed(now, unsent=True)
        assert member.next_at() == now + 1
        now += 1


def test_a_close_waits_for_the_request_in_flight() -> None:
    member = registered()
    request(member, 0.0)
    member.close(1.0)
    assert member.take_request(1.0) is None
    assert member.answered(beat((1, EventType.CONNECT, (ZERO,))), 2.0) is None
    method, _ = member.take_request(2.0) or (None, None)
    assert method is Method.CONSUMER_CLOSE
    member.failed(12.0)
    assert member.state is State.CLOSED
