"""State machine of the producer of one partition: bundles, retries, results (spec: tank 7). Time is in seconds.

One bundle is in flight at a time, so that retries keep the order. A bundle without an answer is sent again, and the
broker may then hold it twice. A producer that numbers its messages (``numbered``) writes sparse bundles of message type
5: the broker refuses the repetition of one that it holds. That requires that nobody else writes to the partition.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from fastwire.errors import FastwireError
from fastwire.tank.bundle import Message, encode_bundle
from fastwire.tank.error import BrokerError, ProduceCode
from fastwire.tank.produce import PartitionBundle

__all__ = ["BundleLimits", "NotConfirmed", "Outcome", "Producer", "ProducerSettings", "Sending", "weight"]

RETRY_S = 0.1
MOST_MESSAGES = 65_535  # a broker counts the messages of a bundle modulo 65,536 in some places (spec: tank 5.4)
OVERHEAD = 16  # bytes of a message beside key and value, about

# The bundle is not stored, and may be later, or elsewhere.
_AGAIN = frozenset({ProduceCode.NOT_ENOUGH_REPLICAS, ProduceCode.NO_LEADER, ProduceCode.REDIRECT})


class NotConfirmed(FastwireError):  # noqa: N818 - what has happened: the messages may be stored all the same
    """The broker sent no answer before the timeout; whether the messages are stored is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleLimits:
    """Limits of a bundle. The first limit that is reached closes it; bytes count before compression."""

    messages: int = 10_000
    bytes: int = 512 << 10
    delay_s: float = 0.005

    def __post_init__(self) -> None:
        if not 1 <= self.messages <= MOST_MESSAGES or self.bytes < 1 or self.delay_s < 0:
            raise ValueError(
                f"a bundle needs 1 to {MOST_MESSAGES} messages, bytes of at least 1, and a delay that is not negative"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings:
    """Settings of a producer; ``compress`` None: bundles of more than 1 KiB or 512 messages."""

    compress: bool | None = None
    limits: BundleLimits = field(default_factory=BundleLimits)
    send_timeout_s: float | None = 120.0  # from the call of ``send``; None: no timeout
    numbered: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of the messages of ``tickets``: stored, or failed with ``error``.

    ``first`` is the sequence of the first one if the producer has numbered them, else -1: the broker does not say it.
    """

    tickets: Sequence[object]
    size: int  # bytes of the bundle
    first: int = -1
    error: FastwireError | None = None


@dataclass(slots=True, eq=False)
class _Batch:
    since: float
    messages: list[Message] = field(default_factory=list)
    tickets: list[object] = field(default_factory=list)
    weight: int = 0
    first: int = -1
    data: bytes = b""  # empty until it is encoded
    doubted: bool = False  # it was sent, and may be stored


@dataclass(frozen=True, slots=True)
class Sending:
    """A bundle to send; ``base`` is its first sequence if the producer numbers its messages."""

    data: bytes
    base: int | None = None

    def part(self, partition: int) -> PartitionBundle:
        """Return its part of a produce request."""
        return PartitionBundle(partition, self.data, self.base)


def weight(message: Message) -> int:
    """Return the approximate size of a message before compression, in bytes."""
    return OVERHEAD + len(message.value) + len(message.key or b"")


class Producer:
    """Collects messages into bundles and keeps them until they are confirmed. ``take_outcomes`` returns the results.

    ``take`` returns the bundle to send; it comes back by ``answered`` or ``unanswered``. While ``needs_sequence`` is
    true nothing is sent: discover the last sequence of the partition and call ``number``.
    """

    def __init__(self, settings: ProducerSettings) -> None:
        self.weight = 0  # bytes, before compression, of all messages without an outcome
        self.batches = 0  # closed so far
        self.failure: FastwireError | None = None
        self._settings = settings
        self._open: _Batch | None = None
        self._pending: deque[_Batch] = deque()
        self._outcomes: list[Outcome] = []
        self._in_flight = False
        self._next = -1
        self._again_at = 0.0

    # --- messages in

    @property
    def idle(self) -> bool:
        """True if every message has its outcome."""
        return self._open is None and not self._pending

    def send(self, message: Message, ticket: object, now: float) -> None:
        """Queue a message; its outcome carries ``ticket``. Raises the error that has ended the producer, and ValueError
        for a key of more than 255 bytes.
        """
        if self.failure is not None:
            raise self.failure
        if len(message.key or b"") > 255:
            raise ValueError(f"a key of {len(message.key or b'')} bytes: TANK has room for 255")
        limits = self._settings.limits
        size = weight(message)
        if self._open is not None and self._open.weight + size > limits.bytes:
            self.flush()
        if self._open is None:
            self._open = _Batch(now)
        self._open.messages.append(message)
        self._open.tickets.append(ticket)
        self._open.weight += size
        self.weight += size
        if len(self._open.messages) >= limits.messages or self._open.weight >= limits.bytes:
            self.flush()

    def flush(self) -> None:
        """Close the open bundle."""
        if self._open is not None:
            self._pending.append(self._open)
            self._open = None
            self.batches += 1

    # --- bundles out

    @property
    def needs_sequence(self) -> bool:
        """True if the next sequence of the partition must be known now."""
        return self._settings.numbered and self._next < 0 and bool(self._pending)

    def number(self, sequence: int) -> None:
        """Set the sequence of the next message: the last one of the partition + 1."""
        self._next = sequence

    def take(self, now: float) -> Sending | None:
        """Return the bundle that may be sent now, if any."""
        if self._in_flight or not self._pending or self.needs_sequence or now < self._again_at:
            return None
        batch = self._pending[0]
        numbered = self._settings.numbered
        if not batch.data:
            messages: Sequence[Message] = batch.messages
            if numbered:
                batch.first = self._next
                messages = [replace(one, sequence=batch.first + place) for place, one in enumerate(messages)]
                self._next += len(messages)
            batch.data = encode_bundle(messages, compress=self._settings.compress, sparse=numbered)
        self._in_flight = True
        return Sending(batch.data, batch.first if numbered else None)

    # --- answers in

    def answered(self, code: int, now: float) -> None:
        """Handle the code of the bundle in flight, a ProduceCode or an unknown number."""
        if self.failure is not None or not self._in_flight:
            return
        self._in_flight = False
        batch = self._pending[0]
        if code == ProduceCode.STORED or (code == ProduceCode.BAD_SEQUENCE and batch.doubted):
            self._end(batch)
        elif code == ProduceCode.TIMED_OUT or code in _AGAIN:
            batch.doubted = batch.doubted or code == ProduceCode.TIMED_OUT
            self._again_at = now + RETRY_S
        else:
            if code == ProduceCode.BAD_SEQUENCE:
                self._next = -1  # somebody else writes to the partition
            known = ProduceCode(code) if code in ProduceCode.__members__.values() else None
            what = "the broker has not stored the messages"
            self._end(batch, FastwireError(f"{what}: code {code:#x}") if known is None else BrokerError(known, what))

    def unanswered(self, now: float) -> None:
        """Handle a lost connection: the bundle in flight may be stored, and is sent again."""
        if self.failure is None and self._in_flight:
            self._in_flight = False
            self._pending[0].doubted = True

    # --- outcomes

    def take_outcomes(self) -> list[Outcome]:
        """Return the outcomes since the last call, in order."""
        found, self._outcomes = self._outcomes, []
        return found

    def _end(self, batch: _Batch, error: FastwireError | None = None) -> None:
        self._pending.remove(batch)
        self.weight -= batch.weight
        self._outcomes.append(Outcome(batch.tickets, len(batch.data), batch.first, error))

    def fail(self, error: FastwireError) -> None:
        """End the producer: all unconfirmed messages fail with ``error``."""
        self.failure = self.failure or error
        self.flush()
        for batch in tuple(self._pending):
            self._end(batch, error)
        self._in_flight = False

    # --- time

    @property
    def deadline(self) -> float | None:
        """Time at which ``tick`` or ``take`` is due, if nothing else happens before; None if there is no such time."""
        times = [self._open.since + self._settings.limits.delay_s] if self._open is not None else []
        if self._pending and not self._in_flight:
            if self._again_at:
                times.append(self._again_at)
            if self._settings.send_timeout_s is not None:
                times.append(self._pending[0].since + self._settings.send_timeout_s)
        return min(times) if times else None

    def tick(self, now: float) -> None:
        """Close the bundle that is due, and fail bundles whose send timeout has passed."""
        if self._open is not None and now >= self._open.since + self._settings.limits.delay_s:
            self.flush()
        if now >= self._again_at:
            self._again_at = 0.0
        patience = self._settings.send_timeout_s
        if patience is None or self._in_flight:
            return
        while self._pending and now >= self._pending[0].since + patience:
            self._end(self._pending[0], NotConfirmed(f"not confirmed within {patience:g} s"))
