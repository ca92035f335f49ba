"""The messages of a producer that are not stored yet: those that wait for a partition, and those in flight.

Each message goes to the partition that comes next. One whose response is lost is sent again before later ones that
wait, so that delivery is at least once. It comes behind those that were in flight with it and are stored (spec: tubemq
19).
"""

from bisect import insort
from collections import Counter, deque
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from itertools import chain

from fastwire.errors import FastwireError
from fastwire.producer import NotConfirmed
from fastwire.tubemq import tubemq_pb2 as pb
from fastwire.tubemq.format.error import BrokerError, Remedy
from fastwire.tubemq.format.text import Broker, BrokerPartition
from fastwire.tubemq.producing.producer import Producer

MESSAGE_BYTES = 200  # of a message beside its value: what its objects occupy here


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """A message to send; to a partition with the id ``number``, on any Broker, or to any partition."""

    value: bytes
    attributes: Mapping[str, str] = field(default_factory=dict)
    number: int | None = None

    @property
    def weight(self) -> int:
        """The approximate size of the message, in bytes."""
        return len(self.value) + MESSAGE_BYTES


@dataclass(slots=True, eq=False)
class Sending:
    """One message on its way, and the partition of the request in flight; ``since`` is the time of ``send``.

    ``number`` counts the messages in the order of ``send``.
    """

    message: OutgoingMessage
    ticket: object
    since: float
    number: int
    partition: BrokerPartition | None = None
    problem: str = "no partition takes messages"


@dataclass(frozen=True, slots=True)
class Stored:
    """The result of a message: stored in ``partition`` at ``offset``, or failed with ``error``."""

    ticket: object
    size: int
    partition: BrokerPartition | None = None
    offset: int = -1
    error: FastwireError | None = None


class Outbox:
    """The messages of one topic until they are stored or have failed. Time is an argument, in seconds.

    The driver sends what ``take`` returns, and passes each response to ``answered``; ``producer`` knows the partitions.
    A message that is not stored within ``send_timeout_s`` fails, unless a request is in flight. A Broker has
    ``most_in_flight`` requests at most. Without ``resend`` a message whose response is lost fails: it may be stored.
    """

    batches = 0  # there are none: each message is a request

    def __init__(
        self,
        producer: Producer,
        topic: str,
        *,
        send_timeout_s: float = 120.0,
        most_in_flight: int = 1000,
        resend: bool = True,
    ) -> None:
        self.weight = 0
        self.failure: FastwireError | None = None
        self._producer = producer
        self._topic = topic
        self._send_timeout_s = send_timeout_s
        self._waiting: dict[int | None, deque[Sending]] = {}  # by the partition's id that is asked for
        self._in_flight: set[Sending] = set()
        self._outstanding: Counter[Broker] = Counter()
        self._most_in_flight = most_in_flight
        self._resend = resend
        self._sent = 0
        self._results: list[Stored] = []

    # --- messages in

    @property
    def idle(self) -> bool:
        """True if each message has its result."""
        return not self._in_flight and not self._waiting

    def flush(self) -> None:
        """Do nothing: no message waits for others."""

    def send(self, message: OutgoingMessage, ticket: object, now: float) -> None:
        """Queue a message; its result carries ``ticket``. Raises the error that has ended the producer."""
        if self.failure is not None:
            raise self.failure.with_traceback(None)  # it would grow with each raise
        self.weight += message.weight
        self._sent += 1
        self._queue(message.number).append(Sending(message, ticket, now, self._sent))

    def _queue(self, number: int | None) -> deque[Sending]:
        return self._waiting.setdefault(number, deque())

    # --- requests and their responses

    def take(self, brokers: Container[Broker], now: float) -> tuple[Sending, pb.SendMessageRequestP2B] | None:
        """Return the next request to one of ``brokers``; None if there is no message, or no partition for one."""

        def usable(partition: BrokerPartition) -> bool:
            broker = partition.broker
            return (
                number in (None, partition.number)
                and broker in brokers
                and self._outstanding[broker] < self._most_in_flight
            )

        for number, queue in tuple(self._waiting.items()):
            while queue and (partition := self._producer.choose(self._topic, now, usable)) is not None:
                sending = self._pop(number)
                message = sending.message
                try:
                    request = self._producer.request(partition, message.value, message.attributes)
                except ValueError as exc:
                    self._end(sending, error=FastwireError(str(exc)))
                    continue
                sending.partition = partition
                self._in_flight.add(sending)
                self._outstanding[partition.broker] += 1
                return sending, request
        return None

    def _pop(self, number: int | None) -> Sending:
        queue = self._waiting[number]
        sending = queue.popleft()
        if not queue:
            del self._waiting[number]
        return sending

    def answered(self, sending: Sending, body: pb.SendMessageResponseB2P | None, problem: str, now: float) -> None:
        """Handle the response to a request; None is a response that was lost, or an exception: ``problem``."""
        partition = sending.partition
        assert partition is not None
        self._outstanding[partition.broker] -= 1
        if sending not in self._in_flight:
            return  # failed meanwhile
        self._in_flight.discard(sending)
        try:
            stored = self._producer.sent(partition, body, now)
        except BrokerError as exc:
            error = exc.with_traceback(None)  # its frames hold the connection, and with it a buffer of the pool
            self._end(sending, error=error)
            if error.remedy is Remedy.CREDENTIALS:
                self.fail(error)
            return
        if stored:
            assert body is not None
            self._end(sending, partition, body.appendOffset if body.HasField("appendOffset") else -1)
            return
        if body is None and not self._resend:
            self._end(sending, error=NotConfirmed(f"{partition} has not confirmed it: {problem}"))
            return
        sending.problem = f"{partition}: {problem if body is None else BrokerError(body.errCode, body.errMsg)}"
        sending.partition = None
        insort(self._queue(sending.message.number), sending, key=lambda each: each.number)

    # --- results

    def take_results(self) -> list[Stored]:
        """Return the results since the last call."""
        found, self._results = self._results, []
        return found

    def _end(
        self,
        sending: Sending,
        partition: BrokerPartition | None = None,
        offset: int = -1,
        error: FastwireError | None = None,
    ) -> None:
        self.weight -= sending.message.weight
        self._results.append(Stored(sending.ticket, len(sending.message.value), partition, offset, error))

    def fail(self, error: FastwireError) -> None:
        """End the producer: all messages without a result fail with ``error``."""
        self.failure = self.failure or error
        for sending in (*self._in_flight, *chain.from_iterable(self._waiting.values())):
            self._end(sending, error=error)
        self._in_flight.clear()
        self._waiting.clear()

    # --- time

    @property
    def deadline(self) -> float | None:
        """The time at which ``tick`` is due; None while no message waits for a partition."""
        first = min((queue[0].since for queue in self._waiting.values()), default=None)
        return None if first is None else first + self._send_timeout_s

    def tick(self, now: float) -> None:
        """Fail the messages that wait and whose time is over."""
        for number in tuple(self._waiting):
            while (queue := self._waiting.get(number)) and now >= queue[0].since + self._send_timeout_s:
                sending = self._pop(number)
                what = f"not stored within {self._send_timeout_s:g} s: {sending.problem}"
                self._end(sending, error=NotConfirmed(what))
