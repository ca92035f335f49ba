"""Requests about topics: who owns them, how many partitions they have, which there are (Pulsar 5, 6, 23)."""

import re

from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.namespace import topics_hash
from fastwire.pulsar.topic import Topic, parse_topic

from .connection import PulsarConnection
from .subscription import RefusedError

__all__ = ["get_schema", "lookup", "partitioned_metadata", "topics_of_namespace"]

Partitions = pb.CommandPartitionedTopicMetadataResponse
Lookup = pb.CommandLookupTopicResponse
Topics = pb.CommandGetTopicsOfNamespace


def partitioned_metadata(
    connection: PulsarConnection, request: pb.CommandPartitionedTopicMetadata, body: bytes
) -> None:
    """Handle PARTITIONED_METADATA; a topic that does not exist is made if broker and client allow it."""
    broker = connection.broker
    answer = Partitions(request_id=request.request_id)
    try:
        name = _checked(request.topic)
        if not broker.topic_exists(name) and parse_topic(name).partition < 0:
            if not (broker.options.auto_create and request.metadata_auto_creation_enabled):
                raise RefusedError(pb.TopicNotFound, f"Topic {name} not found")
            broker.create_topic(name, broker.options.auto_create_partitions)
        answer.partitions = broker.partitions(name)
        answer.response = Partitions.Success
    except RefusedError as exc:
        answer.response, answer.error, answer.message = Partitions.Failed, exc.error, str(exc)
    connection.send(pb.BaseCommand.PARTITIONED_METADATA_RESPONSE, partitionMetadataResponse=answer)


def lookup(connection: PulsarConnection, request: pb.CommandLookupTopic, body: bytes) -> None:
    """Handle LOOKUP: this broker owns everything, unless it was told to point elsewhere."""
    broker = connection.broker
    answer = Lookup(request_id=request.request_id)
    try:
        name = _checked(request.topic)
        redirect = broker.take_redirect()
        url = redirect or broker.advertised_url
        answer.response = Lookup.Redirect if redirect else Lookup.Connect
        answer.authoritative = True
        answer.proxy_through_service_url = broker.options.proxy_through_service_url
        if url.startswith("pulsar+ssl"):
            answer.brokerServiceUrlTls = url
        else:
            answer.brokerServiceUrl = url
        if not broker.options.auto_create and not broker.topic_exists(name):
            raise RefusedError(pb.TopicNotFound, f"Topic {name} not found")
    except RefusedError as exc:
        answer = Lookup(request_id=request.request_id, response=Lookup.Failed, error=exc.error, message=str(exc))
    connection.send(pb.BaseCommand.LOOKUP_RESPONSE, lookupTopicResponse=answer)


def topics_of_namespace(connection: PulsarConnection, request: pb.CommandGetTopicsOfNamespace, body: bytes) -> None:
    """Handle GET_TOPICS_OF_NAMESPACE: the partitions by name, filtered if a short enough pattern was sent."""
    broker = connection.broker
    topics = [topic for topic in map(parse_topic, broker.topic_names()) if _namespace(topic) == request.namespace]
    if request.mode != Topics.ALL:
        topics = [topic for topic in topics if topic.persistent == (request.mode == Topics.PERSISTENT)]
    answer = pb.CommandGetTopicsOfNamespaceResponse(request_id=request.request_id)
    pattern = request.topics_pattern
    if pattern and len(pattern) <= broker.options.pattern_max_length:
        matches = re.compile(pattern.partition("://")[2] or pattern).fullmatch
        topics = [topic for topic in topics if matches(f"{_namespace(topic)}/{topic.base.local}")]
        answer.filtered = True
    names = [str(topic) for topic in topics]
    answer.topics_hash = topics_hash(names)
    answer.changed = answer.topics_hash != request.topics_hash
    if answer.changed:
        answer.topics.extend(names)
    connection.send(pb.BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE, getTopicsOfNamespaceResponse=answer)


def get_schema(connection: PulsarConnection, request: pb.CommandGetSchema, body: bytes) -> None:
    """Handle GET_SCHEMA."""
    found = connection.broker.schema(_checked(request.topic), request.schema_version)
    answer = pb.CommandGetSchemaResponse(request_id=request.request_id)
    if found is None:
        answer.error_code, answer.error_message = pb.TopicNotFound, "Topic has no schema"
    else:
        answer.schema.CopyFrom(found[0])
        answer.schema_version = found[1]
    connection.send(pb.BaseCommand.GET_SCHEMA_RESPONSE, getSchemaResponse=answer)


def _namespace(topic: Topic) -> str:
    return f"{topic.tenant}/{topic.namespace}"


def _checked(topic: str) -> str:
    """Return a topic's name if it is a full one: clients must send no other."""
    try:
        name = str(parse_topic(topic))
    except ValueError as exc:
        raise RefusedError(pb.InvalidTopicName, str(exc)) from None
    if name != topic:
        raise RefusedError(pb.InvalidTopicName, f"{topic!r} is not the full name of a topic")
    return name
