"""Requests of readers: Fetch, ListOffsets, OffsetForLeaderEpoch, and the rules for them (spec: kafka 9)."""

from collections.abc import Iterator
from dataclasses import dataclass

from fastwire.errors import ProtocolError
from fastwire.kafka.format.error import Code
from fastwire.kafka.format.message import Body

from ..base import RefusedError
from .cluster import Cluster, FetchedPartition, FetchSession
from .connection import KafkaConnection
from .requests import Request
from .topics import PartitionLog, StoredTopic

EARLIEST = -2
LATEST = -1
SESSIONS_SINCE = 7
IDS_SINCE = 13  # Fetch names topics by id from this version on


@dataclass(slots=True, eq=False)
class _Fetch:
    """One Fetch request; ``full``: its response has all partitions of the session, not only those with news."""

    connection: KafkaConnection
    request: Request
    wanted: dict[FetchedPartition, Body]
    session: FetchSession | None
    full: bool

    def answer(self, last: bool) -> bool:
        """Send the response if there is enough for one, or if this is the ``last`` look; return True if it was sent."""
        body = _collect(self, enough=0 if last else self.request.body["min_bytes"])
        if body is None or self.connection.closing:
            return False
        self.connection.answer(self.request, body)
        return True


def fetch(connection: KafkaConnection, request: Request) -> Body | None:
    """Handle Fetch; without enough to read it is held back until there is, or until its time is over."""
    broker = connection.broker
    wanted = dict(_wanted(request))
    session, full = None, True
    if request.version >= SESSIONS_SINCE:
        if (code := broker.fetch_refusals.take()) is not None:
            return {"error_code": code, "session_id": 0, "responses": []}
        try:
            session, full = _session(broker, request, wanted)
        except RefusedError as exc:
            return {"error_code": exc.code, "session_id": 0, "responses": []}
    if session is not None:
        wanted = session.wanted
    for place, one in wanted.items():
        _check_rules(connection, place, one)
    asked = _Fetch(connection, request, wanted, session, full)
    body = _collect(asked, enough=request.body["min_bytes"] if request.body["max_wait_ms"] > 0 else 0)
    if body is None:
        broker.held.hold(connection, request.body["max_wait_ms"] / 1000, asked.answer)
    return body


def _wanted(request: Request) -> Iterator[tuple[FetchedPartition, Body]]:
    name = "topic_id" if request.version >= IDS_SINCE else "topic"
    for topic in request.body["topics"]:
        for one in topic["partitions"]:
            yield (topic[name], one["partition"]), one


def _session(
    broker: Cluster, request: Request, wanted: dict[FetchedPartition, Body]
) -> tuple[FetchSession | None, bool]:
    """Return the session of a request, if any, and whether the response has all of its partitions."""
    session_id, epoch = request.body["session_id"], request.body["session_epoch"]
    by_id = request.version >= IDS_SINCE
    if session_id and session_id not in broker.granted_sessions:
        raise ProtocolError(f"Fetch in session {session_id}, which never was")
    if epoch <= 0:
        broker.sessions.pop(session_id, None)
        if epoch < 0 or not wanted:
            return None, True
        session = broker.open_session(by_id)
        session.wanted = wanted
        return session, True
    found = broker.sessions.get(session_id)
    if found is None:
        raise RefusedError(Code.FETCH_SESSION_ID_NOT_FOUND)
    if epoch != found.next_epoch:
        raise RefusedError(Code.INVALID_FETCH_SESSION_EPOCH)
    if by_id != found.by_id:
        raise RefusedError(Code.FETCH_SESSION_TOPIC_ID_ERROR)
    found.next_epoch = found.next_epoch % 0x7FFFFFFF + 1
    name = "topic_id" if by_id else "topic"
    for topic in request.body["forgotten_topics_data"]:
        for partition in topic["partitions"]:
            if found.wanted.pop((topic[name], partition), None) is None:
                raise ProtocolError(f"partition {partition} is forgotten in session {session_id}, which lacks it")
    found.wanted |= wanted
    if not found.wanted:
        del broker.sessions[session_id]
        return None, True
    return found, False


def _check_rules(connection: KafkaConnection, place: FetchedPartition, one: Body) -> None:
    """Raise ProtocolError for a request that no sound reader sends: beyond what it was sent, or an unknown epoch."""
    broker = connection.broker
    topic = broker.find(place[0])
    if topic is None or place[1] >= len(topic.partitions) or not broker.options.enforce:
        return
    partition = topic.partitions[place[1]]
    offset = one["fetch_offset"]
    if offset < 0:
        raise ProtocolError(f"Fetch of {partition} at offset {offset}")
    epoch = one.get("current_leader_epoch", -1)
    if epoch > broker.highest_epoch(partition):
        raise ProtocolError(f"Fetch of {partition} in epoch {epoch}, which never was")
    sent = connection.sent.get((topic.topic_id, place[1]))
    if broker.options.racks or broker.options.jumps:  # another node, or another reader, may have got more
        return
    if sent is not None and sent[1] == partition.looked_up and offset > sent[0]:
        raise ProtocolError(f"Fetch of {partition} at offset {offset}, only what lies before {sent[0]} was sent")


def _collect(asked: _Fetch, enough: int) -> Body | None:
    """Return the body of the response; None if it has less than ``enough`` bytes and no error."""
    connection, request = asked.connection, asked.request
    broker = connection.broker
    room = min(request.body["max_bytes"], broker.options.fetch_max_bytes)
    total = 0
    failed = False
    answers: dict[FetchedPartition, Body] = {}
    sent: dict[tuple[bytes, int], tuple[int, int] | None] = {}
    for place, one in asked.wanted.items():
        topic = broker.find(place[0])
        partition: PartitionLog | None = None
        try:
            partition = _partition(broker, connection.node, topic, place)
            assert topic is not None
            if (code := broker.read_refusals.take()) is not None:
                raise RefusedError(code)
            if f"read {topic.name}" in broker.forbidden:
                raise RefusedError(Code.TOPIC_AUTHORIZATION_FAILED)
            _check_readable(connection, request, partition, one.get("current_leader_epoch", -1))
            near = (
                broker.nearest(partition, request.body.get("rack_id", ""))
                if partition.leader == connection.node
                else -1
            )
            if near >= 0:
                failed = True  # it is answered at once
                answers[place] = {"error_code": 0, "preferred_read_replica": near, "records": b"", **_ends(partition)}
                answers[place]["partition_index"] = place[1]
                continue
            answer, until = _read(broker, partition, one, request, room - total, first=total == 0)
            sent[topic.topic_id, place[1]] = None if until is None else (until, partition.looked_up)
            failed |= "diverging_epoch" in answer
            total += len(answer["records"])
            broker.read_at[connection.node] += bool(answer["records"])
        except RefusedError as exc:
            failed = True
            answer = {"error_code": exc.code, "high_watermark": -1, "records": None}
            if partition is not None and topic is not None:
                sent[topic.topic_id, place[1]] = None
                if broker.options.leader_hints and exc.code in (Code.NOT_LEADER_OR_FOLLOWER, Code.FENCED_LEADER_EPOCH):
                    answer["current_leader"] = {"leader_id": partition.leader, "leader_epoch": partition.epoch}
        answers[place] = answer | {"partition_index": place[1]}
    if total < enough and not failed:
        return None
    if throttle := broker.take_throttle():
        return _throttled(asked, throttle)
    for key, how_far in sent.items():
        if how_far is None:
            connection.sent.pop(key, None)
        else:
            connection.sent[key] = how_far
    return _body(asked, answers)


def _throttled(asked: _Fetch, throttle: int) -> Body:
    """Answer a reader above its quota: no topic and no new session; an open session stays (spec: kafka 5.1)."""
    session_id = 0
    if asked.session is not None:
        if asked.full:
            del asked.connection.broker.sessions[asked.session.session_id]
        else:
            session_id = asked.session.session_id
    return {"throttle_time_ms": throttle, "error_code": 0, "session_id": session_id, "responses": []}


def _partition(broker: Cluster, node: int, topic: StoredTopic | None, place: FetchedPartition) -> PartitionLog:
    if topic is None:
        known = isinstance(place[0], str)
        raise RefusedError(Code.UNKNOWN_TOPIC_OR_PARTITION if known else Code.UNKNOWN_TOPIC_ID)
    if not 0 <= place[1] < len(topic.partitions):
        raise RefusedError(Code.UNKNOWN_TOPIC_OR_PARTITION)
    return topic.partitions[place[1]]


def _check_leader(partition: PartitionLog, node: int, epoch: int) -> None:
    if 0 <= epoch < partition.epoch:
        raise RefusedError(Code.FENCED_LEADER_EPOCH)
    if epoch > partition.epoch:
        raise RefusedError(Code.UNKNOWN_LEADER_EPOCH)
    if partition.leader != node:
        raise RefusedError(Code.NOT_LEADER_OR_FOLLOWER)


def _ends(partition: PartitionLog) -> Body:
    return {
        "high_watermark": partition.end,
        "last_stable_offset": partition.stable,
        "log_start_offset": partition.start,
    }


def _check_readable(connection: KafkaConnection, request: Request, partition: PartitionLog, epoch: int) -> None:
    """Check that a node may be read from: the leader, and from version 11 on replicas if nodes have racks (KIP-392)."""
    broker = connection.broker
    if partition.leader == connection.node or not broker.options.racks or request.version < 11:
        _check_leader(partition, connection.node, epoch)
        return
    _check_leader(partition, partition.leader, epoch)
    if (code := broker.replica_refusals.take()) is not None:
        raise RefusedError(code)


def _read(
    broker: Cluster, partition: PartitionLog, one: Body, request: Request, room: int, *, first: bool
) -> tuple[Body, int | None]:
    """Return the response of one partition, and the offset behind the last complete batch in it.

    That offset is None if the reader has to search for the offset at which it continues: where its log diverges from
    that of the leader, and behind a damaged batch, whose header is no evidence of its end.
    """
    offset = one["fetch_offset"]
    committed = request.body["isolation_level"] == 1
    end = partition.stable if committed else partition.end
    answer: Body = {"error_code": 0, "records": b"", **_ends(partition)}
    read_epoch = one.get("last_fetched_epoch", -1)
    if read_epoch >= 0:
        epoch, epoch_end = partition.epoch_end(read_epoch)
        if epoch < read_epoch or epoch_end < offset:
            answer["diverging_epoch"] = {"epoch": epoch, "end_offset": epoch_end}
            return answer, None
    if not partition.start <= offset <= partition.end:
        raise RefusedError(Code.OFFSET_OUT_OF_RANGE)
    room = min(room, one["partition_max_bytes"])
    log = partition.log
    parts: list[bytes] = []
    size = 0
    until = offset
    damaged = False
    for index in range(log.find_message(offset), log.end):
        entry = log[index]
        if entry.first >= end:
            break
        if size + len(entry.body) > room and not (first and not parts):
            if broker.options.cut_tails and size < room:
                parts.append(entry.body[: room - size])
            break
        parts.append(entry.body)
        size += len(entry.body)
        until = entry.first + entry.messages
        damaged |= entry.damaged
        if broker.options.segment_batches and (index + 1) % broker.options.segment_batches == 0:
            break
    answer["records"] = b"".join(parts)
    if committed:
        aborted = [one for one in partition.aborted if one[2] >= offset and one[1] < until]
        answer["aborted_transactions"] = [{"producer_id": one[0], "first_offset": one[1]} for one in aborted]
    return answer, None if damaged else until


def _body(asked: _Fetch, answers: dict[FetchedPartition, Body]) -> Body:
    request, session = asked.request, asked.session
    broker = asked.connection.broker
    version = request.version
    name = "topic_id" if version >= IDS_SINCE else "topic"
    topics: dict[str | bytes, list[Body]] = {}
    hinted = set()
    for place, answer in answers.items():
        marks = answer["high_watermark"], answer.get("log_start_offset", -1)
        news = answer["error_code"] or answer["records"] or "diverging_epoch" in answer
        if session is not None:
            if not asked.full and not news and session.told.get(place) == marks:
                continue
            session.told[place] = marks
        if "current_leader" in answer:
            hinted.add(answer["current_leader"]["leader_id"])
        topics.setdefault(place[0], []).append(answer)
    return {
        "error_code": 0,
        "session_id": 0 if session is None else session.session_id,
        "responses": [{name: topic, "partitions": partitions} for topic, partitions in topics.items()],
        "node_endpoints": [one for one in broker.nodes() if one["node_id"] in hinted],
    }


def list_offsets(connection: KafkaConnection, request: Request) -> Body | None:
    """Handle ListOffsets; times are resolved to a batch."""
    broker = connection.broker
    committed = request.body.get("isolation_level", 0) == 1
    topics = []
    for asked in request.body["topics"]:
        answers = []
        for one in asked["partitions"]:
            place = asked["name"], one["partition_index"]
            answer: Body = {"partition_index": place[1]}
            try:
                partition = _partition(broker, connection.node, broker.find(place[0]), place)
                _check_leader(partition, connection.node, one.get("current_leader_epoch", -1))
                partition.looked_up += 1
                time, offset = _offset(partition, one["timestamp"], committed)
                answer |= {"error_code": 0, "timestamp": time, "offset": offset, "leader_epoch": partition.epoch}
            except RefusedError as exc:
                answer["error_code"] = exc.code
            answers.append(answer)
        topics.append({"name": asked["name"], "partitions": answers})
    return {"topics": topics}


def _offset(partition: PartitionLog, timestamp: int, committed: bool) -> tuple[int, int]:
    if timestamp == EARLIEST:
        return -1, partition.start
    if timestamp == LATEST:
        return -1, partition.stable if committed else partition.end
    if timestamp < 0:
        raise RefusedError(Code.UNSUPPORTED_VERSION)
    return partition.find_time(timestamp)


def epoch_ends(connection: KafkaConnection, request: Request) -> Body | None:
    """Handle OffsetForLeaderEpoch."""
    broker = connection.broker
    topics = []
    for asked in request.body["topics"]:
        answers = []
        for one in asked["partitions"]:
            place = asked["topic"], one["partition"]
            answer: Body = {"partition": place[1], "error_code": 0}
            try:
                partition = _partition(broker, connection.node, broker.find(place[0]), place)
                _check_leader(partition, connection.node, one.get("current_leader_epoch", -1))
                partition.looked_up += 1
                answer["leader_epoch"], answer["end_offset"] = partition.epoch_end(one["leader_epoch"])
            except RefusedError as exc:
                answer["error_code"] = exc.code
            answers.append(answer)
        topics.append({"topic": asked["topic"], "partitions": answers})
    return {"topics": topics}
