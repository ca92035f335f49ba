"""Commands for the topics of a namespace: topic lists, and watchers (spec: pulsar 6.2, 6.3)."""

from collections.abc import Callable, Iterable

from crc32c import crc32c

from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.names.pattern import TopicPattern

_C = pb.BaseCommand


def topics_hash(names: Iterable[str]) -> str:
    """Return the hash of a list of topic names, by which client and broker detect changes."""
    return crc32c(",".join(sorted(names, key=_code_units)).encode()).to_bytes(4, "little").hex()


def list_topics(pattern: TopicPattern, have: str) -> Callable[[int], pb.BaseCommand]:
    """Build GET_TOPICS_OF_NAMESPACE; ``have`` is the hash of the known list, "" without one."""

    def command(request_id: int) -> pb.BaseCommand:
        ask = pb.CommandGetTopicsOfNamespace(request_id=request_id, namespace=pattern.namespace)
        ask.mode = pb.CommandGetTopicsOfNamespace.PERSISTENT
        ask.topics_pattern = pattern.wire
        if have:
            ask.topics_hash = have
        return _C(type=_C.GET_TOPICS_OF_NAMESPACE, getTopicsOfNamespace=ask)

    return command


def watch(pattern: TopicPattern, watcher_id: int, have: str) -> Callable[[int], pb.BaseCommand]:
    """Build WATCH_TOPIC_LIST, for brokers with the feature ``supports_topic_watchers``."""

    def command(request_id: int) -> pb.BaseCommand:
        ask = pb.CommandWatchTopicList(request_id=request_id, watcher_id=watcher_id, namespace=pattern.namespace)
        ask.topics_pattern = pattern.wire
        if have:
            ask.topics_hash = have
        return _C(type=_C.WATCH_TOPIC_LIST, watchTopicList=ask)

    return command


def unwatch(watcher_id: int) -> Callable[[int], pb.BaseCommand]:
    """Build WATCH_TOPIC_LIST_CLOSE."""

    def command(request_id: int) -> pb.BaseCommand:
        ask = pb.CommandWatchTopicListClose(request_id=request_id, watcher_id=watcher_id)
        return _C(type=_C.WATCH_TOPIC_LIST_CLOSE, watchTopicListClose=ask)

    return command


def _code_units(name: str) -> bytes:
    return name.encode("utf-16-be")
