"""The embedded Master and Broker: the balance, what is strict, faults, retention, logins."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from fastwire.position import Position
from fastwire.tubemq import tubemq_pb2 as pb
from fastwire.tubemq.format.credentials import Credentials
from fastwire.tubemq.format.error import BrokerError
from fastwire.tubemq.format.frame import Method
from fastwire.tubemq.groups.client_membership import ClientMembership, NodeSettings
from fastwire.tubemq.groups.master import Change
from fastwire.tubemq.groups.membership import EventType
from fastwire_daemon.devbroker.server import running
from fastwire_daemon.devbroker.tubemq import TubeMQDevBroker, TubeMQOptions, make
from fastwire_daemon.runtime.clock import now_ms
from tests.daemon.devbroker.tubemq.embedded import Embedded
from tests.support.tubemq.client import HOST, Link, Member, Reader, answer_of, client_name, refusal, send
from tests.support.waiting import eventually


@contextmanager
def serving(*, violations: int = 0, **options: Any) -> Iterator[Embedded]:
    with running(TubeMQDevBroker(TubeMQOptions(**options))) as broker:
        broker.create_topic("t", 2)
        yield Embedded(broker)
        eventually(lambda: len(broker.violations) >= violations)
        assert len(broker.violations) == violations, broker.violations


@pytest.fixture(name="cluster")
def plain() -> Iterator[Embedded]:
    with serving() as cluster:
        yield cluster


# --- what tests and demos do to it


def test_topics_are_made_grown_deleted_and_fed(cluster: Embedded) -> None:
    broker = cluster.broker
    broker.produce("t", [b"a", b"b"], 1)
    assert broker.end_positions("t") == [Position(0, 0), Position(56, 0)]
    with pytest.raises(ValueError, match="exists"):
        broker.create_topic("t")
    with pytest.raises(ValueError, match="key"):
        broker.produce("t", [b"a"], keys=[b"k"])
    for partition, codec in ((2, "NONE"), (0, "ZSTD")):
        with pytest.raises(KeyError):
            broker.produce("t", [b"a"], partition, codec=codec)
    broker.grow_topic("t", 3)
    broker.produce("t", [b"c"], 2)
    with Reader(cluster, "t", "g") as reader:
        for number in range(3):
            reader.register(number)
            reader.drain(number)
        assert reader.values() == [b"a", b"b", b"c"]
        assert broker.backlog("t", "g") == 3
        reader.commit(1)
        assert broker.backlog("t", "g") == 1
    with pytest.raises(KeyError):
        broker.backlog("t", "unknown")
    broker.delete_topic("t")
    with pytest.raises(KeyError):
        broker.backlog("t", "g")
    broker.create_topic("t")
    assert broker.end_positions("t") == [Position(0, 0)]


def test_topics_have_the_partitions_that_its_maker_names() -> None:
    made = make(3)
    made.create_topic("t")
    assert len(made.end_positions("t")) == 3


def test_what_is_stored_survives_a_restart(cluster: Embedded) -> None:
    cluster.broker.produce("t", [b"a"])
    ports = list(cluster.broker.ports)
    cluster.broker.restart()
    assert cluster.broker.ports == ports
    with Reader(cluster, "t", "g") as reader:
        reader.register()
        assert reader.drain() == [b"a"]


def test_retention_moves_a_registration_and_a_read(cluster: Embedded) -> None:
    cluster.broker.produce("t", [b"%d" % number for number in range(4)])
    with Reader(cluster, "t", "g") as reader:
        reader.register()
        cluster.broker.trim("t", 56)
        fetched = reader.get()
        assert (fetched.offset, fetched.moved) == (56, True)
        assert reader.register().currOffset == 56
        assert reader.drain() == [b"2", b"3"]


def test_reads_look_at_a_window_of_the_index() -> None:
    with serving(from_file=True) as cluster:
        cluster.broker.produce("t", [b"x"] * 1500, 0)
        cluster.broker.produce("t", [b"y"], 1)
        with Reader(cluster, "t", "g") as reader:
            reader.register(1)
            first, second = reader.get(1), reader.get(1)
            assert (first.messages, first.offset, second.messages, second.offset) == (0, 0, 1, 1000 * 28)


def test_the_broker_limits_who_does_not_keep_the_rule() -> None:
    """A client with a rule of its group passes that of the cluster."""
    rule = '[{"type":0,"rule":[{"start":"00:00","end":"24:00","dltInM":21,"limitInM":12,"freqInMs":2000}]}]'
    with serving(limit_window_s=1e9) as cluster:
        cluster.broker.set_rules(rule)
        cluster.broker.produce("t", [bytes(600_000)] * 3)
        with Reader(cluster, "t", "g") as reader:
            reader.register()
            assert [reader.get().code for _ in range(2)] == [200, 200]
            over = reader.get()
            assert (over.code, over.min_limit_ms, over.messages) == (452, 2000, 0)
            assert cluster.broker.limited == 1
            assert reader.get(escape=True).code == 200
            assert reader.get().code == 404, "behind the last message no limit holds"


# --- balance


def test_three_members_share_five_partitions_and_keep_what_they_have(cluster: Embedded) -> None:
    cluster.broker.create_topic("five", 5)
    members = [Member(cluster, "g", "five") for _ in range(3)]
    before: list[set[str]] = []
    for number, joining in enumerate(members, 1):
        joining.step()
        while sorted(len(each.membership.held) for each in members[:number]) != [[5], [2, 3], [1, 2, 2]][number - 1]:
            for member in members[:number]:
                assignment = member.step()
                if assignment is not None:
                    member.perform(assignment)
        held = [set(each.membership.held) for each in members[:number]]
        assert len(set.union(*held)) == 5
        assert all(now <= then for now, then in zip(held, before, strict=False))  # nothing moved to the older members
        before = held
    for member in members:
        member.close()


def test_a_connect_waits_for_the_disconnects_of_the_group(cluster: Embedded) -> None:
    with Member(cluster, "g", "t") as one, Member(cluster, "g", "t") as two:
        one.step()
        one.settle(2)
        two.step()
        assert two.step() is None  # its round has made a disconnect for the other
        left = one.step()
        assert left is not None
        assert (left.take, len(left.give_up)) == ((), 1)
        assert two.step() is None
        one.perform(left)
        one.step()
        came = two.step()
        assert came is not None
        assert (came.take, came.give_up) == (left.give_up, ())


def test_a_lost_event_blocks_the_group_until_close_and_registration(cluster: Embedded) -> None:
    with Member(cluster, "g", "t") as member:
        member.step()
        lost = pb.HeartRequestC2M(
            clientId=member.membership.settings.client_id, groupName="g", reportSubscribeInfo=False
        )
        first = member.link.call(Method.CONSUMER_HEARTBEAT, lost, pb.HeartResponseM2C)  # as if nobody had seen it
        assert first.event.opType == EventType.ONLY_CONNECT
        assert member.step() is None
        request = member.membership.take_request(20.0)
        assert request is not None
        member.membership.failed(20.0)
        for _ in range(2):  # close and register
            assert member.step() is None
        assert member.step() is not None


def test_a_lost_event_is_cleared_after_some_rounds() -> None:
    with serving(event_rounds=3) as cluster, Member(cluster, "g", "t") as member:
        member.step()
        lost = member.step()
        assert lost is not None
        found = [member.step() is not None for _ in range(4)]
        assert found == [False, False, False, True]
        # Its member may have worked at it for so long: its result is no violation.
        late = pb.HeartRequestC2M(
            clientId=member.membership.settings.client_id, groupName="g", reportSubscribeInfo=True
        )
        late.event.rebalanceId = lost.rebalance_id
        member.link.ask(Method.CONSUMER_HEARTBEAT, late)


def test_a_result_that_belongs_to_no_event_is_a_violation() -> None:
    with serving(violations=1) as cluster, Member(cluster, "g", "t") as member:
        member.step()
        assert member.step() is not None
        wrong = pb.HeartRequestC2M(
            clientId=member.membership.settings.client_id, groupName="g", reportSubscribeInfo=True
        )
        wrong.event.rebalanceId = 99
        with pytest.raises(EOFError):
            member.link.ask(Method.CONSUMER_HEARTBEAT, wrong)
        assert "99" in cluster.broker.violations[0]


def test_members_that_are_silent_are_forgotten() -> None:
    with serving(consumer_timeout_s=0.0) as cluster, Member(cluster, "g", "t") as member:
        member.step()
        eventually(lambda: member.step() is None and member.membership.state.name == "UNREGISTERED")
        with Reader(cluster, "t", "g") as reader, Reader(cluster, "t", "g") as other:
            assert reader.register().errCode == 200
            assert reader.get().code == 411
            assert other.register().errCode == 410  # which ends the old registration
            assert other.register().errCode == 200


def test_a_client_balanced_member_follows_topics_and_the_administrator(cluster: Embedded) -> None:
    settings = NodeSettings(client_id=client_name("g"), group="g", host=HOST, topics=("t",), source_count=1, node_id=0)
    member = ClientMembership(settings)

    def round_at(now: float) -> Change | None:
        while (made := member.take_request(now)) is not None:
            member.answered(answer_of(link.ask(*made)), now, now_ms())
        return member.take_share(now)

    with Link(cluster.master_port) as link:
        share = round_at(0.0)
        assert share is not None
        for partition in share.take:
            member.took(partition)
        cluster.broker.grow_topic("t", 3)
        share = round_at(10.0)
        assert share is not None
        assert [each.number for each in share.take] == [2]
        cluster.broker.call(lambda: cluster.broker.to_end.update(g=now_ms() + 1000))
        assert round_at(20.0) == Change(to_end=True)
        cluster.broker.open_topic("t", False)
        share = round_at(30.0)
        assert share is not None
        assert [each.number for each in share.give_up] == [0, 1]


# --- faults


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\x7f\xf4\xff" + bytes(8),
        b"\xff\x7f\xf4\xfe" + bytes(8),
        b"\xff\x7f\xf4\xfe\0\0\0\x01\0\0\0\x01" + bytes(4),
    ],
)
def test_a_broken_frame_is_a_violation(data: bytes) -> None:
    with serving(violations=1) as cluster, Link(cluster.master_port) as link:
        link.raw(data)
        eventually(lambda: cluster.broker.violations)


def test_a_request_without_a_timeout_is_a_violation() -> None:
    with serving(violations=1) as cluster, Link(cluster.master_port) as link:
        close = pb.CloseRequestC2M(clientId="c", groupName="g")
        assert answer_of(link.ask(Method.CONSUMER_CLOSE, close))
        link.raw(bytes(link.sent).replace(b"\x10\x90\x4e", b"\x10\x80\x00"))  # timeout 10,000, then 0
        eventually(lambda: cluster.broker.violations)
        assert "timeout" in cluster.broker.violations[0]


def test_a_standby_master_refuses_everything(cluster: Embedded) -> None:
    cluster.broker.standby = True
    with Link(cluster.master_port) as link, Reader(cluster, "t", "g") as reader:
        assert refusal(link.ask(Method.CONSUMER_CLOSE, pb.CloseRequestC2M(clientId="c", groupName="g"))).standby
        assert reader.register().errCode == 200  # the Broker serves


def test_injected_codes_and_lost_answers(cluster: Embedded) -> None:
    cluster.broker.fail(Method.GET, 452)
    cluster.broker.fail(Method.SEND, 419)
    with Reader(cluster, "t", "g") as reader:
        reader.register()
        assert reader.get().code == 452
        assert reader.get().code == 404
        cluster.broker.lose_answers(Method.COMMIT)
        (refused,) = send(cluster, "t", [b"a"])
        assert refused.errCode == 419
        send(cluster, "t", [b"b"])
        assert reader.drain() == [b"b"]
        body = reader.consumer.commit(reader.partition(0))
        other = reader.consumer.commit(reader.partition(1))
        connection = reader.link._connection
        connection.request(Method.COMMIT, body, 0.0)
        assert reader.link.call(Method.COMMIT, other, pb.CommitOffsetResponseB2C).errCode == 401
        assert cluster.broker.backlog("t", "g") == 0  # it was done, and the answer was lost


def test_a_master_that_forgot_its_clients(cluster: Embedded) -> None:
    with Member(cluster, "g", "t") as member:
        member.step()
        member.settle(2)
        cluster.broker.forget_clients()
        member.step()
        assert member.membership.state.name == "UNREGISTERED"
        member.step()
        for _ in range(3):
            assert member.step() is None  # it holds what it reported
        cluster.broker.expire_owners()


# --- logins


def test_requests_to_the_master_are_signed() -> None:
    with serving(users={"alice": "secret"}) as cluster:

        def join(password: str, at_ms: int) -> None:
            who = Credentials("alice", password)
            with Member(cluster, "g", "t", certificate=lambda: who.for_master(at_ms, 7)) as member:
                member.step()
                member.settle(2)
                member.leave()

        join("secret", now_ms())
        for password, at_ms in (("secret", now_ms() - 60_000), ("wrong", now_ms())):
            with pytest.raises(BrokerError, match="415"):
                join(password, at_ms)
        with Member(cluster, "g", "t") as member, pytest.raises(BrokerError, match="415"):
            member.step()


def test_requests_to_the_broker_carry_the_visit_token() -> None:
    with serving(check_token=True) as cluster, Reader(cluster, "t", "g") as reader:
        assert reader.register().errCode == 415
        assert reader.heartbeat(0).errCode == 415
        reader.token.visit = cluster.broker.visit_token
        assert reader.register().errCode == 200
        assert send(cluster, "t", [b"a"])[0].errCode == 200
