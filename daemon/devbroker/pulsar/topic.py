"""One topic, or one partition of one: its log, its ledgers, who reads and who writes it."""

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.payload import Entry
from fastwire.pulsar.topic import partition_index

from ..topiclog import TopicLog
from .ledgers import Ledgers
from .producers import Producers
from .subscription import RefusedError, Subscription

if TYPE_CHECKING:
    from .broker import PulsarOptions

__all__ = ["Topic", "place_to_start"]

EARLIEST = (1 << 64) - 1  # ledger and entry of the id that means "from the beginning"
LATEST = (1 << 63) - 1


class Topic:
    """Everything about one topic. Lives on the broker's loop."""

    def __init__(
        self,
        name: str,
        options: "PulsarOptions",
        next_ledger: Callable[[], int],
        loop: Callable[[], asyncio.AbstractEventLoop],
    ) -> None:
        self.name = name
        self.partition = partition_index(name)
        self.options = options
        self.log = TopicLog()
        self.ledgers = Ledgers(next_ledger, options.ledger_entries)
        self.subscriptions: dict[str, Subscription] = {}
        self.producers = Producers()
        self.sequences: dict[str, int] = {}  # the highest number stored of each producer, where duplicates are filtered
        self.chunks: dict[str, int] = {}  # the last chunk that came of each record in chunks
        self.terminated = False
        self._loop = loop

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop of the broker."""
        return self._loop()

    def append(self, body: bytes, messages: int, publish_time: int) -> int:
        """Store one entry and wake the subscriptions; return its index."""
        index = self.log.append(body, messages, publish_time, time.time_ns() // 1_000_000)
        self.ledgers.place(index)
        for subscription in self.subscriptions.values():
            subscription.schedule()
        return index

    def append_entry(self, entry: Entry) -> int:
        """Store an entry that was built with ``fastwire.pulsar.payload``."""
        return self.append(entry.body, entry.messages, entry.publish_time)

    def find_time(self, time_ms: int) -> int:
        """Return the index of the first entry of that time or later: our time if we note it, else the producer's."""
        return self.log.find_time(time_ms, stored=self.options.broker_entry_metadata)

    def subscribe(self, request: pb.CommandSubscribe) -> Subscription:
        """Return the subscription that a request names, made if need be."""
        subscription = self.subscriptions.get(request.subscription)
        if subscription is None:
            mark = place_to_start(self, request)
            subscription = Subscription(self, request.subscription, request.subType, mark=mark, durable=request.durable)
            self.subscriptions[request.subscription] = subscription
        elif subscription.durable != request.durable:
            raise RefusedError(pb.NotAllowedError, "Durable subscription with the same name already exists.")
        return subscription

    def disconnect(self, assigned_url: str = "") -> None:
        """Close all consumers and producers, as an unload does."""
        for subscription in list(self.subscriptions.values()):
            subscription.disconnect(assigned_url)
        for producer in self.producers:
            producer.connection.close_producer(producer, assigned_url)

    def trim(self, index: int) -> None:
        """Lose the entries below ``index``, whether they were acknowledged or not."""
        self.log.trim(index)
        for subscription in self.subscriptions.values():
            subscription.trimmed()


def place_to_start(topic: Topic, request: pb.CommandSubscribe) -> int:
    """Return the index at which a new subscription begins (Pulsar 7.2)."""
    if request.start_message_rollback_duration_sec:
        return topic.find_time(time.time_ns() // 1_000_000 - request.start_message_rollback_duration_sec * 1000)
    if not request.durable and request.HasField("start_message_id"):
        index = index_of(topic, request.start_message_id)
        if index < topic.log.end:
            return index
        # As on a real broker, a place beyond the end, the latest included, leaves it to the initial position.
    return topic.log.start if request.initialPosition == pb.CommandSubscribe.Earliest else topic.log.end


def index_of(topic: Topic, message: pb.MessageIdData) -> int:
    """Return the index that an id means as a place to start: the entry itself comes again."""
    if message.ledgerId == EARLIEST:
        return topic.log.start
    if message.ledgerId == LATEST:
        return topic.log.end
    entry = message.entryId - (1 << 64) if message.entryId >> 63 else message.entryId
    index = topic.ledgers.at_or_after(message.ledgerId, entry)
    return min(max(index, topic.log.start), topic.log.end)
