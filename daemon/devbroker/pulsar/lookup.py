"""Requests about single topics: who owns them, how many partitions they have, their schema (Pulsar 5, 6.1, 23)."""

from typing import TYPE_CHECKING

from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.topic import parse_topic

from .connection import PulsarConnection
from .subscription import RefusedError

if TYPE_CHECKING:
    from .broker import PulsarDevBroker

__all__ = ["get_schema", "lookup", "partitioned_metadata"]

Partitions = pb.CommandPartitionedTopicMetadataResponse
Lookup = pb.CommandLookupTopicResponse


def partitioned_metadata(
    connection: PulsarConnection, request: pb.CommandPartitionedTopicMetadata, body: bytes
) -> None:
    """Handle PARTITIONED_METADATA; a topic that does not exist is made if broker and client allow it."""
    broker = connection.broker
    flag = broker.options.feature_flags.supports_get_partitioned_metadata_without_auto_creation
    if request.HasField("metadata_auto_creation_enabled") and not request.metadata_auto_creation_enabled and not flag:
        return connection.violation("metadata_auto_creation_enabled, which was not among the features")
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
    return None


def lookup(connection: PulsarConnection, request: pb.CommandLookupTopic, body: bytes) -> None:
    """Handle LOOKUP: this broker owns everything, unless it was told to point elsewhere."""
    broker = connection.broker
    if broker.options.lookup_delay_s:
        if broker.lookups >= broker.options.most_lookups:
            return _answer(connection, request, RefusedError(pb.TooManyRequests, "Failed due to too many requests"))
        broker.lookups += 1
        broker.most_lookups = max(broker.most_lookups, broker.lookups)
        broker.loop.call_later(broker.options.lookup_delay_s, _look_up, connection, request)
    else:
        _answer(connection, request)
    return None


def _look_up(connection: PulsarConnection, request: pb.CommandLookupTopic) -> None:
    connection.broker.lookups -= 1
    if not connection.closing:
        _answer(connection, request)


def _answer(connection: PulsarConnection, request: pb.CommandLookupTopic, refused: RefusedError | None = None) -> None:
    broker = connection.broker
    answer = Lookup(request_id=request.request_id)
    try:
        if refused is not None:
            raise refused
        name = _checked(request.topic)
        redirect = broker.take_redirect()
        url = redirect or _advertised(broker, request.advertised_listener_name)
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


def _advertised(broker: "PulsarDevBroker", listener: str) -> str:
    if not listener:
        return broker.advertised_url
    url = broker.options.listeners.get(listener)
    if url is None:
        raise RefusedError(pb.ServiceNotReady, f"the broker do not have {listener} listener")
    return url or broker.url


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


def _checked(topic: str) -> str:
    """Return a topic's name if it is a full one: clients must send no other."""
    try:
        name = str(parse_topic(topic))
    except ValueError as exc:
        raise RefusedError(pb.InvalidTopicName, str(exc)) from None
    if name != topic:
        raise RefusedError(pb.InvalidTopicName, f"{topic!r} is not the full name of a topic")
    return name
