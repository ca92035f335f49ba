"""Requests about topics: lookup, partitions, schemas, topic lists and their watchers (spec: pulsar 5, 6, 23)."""

from collections.abc import Sequence

from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.names.namespace import topics_hash
from fastwire.pulsar.names.topic import parse_topic

from ..base import RefusedError
from .cluster import Cluster
from .connection import PulsarConnection
from .topics import TopicWatcher, matcher, topics_of

LONGEST_PATTERN = 50  # that the broker applies to topics itself

Metadata = pb.CommandPartitionedTopicMetadataResponse
Lookup = pb.CommandLookupTopicResponse
Modes = pb.CommandGetTopicsOfNamespace


def partitioned_metadata(
    connection: PulsarConnection, request: pb.CommandPartitionedTopicMetadata, body: bytes
) -> None:
    """Handle PARTITIONED_METADATA; a topic that does not exist is created if broker and client allow it."""
    broker = connection.broker
    flag = broker.options.feature_flags.supports_get_partitioned_metadata_without_auto_creation
    if request.HasField("metadata_auto_creation_enabled") and not request.metadata_auto_creation_enabled and not flag:
        return connection.violation("metadata_auto_creation_enabled, which was not among the features")
    answer = Metadata(request_id=request.request_id)
    try:
        name = _checked(request.topic)
        if not broker.topic_exists(name) and parse_topic(name).partition < 0:
            if not (broker.options.auto_create and request.metadata_auto_creation_enabled):
                raise RefusedError(pb.TopicNotFound, f"Topic {name} not found")
            broker.create_topic(name, broker.options.auto_create_partitions)
        answer.partitions = broker.partitions(name)
        answer.response = Metadata.Success
    except RefusedError as exc:
        answer.response, answer.error, answer.message = Metadata.Failed, exc.code, str(exc)
    connection.send(pb.BaseCommand.PARTITIONED_METADATA_RESPONSE, partitionMetadataResponse=answer)
    return None


def lookup(connection: PulsarConnection, request: pb.CommandLookupTopic, body: bytes) -> None:
    """Handle LOOKUP: this broker owns all topics, unless a test redirects the lookup."""
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
        redirect = broker.redirects.take()
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
        answer = Lookup(request_id=request.request_id, response=Lookup.Failed, error=exc.code, message=str(exc))
    connection.send(pb.BaseCommand.LOOKUP_RESPONSE, lookupTopicResponse=answer)


def _advertised(broker: Cluster, listener: str) -> str:
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


def topics_of_namespace(connection: PulsarConnection, request: pb.CommandGetTopicsOfNamespace, body: bytes) -> None:
    """Handle GET_TOPICS_OF_NAMESPACE: topics and partitions, filtered by a short pattern (spec: pulsar 6.2)."""
    broker = connection.broker
    topics = topics_of(request.namespace, broker.topic_names())
    if request.mode != Modes.ALL:
        topics = [topic for topic in topics if topic.persistent == (request.mode == Modes.PERSISTENT)]
    answer = pb.CommandGetTopicsOfNamespaceResponse(request_id=request.request_id)
    if broker.options.feature_flags.supports_topic_watchers:
        pattern = request.topics_pattern
        if pattern and len(pattern) <= LONGEST_PATTERN:
            topics = list(filter(matcher(pattern), topics))
            answer.filtered = True
        answer.topics_hash = topics_hash(map(str, topics))
        answer.changed = answer.topics_hash != request.topics_hash
    if answer.changed or not answer.HasField("changed"):
        answer.topics.extend(map(str, topics))
    connection.send(pb.BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE, getTopicsOfNamespaceResponse=answer)


def watch_topics(connection: PulsarConnection, request: pb.CommandWatchTopicList, body: bytes) -> None:
    """Handle WATCH_TOPIC_LIST: send the topics, unless the client has them, then all changes (spec: pulsar 6.3)."""
    broker = connection.broker
    if not broker.options.feature_flags.supports_topic_watchers:
        return connection.violation("WATCH_TOPIC_LIST, which was not among the features")
    if request.watcher_id in connection.watchers:
        return connection.violation(f"WATCH_TOPIC_LIST with id {request.watcher_id}, which is open")
    if not broker.options.watchable:
        raise RefusedError(pb.NotAllowedError, "Unable to create topic list watcher: topic list watching is disabled.")
    if len(request.topics_pattern) > LONGEST_PATTERN:
        raise RefusedError(pb.NotAllowedError, "Pattern longer than maximum")

    def notify(new: Sequence[str], deleted: Sequence[str], watched: Sequence[str]) -> None:
        update = pb.CommandWatchTopicUpdate(
            watcher_id=request.watcher_id, new_topics=new, deleted_topics=deleted, topics_hash=topics_hash(watched)
        )
        connection.send(pb.BaseCommand.WATCH_TOPIC_UPDATE, watchTopicUpdate=update)

    watcher = TopicWatcher(request.namespace, request.topics_pattern, notify)
    names = watcher.watched(broker.topic_names())
    connection.watchers[request.watcher_id] = watcher
    broker.watchers.add(watcher)
    answer = pb.CommandWatchTopicListSuccess(request_id=request.request_id, watcher_id=request.watcher_id)
    answer.topics_hash = topics_hash(names)
    if answer.topics_hash != request.topics_hash:
        answer.topic.extend(names)
    connection.send(pb.BaseCommand.WATCH_TOPIC_LIST_SUCCESS, watchTopicListSuccess=answer)
    return None


def unwatch_topics(connection: PulsarConnection, request: pb.CommandWatchTopicListClose, body: bytes) -> None:
    """Handle WATCH_TOPIC_LIST_CLOSE."""
    watcher = connection.watchers.pop(request.watcher_id, None)
    if watcher is not None:
        connection.broker.watchers.discard(watcher)
    connection.send_success(request.request_id)


def _checked(topic: str) -> str:
    """Return the name of a topic. Raises RefusedError for a short form, which clients must not send."""
    try:
        name = str(parse_topic(topic))
    except ValueError as exc:
        raise RefusedError(pb.InvalidTopicName, str(exc)) from None
    if name != topic:
        raise RefusedError(pb.InvalidTopicName, f"{topic!r} is not the full name of a topic")
    return name
