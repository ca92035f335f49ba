"""The state of an embedded Pulsar broker: topics, subscriptions, schemas, and what tests do to them."""

import asyncio
import itertools
import math
import ssl
import sys
from collections.abc import Iterable, Sequence

from fastwire.position import Position
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.format.payload import Compression, Entry, encode_block_entry, encode_values
from fastwire.pulsar.names.topic import parse_topic

from ...runtime.clock import now_ms
from ..base import DevBroker, Faults, RefusedError
from ..server import on_loop
from .logins import Shown
from .options import PulsarOptions
from .subscriptions import ConsumerState, Subscription
from .topics import StoredTopic, TopicWatcher

FIRST_LEDGER = 3  # ledger ids have small gaps, as on a real broker
LEDGER_STEP = 2


class Cluster(DevBroker):
    """Topics in memory, and what tests do to them. ``PulsarDevBroker`` serves it.

    Topic names may be short forms everywhere. A method that takes the name of a partitioned topic works on all of its
    partitions where that makes sense. Unknown topics and subscriptions raise KeyError.
    """

    scheme = "pulsar"
    default_port = 6650

    def __init__(self, options: PulsarOptions | None = None, *, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(tls=tls)
        self.options = options or PulsarOptions()
        self._advertised_url = ""
        self.topics: dict[str, StoredTopic] = {}  # by full name; of partitioned topics the partitions
        self.partitioned: dict[str, int] = {}  # number of partitions by full name
        self.watchers: set[TopicWatcher] = set()
        self._ledger_ids = itertools.count(FIRST_LEDGER, LEDGER_STEP)
        self._producer_names = itertools.count()
        self.lookups = 0  # delayed now
        self.most_lookups = 0  # ever delayed at a time
        self.redirects = Faults[str]()  # URLs
        self._schemas: dict[str, list[pb.Schema]] = {}  # by topic without partition; the version is the index

    @property
    def advertised_url(self) -> str:
        """The URL in responses to lookups; a test sets it to that of a proxy."""
        return self._advertised_url or self.url

    @advertised_url.setter
    def advertised_url(self, url: str) -> None:
        self._advertised_url = url

    # Topics.

    @on_loop
    def create_topic(self, name: str, partitions: int = 0) -> None:
        """See ``DevBroker``."""
        name = _full(name)
        if self.topic_exists(name):
            raise ValueError(f"{name} exists already")
        if partitions:
            self.partitioned[name] = partitions
        self._create(self._parts(name))

    @on_loop
    def grow_topic(self, name: str, partitions: int) -> None:
        """See ``DevBroker``."""
        name = _full(name)
        before = self.partitioned[name]
        self.partitioned[name] = partitions
        self._create(self._parts(name)[before:])

    @on_loop
    def delete_topic(self, name: str) -> None:
        """Delete a topic with everything in it; made again it has other, higher ledger ids."""
        name = _full(name)
        parts = self._parts(name)
        for one in parts:
            self.topic(one).disconnect()
            del self.topics[one]
        self.partitioned.pop(name, None)
        self._tell_watchers(deleted=parts)

    @on_loop
    def migrate(self, name: str, url: str) -> None:
        """Tell the consumers of a topic that it lives in another cluster, and close them."""
        for one in self._parts(_full(name)):
            topic = self.topic(one)
            for subscription in topic.subscriptions.values():
                for consumer in subscription.consumers:
                    consumer.connection.migrated(consumer.consumer_id, url)
            topic.disconnect()

    @on_loop
    def unload(self, name: str, assigned_url: str = "") -> None:
        """Close all producers and consumers of a topic, and begin a new ledger."""
        for one in self._parts(_full(name)):
            topic = self.topic(one)
            topic.disconnect(assigned_url)
            topic.log.ledgers.roll(topic.log.end)
            if self.options.forgetful_s:
                known = topic.sequences.copy()
                asyncio.get_running_loop().call_later(self.options.forgetful_s, topic.sequences.update, known)

    @on_loop
    def terminate(self, name: str) -> None:
        """Take no more entries; consumers are told once all of them are acknowledged, as by a real broker."""
        for one in self._parts(_full(name)):
            self.topic(one).terminate()

    @on_loop
    def trim(self, name: str, ledger: int, entry: int) -> None:
        """Delete the entries before a position, acknowledged or not, as retention does."""
        topic = self.topic(name)
        topic.trim(topic.log.ledgers.at_or_after(ledger, entry))

    @on_loop
    def append(self, name: str, entries: Iterable[Entry]) -> list[tuple[int, int]]:
        """Store entries as if they had been sent, sound or not; return their ledger and entry numbers."""
        topic = self.topic(name)
        return [topic.append_entry(entry) for entry in entries]

    @on_loop
    def produce(
        self,
        name: str,
        values: Sequence[bytes],
        partition: int = 0,
        *,
        keys: Sequence[bytes] | None = None,
        codec: str = "NONE",
    ) -> None:
        """See ``DevBroker``."""
        topic = self.topic(self._parts(_full(name))[partition])
        entry = encode_block_entry(
            encode_values(values, topic.log.messages, keys),
            len(values),
            producer_name="fastwire-dev",
            sequence_id=topic.log.messages,
            publish_time=now_ms(),
            compression=Compression[codec],
        )
        topic.append_entry(entry)

    @on_loop
    def end_positions(self, name: str) -> list[Position]:
        """See ``DevBroker``."""
        logs = [self.topic(one).log for one in self._parts(_full(name))]
        return [Position(*log.ledgers.before(log.end)) for log in logs]

    @on_loop
    def positions(self, name: str) -> list[tuple[int, int, int]]:
        """Return ledger, entry number and number of messages of each entry of a topic."""
        log = self.topic(name).log
        return [(*log.ledgers.position(at), log[at].messages) for at in range(log.start, log.end)]

    @on_loop
    def messages(self, name: str) -> int:
        """Count the messages ever stored in a topic."""
        return sum(self.topic(one).log.messages for one in self._parts(_full(name)))

    # Subscriptions.

    @on_loop
    def subscriptions(self, name: str) -> list[str]:
        """Return the names of the subscriptions of one topic or partition."""
        return sorted(self.topic(name).subscriptions)

    @on_loop
    def backlog(self, name: str, group: str) -> int:
        """See ``DevBroker``."""
        return sum(one.cursor.backlog() for one in self._subscriptions(name, group))

    @on_loop
    def mark_delete(self, name: str, subscription: str) -> tuple[int, int]:
        """Return the mark-delete position, ledger and entry number; the entry is -1 at the start of a ledger."""
        topic = self.topic(name)
        return topic.log.ledgers.before(self._subscription(topic, subscription).cursor.mark)

    @on_loop
    def unacked(self, name: str, subscription: str) -> int:
        """Count the messages that were delivered and not acknowledged."""
        return sum(one.unacked() for one in self._subscriptions(name, subscription))

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

    @on_loop
    def reset_cursor(self, name: str, subscription: str, entries: int = 0) -> None:
        """Move the cursor of a subscription behind the first ``entries`` entries, as an operator does."""
        for one in self._subscriptions(name, subscription):
            one.seek(entries)

    @on_loop
    def skip(self, name: str, subscription: str, entries: int) -> None:
        """Acknowledge the next ``entries`` entries of a subscription, as an operator does."""
        for one in self._subscriptions(name, subscription):
            one.skip(entries)

    @on_loop
    def reschedule(self, name: str, subscription: str, entries: Iterable[int]) -> None:
        """Hold entries back as an entry filter does by ``RESCHEDULE``; they count from the start of the log."""
        for one in self._subscriptions(name, subscription):
            one.dispatcher.rescheduled.update(entries)

    @on_loop
    def pass_rescheduled(self, name: str, subscription: str) -> None:
        """Send what was held back, as a broker does a second later if its filter accepts it by then."""
        for one in self._subscriptions(name, subscription):
            one.dispatcher.pass_rescheduled()
            one.schedule()

    # Faults.

    @on_loop
    def redirect(self, url: str = "", times: int = 1) -> None:
        """Answer the next lookups with a redirect, to this broker itself unless ``url`` says otherwise."""
        self.redirects.inject(url or self.advertised_url, times)

    # For the handlers of requests.

    def authenticate(self, shown: Shown) -> float | None:
        """Check credentials, see ``Authenticate``."""
        token, authenticate = self.options.token, self.options.authenticate
        if authenticate is not None:
            return authenticate(shown)
        return math.inf if not token or (shown.method, shown.data) == ("token", token.encode()) else None

    def next_producer_name(self) -> str:
        """Return a name that no producer has."""
        return f"dev-0-{next(self._producer_names)}"

    def register_schema(self, topic: str, schema: pb.Schema) -> bytes:
        """Return the version of a schema, a new one for new data. Raises RefusedError for another schema type."""
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
        return name in self.topics or name in self.partitioned

    def topic_names(self) -> list[str]:
        """Return the names of all topics; of partitioned ones, those of the partitions."""
        return sorted(self.topics)

    def partitions(self, name: str) -> int:
        """Return how many partitions a topic has, 0 if it is not partitioned."""
        return self.partitioned.get(name, 0)

    def topic_for(self, name: str, *, create: bool = True) -> StoredTopic:
        """Return the topic of a producer or consumer; made if that is allowed. Raises RefusedError."""
        topic = self.topics.get(name)
        if topic is not None:
            return topic
        if name in self.partitioned:
            raise RefusedError(pb.NotAllowedError, f"{name} is partitioned: its partitions are the topics")
        try:
            parsed = parse_topic(name)
        except ValueError as exc:
            raise RefusedError(pb.InvalidTopicName, str(exc)) from None
        if name != str(parsed):
            raise RefusedError(pb.InvalidTopicName, f"{name!r} is not the full name of a topic")
        beyond = parsed.partition >= self.partitioned.get(str(parsed.base), sys.maxsize)
        if beyond or not (self.options.auto_create and create):
            raise RefusedError(pb.TopicNotFound, f"Topic {name} not found")
        self._create([name])
        return self.topics[name]

    def _create(self, names: Sequence[str]) -> None:
        for name in names:
            self.topics[name] = StoredTopic(name, self.options, self._ledger_ids.__next__)
        self._tell_watchers(new=names)

    def _tell_watchers(self, *, new: Sequence[str] = (), deleted: Sequence[str] = ()) -> None:
        for watcher in tuple(self.watchers):
            watcher.update(new, deleted, self.topic_names())

    def _parts(self, name: str) -> list[str]:
        topic = parse_topic(name)
        return [str(topic.of_partition(index)) for index in range(self.partitioned.get(name, 0))] or [name]

    def topic(self, name: str) -> StoredTopic:
        """Return a topic or partition by its name."""
        topic = self.topics.get(_full(name))
        if topic is None:
            raise KeyError(f"no topic {name}")
        return topic

    def _subscription(self, topic: StoredTopic, name: str) -> Subscription:
        subscription = topic.subscriptions.get(name)
        if subscription is None:
            raise KeyError(f"no subscription {name!r} of {topic.name}")
        return subscription

    def _subscriptions(self, name: str, subscription: str) -> list[Subscription]:
        return [self._subscription(self.topic(one), subscription) for one in self._parts(_full(name))]


def _full(name: str) -> str:
    return str(parse_topic(name))
