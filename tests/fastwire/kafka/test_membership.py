"""Membership against a scripted coordinator: what is asked, in which order, and what comes of each answer."""

from typing import Any, get_args

import pytest

from fastwire.kafka.format.error import BrokerError, Code
from fastwire.kafka.format.message import decode_request, encode_request
from fastwire.kafka.groups.assignor import Assignor
from fastwire.kafka.groups.membership import (
    Ask,
    Assign,
    ClassicMembership,
    ConsumerMembership,
    Elsewhere,
    GroupSettings,
    Lead,
    Lost,
    Membership,
    Revoke,
)
from fastwire.kafka.groups.subscription import decode_member, encode_assignment, encode_subscription
from fastwire.kafka.protocol.connection import HIGHEST, Key

TOPIC = bytes(range(16))


def settings(**more: Any) -> GroupSettings:
    return GroupSettings(group="g", topics=("t",), **more)


def asked(member: Membership[Any], key: int, now: float = 0.0) -> dict[str, Any]:
    """The body of what is asked now, as each version of it is written."""
    ask = member.next(now)
    assert isinstance(ask, Ask) and ask.key == key
    lowest, highest = HIGHEST[key]
    for version in range(lowest, highest + 1):
        if ask.body.get("group_instance_id") is None or key != Key.JOIN_GROUP or version >= 5:
            decode_request(encode_request(key, version, 1, "me", ask.body)[4:])
    return ask.body


def answer(member: Membership[Any], now: float = 0.0, **body: Any) -> list[Any]:
    ask = member.next(now)
    assert isinstance(ask, Ask)
    return list(member.answered(ask, {"error_code": 0} | body, now))


def join(member: ClassicMembership, generation: int, *, leader: str = "other", members: Any = ()) -> list[Any]:
    asked(member, Key.JOIN_GROUP)
    return answer(
        member,
        generation_id=generation,
        protocol_name=member.settings.assignor,
        leader=leader,
        member_id="me",
        members=list(members),
    )


def sync(member: ClassicMembership, *numbers: int) -> list[Any]:
    asked(member, Key.SYNC_GROUP)
    return answer(member, assignment=encode_assignment(("t", number) for number in numbers))


def places(*numbers: int) -> frozenset[tuple[str, int]]:
    return frozenset(("t", number) for number in numbers)


def ids(*numbers: int) -> frozenset[tuple[bytes, int]]:
    return frozenset((TOPIC, number) for number in numbers)


def joined(*numbers: int, **more: Any) -> ClassicMembership:
    member = ClassicMembership(settings(**more))
    assert join(member, 1) == []
    assert sync(member, *numbers) == [Assign(places(*numbers))]
    return member


def test_a_member_id_is_asked_for_first() -> None:
    member = ClassicMembership(settings())
    assert asked(member, Key.JOIN_GROUP)["member_id"] == ""
    answer(member, error_code=Code.MEMBER_ID_REQUIRED, member_id="me")
    assert asked(member, Key.JOIN_GROUP)["member_id"] == "me"
    ask = member.next(0)
    assert isinstance(ask, Ask) and ask.timeout_s is not None
    assert ask.timeout_s > member.settings.rebalance_timeout_s


def test_a_leader_shares_out() -> None:
    member = ClassicMembership(settings(assignor="range"))
    metadata = encode_subscription("range", ["t"], (), -1)
    both = [{"member_id": name, "group_instance_id": None, "metadata": metadata} for name in ("me", "you")]
    assert join(member, 1, leader="me", members=both) == [Lead(frozenset({"t"}))]
    member.lead({"t": 3})
    shares = {one["member_id"]: one["assignment"] for one in asked(member, Key.SYNC_GROUP)["assignments"]}
    assert shares == {
        "me": encode_assignment([("t", 0), ("t", 1)]),
        "you": encode_assignment([("t", 2)]),
    }


def test_a_leader_shares_out_by_rack() -> None:
    member = ClassicMembership(settings(assignor="range", rack="west"))
    both = [
        {
            "member_id": name,
            "group_instance_id": None,
            "metadata": encode_subscription("range", ["t"], (), -1, rack),
        }
        for name, rack in (("me", "west"), ("you", "east"))
    ]
    join(member, 1, leader="me", members=both)
    member.lead({"t": 2}, {("t", 0): frozenset({"east"}), ("t", 1): frozenset({"west"})})
    shares = {one["member_id"]: one["assignment"] for one in asked(member, Key.SYNC_GROUP)["assignments"]}
    assert shares == {"me": encode_assignment([("t", 1)]), "you": encode_assignment([("t", 0)])}


def test_heartbeats_go_on_while_partitions_are_given_away() -> None:
    member = joined(0, 1, assignor="range")
    assert isinstance(member.next(1.0), float)
    assert answer(member, 4.0, error_code=Code.REBALANCE_IN_PROGRESS) == [Revoke(places(0, 1))]
    assert member.may_commit
    assert member.releasing == places(0, 1)
    asked(member, Key.HEARTBEAT, 8.0)
    assert answer(member, 8.0, error_code=Code.REBALANCE_IN_PROGRESS) == []
    asked(member, Key.HEARTBEAT, 12.0)
    assert member.released() == ()
    assert not member.owned
    assert not member.may_commit
    asked(member, Key.JOIN_GROUP, 12.0)


def test_a_cooperative_member_reads_on_and_gives_up_what_moves() -> None:
    member = joined(0, 1, 2)
    assert answer(member, 4.0, error_code=Code.REBALANCE_IN_PROGRESS) == []
    body = asked(member, Key.JOIN_GROUP, 4.0)
    told = decode_member("cooperative-sticky", {"member_id": "me", "metadata": body["protocols"][0]["metadata"]})
    assert (set(told.owned), told.generation) == (set(places(0, 1, 2)), 1)
    assert join(member, 2) == []
    assert sync(member, 0, 3) == [Revoke(places(1, 2)), Assign(places(3))]
    assert member.owned == places(0, 1, 2, 3)  # offsets of all of them are still ours to commit
    assert member.owned - member.releasing == places(0, 3)
    member.released()
    assert member.owned == places(0, 3)
    asked(member, Key.JOIN_GROUP)  # others wait for what was given up
    join(member, 3)
    assert sync(member, 0, 3) == [Assign(frozenset())]
    assert isinstance(member.next(0.0), float)


@pytest.mark.parametrize(
    ("code", "member_id"), [(Code.UNKNOWN_MEMBER_ID, ""), (Code.ILLEGAL_GENERATION, "me")], ids=str
)
@pytest.mark.parametrize("releasing", [False, True])
def test_the_group_went_on_without_us(code: Code, member_id: str, releasing: bool) -> None:
    member = joined(0, 1, assignor="range")
    if releasing:
        answer(member, 4.0, error_code=Code.REBALANCE_IN_PROGRESS)
    assert answer(member, 8.0, error_code=code) == [Lost(places(0, 1))]
    assert not member.owned and not member.releasing and not member.may_commit
    assert asked(member, Key.JOIN_GROUP, 8.0)["member_id"] == member_id


def test_errors_of_a_coordinator() -> None:
    member = joined(0)
    assert answer(member, 4.0, error_code=Code.NOT_COORDINATOR) == [Elsewhere()]
    assert member.owned == places(0)
    later = member.next(4.0)
    assert isinstance(later, float) and later > 4.0
    assert answer(member, 5.0, error_code=Code.COORDINATOR_LOAD_IN_PROGRESS) == []
    with pytest.raises(BrokerError) as found:
        answer(member, 6.0, error_code=Code.FENCED_INSTANCE_ID)
    assert found.value.code == Code.FENCED_INSTANCE_ID


def test_sync_is_broken_off_by_another_round() -> None:
    member = ClassicMembership(settings())
    join(member, 1)
    asked(member, Key.SYNC_GROUP)
    assert answer(member, error_code=Code.REBALANCE_IN_PROGRESS) == []
    asked(member, Key.JOIN_GROUP)


def topics_said(body: dict[str, Any]) -> set[str]:
    (protocol,) = body["protocols"]
    return set(decode_member(protocol["name"], {"member_id": "me", "metadata": protocol["metadata"]}).topics)


@pytest.mark.parametrize("assignor", ["cooperative-sticky", "range"])
def test_other_topics_make_even_a_follower_join_again(assignor: Any) -> None:
    member = joined(0, assignor=assignor)
    assert list(member.topics_changed(["t"])) == []  # no news, and somebody else leads
    events = member.topics_changed(["t", "u"])
    assert events == ([] if member.cooperative else [Revoke(places(0))])
    if events:
        member.released()
    assert topics_said(asked(member, Key.JOIN_GROUP)) == {"t", "u"}
    # Meanwhile they have changed once more: what was shared out before is not taken.
    join(member, 2)
    assert list(member.topics_changed(["u"])) == []
    assert member.owned == frozenset()
    assert sync(member, 0) == []
    asked_again = member.next(1.0)
    assert isinstance(asked_again, Ask) and topics_said(asked_again.body) == {"u"}


def test_other_topics_are_said_with_the_next_heartbeat() -> None:
    member = ConsumerMembership(settings(), "me")
    assert asked(member, Key.CONSUMER_GROUP_HEARTBEAT)["subscribed_topic_names"] == ["t"]
    share = {"topic_partitions": [{"topic_id": TOPIC, "partitions": [0]}]}
    beaten: dict[str, Any] = {"member_epoch": 1, "member_id": "me", "heartbeat_interval_ms": 5000}
    assert answer(member, assignment=share, **beaten) == [Assign(ids(0))]
    answer(member, assignment=None, **beaten)  # that this is ours now
    assert isinstance(member.next(1.0), float)
    assert list(member.topics_changed(("t",))) == []
    assert isinstance(member.next(1.0), float)
    member.topics_changed(("t", "u"))
    body = asked(member, Key.CONSUMER_GROUP_HEARTBEAT, 1.0)
    assert body["subscribed_topic_names"] == ["t", "u"]
    assert body["topic_partitions"] == [{"topic_id": TOPIC, "partitions": [0]}]


def test_what_a_former_life_was_assigned_is_not_taken() -> None:
    member = ClassicMembership(settings(instance="i"))
    assert join(member, 1) == []
    asked(member, Key.SYNC_GROUP)
    assert answer(member, assignment=encode_assignment([("t", 0), ("former", 0)])) == []
    assert member.owned == frozenset() and not member.may_commit
    again = member.next(0.0)
    assert isinstance(again, float) and again > 0
    assert asked(member, Key.JOIN_GROUP, again)["member_id"] == "me"


@pytest.mark.parametrize("assignor", get_args(Assignor))
def test_a_former_life_that_read_fewer_topics(assignor: Any) -> None:
    """Joining again is news to the coordinator, because the generation is: the others get their share, and we ours."""
    member = ClassicMembership(GroupSettings(group="g", topics=("t", "more"), instance="i", assignor=assignor))
    first = asked(member, Key.JOIN_GROUP)["protocols"]
    assert join(member, 5) == []
    assert sync(member, 0) == []
    assert member.owned == frozenset()
    again = member.next(0.0)
    assert isinstance(again, float) and again > 0
    assert asked(member, Key.JOIN_GROUP, again)["protocols"] != first
    # Whoever has no partition of a topic now has it by everybody's consent.
    answer(member, again, generation_id=6, protocol_name=assignor, leader="other", member_id="me", members=[])
    assert answer(member, again, assignment=encode_assignment([("t", 0)])) == [Assign(places(0))]


def test_only_those_leave_who_do_not_come_back() -> None:
    leave = joined(0).leave()
    assert leave is not None and leave.key == Key.LEAVE_GROUP
    for version in range(6):
        decode_request(encode_request(Key.LEAVE_GROUP, version, 1, "me", leave.body)[4:])
    assert joined(0, instance="i").leave() is None
    assert ClassicMembership(settings()).leave() is None


def test_sticky_remembers_what_it_gave_up() -> None:
    member = joined(0, 1, assignor="sticky")
    answer(member, 4.0, error_code=Code.REBALANCE_IN_PROGRESS)
    member.released()
    metadata = asked(member, Key.JOIN_GROUP, 4.0)["protocols"][0]["metadata"]
    told = decode_member("sticky", {"member_id": "me", "metadata": metadata})
    assert (set(told.owned), told.generation) == (set(places(0, 1)), 1)


def beat(member: ConsumerMembership, epoch: int, *numbers: int, now: float = 0.0, unchanged: bool = False) -> list[Any]:
    asked(member, Key.CONSUMER_GROUP_HEARTBEAT, now)
    assignment = {"topic_partitions": [{"topic_id": TOPIC, "partitions": list(numbers)}] if numbers else []}
    return answer(
        member,
        now,
        error_message=None,
        member_id=None,
        member_epoch=epoch,
        heartbeat_interval_ms=1000,
        assignment=None if unchanged else assignment,
    )


def owned_told(body: dict[str, Any]) -> frozenset[tuple[bytes, int]] | None:
    told = body.get("topic_partitions")
    return None if told is None else frozenset((one["topic_id"], n) for one in told for n in one["partitions"])


def test_the_exchange_that_was_seen() -> None:
    member = ConsumerMembership(settings(), "me")
    body = asked(member, Key.CONSUMER_GROUP_HEARTBEAT)
    assert (body["member_epoch"], body["topic_partitions"], body["subscribed_topic_names"]) == (0, [], ["t"])
    assert not member.may_commit
    assert beat(member, 1, 0, 1, 2) == [Assign(ids(0, 1, 2))]
    assert member.may_commit
    body = asked(member, Key.CONSUMER_GROUP_HEARTBEAT)  # at once: what is ours now
    assert owned_told(body) == ids(0, 1, 2)
    assert "subscribed_topic_names" not in body
    assert beat(member, 1, unchanged=True) == []
    assert member.next(0.5) == 1.0
    assert owned_told(asked(member, Key.CONSUMER_GROUP_HEARTBEAT, 1.0)) is None
    assert beat(member, 1, 0, 1, now=1.0) == [Revoke(ids(2))]
    assert member.owned - member.releasing == ids(0, 1)
    assert beat(member, 1, unchanged=True, now=2.0) == []  # still giving it away
    assert member.released() == [Assign(frozenset())]
    assert owned_told(asked(member, Key.CONSUMER_GROUP_HEARTBEAT, 2.0)) == ids(0, 1)
    assert beat(member, 2, unchanged=True, now=2.0) == []


def test_a_new_target_while_giving_away() -> None:
    member = ConsumerMembership(settings(), "me")
    beat(member, 1, 0, 1)
    beat(member, 1, unchanged=True)
    assert beat(member, 1, 0, now=1.0) == [Revoke(ids(1))]
    assert beat(member, 1, 3, now=2.0) == []
    assert member.released() == [Revoke(ids(0))]
    assert member.released() == [Assign(ids(3))]
    assert member.owned == ids(3)


@pytest.mark.parametrize("code", [Code.FENCED_MEMBER_EPOCH, Code.UNKNOWN_MEMBER_ID])
def test_fenced(code: Code) -> None:
    member = ConsumerMembership(settings(), "me")
    beat(member, 5, 0)
    asked(member, Key.CONSUMER_GROUP_HEARTBEAT)
    assert answer(member, error_code=code, error_message="no") == [Lost(ids(0))]
    body = asked(member, Key.CONSUMER_GROUP_HEARTBEAT)
    assert (body["member_epoch"], body["member_id"], body["topic_partitions"]) == (0, "me", [])
    assert body["subscribed_topic_names"] == ["t"]


def test_after_a_missed_answer_everything_is_said() -> None:
    member = ConsumerMembership(settings(), "me")
    beat(member, 1, 0, 1)
    beat(member, 1, unchanged=True)
    assert beat(member, 1, 0, now=1.0) == [Revoke(ids(1))]
    member.unanswered()
    body = asked(member, Key.CONSUMER_GROUP_HEARTBEAT, 1.0)  # at once
    assert (body["member_epoch"], body["subscribed_topic_names"], owned_told(body)) == (1, ["t"], ids(0, 1))
    assert beat(member, 1, 0, now=1.0) == []
    assert "subscribed_topic_names" not in asked(member, Key.CONSUMER_GROUP_HEARTBEAT, 2.0)
    member.released()
    assert member.owned == ids(0)


def test_nothing_is_assigned_at_first() -> None:
    member = ConsumerMembership(settings(), "me")
    assert beat(member, 1) == [Assign(frozenset())]


def test_errors_that_the_other_protocol_may_mend() -> None:
    member = ConsumerMembership(settings(), "me")
    asked(member, Key.CONSUMER_GROUP_HEARTBEAT)
    with pytest.raises(BrokerError) as found:
        answer(member, error_code=Code.UNSUPPORTED_VERSION, error_message=None)
    assert found.value.code == Code.UNSUPPORTED_VERSION


@pytest.mark.parametrize(("instance", "epoch"), [(None, -1), ("i", -2)])
def test_leaving_for_a_moment_or_for_good(instance: str | None, epoch: int) -> None:
    member = ConsumerMembership(settings(instance=instance), "me")
    assert member.leave() is None
    beat(member, 1, 0)
    leave = member.leave()
    assert leave is not None and leave.body["member_epoch"] == epoch


def test_a_member_whose_first_answer_has_not_come_leaves() -> None:
    """The coordinator may have taken it in, and would keep its partitions for as long as a session lasts."""
    member = ConsumerMembership(settings(), "me")
    asked(member, Key.CONSUMER_GROUP_HEARTBEAT)
    leave = member.leave()
    assert leave is not None and (leave.body["member_epoch"], leave.body["member_id"]) == (-1, "me")
    with pytest.raises(BrokerError):
        answer(member, error_code=Code.GROUP_AUTHORIZATION_FAILED, error_message=None)
    assert member.leave() is None
