"""Who gets which entry next: the four subscription types (Pulsar 16.3, 19)."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from fastwire.errors import CorruptEntryError
from fastwire.pulsar.payload import split_payload

from .consumer import Consumer
from .keyhash import SLOTS, key_slot

if TYPE_CHECKING:
    from .subscription import Subscription

__all__ = ["Dispatcher", "KeyShared", "SharedDispatcher", "SingleActive"]

ROUND_BYTES = 1 << 20  # what one turn of the loop hands to the sockets before the others get theirs
LOOK_AHEAD = 1000  # entries that Key_Shared may set aside because their key waits for another consumer


class Dispatcher:
    """Reads a subscription's entries in order and hands them to its consumers."""

    def __init__(self, subscription: "Subscription") -> None:
        self.subscription = subscription
        self.cursor = subscription.cursor
        self.log = subscription.cursor.log
        self.read = self.cursor.mark  # the next entry that was not read yet
        self.active: Consumer | None = None
        self.waiting = False  # the active consumer is not served yet, and not told

    def joined(self, consumer: Consumer) -> None:
        """A consumer was added to the subscription's list."""

    def left(self, consumer: Consumer) -> None:
        """A consumer was taken off the subscription's list."""

    def dispatch(self) -> bool:
        """Send about ROUND_BYTES; return whether more could be sent at once."""
        raise NotImplementedError

    def acked(self, index: int) -> None:
        """An entry or a part of it was acknowledged."""

    def acked_to(self, index: int) -> None:
        """Everything up to an entry was acknowledged."""
        self.read = max(self.read, self.cursor.mark)

    def trimmed(self) -> None:
        """The log lost entries at its start."""

    def redeliver(self, consumer: Consumer, indexes: list[int]) -> None:
        """Send entries again; an empty list means everything that was not acknowledged."""
        raise NotImplementedError

    def rewind(self) -> None:
        """Read again from what is acknowledged on."""
        self.read = self.cursor.mark

    def at_end(self) -> bool:
        """Tell whether everything that the log holds was sent."""
        return self.cursor.next_unacked(self.read) >= self.log.end


class SingleActive(Dispatcher):
    """Exclusive and Failover: one consumer is served, in order.

    ``redelivery_count`` stays 0 here, as with a real broker, which counts on shared types only.
    """

    def __init__(self, subscription: "Subscription", *, read_ahead: int, takeover_delay_s: float) -> None:
        super().__init__(subscription)
        self._read_ahead = read_ahead
        self._takeover_delay_s = takeover_delay_s

    def joined(self, consumer: Consumer) -> None:
        self._choose()

    def left(self, consumer: Consumer) -> None:
        self._choose()

    def dispatch(self) -> bool:
        consumer = self.active
        if consumer is None or self.waiting:
            return False
        sent = 0
        while sent < ROUND_BYTES and consumer.wants:
            for _ in range(self._read_ahead):
                index = self.cursor.next_unacked(self.read)
                if index >= self.log.end:
                    return False
                self.read = index + 1
                sent += consumer.deliver(index)
        return consumer.wants

    def redeliver(self, consumer: Consumer, indexes: list[int]) -> None:
        if consumer is self.active:  # single entries cannot be asked for: everything comes again
            self.rewind()

    def _choose(self) -> None:
        """Pick the active consumer: the best priority, then by name, spread over the partitions."""
        consumers = self.subscription.consumers
        best = min((consumer.priority for consumer in consumers), default=0)
        ranked = sorted((one for one in consumers if one.priority == best), key=lambda one: one.name)
        chosen = ranked[max(self.subscription.topic.partition, 0) % len(ranked)] if ranked else None
        if chosen is self.active:
            return
        self.active = chosen
        self.waiting = False
        self.rewind()
        if chosen is not None and self._takeover_delay_s:
            # Time for the acks of the consumer before, so that fewer entries come twice.
            self.waiting = True
            self.subscription.loop.call_later(self._takeover_delay_s, self._serve, chosen)

    def _serve(self, chosen: Consumer) -> None:
        if chosen is self.active:
            self.waiting = False
            self.rewind()
            self.subscription.announce()
            self.subscription.schedule()


@dataclass(slots=True)
class Pending:
    """An entry that a consumer has and has not acknowledged."""

    consumer: Consumer
    messages: int
    slot: int = -1


class SharedDispatcher(Dispatcher):
    """Shared: entries go round the consumers that have permits, best priority first.

    Only what was asked for again has a ``redelivery_count``, and only while the subscription has consumers.
    """

    def __init__(self, subscription: "Subscription", *, max_unacked: int) -> None:
        super().__init__(subscription)
        self.pending: dict[int, Pending] = {}
        self._max_unacked = max_unacked
        self._again: list[int] = []  # heap of entries to be sent again
        self._again_set: set[int] = set()
        self._counts: Counter[int] = Counter()  # redeliveries
        self._turn = 0

    def left(self, consumer: Consumer) -> None:
        for index in [index for index, one in self.pending.items() if one.consumer is consumer]:
            self._settle(index)
            self._set_aside(index)
        if not self.subscription.consumers:
            self.rewind()

    def rewind(self) -> None:
        super().rewind()
        for pending in self.pending.values():
            pending.consumer.count_unacked(-pending.messages, self._max_unacked)
        self.pending.clear()
        self._again.clear()
        self._again_set.clear()
        self._counts.clear()

    def dispatch(self) -> bool:
        sent = 0
        while sent < ROUND_BYTES:
            consumer = self._next_consumer()
            if consumer is None:
                return False
            index = self._next_entry()
            if index is None:
                return False
            sent += self._hand_out(consumer, index)
        return True

    def acked(self, index: int) -> None:
        left = self.cursor.remaining(index)
        pending = self.pending.get(index)
        if pending is not None:
            pending.consumer.count_unacked(left - pending.messages, self._max_unacked)
            pending.messages = left
            if not left:
                self._settle(index)
        if not left:
            self._again_set.discard(index)
            self._counts.pop(index, None)

    def redeliver(self, consumer: Consumer, indexes: list[int]) -> None:
        mine = [index for index, one in self.pending.items() if one.consumer is consumer]
        self._send_again(mine if not indexes else sorted(set(mine).intersection(indexes)))

    def trimmed(self) -> None:
        for index in [index for index in self.pending if index < self.log.start]:
            pending = self._settle(index)
            pending.consumer.count_unacked(-pending.messages, self._max_unacked)

    def at_end(self) -> bool:
        return not self._again_set and super().at_end()

    def _next_consumer(self) -> Consumer | None:
        consumers = [one for one in self.subscription.consumers if one.wants]
        if not consumers:
            return None
        best = min(one.priority for one in consumers)
        consumers = [one for one in consumers if one.priority == best]
        self._turn += 1
        return consumers[self._turn % len(consumers)]

    def _next_entry(self) -> int | None:
        while self._again:
            index = heappop(self._again)
            if index in self._again_set:
                self._again_set.remove(index)
                if index >= self.log.start and not self.cursor.is_acked(index):
                    return index
        index = self.cursor.next_unacked(self.read)
        if index >= self.log.end:
            return None
        self.read = index + 1
        return index

    def _hand_out(self, consumer: Consumer, index: int, slot: int = -1) -> int:
        messages = self.cursor.remaining(index)
        self.pending[index] = Pending(consumer, messages, slot)
        consumer.count_unacked(messages, self._max_unacked)
        return consumer.deliver(index, self._counts[index])

    def _send_again(self, indexes: Iterable[int]) -> None:
        for index in indexes:
            pending = self._settle(index)
            pending.consumer.count_unacked(-pending.messages, self._max_unacked)
            self._counts[index] += 1
            self._set_aside(index)

    def _set_aside(self, index: int) -> None:
        if index not in self._again_set:
            self._again_set.add(index)
            heappush(self._again, index)

    def _settle(self, index: int) -> Pending:
        return self.pending.pop(index)


class KeyShared(SharedDispatcher):
    """Key_Shared: entries of one key go to one consumer, in order, and never to two at a time."""

    def __init__(self, subscription: "Subscription", *, max_unacked: int) -> None:
        super().__init__(subscription, max_unacked=max_unacked)
        self._held: Counter[int] = Counter()  # slot -> entries of it that its consumer has
        self._holder: dict[int, Consumer] = {}

    def rewind(self) -> None:
        super().rewind()
        self._held.clear()
        self._holder.clear()

    def dispatch(self) -> bool:
        sent, aside = 0, list[int]()
        waiting: set[int] = set()  # slots with an entry set aside: what follows in them must wait as well
        try:
            while sent < ROUND_BYTES and len(aside) < LOOK_AHEAD:
                if not any(one.wants for one in self.subscription.consumers):
                    return False
                index = self._next_entry()
                if index is None:
                    return False
                slot = self._slot(index)
                consumer = self._owner(slot)
                held_by = self._holder.get(slot)
                free = held_by is None or held_by is consumer
                if consumer is None or not consumer.wants or not free or slot in waiting:
                    waiting.add(slot)
                    aside.append(index)
                    continue
                self._held[slot] += 1
                self._holder[slot] = consumer
                sent += self._hand_out(consumer, index, slot)
            return len(aside) < LOOK_AHEAD
        finally:
            for index in aside:
                self._set_aside(index)

    def _owner(self, slot: int) -> Consumer | None:
        consumers = self.subscription.consumers
        for consumer in consumers:
            if any(start <= slot <= end for start, end in consumer.hash_ranges):
                return consumer
        automatic = [consumer for consumer in consumers if not consumer.hash_ranges]
        return automatic[slot * len(automatic) // SLOTS] if automatic else None

    def _slot(self, index: int) -> int:
        entry = self.log[index]
        if entry.key is None:
            entry.key = _key_of(entry.body)
        return key_slot(entry.key)

    def _settle(self, index: int) -> Pending:
        pending = super()._settle(index)
        self._held[pending.slot] -= 1
        if not self._held[pending.slot]:
            del self._held[pending.slot], self._holder[pending.slot]
        return pending


def _key_of(body: bytes) -> bytes:
    """Return the key that Key_Shared looks at: ordering key, else partition key; a batch has it in its own metadata."""
    try:
        metadata, _ = split_payload(body)
    except CorruptEntryError:
        return b""
    return metadata.ordering_key or metadata.partition_key.encode()
