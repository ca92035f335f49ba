"""Subscriptions of topics and their consumers: membership, permits, acknowledgements (spec: pulsar 7, 13, 15, 18)."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from fastwire.pulsar import pulsar_pb2 as pb

from ..base import RefusedError
from ..topiclog import StoredEntry
from .cursor import Cursor
from .dispatch import Dispatcher, KeyShared, SharedDispatcher, SingleActive
from .frame import MessageHeader, ack_bits
from .ledgers import ManagedLedger, signed
from .options import PulsarOptions

Type = pb.CommandSubscribe
SHARED_TYPES = (Type.Shared, Type.Key_Shared)


class ConsumerConnection(Protocol):
    """The connection of a consumer, as its subscription uses it."""

    writable: bool

    def send(self, kind: pb.BaseCommand.Type, **parts: Any) -> None:
        """Queue one command."""

    def send_message(
        self, consumer: "ConnectedConsumer", index: int, entry: StoredEntry, left: int | None, redelivery_count: int
    ) -> int:
        """Queue an entry and return the size of its frame."""

    def flush(self) -> None:
        """Write what is queued."""

    def close_consumer(self, consumer: "ConnectedConsumer", assigned_url: str = "") -> None:
        """Close a consumer from the side of the broker."""

    def migrated(self, consumer_id: int, url: str) -> None:
        """Tell a consumer that its topic lives in another cluster."""


@dataclass(frozen=True, slots=True)
class ConsumerState:
    """Figures of a consumer, for tests."""

    name: str
    consumer_id: int
    active: bool  # it is the active consumer of an Exclusive or Failover subscription
    granted: int  # permits by FLOW since it subscribed
    debited: int  # permits that deliveries have taken since
    window: int  # the most permits that it may hold
    unacked: int  # messages sent to it and not acknowledged; counted on Shared and Key_Shared
    blocked: bool  # it gets no entries because of ``unacked``
    asked: pb.CommandSubscribe

    @property
    def permits(self) -> int:
        """Messages that it may still be sent; negative after an entry with more messages than permits were left."""
        return self.granted - self.debited


class ConnectedConsumer:
    """A consumer of a subscription: counts the permits of its client, and those that deliveries have taken."""

    def __init__(
        self,
        connection: ConsumerConnection,
        subscription: "Subscription",
        request: pb.CommandSubscribe,
    ) -> None:
        self.connection = connection
        self.subscription = subscription
        self.asked = request
        self.consumer_id = request.consumer_id
        self.name = request.consumer_name or f"unnamed-{request.consumer_id}"
        self.priority = request.priority_level
        self.epoch = request.consumer_epoch if request.HasField("consumer_epoch") and not subscription.shared else None
        # Key_Shared with sticky ranges: inclusive at both ends.
        self.hash_ranges: Sequence[tuple[int, int]] = [(one.start, one.end) for one in request.keySharedMeta.hashRanges]
        self.header = MessageHeader(self.consumer_id, subscription.log.partition)
        self.ready = False  # its SUCCESS has been sent
        self.told_active: bool | None = None  # by its last ACTIVE_CONSUMER_CHANGE
        self.told_end = False
        self.granted = 0
        self.debited = 0
        self.window = 0
        self.unacked = 0
        self.blocked = False

    @property
    def permits(self) -> int:
        """Messages that it may still be sent."""
        return self.granted - self.debited

    @property
    def wants(self) -> bool:
        """Tell whether it can be sent an entry now."""
        return self.ready and self.granted > self.debited and self.connection.writable and not self.blocked

    def deliver(self, index: int, redelivery_count: int = 0) -> int:
        """Send one entry, debit its permits, and return its size in bytes."""
        cursor = self.subscription.cursor
        entry = cursor.log[index]
        left = cursor.partial.get(index)
        self.debited += entry.messages if left is None else left.bit_count()
        cursor.delivered.add(index, index + 1)
        return self.connection.send_message(self, index, entry, left, redelivery_count)

    def count_unacked(self, messages: int, limit: int) -> None:
        """Change the count of unacknowledged messages; at ``limit`` deliveries stop until half of it is acked."""
        self.unacked += messages
        if self.unacked >= limit > 0:
            self.blocked = True
        elif self.unacked <= limit // 2:
            self.blocked = False

    def state(self) -> ConsumerState:
        """Return the figures as they are now."""
        return ConsumerState(
            self.name,
            self.consumer_id,
            self.subscription.dispatcher.active is self,
            self.granted,
            self.debited,
            self.window,
            self.unacked,
            self.blocked,
            self.asked,
        )


class Subscription:
    """One subscription of one topic or partition, whose log it reads from ``mark`` on.

    If it is durable it outlives its consumers; ``deleted`` is called when it ends. Its dispatcher is made anew when a
    first consumer brings another subscription type.
    """

    def __init__(
        self,
        log: ManagedLedger,
        name: str,
        kind: pb.CommandSubscribe.SubType,
        options: PulsarOptions,
        *,
        mark: int,
        durable: bool,
        deleted: Callable[["Subscription"], None],
    ) -> None:
        self.log = log
        self.name = name
        self.durable = durable
        self.kind = kind
        self.options = options
        self.cursor = Cursor(log, mark)
        self.consumers: list[ConnectedConsumer] = []
        self._deleted = deleted
        self.seeking = False
        self.dispatcher = self._make_dispatcher()
        self._scheduled = False

    @property
    def shared(self) -> bool:
        """Tell whether several consumers are served at once."""
        return self.kind in SHARED_TYPES

    def join(self, consumer: ConnectedConsumer, kind: pb.CommandSubscribe.SubType) -> None:
        """Add a consumer, or raise RefusedError."""
        if not self.consumers:
            if kind != self.kind:
                self.kind = kind
                self.dispatcher = self._make_dispatcher()
        elif kind != self.kind:
            raise RefusedError(pb.ConsumerBusy, "Subscription is of different type")
        elif kind == Type.Exclusive:
            raise RefusedError(pb.ConsumerBusy, "Exclusive consumer is already connected")
        for start, end in consumer.hash_ranges:
            for other in self.consumers:
                if any(start <= last and first <= end for first, last in other.hash_ranges):
                    raise RefusedError(pb.ConsumerAssignError, f"Range conflict with consumer {other.name}")
        self.consumers.append(consumer)
        self.dispatcher.joined(consumer)
        self.announce()

    def leave(self, consumer: ConnectedConsumer) -> None:
        """Remove a consumer; entries that it has not acknowledged go to the others."""
        if consumer not in self.consumers:
            return
        self.consumers.remove(consumer)
        self.dispatcher.left(consumer)
        self.announce()
        self.schedule()
        if not self.consumers and not self.durable and not self.seeking:
            self._deleted(self)

    def announce(self) -> None:
        """Tell the consumers of a Failover subscription which of them is active, if that has changed for them.

        As from a real broker this can come before the response to SUBSCRIBE.
        """
        if self.kind != Type.Failover or self.dispatcher.waiting:
            return
        for consumer in self.consumers:
            is_active = consumer is self.dispatcher.active
            if consumer.told_active is not is_active:
                consumer.told_active = is_active
                change = pb.CommandActiveConsumerChange(consumer_id=consumer.consumer_id, is_active=is_active)
                consumer.connection.send(pb.BaseCommand.ACTIVE_CONSUMER_CHANGE, active_consumer_change=change)

    def schedule(self) -> None:
        """Dispatch in the next turn of the event loop, so that many entries share a write."""
        if not self._scheduled and self.consumers:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._dispatch)

    def ack(self, message: pb.MessageIdData, *, cumulative: bool = False) -> str | None:
        """Acknowledge an entry or elements of it, if ``cumulative`` with all entries before (spec: pulsar 15).

        Returns the violation if the id may not be acknowledged.
        """
        if cumulative and self.shared:
            return f"cumulative ACK on the {Type.SubType.Name(self.kind)} subscription {self.name!r}"
        index, broken = self._acked_index(message, ahead=cumulative)
        if broken or index is None:
            return broken
        left = ack_bits(message.ack_set)
        if message.ack_set and not left:
            return f"ACK of {_text(message)} with an empty ack_set: an entry that is done is acked without one"
        if cumulative:
            self.cursor.ack_to(index - 1 if left else index)
        elif not left:
            self.cursor.ack(index)
        if left and self.options.batch_index_acks:  # with the feature off the whole entry stays unacknowledged
            self.cursor.ack_elements(index, left)
        if cumulative:
            self.dispatcher.acked_to(index)
        else:
            self.dispatcher.acked(index)
        return None

    def redeliver(self, consumer: ConnectedConsumer, messages: Sequence[pb.MessageIdData]) -> None:
        """Send entries again; without ``messages``, all that are not acknowledged."""
        indexes = (self.log.ledgers.index(message.ledgerId, message.entryId) for message in messages)
        self.dispatcher.redeliver(consumer, [index for index in indexes if index is not None])
        self.schedule()

    def seek(self, index: int, left: int | None = None) -> None:
        """Move the cursor to ``index``; consumers are closed and subscribe anew, on Failover only the active one."""
        self.seeking = True
        active = [one for one in self.consumers if one is self.dispatcher.active] if self.kind == Type.Failover else []
        for consumer in active or list(self.consumers):
            consumer.connection.close_consumer(consumer)
        self.seeking = False
        self.cursor.reset(max(index, self.log.start), left)
        self.dispatcher.rewind()

    def skip(self, entries: int) -> None:
        """Acknowledge the next ``entries`` entries as an operator does; consumers stay and are not told."""
        last = self.cursor.mark
        for _ in range(entries):
            last = self.cursor.next_unacked(last) + 1
        if last > self.cursor.mark:
            self.cursor.ack_to(min(last, self.log.end) - 1)
            self.dispatcher.acked_to(self.cursor.mark - 1)

    def unacked(self) -> int:
        """Count the messages that were delivered and are not acknowledged."""
        cursor = self.cursor
        return sum(
            cursor.remaining(index) for start, end in cursor.delivered for index in range(max(start, cursor.mark), end)
        )

    def disconnect(self, assigned_url: str = "") -> None:
        """Close all consumers; their connections stay."""
        for consumer in list(self.consumers):
            consumer.connection.close_consumer(consumer, assigned_url)

    def delete(self) -> None:
        """End the subscription with its progress, and close its consumers."""
        self.disconnect()
        self._deleted(self)

    def trimmed(self) -> None:
        """Take note of entries that the log has lost at its start."""
        self.cursor.follow_trim()
        self.dispatcher.trimmed()

    def _make_dispatcher(self) -> Dispatcher:
        options = self.options
        if self.kind == Type.Shared:
            return SharedDispatcher(self.cursor, self.consumers, max_unacked=options.max_unacked)
        if self.kind == Type.Key_Shared:
            return KeyShared(self.cursor, self.consumers, max_unacked=options.max_unacked)
        return SingleActive(
            self.cursor,
            self.consumers,
            partition=self.log.partition,
            read_ahead=options.read_ahead,
            takeover_delay_s=options.takeover_delay_s if self.kind == Type.Failover else 0.0,
            taken_over=self._taken_over,
        )

    def _taken_over(self) -> None:
        self.announce()
        self.schedule()

    def _dispatch(self) -> None:
        self._scheduled = False
        more = self.dispatcher.dispatch()
        for consumer in self.consumers:
            consumer.connection.flush()
        if more:
            self.schedule()
        elif self.log.terminated and self.dispatcher.at_end() and not self.cursor.backlog():
            for consumer in self.consumers:
                if consumer.ready and not consumer.told_end:
                    consumer.told_end = True
                    end = pb.CommandReachedEndOfTopic(consumer_id=consumer.consumer_id)
                    consumer.connection.send(pb.BaseCommand.REACHED_END_OF_TOPIC, reachedEndOfTopic=end)

    def _acked_index(self, message: pb.MessageIdData, *, ahead: bool = False) -> tuple[int | None, str | None]:
        """Return the entry that an ack names, or the violation; neither if the entry is gone.

        ``ahead``: it need not have been delivered, as a real broker accepts of cumulative acks.
        """
        ledger, entry = message.ledgerId, signed(message.entryId)
        index = self.log.ledgers.index(ledger, entry)
        if index is None or index >= self.log.end:
            if self.log.ledgers.is_past(ledger):
                return None, None  # an entry of a deleted topic of this name
            return None, f"ACK of {_text(message)}, which {self.log.name} does not have"
        if entry == -1:  # the entry before the first one of a ledger: acknowledges nothing
            return None, None
        if not ahead and index >= self.cursor.mark and index not in self.cursor.delivered:
            return None, f"ACK of {_text(message)}, which was never delivered on {self.name!r}"
        return index, None


def _text(message: pb.MessageIdData) -> str:
    return f"{message.ledgerId}:{signed(message.entryId)}"
