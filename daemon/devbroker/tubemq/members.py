"""Requests of consumers to the Master, in both families of groups (spec: tubemq 9, 10)."""

from collections.abc import Iterable

from google.protobuf.message import Message

from fastwire.tubemq import tubemq_pb2 as pb
from fastwire.tubemq.format.credentials import UNDEFINED
from fastwire.tubemq.format.error import Code
from fastwire.tubemq.format.text import read_subscription

from ..base import RefusedError
from .balance import Group, Member
from .cluster import BROKER_ID, Cluster
from .connection import TubeMQConnection
from .logins import check_identity, check_signature

NO_RULES = UNDEFINED, " "  # id and text


def _join(broker: Cluster, wanted: Group, client: str, node: int = UNDEFINED) -> tuple[Group, Member]:
    """Add a member to its group, which comes to be with its first one. Refuses what the group does not agree about."""
    check_identity(client, wanted.name)
    for name in wanted.topics:
        if name not in broker.topics:
            raise RefusedError(Code.TOPIC_NOT_DEPLOYED, f"topic {name} is not deployed")
    _expire(broker, wanted.name)
    group = broker.groups.get(wanted.name, wanted)
    others = [each for each in group.members.values() if each.client != client]
    if others:
        _agree(group, wanted)
        if node != UNDEFINED and any(each.node == node for each in others):
            raise RefusedError(Code.CLIENT_DUPLICATE_INDEXID, f"node {node} is taken")
    else:
        # The only member may change all: the group begins anew, and keeps the member's own state.
        wanted.members = group.members
        wanted.rebalance = group.rebalance
        group = wanted
    broker.groups[group.name] = group
    member = group.members.setdefault(client, Member(client, 0.0))
    member.seen_s, member.node = broker.loop.time(), node
    return group, member


def _agree(group: Group, wanted: Group) -> None:
    for differs, code in (
        (
            group.client_balance != wanted.client_balance or group.bound != wanted.bound,
            Code.CLIENT_INCONSISTENT_CONSUMETYPE,
        ),
        (group.topics != wanted.topics, Code.CLIENT_INCONSISTENT_TOPICSET),
        (group.filters != wanted.filters, Code.CLIENT_INCONSISTENT_FILTERSET),
        (group.count != wanted.count, Code.CLIENT_INCONSISTENT_SOURCECOUNT),
    ):
        if differs:
            raise RefusedError(code, f"[Inconsistency subscribe] {code.name.lower()} in group {group.name}")


def _expire(broker: Cluster, name: str) -> None:
    """Forget the members of a group that have not been heard of for too long."""
    group = broker.groups.get(name)
    if group is not None:
        limit = broker.loop.time() - broker.options.consumer_timeout_s
        group.members = {client: each for client, each in group.members.items() if each.seen_s >= limit}


def _member(broker: Cluster, name: str, client: str, *, client_balance: bool) -> tuple[Group, Member]:
    _expire(broker, name)
    group = broker.groups.get(name)
    member = None if group is None else group.members.get(client)
    if group is None or member is None or group.client_balance != client_balance:
        raise RefusedError(Code.HB_NO_NODE, f"the consumer {client} is not registered in group {name}")
    member.seen_s = broker.loop.time()
    return group, member


def _filters(conditions: Iterable[str]) -> frozenset[str]:
    found = set()
    for text in conditions:
        topic, _, types = text.partition("#")
        found.add(f"{topic}#{','.join(sorted(types.split(',')))}")
    return frozenset(found)


# --- server balance


def register(connection: TubeMQConnection, request: Message) -> Message:
    """Handle method 4."""
    assert isinstance(request, pb.RegisterRequestC2M)
    broker = connection.broker
    check_signature(broker, request.authInfo)
    wanted = Group(request.groupName, False, frozenset(request.topicList), _filters(request.topicCondition))
    wanted.bound = request.requireBound
    group, member = _join(broker, wanted, request.clientId)
    _hold(broker, member, request.subscribeInfo)
    reply = pb.RegisterResponseM2C(
        notAllocated=not group.allocated,
        authorizedInfo=broker.master_token(),
    )
    _set_rules(broker, reply, request)
    return reply


def _set_rules(
    broker: Cluster,
    reply: pb.RegisterResponseM2C | pb.HeartResponseM2C,
    request: pb.RegisterRequestC2M | pb.HeartRequestC2M,
) -> None:
    """Put the rules of flow control into an answer; their text only if the client does not know it."""
    reply.defFlowCheckId, text = broker.rules.get("", NO_RULES)
    reply.defFlowControlInfo = " " if reply.defFlowCheckId == request.defFlowCheckId else text
    reply.groupFlowCheckId, text = broker.rules.get(request.groupName, NO_RULES)
    reply.groupFlowControlInfo = " " if reply.groupFlowCheckId == request.groupFlowCheckId else text
    reply.qryPriorityId = reply.ssdStoreId = UNDEFINED


def _hold(broker: Cluster, member: Member, texts: Iterable[str]) -> None:
    found = [read_subscription(text, tls=broker.tls is not None) for text in texts]
    member.held = {each.key: each for each in found}


def heartbeat(connection: TubeMQConnection, request: Message) -> Message:
    """Handle method 5, and run a round of the group's balance."""
    assert isinstance(request, pb.HeartRequestC2M)
    broker = connection.broker
    check_signature(broker, request.authInfo)
    group, member = _member(broker, request.groupName, request.clientId, client_balance=False)
    if request.reportSubscribeInfo:
        _hold(broker, member, request.subscribeInfo)
    if request.HasField("event"):
        group.result(member, request.event, strict=broker.options.strict)
    group.balance(broker.partitions_of(sorted(group.topics)), broker.options.event_rounds)
    reply = pb.HeartResponseM2C(
        notAllocated=not group.allocated,
        authorizedInfo=broker.master_token(),
    )
    _set_rules(broker, reply, request)
    event = group.next_event(member)
    if event is not None:
        reply.event.CopyFrom(event)
    return reply


def close(connection: TubeMQConnection, request: Message) -> Message:
    """Handle method 6, of both families."""
    assert isinstance(request, pb.CloseRequestC2M)
    broker = connection.broker
    check_signature(broker, request.authInfo)
    group = broker.groups.get(request.groupName)
    if group is not None:
        group.members.pop(request.clientId, None)
        if not group.members:
            del broker.groups[group.name]
    return pb.CloseResponseM2C()


# --- client balance


def register_node(connection: TubeMQConnection, request: Message) -> Message:
    """Handle method 20."""
    assert isinstance(request, pb.RegisterRequestC2MV2)
    broker = connection.broker
    check_signature(broker, request.authInfo)
    if request.sourceCount != UNDEFINED and not 0 <= request.nodeId < request.sourceCount:
        raise RefusedError(Code.BAD_REQUEST, f"[Parameter error] node {request.nodeId} of {request.sourceCount}")
    wanted = Group(request.groupName, True, frozenset(request.topicList), _filters(request.topicCondition))
    wanted.count = request.sourceCount
    _join(broker, wanted, request.clientId, request.nodeId)
    reply = pb.RegisterResponseM2CV2(
        brokerConfigId=broker.broker_list_id,
        brokerConfigList=broker.list_brokers(request.subRepInfo.brokerConfigId),
        authorizedInfo=broker.master_token(),
    )
    reply.opsTaskInfo.CopyFrom(_operator(broker, request.groupName, request.opsTaskInfo))
    return reply


def _operator(broker: Cluster, group: str, known: pb.OpsTaskInfo) -> pb.OpsTaskInfo:
    task = pb.OpsTaskInfo()
    check, text = broker.rules.get("", NO_RULES)
    if check not in (UNDEFINED, known.defFlowCheckId):
        task.defFlowCheckId = check
        task.defFlowControlInfo = text
    check, text = broker.rules.get(group, NO_RULES)
    if check not in (UNDEFINED, known.groupFlowCheckId):
        task.groupFlowCheckId = check
        task.groupFlowControlInfo = text
    if group in broker.to_end:
        task.csmFrmMaxOffsetCtrlId = broker.to_end[group]
    return task


def metadata(connection: TubeMQConnection, request: Message) -> Message:
    """Handle method 22."""
    assert isinstance(request, pb.GetPartMetaRequestC2M)
    broker = connection.broker
    check_signature(broker, request.authInfo)
    group, _ = _member(broker, request.groupName, request.clientId, client_balance=True)
    reply = pb.GetPartMetaResponseM2C(
        brokerConfigId=broker.broker_list_id,
        brokerConfigList=broker.list_brokers(request.brokerConfigId),
        topicMetaInfoId=broker.topic_list_id,
    )
    if request.topicMetaInfoId != broker.topic_list_id:
        for name in sorted(group.topics & broker.topics.keys()):
            topic = broker.topics[name]
            numbers = f"{BROKER_ID}:{len(topic.stores)}:{topic.partitions}:{int(topic.open)}"
            reply.topicMetaInfoList.append(f"{name}#{numbers}")
    return reply


def node_heartbeat(connection: TubeMQConnection, request: Message) -> Message:
    """Handle method 21."""
    assert isinstance(request, pb.HeartRequestC2MV2)
    broker = connection.broker
    check_signature(broker, request.authInfo)
    _member(broker, request.groupName, request.clientId, client_balance=True)
    reply = pb.HeartResponseM2CV2(
        brokerConfigId=broker.broker_list_id,
        topicMetaInfoId=broker.topic_list_id,
        authorizedInfo=broker.master_token(),
    )
    reply.opsTaskInfo.CopyFrom(_operator(broker, request.groupName, request.opsTaskInfo))
    return reply
