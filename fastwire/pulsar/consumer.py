"""One consumer of one partition as a state machine: permits, acks, phases (pulsar 7, 13, 15, 19, 20).

A consumer lives as long as its partition is read and moves from connection to connection; its id stays. It holds no
records: what arrives goes from the scanner to the columns, and this learns from the slot table what that cost.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Protocol

from fastwire.position import Position
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.command import encode_command
from fastwire.pulsar.connection import Connection, State
from fastwire.pulsar.request import SubscribeRequest, redeliver_command

__all__ = ["Acks", "Consumer", "Permits", "Phase", "Sent", "Slots"]

ACK_GROUP_S = 0.1
ACK_GROUP_IDS = 1000
MOST_PERMITS = 0x7FFFFFFF  # uint32 on the wire, int in brokers

REDELIVER_IDS = 1000  # at most, in one command

Run = tuple[int, int, int]  # ledger, first entry, last entry
Place = tuple[int, int]  # ledger, entry


@dataclass(frozen=True, slots=True)
class Sent:
    """What one ACK command has said: everything up to ``position``, whole entries, or elements of batches."""

    position: Position | None = None
    runs: tuple[Run, ...] = ()
    elements: tuple[tuple[Place, bytes], ...] = ()


class Slots(Protocol):
    """What a consumer needs of ``scan.SlotTable``."""

    def attach(self, consumer_id: int, connection_id: int, *, epoch: int = 0) -> None: ...
    def set_epoch(self, consumer_id: int, epoch: int) -> None: ...
    def detach(self, consumer_id: int) -> None: ...
    def debited(self, consumer_id: int) -> int: ...
    def set_due(self, consumer_id: int, debited: int) -> None: ...
    def take_cut_landed(self, consumer_id: int) -> Sequence[Run]: ...


class Phase(Enum):
    """What a consumer is to its broker."""

    DETACHED = auto()
    SUBSCRIBING = auto()
    READY = auto()  # subscribed; permits may be granted
    CLOSING = auto()  # CLOSE_CONSUMER was sent


class Permits:
    """The broker's right to send us messages, counted exactly (pulsar 13).

    ``granted - debited`` is what the broker may still send. It never rises above ``window``, and is brought back to
    it: at once when half of the window is used up, otherwise by ``rest`` as soon as nothing arrives any more.
    """

    __slots__ = ("granted", "hold", "started", "window")

    def __init__(self, window: int) -> None:
        if window < 1:
            raise ValueError("a window of permits has at least one")
        self.window = window
        self.granted = 0
        self.started = False
        self.hold = False  # memory is scarce: count, but grant nothing

    def reset(self) -> None:
        """A new connection: what was granted on the old one is void."""
        self.granted = 0
        self.started = False

    def start(self) -> None:
        """From here permits may be granted; the next ``due`` gives the whole window."""
        self.started = True

    def outstanding(self, debited: int) -> int:
        """What the broker may still send; it overshoots by whole batches, so this can be negative."""
        return self.granted - debited

    def due(self, debited: int) -> int:
        """Permits to grant now, 0 for none: everything missing once that is half of the window."""
        missing = self.window - self.granted + debited
        return self._grant(missing) if missing >= max(1, self.window // 2) else 0

    def due_at(self) -> int:
        """What must have been debited for the next grant."""
        return self.granted - self.window + max(1, self.window // 2)

    def rest(self, debited: int) -> int:
        """Permits to grant now that nothing arrives: everything missing, however little."""
        return self._grant(self.window - self.granted + debited)

    def missing(self, debited: int) -> int:
        """How far the broker's right is below the window."""
        return self.window - self.granted + debited if self.started else 0

    def _grant(self, amount: int) -> int:
        if not self.started or self.hold or amount < 1:
            return 0
        amount = min(amount, MOST_PERMITS)
        self.granted += amount
        return amount


class Acks:
    """Acks on their way to the broker: grouped, and kept while there is no connection (pulsar 15.4)."""

    __slots__ = ("_confirmed", "_cumulative", "_elements", "_ids", "_receipts", "_runs", "_sent", "_since", "group_s")

    def __init__(self, group_s: float = ACK_GROUP_S) -> None:
        self.group_s = group_s
        self._cumulative: Position | None = None  # waiting to be sent
        self._sent: Position | None = None  # the highest that was ever sent
        self._confirmed: Position | None = None  # the highest that the broker is known to hold
        self._receipts: dict[int, Sent] = {}
        self._runs: list[Run] = []
        self._elements: dict[Place, bytes] = {}  # words of what is left of an entry
        self._ids = 0
        self._since: float | None = None  # when the oldest of what waits came

    def cumulative(self, position: Position, now: float) -> None:
        """``position`` and everything before it is durable."""
        for mark in (self._confirmed, self._sent, self._cumulative):
            if mark is not None and position <= mark:
                return
        self._cumulative = position
        self._begin(now)

    def individual(self, runs: Iterable[Run], now: float) -> None:
        """These whole entries are durable."""
        for run in runs:
            self._runs.append(run)
            self._ids += run[2] - run[1] + 1
            if self._elements and run[1] == run[2]:
                self._elements.pop((run[0], run[1]), None)  # what was left of it is done as well
        if self._runs:
            self._begin(now)

    def elements(self, place: Place, left: bytes, now: float) -> None:
        """Of an entry ``left`` (words of an ack_set, never empty) is still to be done; the newest one holds."""
        self._ids += place not in self._elements
        self._elements[place] = left
        self._begin(now)

    def again(self, now: float) -> None:
        """The broker has sent what was acknowledged already: that ack was lost, it goes out once more."""
        self._confirmed = None
        self._receipts.clear()
        if self._cumulative is None:
            self._cumulative, self._sent = self._sent, None
        if self._cumulative is not None:
            self._begin(now)

    def due(self, now: float) -> bool:
        """Whether what waits should go out: it is old enough, or enough."""
        return self._since is not None and (now - self._since >= self.group_s or self._ids >= ACK_GROUP_IDS)

    @property
    def waiting(self) -> bool:
        return self._since is not None

    @property
    def outstanding(self) -> tuple[int, ...]:
        """The requests whose receipts are still to come."""
        return tuple(self._receipts)

    @property
    def unconfirmed(self) -> bool:
        """Whether receipts are still to come."""
        return bool(self._receipts)

    def take(self) -> tuple[Position | None, list[Run]]:
        """What is to be sent: the cumulative one first, then the others."""
        out = self._cumulative, self._runs
        if self._cumulative is not None:
            self._sent = self._cumulative
        self._cumulative, self._runs, self._ids, self._since = None, [], 0, None
        return out

    def take_elements(self) -> list[tuple[Place, bytes]]:
        """Parts of batches that are to be sent; take them before the others."""
        elements, self._elements = self._elements, {}
        return list(elements.items())

    def expect(self, request_id: int, sent: Sent) -> None:
        """A receipt will come for what was sent."""
        self._receipts[request_id] = sent

    def receipt(self, request_id: int, accepted: bool) -> Sent | None:
        """The broker has taken an ack, or refused it, or said nothing in time; returns what it was about.

        Entries of a refused one come again, and are acknowledged again then.
        """
        sent = self._receipts.pop(request_id, None)
        if sent is not None and sent.position is not None:
            if accepted:
                self.confirm(sent.position)
            elif sent.position == self._sent:
                self._sent = self._confirmed
        return sent

    def confirm(self, position: Position) -> None:
        """The broker's cursor is known to stand at ``position`` at least."""
        if self._confirmed is None or position > self._confirmed:
            self._confirmed = position
        if self._cumulative is not None and self._cumulative <= position:
            self._cumulative = None
            if not self._runs and not self._elements:
                self._since = None

    def disconnected(self, now: float) -> None:
        """Acks without a receipt may have been lost with the connection: the next one gets them again."""
        lost, self._receipts = self._receipts, {}
        for one in lost.values():
            self.individual(one.runs, now)
            for place, left in one.elements:
                if place not in self._elements:  # what waits is newer
                    self.elements(place, left, now)
        sent, self._sent = self._sent, None
        if sent is not None and (self._confirmed is None or sent > self._confirmed):
            self.cumulative(sent, now)

    def forget(self) -> None:
        """The cursor was moved by a seek: marks from before mean nothing now."""
        self._cumulative = self._sent = self._confirmed = self._since = None
        self._receipts.clear()
        self._elements.clear()
        self._runs, self._ids = [], 0

    def _begin(self, now: float) -> None:
        if self._since is None:
            self._since = now


class Consumer:
    """What one consumer id says to its broker, on whichever connection it is."""

    def __init__(self, want: SubscribeRequest, slots: Slots, window: int) -> None:
        kind = want.subscription_type
        self.want = want
        self.consumer_id = want.consumer_id
        self.failover = kind == pb.CommandSubscribe.Failover
        self.ordered = kind in (pb.CommandSubscribe.Exclusive, pb.CommandSubscribe.Failover)
        self.phase = Phase.DETACHED
        self.active = False  # Failover: the broker serves us and not a peer; other types: as soon as subscribed
        self.connection: Connection | None = None
        self.permits = Permits(window)
        self.acks = Acks()
        self._slots = slots

    # --- phases

    def subscribe(self, connection: Connection, connection_id: int, now: float) -> int:
        """Send SUBSCRIBE; from here records of this connection are ours. Returns the request's id."""
        if self.phase is not Phase.DETACHED:
            raise ValueError(f"consumer {self.consumer_id} cannot subscribe in phase {self.phase.name}")
        self._slots.attach(self.consumer_id, connection_id, epoch=self.want.epoch)
        self.permits.reset()
        self.connection = connection
        self.phase = Phase.SUBSCRIBING
        # A broker may tell the active one before it confirms the subscription.
        self.active = not self.failover
        return connection.subscribe(self.want, now)

    def subscribed(self, now: float) -> list[int]:
        """SUCCESS has come: what waited for a connection goes out; see ``send_acks``."""
        if self.phase is not Phase.SUBSCRIBING:
            raise ValueError(f"consumer {self.consumer_id} was not subscribing")
        self.phase = Phase.READY
        return self.send_acks(now)

    def close(self, now: float) -> int | None:
        """Send what acks wait, then CLOSE_CONSUMER; the request's id, None if there is nobody to tell."""
        connection = self.connection
        if connection is None or connection.state is not State.READY:
            self.detached(now)
            return None
        if self.phase is Phase.READY:
            self.send_acks(now)
        # Frames that are under way belong to nobody from here.
        self._slots.detach(self.consumer_id)
        self.permits.reset()
        self.active = False
        self.phase = Phase.CLOSING
        return connection.close_consumer(self.consumer_id, now)

    def detached(self, now: float) -> None:
        """The broker has closed the consumer, or the connection is gone, or nobody was told."""
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
        """Begin to ask for records."""
        self.permits.start()
        self.pump()

    @property
    def flowing(self) -> bool:
        return self.permits.started

    def pump(self) -> None:
        """Records have arrived: grant what they used up, once that is half of the window.

        What is held back is granted by ``hold``; whatever else has changed meanwhile, ``settle`` makes good.
        """
        if amount := self.permits.due(self._slots.debited(self.consumer_id)):
            self._flow(amount)
        if not self.permits.hold:
            self._slots.set_due(self.consumer_id, self.permits.due_at())

    def settle(self) -> None:
        """Nothing arrives any more: bring the broker's right back to the whole window."""
        if self.missing > 0:
            self._make_up()

    def _make_up(self) -> None:
        if amount := self.permits.rest(self._slots.debited(self.consumer_id)):
            self._flow(amount)
        self._slots.set_due(self.consumer_id, self.permits.due_at())

    @property
    def outstanding(self) -> int:
        return self.permits.outstanding(self._slots.debited(self.consumer_id))

    @property
    def missing(self) -> int:
        return self.permits.missing(self._slots.debited(self.consumer_id))

    def hold(self, hold: bool) -> None:
        """Stop granting, or go on and grant what was held back."""
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
        """Durable: everything up to ``position`` (ordered types), or these entries (Shared, Key_Shared)."""
        if position is not None and position.b >= 0:
            self.acks.cumulative(position, now)
        self.acks.individual(runs, now)

    def acknowledge_again(self, now: float) -> bool:
        """Acknowledge entries that are durable and came once more; whether there were any."""
        runs = self._slots.take_cut_landed(self.consumer_id)
        if not runs:
            return False
        if self.ordered:
            self.acks.again(now)
        else:
            self.acks.individual(runs, now)
        return True

    def send_acks(self, now: float) -> list[int]:
        """Send all acks that wait; without a subscribed consumer they go on waiting.

        Returns the ids of the requests for which receipts will come.
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
            # The broker answers in order, so with the last one all of them are taken.
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
        """Ask for entries again (pulsar 16.3); without a subscribed consumer they come again anyway.

        Where one consumer is served in order, all that is not acknowledged comes again, and frames that were sent
        before are dropped by their epoch; the slot table cuts what was not released. What acks wait go out before.
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
