"""Requests about topics, partitions and brokers (spec: tank 8-12)."""

from fastwire.tank.format.error import CreateCode, PartitionStatus
from fastwire.tank.format.message import (
    CreateTopic,
    DiscoverPartitions,
    DiscoverTopics,
    DiscoverTopology,
    Node,
    PartitionRange,
    PartitionRanges,
    TopicInfo,
    TopicList,
    TopicResult,
    Topology,
)
from fastwire.tank.names import parse_topic

from .connection import TankConnection
from .topics import PartitionLog

__all__ = ["create_topic", "partitions", "topics", "topology"]

CLUSTER = "fastwire-dev"
LEAST_SEGMENT = 64  # log.segment.bytes below are refused
MOST_PARTITIONS = 65_530


def partitions(connection: TankConnection, payload: bytes) -> None:
    """Handle DiscoverPartitions."""
    request_id, request = DiscoverPartitions.decode(payload)
    known = connection.broker.topics.get(request.topic, [])
    ranges = PartitionRanges(request.topic, tuple(_range(connection, one) for one in known))
    connection.answer(request.kind, ranges.encode(request_id))


def _range(connection: TankConnection, log: PartitionLog) -> PartitionRange:
    if log.leader == connection.node:
        return PartitionRange(log.first, log.last)
    if log.leader < 0:
        return PartitionRange(status=PartitionStatus.NO_LEADER)
    return PartitionRange(status=PartitionStatus.REDIRECT, leader=connection.broker.address(log.leader))


def topics(connection: TankConnection, payload: bytes) -> None:
    """Handle DiscoverTopics."""
    request_id, request = DiscoverTopics.decode(payload)
    broker = connection.broker
    nodes = broker.options.nodes
    found = (TopicInfo(name, len(known), replicas=nodes if nodes > 1 else 0) for name, known in broker.topics.items())
    connection.answer(request.kind, TopicList(tuple(found), nodes > 1).encode(request_id))


def create_topic(connection: TankConnection, payload: bytes) -> None:
    """Handle CreateTopic; of the configuration only the size of segments counts."""
    request_id, request = CreateTopic.decode(payload)
    code = _create(connection, request)
    connection.answer(request.kind, TopicResult(request.topic, code).encode(request_id))


def _create(connection: TankConnection, request: CreateTopic) -> CreateCode:
    broker = connection.broker
    if broker.options.read_only:
        return CreateCode.READ_ONLY
    try:
        parse_topic(request.topic)
    except ValueError:
        return CreateCode.BAD_REQUEST
    if not 1 <= request.partitions <= MOST_PARTITIONS:
        return CreateCode.BAD_REQUEST
    if request.topic in broker.topics:
        return CreateCode.EXISTS
    pairs = (line.partition("=") for line in request.configuration.splitlines())
    segment = {key.strip(): value.strip() for key, _, value in pairs}.get("log.segment.bytes", "0")
    if not segment.isdecimal() or 0 < int(segment) < LEAST_SEGMENT:
        return CreateCode.BAD_CONFIGURATION
    broker.create(request.topic, request.partitions, segment_bytes=int(segment))
    return CreateCode.CREATED


def topology(connection: TankConnection, payload: bytes) -> None:
    """Handle DiscoverTopology."""
    request_id, request = DiscoverTopology.decode(payload)
    broker = connection.broker
    count = broker.options.nodes
    told = Topology()
    if count > 1:
        told = Topology(CLUSTER, tuple(Node(number, broker.address(number)) for number in range(count)))
    connection.answer(request.kind, told.encode(request_id))
