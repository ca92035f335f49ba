"""One subscription of one topic: who may join, what acknowledgements mean, where it starts again (Pulsar 7, 15, 18)."""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fastwire.pulsar import pulsar_pb2 as pb

from .consumer import Consumer
from .cursor import Cursor
from .dispatch import Dispatcher, KeyShared, SharedDispatcher, SingleActive
from .frame import ack_bits

if TYPE_CHECKING:
    from .broker import PulsarOptions
    from .topic import Topic

__all__ = ["RefusedError", "Subscription"]

Type = pb.CommandSubscribe
SHARED_TYPES = (Type.Shared, Type.Key_Shared)


class RefusedError(Exception):
    """A request that is answered with an error; the connection goes on."""

    def __init__(self, error: pb.ServerError, message: str) -> None:
        self.error = error
        super().__init__(message)


class Subscription:
    """Its cursor lives as long as the topic does (if durable), its dispatcher as long as its type."""

    def __init__(
        self, topic: "Topic", name: str, kind: pb.CommandSubscribe.SubType, *, mark: int, durable: bool = True
    ) -> None:
        self.topic = topic
        self.name = name
        self.durable = durable
        self.kind = kind
        self.cursor = Cursor(topic.log, mark)
        self.consumers: list[Consumer] = []
        self.seeking = False
        self.dispatcher = self._make_dispatcher()
        self._scheduled = False

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop of the broker."""
        return self.topic.loop

    @property
    def options(self) -> "PulsarOptions":
        """The options of the broker."""
        return self.topic.options

    @property
    def shared(self) -> bool:
        """Tell whether several consumers are served at once."""
        return self.kind in SHARED_TYPES

    def join(self, consumer: Consumer, kind: pb.CommandSubscribe.SubType) -> None:
        """Let a consumer in, or raise RefusedError."""
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

    def leave(self, consumer: Consumer) -> None:
        """Take a consumer out; what it did not acknowledge goes to the others."""
        if consumer not in self.consumers:
            return
        self.consumers.remove(consumer)
        self.dispatcher.left(consumer)
        self.announce()
        self.schedule()
        if not self.consumers and not self.durable and not self.seeking:
            self.topic.subscriptions.pop(self.name, None)

    def announce(self) -> None:
        """Tell the consumers of a Failover subscription which of them is served, if that is news to them.

        As from a real broker this can come in front of the answer to SUBSCRIBE.
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
        """Dispatch at the end of this turn of the loop, so that many entries share a write."""
        if not self._scheduled and self.consumers:
            self._scheduled = True
            self.loop.call_soon(self._dispatch)

    def ack(self, message: pb.MessageIdData) -> str | None:
        """Acknowledge one entry or some of its elements; the text of the broken rule if it may not be."""
        index, broken = self._acked_index(message)
        if broken or index is None:
            return broken
        if message.ack_set:
            left = ack_bits(message.ack_set)
            if not left:
                return f"ACK of {_text(message)} with an empty ack_set: an entry that is done is acked without one"
            if not self.options.batch_index_acks:
                return None  # the whole entry stays unacknowledged, as on a broker with the feature off
            self.cursor.ack_elements(index, left)
        else:
            self.cursor.ack(index)
        self.dispatcher.acked(index)
        return None

    def ack_to(self, message: pb.MessageIdData) -> str | None:
        """Acknowledge everything up to an entry or an element of it; the text of the broken rule if it may not be."""
        if self.shared:
            return f"cumulative ACK on the {Type.SubType.Name(self.kind)} subscription {self.name!r}"
        index, broken = self._acked_index(message, ahead=True)
        if broken or index is None:
            return broken
        if message.ack_set:
            left = ack_bits(message.ack_set)
            if not left:
                return f"ACK of {_text(message)} with an empty ack_set: an entry that is done is acked without one"
            self.cursor.ack_to(index - 1)
            if self.options.batch_index_acks:
                self.cursor.ack_elements(index, left)
        else:
            self.cursor.ack_to(index)
        self.dispatcher.acked_to(index)
        return None

    def redeliver(self, consumer: Consumer, messages: Sequence[pb.MessageIdData]) -> None:
        """Send entries again; without any, all that is not acknowledged."""
        indexes = (self.topic.ledgers.index(message.ledgerId, message.entryId) for message in messages)
        self.dispatcher.redeliver(consumer, [index for index in indexes if index is not None])
        self.schedule()

    def seek(self, index: int, left: int | None = None) -> None:
        """Start again at ``index``; consumers are closed and subscribe anew, on Failover the served one."""
        self.seeking = True
        active = self.dispatcher.active
        if self.kind == Type.Failover and active is not None:
            active.connection.close_consumer(active)
        else:
            self.disconnect()
        self.seeking = False
        self.cursor.reset(max(index, self.topic.log.start), left)
        self.dispatcher.rewind()

    def disconnect(self, assigned_url: str = "") -> None:
        """Tell every consumer that it is closed."""
        for consumer in list(self.consumers):
            consumer.connection.close_consumer(consumer, assigned_url)

    def trimmed(self) -> None:
        """The log lost entries at its start."""
        self.cursor.follow_trim()
        self.dispatcher.trimmed()

    def _make_dispatcher(self) -> Dispatcher:
        options = self.options
        if self.kind == Type.Shared:
            return SharedDispatcher(self, max_unacked=options.max_unacked)
        if self.kind == Type.Key_Shared:
            return KeyShared(self, max_unacked=options.max_unacked)
        delay_s = options.takeover_delay_s if self.kind == Type.Failover else 0.0
        return SingleActive(self, read_ahead=options.read_ahead, takeover_delay_s=delay_s)

    def _dispatch(self) -> None:
        self._scheduled = False
        more = self.dispatcher.dispatch()
        for consumer in self.consumers:
            consumer.connection.flush()
        if more:
            self.schedule()
        elif self.topic.terminated and self.dispatcher.at_end():
            for consumer in self.consumers:
                if consumer.ready and not consumer.told_end:
                    consumer.told_end = True
                    end = pb.CommandReachedEndOfTopic(consumer_id=consumer.consumer_id)
                    consumer.connection.send(pb.BaseCommand.REACHED_END_OF_TOPIC, reachedEndOfTopic=end)

    def _acked_index(self, message: pb.MessageIdData, *, ahead: bool = False) -> tuple[int | None, str | None]:
        """Return the entry that an ack names, or why it may not name it; neither if it is past and gone.

        ``ahead``: it need not have been delivered, as a real broker accepts of cumulative acks.
        """
        ledger, entry = message.ledgerId, _signed(message.entryId)
        index = self.topic.ledgers.index(ledger, entry)
        if index is None or index >= self.topic.log.end:
            if self.topic.ledgers.is_past(ledger):
                return None, None  # of a topic of this name that was deleted
            return None, f"ACK of {_text(message)}, which {self.topic.name} does not have"
        if entry == -1:  # "the entry before this one", said of the first one of a ledger: nothing new
            return None, None
        if not ahead and index >= self.cursor.mark and index not in self.cursor.delivered:
            return None, f"ACK of {_text(message)}, which was never delivered on {self.name!r}"
        return index, None


def _signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number


def _text(message: pb.MessageIdData) -> str:
    return f"{message.ledgerId}:{_signed(message.entryId)}"
