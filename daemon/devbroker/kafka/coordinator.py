"""Requests to the group coordinator: membership by either protocol, and offsets (spec: kafka 12, 13)."""

from collections.abc import Callable

from fastwire.errors import ProtocolError
from fastwire.kafka.format.error import Code
from fastwire.kafka.format.message import Body

from ..base import RefusedError
from .connection import KafkaConnection
from .groups import Group, Member, State
from .requests import Request

# First versions of a behaviour (spec: kafka 12).
MEMBER_ID_FIRST = 4  # JoinGroup: a member gets its id before it joins
LEAVE_SEVERAL = 3  # LeaveGroup
OFFSETS_OF_GROUPS = 8  # OffsetFetch: of several groups

METADATA_MOST = 4096  # characters beside a committed offset
HEARTBEAT_MS = 100  # of members by KIP-848; 5000 on a real broker


def find_coordinator(connection: KafkaConnection, request: Request) -> Body | None:
    """Handle FindCoordinator: name the node that coordinates all groups and transactional ids."""
    broker = connection.broker
    body = request.body
    if body.get("key_type", 0) not in (0, 1):
        return {"error_code": Code.COORDINATOR_NOT_AVAILABLE}
    if body.get("key_type", 0) == 1 and "coordinators" in broker.forbidden:
        lacking = {"error_code": Code.COORDINATOR_NOT_AVAILABLE}
        return {**lacking, "coordinators": [{**lacking, "key": key} for key in body.get("coordinator_keys", [])]}
    node = next(one for one in broker.nodes() if one["node_id"] == broker.coordinator)
    found = {"error_code": 0, "node_id": node["node_id"], "host": node["host"], "port": node["port"]}
    return {**found, "coordinators": [{**found, "key": key} for key in body.get("coordinator_keys", [])]}


def _group(connection: KafkaConnection, name: str) -> Group:
    if connection.node != connection.broker.coordinator:
        raise RefusedError(Code.NOT_COORDINATOR)
    if not name:
        raise RefusedError(Code.INVALID_GROUP_ID)
    return connection.broker.group(name)


def _check_generation(group: Group, generation: int, name: str) -> None:
    """Raise ProtocolError for a generation that the group has not had yet."""
    if generation > group.generation:
        raise ProtocolError(f"{name} in generation {generation} of group {group.name}, which has {group.generation}")


def _group_and_member(connection: KafkaConnection, request: Request) -> tuple[Group, Member]:
    """Return the group of a request and its sender, if it is a member in the current generation."""
    body = request.body
    group = _group(connection, body["group_id"])
    _check_generation(group, body["generation_id"], request.api.name)
    return group, group.member(body["member_id"], body.get("group_instance_id"), body["generation_id"])


def join(connection: KafkaConnection, request: Request) -> Body | None:
    """Handle JoinGroup; the response follows when all members have joined."""
    body = request.body
    broker = connection.broker
    instance_id = body.get("group_instance_id")
    try:
        group = _group(connection, body["group_id"])
        if group.consumers.members:
            raise RefusedError(Code.INCONSISTENT_GROUP_PROTOCOL)
        lowest, highest = broker.options.session_ms
        if not lowest <= body["session_timeout_ms"] <= highest:
            raise RefusedError(Code.INVALID_SESSION_TIMEOUT)
        if not body["protocols"]:
            raise RefusedError(Code.INCONSISTENT_GROUP_PROTOCOL)
        member_id = body["member_id"]
        if not member_id:
            member_id = group.promise(request.client_id)
            if request.version >= MEMBER_ID_FIRST and instance_id is None:
                return {"error_code": Code.MEMBER_ID_REQUIRED, "member_id": member_id}
        rebalance_ms = body.get("rebalance_timeout_ms", -1)
        member = Member(
            member_id,
            instance_id,
            body["session_timeout_ms"] / 1000,
            (rebalance_ms if rebalance_ms > 0 else body["session_timeout_ms"]) / 1000,
            {one["name"]: one["metadata"] for one in body["protocols"]},
        )
        group.protocol_type = body["protocol_type"]
        group.join(member, _answering(connection, request))
    except RefusedError as exc:
        return {"error_code": exc.code, "member_id": body["member_id"]}
    return None


def _answering(connection: KafkaConnection, request: Request) -> Callable[[Body], None]:
    return lambda body: connection.answer(request, body)


def sync(connection: KafkaConnection, request: Request) -> Body | None:
    """Handle SyncGroup; the response follows when the leader has sent its own."""
    body = request.body
    try:
        group, member = _group_and_member(connection, request)
        assignments = {one["member_id"]: one["assignment"] for one in body["assignments"]}
        if assignments and member.member_id != group.leader:
            raise ProtocolError(f"{member.member_id} sends assignments, {group.leader} leads group {group.name}")
        if set(assignments) - set(group.members):
            raise ProtocolError(f"assignments of group {group.name} for members that it does not have")
        group.sync(member, assignments, _answering(connection, request))
    except RefusedError as exc:
        return {"error_code": exc.code}
    return None


def heartbeat(connection: KafkaConnection, request: Request) -> Body | None:
    """Handle Heartbeat."""
    try:
        group, member = _group_and_member(connection, request)
        group.alive(member)
        return {"error_code": Code.REBALANCE_IN_PROGRESS if group.state is State.PREPARING else 0}
    except RefusedError as exc:
        return {"error_code": exc.code}


def leave(connection: KafkaConnection, request: Request) -> Body | None:
    """Handle LeaveGroup, by member id or, of static members, by instance id."""
    body = request.body
    leaving = body["members"] if request.version >= LEAVE_SEVERAL else [{"member_id": body["member_id"]}]
    answers = []
    try:
        group = _group(connection, body["group_id"])
    except RefusedError as exc:
        return {"error_code": exc.code, "members": []}
    for one in leaving:
        instance_id = one.get("group_instance_id")
        ids = [
            member.member_id
            for member in group.members.values()
            if member.member_id == one["member_id"] or (instance_id is not None and member.instance_id == instance_id)
        ]
        for member_id in ids:
            group.remove(member_id)
        code = Code.NONE if ids else Code.UNKNOWN_MEMBER_ID
        answers.append({"member_id": one["member_id"], "group_instance_id": instance_id, "error_code": code})
    alone = answers[0]["error_code"] if request.version < LEAVE_SEVERAL else 0
    return {"error_code": alone, "members": answers}


def consumer_heartbeat(connection: KafkaConnection, request: Request) -> Body | None:
    """Handle ConsumerGroupHeartbeat (spec: kafka 12.2)."""
    broker = connection.broker
    body = request.body
    answer: Body = {"heartbeat_interval_ms": HEARTBEAT_MS}
    try:
        if connection.node != broker.coordinator:
            raise RefusedError(Code.NOT_COORDINATOR)
        if body["server_assignor"] not in (None, "uniform", "range"):
            raise RefusedError(Code.UNSUPPORTED_ASSIGNOR)
        group = broker.group(body["group_id"])
        if group.members:
            raise RefusedError(Code.INCONSISTENT_GROUP_PROTOCOL)
        if not body["member_id"]:
            body["member_id"] = group.promise(request.client_id)
        epoch, assigned = group.consumers.beat(body)
    except RefusedError as exc:
        return answer | {"error_code": exc.code, "error_message": str(exc), "member_epoch": body["member_epoch"]}
    answer |= {"error_code": 0, "member_id": body["member_id"], "member_epoch": epoch}
    if assigned is not None:
        places: dict[bytes, list[int]] = {}
        for topic, number in sorted(assigned):
            places.setdefault(broker.topics[topic].topic_id, []).append(number)
        assigned_topics = [{"topic_id": topic_id, "partitions": numbers} for topic_id, numbers in places.items()]
        answer["assignment"] = {"topic_partitions": assigned_topics}
    return answer


def commit(connection: KafkaConnection, request: Request) -> Body | None:
    """Handle OffsetCommit: by members for partitions assigned to them, by others while the group has no members."""
    body = request.body
    broker = connection.broker
    generation, member_id = body.get("generation_id_or_member_epoch", -1), body.get("member_id", "")
    code = 0
    had: set[tuple[str, int]] | None = None
    offsets: dict[tuple[str, int], tuple[int, int, str | None]] = {}
    try:
        group = _group(connection, body["group_id"])
        if generation < 0 and not member_id:
            if group.members or group.consumers.members:
                raise RefusedError(Code.UNKNOWN_MEMBER_ID)
        elif group.consumers.members or (group.consumers.epoch and not group.members):
            had = group.consumers.member(member_id, generation).had
        else:
            _check_generation(group, generation, "OffsetCommit")
            member = group.member(member_id, body.get("group_instance_id"), generation)
            group.alive(member)
            if group.state is State.COMPLETING:
                raise RefusedError(Code.REBALANCE_IN_PROGRESS)
            had = member.had if group.protocol_type == "consumer" else None
        offsets = group.offsets
    except RefusedError as exc:
        code = exc.code
    answers = []
    for topic in body["topics"]:
        partitions = []
        for one in topic["partitions"]:
            place = topic["name"], one["partition_index"]
            answer = code
            found = broker.find(place[0])
            if not code and (found is None or place[1] >= len(found.partitions)):
                answer = Code.UNKNOWN_TOPIC_OR_PARTITION
            elif not code and found is not None:
                if broker.options.enforce:
                    _check_rules(found.partitions[place[1]].highest, one, place, had)
                if len(one["committed_metadata"] or "") > METADATA_MOST:
                    answer = Code.OFFSET_METADATA_TOO_LARGE
                else:
                    epoch = one.get("committed_leader_epoch", -1)
                    offsets[place] = one["committed_offset"], epoch, one["committed_metadata"]
            partitions.append({"partition_index": place[1], "error_code": answer})
        answers.append({"name": topic["name"], "partitions": partitions})
    return {"topics": answers}


def _check_rules(highest: int, one: Body, place: tuple[str, int], had: set[tuple[str, int]] | None) -> None:
    """Raise ProtocolError for an offset commit that no sound member sends."""
    offset = one["committed_offset"]
    if not 0 <= offset <= highest:
        raise ProtocolError(f"offset {offset} is committed of {place[0]}-{place[1]}, which never passed {highest}")
    if had is not None and place not in had:
        raise ProtocolError(f"an offset of {place[0]}-{place[1]} is committed by a member that was not given it")


def committed(connection: KafkaConnection, request: Request) -> Body | None:
    """Handle OffsetFetch."""
    if request.version >= OFFSETS_OF_GROUPS:
        groups = request.body["groups"]
        return {"groups": [_committed_of(connection, one) | {"group_id": one["group_id"]} for one in groups]}
    return _committed_of(connection, request.body)


def _committed_of(connection: KafkaConnection, asked: Body) -> Body:
    broker = connection.broker
    answer: Body = {"topics": [], "error_code": 0}
    try:
        offsets = _group(connection, asked["group_id"]).offsets
    except RefusedError as exc:
        return answer | {"error_code": exc.code}
    places: dict[str, list[int]] = {}
    if asked["topics"] is None:
        for topic, number in offsets:
            places.setdefault(topic, []).append(number)
    else:
        places = {one["name"]: one["partition_indexes"] for one in asked["topics"]}
    for topic, numbers in places.items():
        partitions = []
        for number in numbers:
            offset, epoch, said = offsets.get((topic, number), (-1, -1, ""))
            broker.looked_up(topic, number)
            partitions.append(
                {
                    "partition_index": number,
                    "committed_offset": offset,
                    "committed_leader_epoch": epoch,
                    "metadata": said,
                    "error_code": 0,
                }
            )
        answer["topics"].append({"name": topic, "partitions": partitions})
    return answer
