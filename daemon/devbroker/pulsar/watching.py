"""Requests about the topics of a namespace: listing them, and being told of what comes and goes (Pulsar 6.2, 6.3)."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.namespace import topics_hash
from fastwire.pulsar.topic import Topic, parse_topic

from .connection import PulsarConnection
from .subscription import RefusedError

if TYPE_CHECKING:
    from .broker import PulsarDevBroker

__all__ = ["Watcher", "tell_watchers", "topics_of_namespace", "unwatch_topics", "watch_topics"]

Modes = pb.CommandGetTopicsOfNamespace


@dataclass(frozen=True)
class Watcher:
    """What one client wants to be told about."""

    namespace: str
    matches: Callable[[Topic], bool]


def topics_of_namespace(connection: PulsarConnection, request: pb.CommandGetTopicsOfNamespace, body: bytes) -> None:
    """Handle GET_TOPICS_OF_NAMESPACE: the partitions by name, filtered if a short enough pattern was sent."""
    broker = connection.broker
    topics = _topics(broker, request.namespace)
    if request.mode != Modes.ALL:
        topics = [topic for topic in topics if topic.persistent == (request.mode == Modes.PERSISTENT)]
    answer = pb.CommandGetTopicsOfNamespaceResponse(request_id=request.request_id)
    if broker.options.feature_flags.supports_topic_watchers:
        pattern = request.topics_pattern
        if pattern and len(pattern) <= broker.options.pattern_max_length:
            topics = list(filter(_matcher(pattern), topics))
            answer.filtered = True
        answer.topics_hash = topics_hash(map(str, topics))
        answer.changed = answer.topics_hash != request.topics_hash
    if answer.changed or not answer.HasField("changed"):
        answer.topics.extend(map(str, topics))
    connection.send(pb.BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE, getTopicsOfNamespaceResponse=answer)


def watch_topics(connection: PulsarConnection, request: pb.CommandWatchTopicList, body: bytes) -> None:
    """Handle WATCH_TOPIC_LIST: the persistent topics that match, unless the client knows them, then what changes."""
    broker = connection.broker
    if not broker.options.feature_flags.supports_topic_watchers:
        return connection.violation("WATCH_TOPIC_LIST, which was not among the features")
    if request.watcher_id in connection.watchers:
        return connection.violation(f"WATCH_TOPIC_LIST with id {request.watcher_id}, which is open")
    if not broker.options.watchable:
        raise RefusedError(pb.NotAllowedError, "Unable to create topic list watcher: topic list watching is disabled.")
    if len(request.topics_pattern) > broker.options.pattern_max_length:
        raise RefusedError(pb.NotAllowedError, "Pattern longer than maximum")
    watcher = Watcher(request.namespace, _matcher(request.topics_pattern))
    names = _watched(broker, watcher)
    connection.watchers[request.watcher_id] = watcher
    answer = pb.CommandWatchTopicListSuccess(request_id=request.request_id, watcher_id=request.watcher_id)
    answer.topics_hash = topics_hash(names)
    if answer.topics_hash != request.topics_hash:
        answer.topic.extend(names)
    connection.send(pb.BaseCommand.WATCH_TOPIC_LIST_SUCCESS, watchTopicListSuccess=answer)
    return None


def unwatch_topics(connection: PulsarConnection, request: pb.CommandWatchTopicListClose, body: bytes) -> None:
    """Handle WATCH_TOPIC_LIST_CLOSE."""
    connection.watchers.pop(request.watcher_id, None)
    connection.send_success(request.request_id)


def tell_watchers(broker: "PulsarDevBroker", *, new: Iterable[str] = (), deleted: Iterable[str] = ()) -> None:
    """Tell whoever watches that topics have come or gone."""
    came, went = [parse_topic(name) for name in new], [parse_topic(name) for name in deleted]
    for connection in broker.connections:
        if not isinstance(connection, PulsarConnection):
            continue
        for watcher_id, watcher in connection.watchers.items():
            update = pb.CommandWatchTopicUpdate(watcher_id=watcher_id)
            update.new_topics.extend(str(topic) for topic in came if _is_meant(watcher, topic))
            update.deleted_topics.extend(str(topic) for topic in went if _is_meant(watcher, topic))
            if update.new_topics or update.deleted_topics:
                update.topics_hash = topics_hash(_watched(broker, watcher))
                connection.send(pb.BaseCommand.WATCH_TOPIC_UPDATE, watchTopicUpdate=update)


def _topics(broker: "PulsarDevBroker", namespace: str) -> list[Topic]:
    return [topic for topic in map(parse_topic, broker.topic_names()) if _namespace(topic) == namespace]


def _watched(broker: "PulsarDevBroker", watcher: Watcher) -> list[str]:
    return [str(topic) for topic in _topics(broker, watcher.namespace) if _is_meant(watcher, topic)]


def _is_meant(watcher: Watcher, topic: Topic) -> bool:
    return topic.persistent and _namespace(topic) == watcher.namespace and watcher.matches(topic)


def _matcher(pattern: str) -> Callable[[Topic], bool]:
    matches = re.compile(pattern.partition("://")[2] or pattern).fullmatch
    return lambda topic: matches(f"{_namespace(topic)}/{topic.base.local}") is not None


def _namespace(topic: Topic) -> str:
    return f"{topic.tenant}/{topic.namespace}"
