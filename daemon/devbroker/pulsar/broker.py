"""The embedded Pulsar broker: topics, and what a test or the demo may do to them."""

import itertools
import ssl
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.payload import Entry
from fastwire.pulsar.topic import parse_topic

from ..server import DevBroker, on_loop
from . import consuming, lookup, producing, watching
from .connection import Handler, PulsarConnection
from .consumer import ConsumerState
from .credentials import Authenticate
from .subscription import RefusedError, Subscription
from .topic import Topic

__all__ = ["PulsarDevBroker", "PulsarOptions"]

FIRST_LEDGER = 3  # ledger ids have small gaps, as on a real broker
LEDGER_STEP = 2

Command = pb.BaseCommand

HANDLERS: dict[int, tuple[str, Handler]] = {
    Command.CONNECT: ("connect", PulsarConnection.connect),
    Command.AUTH_RESPONSE: ("authResponse", PulsarConnection.auth_response),
    Command.PING: ("ping", PulsarConnection.ping),
    Command.PONG: ("pong", PulsarConnection.pong),
    Command.PARTITIONED_METADATA: ("partitionMetadata", lookup.partitioned_metadata),
    Command.LOOKUP: ("lookupTopic", lookup.lookup),
    Command.GET_TOPICS_OF_NAMESPACE: ("getTopicsOfNamespace", watching.topics_of_namespace),
    Command.WATCH_TOPIC_LIST: ("watchTopicList", watching.watch_topics),
    Command.WATCH_TOPIC_LIST_CLOSE: ("watchTopicListClose", watching.unwatch_topics),
    Command.GET_SCHEMA: ("getSchema", lookup.get_schema),
    Command.PRODUCER: ("producer", producing.open_producer),
    Command.SEND: ("send", producing.send),
    Command.CLOSE_PRODUCER: ("close_producer", producing.close_producer),
    Command.SUBSCRIBE: ("subscribe", consuming.subscribe),
    Command.FLOW: ("flow", consuming.flow),
    Command.ACK: ("ack", consuming.ack),
    Command.REDELIVER_UNACKNOWLEDGED_MESSAGES: ("redeliverUnacknowledgedMessages", consuming.redeliver),
    Command.SEEK: ("seek", consuming.seek),
    Command.GET_LAST_MESSAGE_ID: ("getLastMessageId", consuming.get_last_message_id),
    Command.CONSUMER_STATS: ("consumerStats", consuming.consumer_stats),
    Command.UNSUBSCRIBE: ("unsubscribe", consuming.unsubscribe),
    Command.CLOSE_CONSUMER: ("close_consumer", consuming.close_consumer),
}


@dataclass(frozen=True)
class PulsarOptions:
    """How the broker behaves; the defaults are those of a real one, without the waiting."""

    server_version: str = "fastwire-dev-broker"
    protocol_version: int = 21
    max_message_size: int = 5 * 1024 * 1024  # 0: not told to clients
    feature_flags: pb.FeatureFlags = field(
        default_factory=lambda: pb.FeatureFlags(
            supports_auth_refresh=True,
            supports_broker_entry_metadata=True,
            supports_topic_watchers=True,
            supports_get_partitioned_metadata_without_auto_creation=True,
        )
    )
    token: str = ""  # required of clients; "" lets everybody in
    authenticate: Authenticate | None = None  # knows clients in other ways than by that one token
    refresh_check_s: float = 1.0  # how often a client is asked for fresh credentials, or dropped if it gave none
    auto_create: bool = True
    auto_create_partitions: int = 0
    pattern_max_length: int = 50  # a longer pattern is left to the client
    watchable: bool = True  # topic lists; a real broker can be told not to, whatever its features say
    proxy_through_service_url: bool = False  # play a proxy: whoever reads or writes must say whom it wants to reach
    listeners: Mapping[str, str] = field(default_factory=dict)  # URLs by name; "" is our own
    lookup_delay_s: float = 0.0
    most_lookups: int = 50_000  # waiting at once, with a delay; what is beyond is refused
    deduplication: bool = False  # entries that a producer sends again are not stored again
    ledger_entries: int = 50_000  # entries after which a new ledger begins
    broker_entry_metadata: bool = False  # put in front of entries for clients that take it
    batch_index_acks: bool = True
    max_unacked: int = 50_000  # messages per consumer of a shared type; 0: no limit
    read_ahead: int = 1  # entries read at once on Exclusive and Failover; a real broker overshoots a window by 100
    takeover_delay_s: float = 0.0  # before a Failover consumer is told that it is active, and served; really 1 s
    tell_mark_delete: bool = True  # in the answer to GET_LAST_MESSAGE_ID; brokers before 2.9 do not
    subscribe_delay_s: float = 0.0  # before SUBSCRIBE is answered
    keep_alive_s: float = 30.0  # 0: no pings of ours
    enforce_window: bool = True
    window: int = 0  # the most permits a consumer may hold; 0: what its first FLOW grants


class PulsarDevBroker(DevBroker):
    """Serves topics from memory, and enforces what a real broker leaves to good manners.

    Permits, subscribing, acknowledgements and request ids are checked; a client that breaks a rule gets an ERROR with
    the text, loses its connection, and ``violations`` has one line more. Topic names may be short forms everywhere.
    A method that takes a partitioned topic's own name works on all its partitions where that makes sense.
    """

    scheme = "pulsar"
    handlers = HANDLERS

    def __init__(self, options: PulsarOptions | None = None, *, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(tls=tls)
        self.options = options or PulsarOptions()
        self.validation_errors = 0  # entries that clients acknowledged as damaged
        self._advertised_url = ""
        self._topics: dict[str, Topic] = {}
        self._partitioned: dict[str, int] = {}
        self._ledger_ids = itertools.count(FIRST_LEDGER, LEDGER_STEP)
        self._producer_names = itertools.count()
        self.lookups = 0  # that wait for their answer
        self.most_lookups = 0  # that have ever waited at once
        self._redirects: list[str] = []
        self._schemas: dict[str, list[pb.Schema]] = {}  # by topic without partition; the version is the place

    def accept(self) -> PulsarConnection:
        return PulsarConnection(self)

    @property
    def advertised_url(self) -> str:
        """Where lookups point to; settable, for a test that puts a proxy in between."""
        return self._advertised_url or self.url

    @advertised_url.setter
    def advertised_url(self, url: str) -> None:
        self._advertised_url = url

    # Topics.

    @on_loop
    def create_topic(self, name: str, partitions: int = 0) -> None:
        """Make a topic, with that many partitions if more than 0."""
        name = _full(name)
        if self.topic_exists(name):
            raise ValueError(f"{name} exists already")
        if partitions:
            self._partitioned[name] = partitions
        self._create(self._parts(name))

    @on_loop
    def grow_topic(self, name: str, partitions: int) -> None:
        """Give a partitioned topic more partitions."""
        name = _full(name)
        before = self._partitioned[name]
        self._partitioned[name] = partitions
        self._create(self._parts(name)[before:])

    @on_loop
    def delete_topic(self, name: str) -> None:
        """Drop a topic with everything in it; made again it has other, higher ledger ids."""
        name = _full(name)
        parts = self._parts(name)
        for one in parts:
            self._topic(one).disconnect()
            del self._topics[one]
        self._partitioned.pop(name, None)
        watching.tell_watchers(self, deleted=parts)

    @on_loop
    def migrate(self, name: str, url: str) -> None:
        """Say that a topic lives in another cluster from now on, and close its consumers."""
        for one in self._parts(_full(name)):
            topic = self._topic(one)
            for subscription in topic.subscriptions.values():
                for consumer in subscription.consumers:
                    consumer.connection.migrated(consumer.consumer_id, url)
            topic.disconnect()

    @on_loop
    def unload(self, name: str, assigned_url: str = "") -> None:
        """Close all producers and consumers of a topic; what follows goes into a new ledger."""
        for one in self._parts(_full(name)):
            topic = self._topic(one)
            topic.disconnect(assigned_url)
            topic.ledgers.roll(topic.log.end)

    @on_loop
    def terminate(self, name: str) -> None:
        """Take no more entries; consumers are told when they have everything."""
        for one in self._parts(_full(name)):
            topic = self._topic(one)
            topic.terminated = True
            for subscription in topic.subscriptions.values():
                subscription.schedule()

    @on_loop
    def trim(self, name: str, ledger: int, entry: int) -> None:
        """Lose everything before a position, acknowledged or not, as retention does."""
        topic = self._topic(_full(name))
        topic.trim(topic.ledgers.at_or_after(ledger, entry))

    @on_loop
    def append(self, name: str, entries: Iterable[Entry]) -> list[tuple[int, int]]:
        """Store entries as if they had been sent, sound or not; return their positions."""
        topic = self._topic(_full(name))
        return [topic.ledgers.position(topic.append_entry(entry)) for entry in entries]

    @on_loop
    def positions(self, name: str) -> list[tuple[int, int, int]]:
        """Return ledger, entry and number of messages of everything that a topic holds."""
        topic = self._topic(_full(name))
        return [(*topic.ledgers.position(at), topic.log[at].messages) for at in range(topic.log.start, topic.log.end)]

    @on_loop
    def messages(self, name: str) -> int:
        """Count the messages ever stored in a topic."""
        return sum(self._topic(one).log.messages for one in self._parts(_full(name)))

    # Subscriptions.

    @on_loop
    def subscriptions(self, name: str) -> list[str]:
        """Return the names of the subscriptions of one topic or partition."""
        return sorted(self._topic(_full(name)).subscriptions)

    @on_loop
    def backlog(self, name: str, subscription: str) -> int:
        """Count the messages that a subscription has not acknowledged."""
        return sum(one.cursor.backlog() for one in self._subscriptions(name, subscription))

    @on_loop
    def mark_delete(self, name: str, subscription: str) -> tuple[int, int]:
        """Return the position up to which everything is acknowledged; the entry is -1 at the start of a ledger."""
        topic = self._topic(_full(name))
        return topic.ledgers.before(self._subscription(topic, subscription).cursor.mark)

    @on_loop
    def unacked(self, name: str, subscription: str) -> int:
        """Count the messages that were delivered and not acknowledged."""
        return sum(consuming.unacked(one.cursor) for one in self._subscriptions(name, subscription))

    @on_loop
    def consumers(self, name: str, subscription: str) -> list[ConsumerState]:
        """Return the consumers that a subscription has now."""
        found = self._subscriptions(name, subscription)
        return [consumer.state() for one in found for consumer in one.consumers]

    @on_loop
    def close_consumers(self, name: str, subscription: str) -> None:
        """Close the consumers of a subscription; the connections stay."""
        for one in self._subscriptions(name, subscription):
            one.disconnect()

    # Connections.

    @on_loop
    def challenge(self) -> None:
        """Ask all clients for fresh credentials."""
        for connection in self.connections:
            if isinstance(connection, PulsarConnection) and connection.connected:
                connection.challenge()

    @on_loop
    def expire_credentials(self) -> None:
        """Let the credentials of all clients end now, and look after them as every ``refresh_check_s``."""
        for connection in tuple(self.connections):
            if isinstance(connection, PulsarConnection) and connection.connected:
                connection.expire_credentials()

    @on_loop
    def redirect(self, url: str = "", times: int = 1) -> None:
        """Answer the next lookups with a redirect, to this broker itself unless ``url`` says otherwise."""
        self._redirects += [url or self.advertised_url] * times

    # For the connections.

    def take_redirect(self) -> str:
        """Return where the next lookup is to be redirected, "" if it is not."""
        return self._redirects.pop(0) if self._redirects else ""

    def next_producer_name(self) -> str:
        """Return a name that no producer has."""
        return f"dev-0-{next(self._producer_names)}"

    def register_schema(self, topic: str, schema: pb.Schema) -> bytes:
        """Return the version of a schema, a new one for another text; raises RefusedError if its type is another."""
        known = self._schemas.setdefault(str(parse_topic(topic).base), [])
        if known and known[0].type != schema.type:
            was, now = (pb.Schema.Type.Name(each.type) for each in (known[0], schema))
            raise RefusedError(pb.IncompatibleSchema, f"Incompatible schema: exists schema type {was}, new {now}")
        for version, other in enumerate(known):
            if other.schema_data == schema.schema_data:
                return version.to_bytes(8, "big")
        known.append(schema)
        return (len(known) - 1).to_bytes(8, "big")

    def schema(self, topic: str, version: bytes = b"") -> tuple[pb.Schema, bytes] | None:
        """Return a schema with its version, the newest where none is named."""
        known = self._schemas.get(str(parse_topic(topic).base), [])
        place = int.from_bytes(version, "big") if version else len(known) - 1
        return (known[place], place.to_bytes(8, "big")) if 0 <= place < len(known) else None

    def topic_exists(self, name: str) -> bool:
        """Tell whether there is such a topic or partitioned topic."""
        return name in self._topics or name in self._partitioned

    def topic_names(self) -> list[str]:
        """Return all topics; of partitioned ones, the partitions."""
        return sorted(self._topics)

    def partitions(self, name: str) -> int:
        """Return how many partitions a topic has, 0 if it is not partitioned."""
        return self._partitioned.get(name, 0)

    def topic_for(self, name: str, *, create: bool = True) -> Topic:
        """Return the topic that a producer or consumer asks for, or raise RefusedError."""
        topic = self._topics.get(name)
        if topic is not None:
            return topic
        if name in self._partitioned:
            raise RefusedError(pb.NotAllowedError, f"{name} is partitioned: its partitions are the topics")
        try:
            parsed = parse_topic(name)
        except ValueError as exc:
            raise RefusedError(pb.InvalidTopicName, str(exc)) from None
        if name != str(parsed):
            raise RefusedError(pb.InvalidTopicName, f"{name!r} is not the full name of a topic")
        beyond = parsed.partition >= self._partitioned.get(str(parsed.base), sys.maxsize)
        if beyond or not (self.options.auto_create and create):
            raise RefusedError(pb.TopicNotFound, f"Topic {name} not found")
        self._create([name])
        return self._topics[name]

    def _create(self, names: Sequence[str]) -> None:
        for name in names:
            self._topics[name] = Topic(name, self.options, self._ledger_ids.__next__, lambda: self.loop)
        watching.tell_watchers(self, new=names)

    def _parts(self, name: str) -> list[str]:
        topic = parse_topic(name)
        return [str(topic.of_partition(index)) for index in range(self._partitioned.get(name, 0))] or [name]

    def _topic(self, name: str) -> Topic:
        topic = self._topics.get(name)
        if topic is None:
            raise KeyError(f"no topic {name}")
        return topic

    def _subscription(self, topic: Topic, name: str) -> Subscription:
        subscription = topic.subscriptions.get(name)
        if subscription is None:
            raise KeyError(f"no subscription {name!r} of {topic.name}")
        return subscription

    def _subscriptions(self, name: str, subscription: str) -> list[Subscription]:
        return [self._subscription(self._topic(one), subscription) for one in self._parts(_full(name))]


def _full(name: str) -> str:
    return str(parse_topic(name))
