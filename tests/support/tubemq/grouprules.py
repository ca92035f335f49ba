"""Rules of TubeMQ servers about members of groups, balanced by the Master or by the clients (spec: tubemq)."""

import time
from collections.abc import Callable, Sequence

from fastwire.tubemq import tubemq_pb2 as pb
from fastwire.tubemq.format.credentials import UNDEFINED
from fastwire.tubemq.format.frame import Method
from fastwire.tubemq.groups.client_membership import ClientMembership, NodeSettings
from fastwire.tubemq.groups.master import State
from fastwire.tubemq.groups.selection import Metadata
from fastwire.tubemq.protocol.request import ConsumerRequests
from tests.support.tubemq.client import (
    HOST,
    LIMIT_S,
    PAUSE_S,
    Cluster,
    Link,
    Member,
    Reader,
    answer_of,
    client_name,
    send,
)
from tests.support.tubemq.rules import ENTRY, Rule, group, into

GROUP_RULES: list[Rule] = []
rule = into(GROUP_RULES)


def perform(members: Sequence[Member], done: Callable[[], bool]) -> None:
    """Let members perform their events in turn until ``done``."""
    deadline = time.monotonic() + LIMIT_S
    while not done():
        assert time.monotonic() < deadline, [sorted(member.membership.held) for member in members]
        for member in members:
            change = member.step()
            if change is not None:
                member.perform(change)
        time.sleep(PAUSE_S)


# --- server balance


@rule
def a_member_is_assigned_all_partitions_and_gives_up_half(cluster: Cluster) -> None:
    topic, name = cluster.fresh_topic(), group()
    with Member(cluster, name, topic) as one, Member(cluster, name, topic) as two:
        one.step()
        one.settle(2)
        two.step()
        perform((one, two), lambda: len(one.membership.held) == len(two.membership.held) == 1)
        keys = [set(member.membership.held) for member in (one, two)]
        assert sorted(key for each in keys for key in each) == [f"1:{topic}:0", f"1:{topic}:1"]
        two.step()
        two.leave()
        one.settle(2)
        one.leave()


@rule
def a_member_reads_and_commits_what_it_was_assigned(cluster: Cluster) -> None:
    topic, name = cluster.fresh_topic(), group()
    for number in (0, 1):
        send(cluster, topic, [b"%d" % number] * 3, number)
    with Member(cluster, name, topic) as member:
        client_id = member.membership.settings.client_id
        with Reader(cluster, topic, name, client_id=client_id) as reader:
            member.step()
            change = member.change()
            reader.token = member.membership.token
            for partition in change.take:
                assert partition.broker == reader.broker
                assert reader.register(partition.number).success
            member.perform(change)
            member.step()
            for partition in change.take:
                reader.drain(partition.number)
                committed = reader.commit(partition.number)
                assert committed.currOffset == committed.maxOffset == 6 * ENTRY
            assert sorted(reader.values()) == [b"0"] * 3 + [b"1"] * 3
            answer = reader.heartbeat(0, 1)
            assert member.membership.broker_answered(reader.broker, answer, member.now) == []
            for partition in change.take:
                assert reader.unregister(partition.number).success
        member.leave()


@rule
def a_lost_partition_that_is_reported_is_assigned_again(cluster: Cluster) -> None:
    topic, name = cluster.fresh_topic(), group()
    with Member(cluster, name, topic) as member:
        member.step()
        member.settle(2)
        gone = next(iter(member.membership.held.values()))
        member.membership.lost([gone], member.now)
        member.step()
        change = member.change()
        assert change.take == (gone,)
        member.perform(change)
        member.step()
        member.leave()


@rule
def members_of_a_group_agree(cluster: Cluster) -> None:
    topic, other, name = cluster.fresh_topic(), cluster.fresh_topic(), group()

    def register(client: str, topics: list[str], **fields: object) -> int:
        body = pb.RegisterRequestC2M(
            clientId=client,
            groupName=name,
            hostName=HOST,
            topicList=topics,
            sessionTime=1,
            groupFlowCheckId=UNDEFINED,
            defFlowCheckId=UNDEFINED,
            qryPriorityId=UNDEFINED,
            **fields,  # type: ignore[arg-type]
        )
        return link.call(Method.CONSUMER_REGISTER, body, pb.RegisterResponseM2C).errCode

    with Link(cluster.master_port) as link:
        assert register(client_name(name), [topic], requireBound=False) == 200
        assert register(client_name(name), [topic, other], requireBound=False) == 425
        assert register(client_name(name), [topic], requireBound=False, topicCondition=[f"{topic}#a"]) == 426
        assert register(client_name(name), [topic], requireBound=True, sessionKey="k", totalCount=1) == 424
        assert register("", [topic], requireBound=False) == 400
        name = group()
        assert register(client_name(name), ["nowhere"], requireBound=False) == 431
        beat = pb.HeartRequestC2M(clientId=client_name(name), groupName=name, reportSubscribeInfo=False)
        assert link.call(Method.CONSUMER_HEARTBEAT, beat, pb.HeartResponseM2C).errCode == 411


# --- client balance


def registration(client: str, name: str, topic: str, count: int, node: int) -> pb.RegisterRequestC2MV2:
    """Return the request of a client-balanced member that has no list of partitions yet."""
    made = pb.RegisterRequestC2MV2(
        clientId=client, groupName=name, hostName=HOST, sourceCount=count, nodeId=node, topicList=[topic]
    )
    made.subRepInfo.CopyFrom(Metadata().report())
    return made


@rule
def client_balance_lists_partitions(cluster: Cluster) -> None:
    topic, name = cluster.fresh_topic(), group()
    client = client_name(name)
    metadata = Metadata()
    with Link(cluster.master_port) as link:
        register = registration(client, name, topic, UNDEFINED, UNDEFINED)
        answer = link.call(Method.CLIENT_REGISTER, register, pb.RegisterResponseM2CV2)
        assert answer.errCode == 200
        metadata.update(answer, 1)
        assert metadata.partitions() == []
        ask = pb.GetPartMetaRequestC2M(
            clientId=client, groupName=name, brokerConfigId=metadata.broker_id, topicMetaInfoId=metadata.topic_id
        )
        metadata.update(link.call(Method.CLIENT_METADATA, ask, pb.GetPartMetaResponseM2C), 2)
        found = metadata.partitions()
        assert [each.key for each in found] == [f"1:{topic}:0", f"1:{topic}:1"]
        assert found[0].broker.port == cluster.broker_port
        ask.brokerConfigId, ask.topicMetaInfoId = metadata.broker_id, metadata.topic_id
        again = link.call(Method.CLIENT_METADATA, ask, pb.GetPartMetaResponseM2C)
        assert not again.topicMetaInfoList
        assert not again.brokerConfigList
        beat = pb.HeartRequestC2MV2(clientId=client, groupName=name, subRepInfo=metadata.report(found))
        assert link.call(Method.CLIENT_HEARTBEAT, beat, pb.HeartResponseM2CV2).errCode == 200
        server = pb.RegisterRequestC2M(
            clientId=client_name(name),
            groupName=name,
            hostName=HOST,
            topicList=[topic],
            requireBound=False,
            sessionTime=1,
        )
        assert link.call(Method.CONSUMER_REGISTER, server, pb.RegisterResponseM2C).errCode == 424
        close = pb.CloseRequestC2M(clientId=client, groupName=name)
        assert link.call(Method.CONSUMER_CLOSE, close, pb.CloseResponseM2C).success
        beat = pb.HeartRequestC2MV2(clientId=client, groupName=name)
        assert link.call(Method.CLIENT_HEARTBEAT, beat, pb.HeartResponseM2CV2).errCode == 411
        ask = pb.GetPartMetaRequestC2M(clientId=client, groupName=name, brokerConfigId=-2, topicMetaInfoId=-2)
        assert link.call(Method.CLIENT_METADATA, ask, pb.GetPartMetaResponseM2C).errCode == 411


@rule
def a_client_balanced_member_has_its_partitions_at_once(cluster: Cluster) -> None:
    topic, name = cluster.fresh_topic(), group()
    settings = NodeSettings(
        client_id=client_name(name), group=name, host=HOST, topics=(topic,), source_count=1, node_id=0
    )
    member = ClientMembership(settings)
    with Link(cluster.master_port) as master, Link(cluster.broker_port) as broker:

        def step(now: float) -> None:
            made = member.take_request(now)
            assert made is not None
            member.answered(answer_of(master.ask(*made)), now, 1_700_000_000_000)

        step(0.0)
        step(0.0)
        found = member.take_share(0.0)
        assert found is not None
        assert [each.number for each in found.take] == [0, 1]
        consumer = ConsumerRequests(settings.client_id, name)
        for partition in found.take:
            register = consumer.register(partition, member.token.for_broker())
            assert broker.call(Method.BROKER_REGISTER, register, pb.RegisterResponseB2C).success
            member.took(partition)
        step(0.0)
        consumer = ConsumerRequests(settings.client_id, name)
        first, second = found.take
        ended = consumer.unregister(second, member.token.for_broker())
        assert broker.call(Method.BROKER_REGISTER, ended, pb.RegisterResponseB2C).success
        beat = consumer.heartbeat(member.held.values(), member.token.for_broker())
        answer = broker.call(Method.BROKER_HEARTBEAT, beat, pb.HeartBeatResponseB2C)
        assert member.broker_answered(first.broker, answer, 1.0) == [second]
        ended = consumer.unregister(first, member.token.for_broker())
        assert broker.call(Method.BROKER_REGISTER, ended, pb.RegisterResponseB2C).success
        member.close(1.0)
        step(1.0)
        assert member.state is State.CLOSED


@rule
def node_ids_are_taken_once(cluster: Cluster) -> None:
    topic, name = cluster.fresh_topic(), group()

    def register(count: int, node: int) -> int:
        body = registration(client_name(name), name, topic, count, node)
        return link.call(Method.CLIENT_REGISTER, body, pb.RegisterResponseM2CV2).errCode

    with Link(cluster.master_port) as link:
        assert [register(2, 0), register(2, 0), register(3, 1), register(2, 1)] == [200, 430, 429, 200]
