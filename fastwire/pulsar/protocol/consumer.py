"""State machine of one consumer of one partition: permits, acks, phases (spec: pulsar 7, 13, 15, 19, 20).

A consumer lives as long as its partition is read and moves from connection to connection under the same id. It holds no
records: the scanner writes them to the columns, and the slot table counts their permits.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto

from fastwire.position import Position
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.format.ackset import EntryId
from fastwire.pulsar.format.command import encode_command
from fastwire.pulsar.protocol.connection import Connection, State
from fastwire.pulsar.protocol.request import SubscribeRequest, redeliver_command
from fastwire.pulsar.reading.slot import SlotTable

ACK_GROUP_S = 0.1
ACK_GROUP_IDS = 1000
MOST_PERMITS = 0x7FFFFFFF  # uint32 on the wire, int in brokers

REDELIVER_IDS = 1000  # ids in one command at most

Run = tuple[int, int, int]  # ledger, first entry, last entry


@dataclass(frozen=True, slots=True)
class Sent:
    """Contents of one ACK command: everything up to ``position``, whole entries, or elements of batches."""

    position: Position | None = None
    runs: tuple[Run, ...] = ()
    elements: tuple[tuple[EntryId, bytes], ...] = ()


class Phase(Enum):
    """The state of a consumer at its broker."""

    DETACHED = auto()
    SUBSCRIBING = auto()
    READY = auto()  # subscribed; permits may be granted
    CLOSING = auto()  # CLOSE_CONSUMER was sent


class Permits:
    """Flow-control permits of a consumer, counted exactly (spec: pulsar 13).

    ``granted - debited`` is the number of messages that the broker may still send. It never rises above ``window``. It
    is refilled at once when half of the window is used up, otherwise by ``rest`` as soon as no more records arrive.
    """

    __slots__ = ("granted", "hold", "started", "window")

    def __init__(self, window: int) -> None:
        if window < 1:
            raise ValueError("a window of permits has at least one")
        self.window = window
        self.granted = 0
        self.started = False
        self.hold = False  # memory is scarce: count permits, but grant none

    def reset(self) -> None:
        """Start a new connection: permits granted on the old one are void."""
        self.granted = 0
        self.started = False

    def start(self) -> None:
        """Allow grants; the next ``due`` returns the whole window."""
        self.started = True

    def outstanding(self, debited: int) -> int:
        """Return the permits that the broker still has; whole batches overshoot, so this can be negative."""
        return self.granted - debited

    def due(self, debited: int) -> int:
        """Return the permits to grant now: the whole deficit once it is half of the window, otherwise 0."""
        missing = self.window - self.granted + debited
        return self._grant(missing) if missing >= max(1, self.window // 2) else 0

    def due_at(self) -> int:
        """Return the debited count at which the next grant is due."""
        return self.granted - self.window + max(1, self.window // 2)

    def rest(self, debited: int) -> int:
        """Return the permits to grant when no more records arrive: the whole deficit."""
        return self._grant(self.window - self.granted + debited)

    def missing(self, debited: int) -> int:
        """Return the deficit: how many permits the broker lacks for a full window."""
        return self.window - self.granted + debited if self.started else 0

    def _grant(self, amount: int) -> int:
        if not self.started or self.hold or amount < 1:
            return 0
        amount = min(amount, MOST_PERMITS)
        self.granted += amount
        return amount


class Acks:
    """Pending acks of a consumer, grouped, and kept while there is no connection (spec: pulsar 15.4)."""

    __slots__ = (
        "_confirmed",
        "_cumulative",
        "_elements",
        "_ids",
        "_landed",
        "_receipts",
        "_runs",
        "_sent",
        "_since",
        "group_s",
    )

    def __init__(self, group_s: float = ACK_GROUP_S) -> None:
        self.group_s = group_s
        self._landed: Position | None = None  # the highest landed position
        self._cumulative: Position | None = None  # the highest that is not sent yet
        self._sent: Position | None = None  # the highest that was sent
        self._confirmed: Position | None = None  # the highest that the broker has confirmed
        self._receipts: dict[int, Sent] = {}
        self._runs: list[Run] = []
        self._elements: dict[EntryId, bytes] = {}  # by entry, the words of its remaining set
        self._ids = 0
        self._since: float | None = None  # time of the oldest unsent ack

    def cumulative(self, position: Position, now: float) -> None:
        """Record that everything up to ``position`` has landed."""
        if self._landed is None or position > self._landed:
            self._landed = position
        for mark in (self._confirmed, self._sent, self._cumulative):
            if mark is not None and position <= mark:
                return
        self._cumulative = position
        self._begin(now)

    def individual(self, runs: Iterable[Run], now: float) -> None:
        """Record that these whole entries have landed."""
        for run in runs:
            self._runs.append(run)
            self._ids += run[2] - run[1] + 1
            if self._elements and run[1] == run[2]:
                self._elements.pop((run[0], run[1]), None)  # the rest of the entry is acknowledged with it
        if self._runs:
            self._begin(now)

    def elements(self, place: EntryId, left: bytes, now: float) -> None:
        """Record the remaining elements of an entry (words of an ack_set, never empty); the newest call counts."""
        self._ids += place not in self._elements
        self._elements[place] = left
        self._begin(now)

    def again(self, now: float) -> None:
        """Send the cumulative ack again: the broker has redelivered landed entries, so an ack was lost or its cursor
        moved back.

        The position sent is the landed one, because the broker's cursor may have advanced in the meantime.
        """
        self._confirmed = self._sent = None
        self._receipts.clear()
        self._cumulative = self._landed
        if self._cumulative is not None:
            self._begin(now)

    def due(self, now: float) -> bool:
        """Return whether the unsent acks are old enough, or enough, to be sent now."""
        return self._since is not None and (now - self._since >= self.group_s or self._ids >= ACK_GROUP_IDS)

    @property
    def waiting(self) -> bool:
        """True if there are unsent acks."""
        return self._since is not None

    @property
    def outstanding(self) -> tuple[int, ...]:
        """Ids of the requests without a receipt yet."""
        return tuple(self._receipts)

    def take(self) -> tuple[Position | None, list[Run]]:
        """Return the cumulative position and the whole entries to be sent; send the cumulative one first."""
        out = self._cumulative, self._runs
        if self._cumulative is not None:
            self._sent = self._cumulative
        self._cumulative, self._runs, self._ids, self._since = None, [], 0, None
        return out

    def take_elements(self) -> list[tuple[EntryId, bytes]]:
        """Return the elements of batches to be sent; call it before ``take``."""
        elements, self._elements = self._elements, {}
        return list(elements.items())

    def expect(self, request_id: int, sent: Sent) -> None:
        """Record that a receipt will confirm ``sent``."""
        self._receipts[request_id] = sent

    def receipt(self, request_id: int, accepted: bool) -> Sent | None:
        """Process a receipt, a refusal or a timeout of an ack; return its contents, None if unknown.

        The broker redelivers the entries of a refused ack, and they are acknowledged again then.
        """
        sent = self._receipts.pop(request_id, None)
        if sent is not None and sent.position is not None:
            if accepted:
                self.confirm(sent.position)
            elif sent.position == self._sent:
                self._sent = self._confirmed
        return sent

    def confirm(self, position: Position) -> None:
        """Record that the broker's cursor is at ``position`` or beyond."""
        if self._confirmed is None or position > self._confirmed:
            self._confirmed = position
        if self._cumulative is not None and self._cumulative <= position:
            self._cumulative = None
            if not self._runs and not self._elements:
                self._since = None

    def stands(self, position: Position) -> None:
        """Record that the broker's cursor is at ``position``, possibly before the confirmed one: an administrator moved
        it back.
        """
        if self._confirmed is not None and position < self._confirmed:
            self._confirmed = position
            self._sent = None
        else:
            self.confirm(position)

    def disconnected(self, now: float) -> None:
        """Queue acks without a receipt again: they may have been lost with the connection."""
        lost, self._receipts = self._receipts, {}
        for one in lost.values():
            self.individual(one.runs, now)
            for place, left in one.elements:
                if place not in self._elements:  # unsent elements are newer
                    self.elements(place, left, now)
        sent, self._sent = self._sent, None
        if sent is not None and (self._confirmed is None or sent > self._confirmed):
            self.cumulative(sent, now)

    def forget(self) -> None:
        """Forget all acks, because a seek has moved the cursor."""
        self._landed = self._cumulative = self._sent = self._confirmed = self._since = None
        self._receipts.clear()
        self._elements.clear()
        self._runs, self._ids = [], 0

    def _begin(self, now: float) -> None:
        if self._since is None:
            self._since = now


class ConsumerMachine:
    """One consumer id, and its requests to the broker, on any connection."""

    def __init__(self, want: SubscribeRequest, slots: SlotTable, window: int) -> None:
        kind = want.subscription_type
        self.want = want
        self.consumer_id = want.consumer_id
        self.failover = kind == pb.CommandSubscribe.Failover
        self.ordered = kind in (pb.CommandSubscribe.Exclusive, pb.CommandSubscribe.Failover)
        self.phase = Phase.DETACHED
        self.active = False  # Failover: the broker has made this consumer active; other types: subscribed
        self.connection: Connection | None = None
        self.permits = Permits(window)
        self.acks = Acks()
        self._slots = slots

    # --- phases

    def subscribe(self, connection: Connection, connection_id: int, now: float) -> int:
        """Send SUBSCRIBE and accept frames from this connection only; return the request id."""
        if self.phase is not Phase.DETACHED:
            raise ValueError(f"consumer {self.consumer_id} cannot subscribe in phase {self.phase.name}")
        self._slots.attach(self.consumer_id, connection_id, epoch=self.want.epoch)
        self.permits.reset()
        self.connection = connection
        self.phase = Phase.SUBSCRIBING
        # A broker may name the active consumer before it confirms the subscription.
        self.active = not self.failover
        return connection.subscribe(self.want, now)

    def subscribed(self, now: float) -> list[int]:
        """Handle SUCCESS: send the acks that were kept without a connection; returns as ``send_acks`` does."""
        if self.phase is not Phase.SUBSCRIBING:
            raise ValueError(f"consumer {self.consumer_id} was not subscribing")
        self.phase = Phase.READY
        return self.send_acks(now)

    def close(self, now: float) -> int | None:
        """Send pending acks, then CLOSE_CONSUMER; return its request id, None without a connection."""
        connection = self.connection
        if connection is None or connection.state is not State.READY:
            self.detached(now)
            return None
        if self.phase is Phase.READY:
            self.send_acks(now)
        # Drop frames that are still in flight.
        self._slots.detach(self.consumer_id)
        self.permits.reset()
        self.active = False
        self.phase = Phase.CLOSING
        return connection.close_consumer(self.consumer_id, now)

    def detached(self, now: float) -> None:
        """Record that the consumer has no connection: the broker has closed it, or the connection is gone."""
        if self.phase is Phase.DETACHED:
            return
        self._slots.detach(self.consumer_id)
        self.permits.reset()
        self.acks.disconnected(now)
        self.active = False
        self.connection = None
        self.phase = Phase.DETACHED

    # --- permits

    def grant(self) -> None:
        """Start to grant permits."""
        self.permits.start()
        self.pump()

    def pump(self) -> None:
        """Grant the permits that received records used up, once they are half of the window.

        Permits that were held back are granted by ``hold``, any other deficit by ``settle``.
        """
        if amount := self.permits.due(self._slots.debited(self.consumer_id)):
            self._flow(amount)
        if not self.permits.hold:
            self._slots.set_due(self.consumer_id, self.permits.due_at())

    def settle(self) -> None:
        """Refill the window when no more records arrive."""
        if self.missing > 0:
            self._make_up()

    def _make_up(self) -> None:
        if amount := self.permits.rest(self._slots.debited(self.consumer_id)):
            self._flow(amount)
        self._slots.set_due(self.consumer_id, self.permits.due_at())

    def reconcile(self, available: int) -> int:
        """Take over the broker's count of permits, and grant what is missing; return how many were lost uncounted.

        ``available`` is the broker's own count (``request.available_permits``), taken when no messages are in flight.
        If the broker has more than was counted, the result is negative, and grants cease until they are used up.
        """
        lost = self.outstanding - available
        if not self.permits.started:
            return 0
        self._slots.set_counted(self.consumer_id)
        if lost:
            self.permits.granted -= lost
            self._make_up()
        return lost

    @property
    def uncounted(self) -> bool:
        """True if the broker may have debited another number of permits than was counted (spec: pulsar 13.4)."""
        return self._slots.uncounted(self.consumer_id)

    @property
    def outstanding(self) -> int:
        """Permits that the broker still has."""
        return self.permits.outstanding(self._slots.debited(self.consumer_id))

    @property
    def missing(self) -> int:
        """Permits that the broker lacks for a full window."""
        return self.permits.missing(self._slots.debited(self.consumer_id))

    def hold(self, hold: bool) -> None:
        """Stop granting permits, or grant those that were held back and continue."""
        if self.permits.hold != hold:
            self.permits.hold = hold
            if not hold and self.permits.started:
                self._make_up()

    def _flow(self, amount: int) -> None:
        if self.connection is None:
            raise ValueError(f"consumer {self.consumer_id} has no connection to grant permits on")
        self.connection.flow(self.consumer_id, amount)

    # --- acks

    def landed(self, position: Position | None, runs: Iterable[Run], now: float) -> None:
        """Queue acks of landed entries: all up to ``position`` (ordered types), or ``runs`` (Shared, Key_Shared)."""
        if position is not None and position.b >= 0:
            self.acks.cumulative(position, now)
        self.acks.individual(runs, now)

    def acknowledge_again(self, now: float) -> Sequence[Run]:
        """Acknowledge landed entries that were delivered again; return them."""
        runs = self._slots.take_landed_again(self.consumer_id)
        if runs and self.ordered:
            self.acks.again(now)
        elif runs:
            self.acks.individual(runs, now)
        return runs

    def send_acks(self, now: float) -> list[int]:
        """Send all pending acks; without a subscribed consumer they stay pending.

        Returns the ids of the requests that receipts will answer.
        """
        connection, acks = self.connection, self.acks
        if self.phase is not Phase.READY or connection is None or not acks.waiting:
            return []
        elements = acks.take_elements()
        position, runs = acks.take()
        sent: list[int] = []
        if position is not None:
            receipt = connection.ack_cumulative(self.consumer_id, position, now)
            if receipt is not None:
                acks.expect(receipt, Sent(position))
                sent.append(receipt)
        if runs:
            entries = connection.ack_runs(self.consumer_id, runs, now)
            # The broker answers in order, so the last receipt confirms all of them.
            for request_id in entries:
                acks.expect(request_id, Sent(runs=tuple(runs)) if request_id == entries[-1] else Sent())
            sent += entries
        if elements:
            parts = connection.ack_elements(self.consumer_id, [(*place, left) for place, left in elements], now)
            for request_id in parts:
                acks.expect(request_id, Sent(elements=tuple(elements)) if request_id == parts[-1] else Sent())
            sent += parts
        return sent

    def redeliver(self, runs: Sequence[Run], now: float) -> None:
        """Request redelivery of entries (spec: pulsar 16.3); without a subscribed consumer the broker redelivers them
        anyway.

        For an ordered subscription type the broker resends all unacknowledged entries. Frames sent before are dropped
        by their epoch, and the slot table drops entries that were not released. Pending acks are sent first.
        """
        connection = self.connection
        if self.phase is not Phase.READY or connection is None:
            return
        self.send_acks(now)
        if self.ordered:
            self.want = replace(self.want, epoch=self.want.epoch + 1)
            self._slots.set_epoch(self.consumer_id, self.want.epoch)
            connection.say(encode_command(redeliver_command(self.consumer_id, (), self.want.epoch)))
            return
        ids = [(ledger, entry) for ledger, first, last in runs for entry in range(first, last + 1)]
        for at in range(0, len(ids), REDELIVER_IDS):
            some = ids[at : at + REDELIVER_IDS]
            connection.say(encode_command(redeliver_command(self.consumer_id, some, None)))
