"""Requests about nodes and topics: ApiVersions, Metadata, CreateTopics, DeleteTopics (spec: kafka 4, 5.1)."""

from fastwire.kafka.format.error import Code
from fastwire.kafka.format.message import Body
from fastwire.kafka.names import parse_topic
from fastwire.kafka.producing.transaction import FEATURE, IMPLICIT_END, IMPLICIT_LEVEL
from fastwire.kafka.protocol.connection import Key

from ..base import RefusedError
from .connection import KafkaConnection
from .requests import Request
from .topics import StoredTopic

INVALID_PARTITIONS = 37
NO_ID = bytes(16)
INTERNAL = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


def api_versions(connection: KafkaConnection, request: Request) -> Body | None:
    """Handle ApiVersions."""
    ranges = connection.broker.versions.items()
    implicit = connection.broker.versions[Key.END_TXN][1] >= IMPLICIT_END
    feature = {"name": FEATURE, "max_version_level": IMPLICIT_LEVEL, "min_version_level": IMPLICIT_LEVEL}
    return {
        "error_code": 0,
        "api_keys": [{"api_key": key, "min_version": first, "max_version": last} for key, (first, last) in ranges],
        "finalized_features_epoch": 1,
        "finalized_features": [feature] if implicit else [],
    }


def metadata(connection: KafkaConnection, request: Request) -> Body | None:
    """Handle Metadata; a topic that does not exist is created if broker and client allow it."""
    broker = connection.broker
    asked = request.body["topics"]
    topics: list[Body]
    if asked is None or (request.version == 0 and not asked):
        topics = [_described(topic) for topic in broker.topics.values()]
    else:
        create = request.body.get("allow_auto_topic_creation", True) and broker.options.auto_create
        topics = [_named(connection, one.get("topic_id", NO_ID), one["name"], create=create) for one in asked]
    return {
        "brokers": broker.nodes(),
        "cluster_id": broker.options.cluster_id,
        "controller_id": broker.controller,
        "topics": topics,
    }


def _named(connection: KafkaConnection, topic_id: bytes, name: str | None, *, create: bool) -> Body:
    broker = connection.broker
    topic = broker.find(topic_id if name is None else name)
    if topic is None and name is not None:
        try:
            parse_topic(name)
        except ValueError:
            return {"error_code": Code.INVALID_TOPIC_EXCEPTION, "name": name, "partitions": []}
        if create:
            broker.create_topic(name)
            topic = broker.find(name)
    if topic is None:
        code = Code.UNKNOWN_TOPIC_ID if name is None else Code.UNKNOWN_TOPIC_OR_PARTITION
        return {"error_code": code, "name": name, "topic_id": topic_id, "partitions": []}
    return _described(topic)


def _described(topic: StoredTopic) -> Body:
    return {
        "error_code": 0,
        "name": topic.name,
        "topic_id": topic.topic_id,
        "is_internal": topic.name in INTERNAL,
        "partitions": [
            {
                "error_code": Code.LEADER_NOT_AVAILABLE if one.leader < 0 else 0,
                "partition_index": one.number,
                "leader_id": one.leader,
                "leader_epoch": one.epoch,
                "replica_nodes": [max(one.leader, 0)],
                "isr_nodes": [max(one.leader, 0)],
            }
            for one in topic.partitions
        ],
    }


def create_topics(connection: KafkaConnection, request: Request) -> Body | None:
    """Handle CreateTopics. Of the configuration of a topic max.message.bytes has an effect."""
    broker = connection.broker
    answers = []
    for one in request.body["topics"]:
        answer: Body = {"name": one["name"], "error_code": 0}
        try:
            if connection.node != broker.controller and broker.options.release < "4":
                raise RefusedError(Code.NOT_CONTROLLER, "This is not the correct controller for this cluster.")
            if broker.find(one["name"]) is not None:
                raise RefusedError(Code.TOPIC_ALREADY_EXISTS, f"Topic '{one['name']}' already exists.")
            count = one["num_partitions"]
            if count == 0 or count < -1:
                raise RefusedError(INVALID_PARTITIONS, f"{count} partitions")
            if one["replication_factor"] > len(broker.ports):
                raise RefusedError(Code.INVALID_REPLICATION_FACTOR, f"there are {len(broker.ports)} nodes")
            if one["configs"] and "settings" in broker.forbidden:
                raise RefusedError(Code.INVALID_CONFIG, "no settings may be given here")
            parse_topic(one["name"])
            if not request.body["validate_only"]:
                broker.create_topic(one["name"], max(count, 0))
                made = broker.topics[one["name"]]
                made.configs = {config["name"]: config["value"] for config in one["configs"]}
                answer["topic_id"] = made.topic_id
        except RefusedError as exc:
            answer |= {"error_code": exc.code, "error_message": str(exc)}
        except ValueError as exc:
            answer |= {"error_code": Code.INVALID_TOPIC_EXCEPTION, "error_message": str(exc)}
        answers.append(answer)
    return {"topics": answers}


def describe_configs(connection: KafkaConnection, request: Request) -> Body | None:
    """Handle DescribeConfigs of topics: the settings that they were created with, and their policy."""
    results = []
    for one in request.body["resources"]:
        topic = connection.broker.find(one["resource_name"])
        known = {} if topic is None else {"cleanup.policy": "delete", **topic.configs}
        asked = one["configuration_keys"]
        configs: list[Body] = [
            {"name": name, "value": value, "read_only": False, "is_sensitive": False, "synonyms": [], "config_type": 0}
            for name, value in known.items()
            if asked is None or name in asked
        ]
        code = Code.UNKNOWN_TOPIC_OR_PARTITION if topic is None else Code.NONE
        named = {name: one[name] for name in ("resource_type", "resource_name")}
        results.append({**named, "error_code": code, "configs": configs})
    return {"results": results}


def delete_topics(connection: KafkaConnection, request: Request) -> Body | None:
    """Handle DeleteTopics, by name or id."""
    broker = connection.broker
    asked: list[tuple[str | None, bytes]] = [(name, NO_ID) for name in request.body.get("topic_names", [])]
    asked += [(one["name"], one["topic_id"]) for one in request.body.get("topics", [])]
    answers = []
    for name, topic_id in asked:
        topic = broker.find(topic_id if name is None else name)
        code = Code.UNKNOWN_TOPIC_OR_PARTITION if topic is None else Code.NONE
        if topic is not None:
            broker.delete_topic(topic.name)
        answers.append({"name": name if topic is None else topic.name, "topic_id": topic_id, "error_code": code})
    return {"responses": answers}
