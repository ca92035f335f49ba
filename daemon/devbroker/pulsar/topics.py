"""Topics as the embedded Pulsar broker stores them, their producers, and watchers of topic lists."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.format.payload import Entry
from fastwire.pulsar.names.topic import Topic, parse_topic

from ...runtime.clock import now_ms
from ..base import RefusedError
from .ledgers import ManagedLedger
from .options import PulsarOptions
from .subscriptions import Subscription


class ProducerConnection(Protocol):
    """The connection of a producer, as its topic uses it."""

    def close_producer(self, producer: "ConnectedProducer", assigned_url: str = "") -> None:
        """Close a producer from the side of the broker."""


class ConnectedProducer:
    """A producer of a topic; ``welcome`` tells its client that it may send, after it waited for exclusive access."""

    def __init__(
        self, connection: ProducerConnection, topic: "StoredTopic", request: pb.CommandProducer, name: str
    ) -> None:
        self.connection = connection
        self.topic = topic
        self.producer_id = request.producer_id
        self.name = name
        self.mode = request.producer_access_mode
        self.epoch = request.epoch  # how often its client has opened it again
        self.named_by_user = request.user_provided_producer_name
        self.topic_epoch = request.topic_epoch if request.HasField("topic_epoch") else None
        self.welcome: Callable[[], None] = lambda: None

    def succeeds(self, other: "ConnectedProducer") -> bool:
        """Return True if this is ``other`` after a reconnect that the broker has not noticed (spec: pulsar 24.1)."""
        given = not self.named_by_user and not other.named_by_user
        return given and self.name == other.name and self.epoch > other.epoch


class ProducerAccess:
    """The producers of one topic by access mode, those that wait for exclusive access included (spec: pulsar 24.4)."""

    def __init__(self) -> None:
        self.epoch = -1  # rises when a producer gets exclusive access
        self._writing: list[ConnectedProducer] = []
        self._waiting: list[ConnectedProducer] = []

    def __iter__(self) -> Iterator[ConnectedProducer]:
        return iter([*self._waiting, *self._writing])  # so that closing all of them grants no access

    def join(self, producer: ConnectedProducer) -> None:
        """Give a producer access, or queue it, or raise RefusedError."""
        for other in self:
            if other.name == producer.name:
                if not producer.succeeds(other):
                    raise RefusedError(
                        pb.ProducerBusy, f"Producer with name {producer.name!r} is already connected to topic"
                    )
                other.connection.close_producer(other)
        if producer.mode == pb.Shared:
            if self._waiting or any(other.mode != pb.Shared for other in self._writing):
                raise RefusedError(pb.ProducerBusy, "Topic has an existing exclusive producer")
            self._enter(producer)
            return
        if producer.topic_epoch is not None and producer.topic_epoch < self.epoch:
            raise RefusedError(pb.ProducerFenced, "Topic epoch has already moved: another producer had the topic since")
        if producer.mode == pb.Exclusive and (self._waiting or self._writing):
            raise RefusedError(pb.ProducerFenced, "Topic has existing producers")
        if producer.mode == pb.WaitForExclusive and (self._waiting or self._writing):
            self._waiting.append(producer)
            return
        for other in self:
            other.connection.close_producer(other)
        self._enter(producer)

    def leave(self, producer: ConnectedProducer) -> None:
        """Remove a producer; the first that waits for exclusive access gets it when no other is left."""
        if producer in self._waiting:
            self._waiting.remove(producer)
            return
        self._writing.remove(producer)
        if not self._writing and self._waiting:
            first = self._waiting.pop(0)
            self._enter(first)
            first.welcome()

    def waits(self, producer: ConnectedProducer) -> bool:
        """Tell whether a producer waits for exclusive access."""
        return producer in self._waiting

    def _enter(self, producer: ConnectedProducer) -> None:
        self._writing.append(producer)
        if producer.mode != pb.Shared:
            self.epoch = self.epoch + 1 if producer.topic_epoch is None else producer.topic_epoch
            producer.topic_epoch = self.epoch


class StoredTopic:
    """One topic, or one partition of a topic: its log, subscriptions and producers."""

    def __init__(self, name: str, options: PulsarOptions, next_ledger: Callable[[], int]) -> None:
        self.name = name
        self.options = options
        self.log = ManagedLedger(name, next_ledger, options.ledger_entries, broker_time=options.broker_entry_metadata)
        self.subscriptions: dict[str, Subscription] = {}
        self.producers = ProducerAccess()
        self.sequences: dict[str, int] = {}  # highest sequence id by producer, with deduplication
        self.chunks: dict[str, int] = {}  # number of the last chunk by chunked message

    def append(self, body: bytes, messages: int, publish_time: int) -> tuple[int, int]:
        """Store one entry and dispatch it; return its ledger and entry number."""
        index = self.log.append(body, messages, publish_time, now_ms())
        for subscription in self.subscriptions.values():
            subscription.schedule()
        return self.log.ledgers.position(index)

    def append_entry(self, entry: Entry) -> tuple[int, int]:
        """Store an entry that was built with ``fastwire.pulsar.format.payload``."""
        return self.append(entry.body, entry.messages, entry.publish_time)

    def subscribe(self, request: pb.CommandSubscribe) -> Subscription:
        """Return the subscription that a request names, created if it does not exist. Raises RefusedError."""
        name = request.subscription
        subscription = self.subscriptions.get(name)
        if subscription is None:
            subscription = self.subscriptions[name] = Subscription(
                self.log,
                name,
                request.subType,
                self.options,
                mark=self._first_index(request),
                durable=request.durable,
                deleted=self._forget,
            )
        elif subscription.durable != request.durable:
            raise RefusedError(pb.NotAllowedError, "Durable subscription with the same name already exists.")
        return subscription

    def _forget(self, subscription: Subscription) -> None:
        self.subscriptions.pop(subscription.name, None)

    def _first_index(self, request: pb.CommandSubscribe) -> int:
        """Return the index at which a new subscription begins (spec: pulsar 7.2)."""
        log = self.log
        if request.start_message_rollback_duration_sec:
            return log.at_time(now_ms() - request.start_message_rollback_duration_sec * 1000)
        if not request.durable and request.HasField("start_message_id"):
            index = log.at_id(request.start_message_id.ledgerId, request.start_message_id.entryId)
            if index < log.end:
                return index
            # As on a real broker, an id beyond the end, the latest included, leaves it to the initial position.
        return log.start if request.initialPosition == pb.CommandSubscribe.Earliest else log.end

    def disconnect(self, assigned_url: str = "") -> None:
        """Close all consumers and producers, as an unload does."""
        for subscription in list(self.subscriptions.values()):
            subscription.disconnect(assigned_url)
        for producer in self.producers:
            producer.connection.close_producer(producer, assigned_url)

    def terminate(self) -> None:
        """Take no more entries; consumers are told once all of them are acknowledged."""
        self.log.terminated = True
        for subscription in self.subscriptions.values():
            subscription.schedule()

    def trim(self, index: int) -> None:
        """Delete the entries below ``index``, acknowledged or not."""
        self.log.trim(index)
        for subscription in self.subscriptions.values():
            subscription.trimmed()


class TopicWatcher:
    """A client's watch of a topic list: the persistent topics of a namespace that match a pattern.

    ``notify`` is called with the matching topics that came, those that went, and all that there are now.
    """

    def __init__(
        self, namespace: str, pattern: str, notify: Callable[[Sequence[str], Sequence[str], Sequence[str]], None]
    ) -> None:
        self._namespace = namespace
        self._matches = matcher(pattern)
        self._notify = notify

    def update(self, came: Iterable[str], went: Iterable[str], names: Iterable[str]) -> None:
        """Notify the client if topics that it watches are among those that came or went."""
        new, deleted = self.watched(came), self.watched(went)
        if new or deleted:
            self._notify(new, deleted, self.watched(names))

    def watched(self, names: Iterable[str]) -> list[str]:
        """Return those of the topics that are watched."""
        return [str(one) for one in topics_of(self._namespace, names) if one.persistent and self._matches(one)]


def topics_of(namespace: str, names: Iterable[str]) -> list[Topic]:
    """Return those of the topics that are in a namespace."""
    return [topic for topic in map(parse_topic, names) if _namespace(topic) == namespace]


def matcher(pattern: str) -> Callable[[Topic], bool]:
    """Return a function that matches a topic against a pattern; the partition of the topic is ignored."""
    matches = re.compile(pattern.partition("://")[2] or pattern).fullmatch
    return lambda topic: matches(f"{_namespace(topic)}/{topic.base.local}") is not None


def _namespace(topic: Topic) -> str:
    return f"{topic.tenant}/{topic.namespace}"
