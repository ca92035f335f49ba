"""Dispatch of entries to consumers by each of the four subscription types (spec: pulsar 16.3, 19)."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Protocol

from fastwire.errors import CorruptEntryError
from fastwire.pulsar.format.payload import split_payload
from fastwire.pulsar.producing.router import murmur3_32

from .cursor import Cursor

SLOTS = 65536  # hash slots of Key_Shared

ROUND_BYTES = 1 << 20  # bytes sent to one subscription in a turn of the event loop
LOOK_AHEAD = 1000  # entries that Key_Shared sets aside at most, because their consumer has no permits


class AttachedConsumer(Protocol):
    """A consumer as dispatchers see it."""

    name: str
    priority: int
    hash_ranges: Sequence[tuple[int, int]]

    @property
    def wants(self) -> bool:
        """Tell whether it can be sent an entry now."""

    def deliver(self, index: int, redelivery_count: int = 0) -> int:
        """Send one entry and return its size in bytes."""

    def count_unacked(self, messages: int, limit: int) -> None:
        """Change the count of its unacknowledged messages; at ``limit`` it wants no more."""


class Dispatcher:
    """Reads the entries of one subscription in order and sends them to its consumers.

    ``consumers`` is the subscription's own list. ``joined`` and ``left`` are called after it has changed.
    """

    def __init__(self, cursor: Cursor, consumers: Sequence[AttachedConsumer]) -> None:
        self.cursor = cursor
        self.consumers = consumers
        self.log = cursor.log
        self.read = self.cursor.mark  # the next entry to read
        self.active: AttachedConsumer | None = None
        self.waiting = False  # during the takeover delay of the active consumer
        self.rescheduled: set[int] = set()  # entries that an entry filter holds back

    def joined(self, consumer: AttachedConsumer) -> None:
        """Take note of a consumer that was added to the list."""

    def left(self, consumer: AttachedConsumer) -> None:
        """Take note of a consumer that was removed from the list."""

    def dispatch(self) -> bool:
        """Send about ROUND_BYTES; return whether more could be sent at once."""
        raise NotImplementedError

    def acked(self, index: int) -> None:
        """Take note of an acknowledgement of an entry or of elements of it."""

    def acked_to(self, index: int) -> None:
        """Take note of a cumulative acknowledgement."""
        self.read = max(self.read, self.cursor.mark)

    def trimmed(self) -> None:
        """Take note of entries that the log has lost at its start."""

    def redeliver(self, consumer: AttachedConsumer, indexes: list[int]) -> None:
        """Send entries again; an empty list means all that are not acknowledged."""
        raise NotImplementedError

    def rewind(self) -> None:
        """Read again from the mark-delete position on."""
        self.read = self.cursor.mark

    def pass_rescheduled(self) -> None:
        """Let all entries pass the filter: in order, everything that is not acknowledged is sent again."""
        self.rescheduled.clear()
        self.rewind()

    def next_read(self) -> int:
        """Return the next entry to read that passes the filter; it may be the log's end."""
        index = self.cursor.next_unacked(self.read)
        while index in self.rescheduled:
            index = self.cursor.next_unacked(index + 1)
        return index

    def at_end(self) -> bool:
        """Tell whether all entries of the log were sent."""
        return self.cursor.next_unacked(self.read) >= self.log.end


class SingleActive(Dispatcher):
    """Exclusive and Failover: the active consumer gets all entries, in order.

    ``redelivery_count`` stays 0 here, as with a real broker, which counts on shared types only.
    """

    def __init__(
        self,
        cursor: Cursor,
        consumers: Sequence[AttachedConsumer],
        *,
        partition: int,
        read_ahead: int,
        takeover_delay_s: float,
        taken_over: Callable[[], None],
    ) -> None:
        """Make a dispatcher; ``taken_over`` is called when a consumer becomes active after the takeover delay."""
        super().__init__(cursor, consumers)
        self._partition = max(partition, 0)
        self._read_ahead = read_ahead
        self._takeover_delay_s = takeover_delay_s
        self._taken_over = taken_over

    def joined(self, consumer: AttachedConsumer) -> None:
        """See ``Dispatcher.joined``."""
        self._choose()

    def left(self, consumer: AttachedConsumer) -> None:
        """See ``Dispatcher.left``."""
        self._choose()

    def dispatch(self) -> bool:
        """See ``Dispatcher.dispatch``."""
        consumer = self.active
        if consumer is None or self.waiting:
            return False
        sent = 0
        while sent < ROUND_BYTES and consumer.wants:
            for _ in range(self._read_ahead):
                index = self.next_read()
                if index >= self.log.end:
                    return False
                self.read = index + 1
                sent += consumer.deliver(index)
        return consumer.wants

    def redeliver(self, consumer: AttachedConsumer, indexes: list[int]) -> None:
        """See ``Dispatcher.redeliver``."""
        if consumer is self.active:  # single entries cannot be asked for: everything comes again
            self.rewind()

    def _choose(self) -> None:
        """Pick the active consumer: the best priority, then by name, spread over the partitions."""
        best = min((consumer.priority for consumer in self.consumers), default=0)
        ranked = sorted((one for one in self.consumers if one.priority == best), key=lambda one: one.name)
        chosen = ranked[self._partition % len(ranked)] if ranked else None
        if chosen is self.active:
            return
        self.active = chosen
        self.waiting = False
        self.rewind()
        if chosen is not None and self._takeover_delay_s:
            # Time for the acks of the consumer before, so that fewer entries come twice.
            self.waiting = True
            asyncio.get_running_loop().call_later(self._takeover_delay_s, self._take_over, chosen)

    def _take_over(self, chosen: AttachedConsumer) -> None:
        if chosen is self.active:
            self.waiting = False
            self.rewind()
            self._taken_over()


@dataclass(slots=True)
class _Unacked:
    """An entry that was sent to a consumer and is not acknowledged."""

    consumer: AttachedConsumer
    messages: int
    slot: int = -1


class SharedDispatcher(Dispatcher):
    """Shared: entries go round the consumers that have permits, best priority first.

    Only entries that a client has asked for again have a ``redelivery_count``, while the subscription has consumers.
    """

    def __init__(self, cursor: Cursor, consumers: Sequence[AttachedConsumer], *, max_unacked: int) -> None:
        super().__init__(cursor, consumers)
        self.pending: dict[int, _Unacked] = {}
        self._max_unacked = max_unacked
        self._again: list[int] = []  # heap of entries to be sent again
        self._again_set: set[int] = set()
        self._counts: Counter[int] = Counter()  # redeliveries
        self._turn = 0

    def left(self, consumer: AttachedConsumer) -> None:
        """See ``Dispatcher.left``."""
        for index in [index for index, one in self.pending.items() if one.consumer is consumer]:
            self._settle(index)
            self._set_aside(index)
        if not self.consumers:
            self.rewind()

    def rewind(self) -> None:
        """See ``Dispatcher.rewind``."""
        super().rewind()
        for pending in self.pending.values():
            pending.consumer.count_unacked(-pending.messages, self._max_unacked)
        self.pending.clear()
        self._again.clear()
        self._again_set.clear()
        self._counts.clear()

    def dispatch(self) -> bool:
        """See ``Dispatcher.dispatch``."""
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
        """See ``Dispatcher.acked``."""
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

    def redeliver(self, consumer: AttachedConsumer, indexes: list[int]) -> None:
        """See ``Dispatcher.redeliver``."""
        mine = [index for index, one in self.pending.items() if one.consumer is consumer]
        self._send_again(mine if not indexes else sorted(set(mine).intersection(indexes)))

    def pass_rescheduled(self) -> None:
        """See ``Dispatcher.pass_rescheduled``."""
        for index in self.rescheduled:
            self._set_aside(index)
        self.rescheduled.clear()

    def trimmed(self) -> None:
        """See ``Dispatcher.trimmed``."""
        for index in [index for index in self.pending if index < self.log.start]:
            pending = self._settle(index)
            pending.consumer.count_unacked(-pending.messages, self._max_unacked)

    def at_end(self) -> bool:
        """See ``Dispatcher.at_end``."""
        return not self._again_set and super().at_end()

    def _next_consumer(self) -> AttachedConsumer | None:
        consumers = [one for one in self.consumers if one.wants]
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
        index = self.next_read()
        if index >= self.log.end:
            return None
        self.read = index + 1
        return index

    def _hand_out(self, consumer: AttachedConsumer, index: int, slot: int = -1) -> int:
        messages = self.cursor.remaining(index)
        self.pending[index] = _Unacked(consumer, messages, slot)
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

    def _settle(self, index: int) -> _Unacked:
        return self.pending.pop(index)


class KeyShared(SharedDispatcher):
    """Key_Shared: entries of one key go to one consumer, in order, and never to two at a time."""

    def __init__(self, cursor: Cursor, consumers: Sequence[AttachedConsumer], *, max_unacked: int) -> None:
        super().__init__(cursor, consumers, max_unacked=max_unacked)
        self._held: Counter[int] = Counter()  # unacknowledged entries by slot
        self._holder: dict[int, AttachedConsumer] = {}

    def rewind(self) -> None:
        """See ``Dispatcher.rewind``."""
        super().rewind()
        self._held.clear()
        self._holder.clear()

    def dispatch(self) -> bool:
        """See ``Dispatcher.dispatch``."""
        sent, aside = 0, list[int]()
        waiting: set[int] = set()  # slots with an entry set aside: what follows in them must wait as well
        try:
            while sent < ROUND_BYTES and len(aside) < LOOK_AHEAD:
                if not any(one.wants for one in self.consumers):
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

    def _owner(self, slot: int) -> AttachedConsumer | None:
        consumers = self.consumers
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

    def _settle(self, index: int) -> _Unacked:
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


def key_slot(key: bytes) -> int:
    """Return the hash slot of a key (spec: pulsar 19); records without a key have that of the empty key."""
    return (murmur3_32(key) & 0x7FFFFFFF) % SLOTS
