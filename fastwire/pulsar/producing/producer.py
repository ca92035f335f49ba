"""State machine of one producer of one partition: sequence ids, batches, chunks, receipts (spec: pulsar 11, 24).

A producer lives as long as its partition is written and moves from connection to connection. It keeps its id, its name
and the entries without a receipt, which it sends again in order on every new connection. Monotonic time (s) and wall
time (ms since 1970, stored in the records) are arguments.
"""

from collections import deque
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from itertools import islice

from fastwire.columns.routes import Routes
from fastwire.errors import CorruptEntryError, FastwireError, ProtocolError
from fastwire.position import Position
from fastwire.producer import NotConfirmed, numbered
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.format.payload import (
    Entry,
    Record,
    encode_send,
    split_payload,
)
from fastwire.pulsar.producing.batcher import Batch, Batcher, Batching, weight
from fastwire.pulsar.producing.encoder import Encoder, TooLargeError
from fastwire.pulsar.producing.outgoing import MessageBlock, MessageRoutes
from fastwire.pulsar.producing.settings import ProducerSettings
from fastwire.pulsar.protocol.connection import Connection, State
from fastwire.pulsar.protocol.event import SendConfirmed, SendRefused
from fastwire.pulsar.protocol.request import Kind

_C = pb.BaseCommand
_MOST = 1 << 63

# SEND errors that end the producer and fail all entries without a receipt (spec: pulsar 21).
_ENDS = frozenset({pb.AuthorizationError, pb.TopicNotFound, pb.TopicTerminatedError, pb.ProducerFenced})


class SendTimeout(FastwireError):  # noqa: N818 - what has happened: the entry may be stored all the same
    """The broker sent no receipt before the timeout; whether the records are stored is unknown."""


class Phase(Enum):
    """The state of a producer at its broker."""

    DETACHED = auto()
    OPENING = auto()
    OPEN = auto()


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of the records of ``tickets``: stored in the entry at ``position``, or failed with ``error``.

    Record n of a batch has number ``sequence_ids[n]``. -1:-1 is the position of a duplicate that the broker recognised.
    ``first`` is the position of the first chunk of a chunked record. ``refused`` are the origins of rows (see ``Rows``)
    that the broker stores never, while it may store all others.
    """

    tickets: Sequence[object]
    sequence_ids: Sequence[int]
    messages: int
    size: int  # bytes of the entries
    position: Position | None = None
    first: Position | None = None
    batched: bool = False
    error: FastwireError | None = None
    refused: Sequence[int] = ()


class _Message:
    """One message in flight: the records of one SEND, or of the several SENDs of a chunked record."""

    __slots__ = ("batch", "damage", "first", "numbers", "queued_at", "size", "tickets", "weight")

    def __init__(
        self, tickets: Sequence[object], numbers: Sequence[int], load: int, queued_at: float, batch: Batch | None = None
    ) -> None:
        self.batch = batch  # which can be divided if the broker refuses one of its records
        self.tickets = tickets
        self.numbers = numbers
        self.weight = load
        self.queued_at = queued_at
        self.first: Position | None = None
        self.damage: FastwireError | None = None  # its entry came to the broker damaged, and was not stored
        self.size = 0


class Producer:
    """Numbers records, groups them into entries, and keeps the entries until their receipts arrive.

    ``take_outcomes`` returns the results. Without a connection all entries wait for the next one.
    """

    def __init__(self, topic: str, producer_id: int, settings: ProducerSettings) -> None:
        self.topic = topic
        self.producer_id = producer_id
        self.phase = Phase.DETACHED
        self.name = settings.name
        self.last_sequence_id = -1  # the broker's last number for this name, at the first open
        self.weight = 0  # bytes, before compression, of all records without an outcome
        self.batches = 0  # closed so far; without batching: records
        self.failure: FastwireError | None = None
        self.trouble = ""  # why entries wait, as the broker or the driver has said; for the errors of time-outs
        self._settings = settings
        self._batcher = Batcher(settings.batching) if settings.batching is not None else None
        self._connection: Connection | None = None
        self._pending: deque[tuple[Entry, _Message]] = deque()
        self._said = 0  # of the pending entries: on this connection
        self._taken_size = 0  # of the largest entry that the broker has taken
        self._stored = -1  # the last number that the broker has told or confirmed
        self._repeats = False  # the open batch is of records whose numbers the broker had at the first open
        self._outcomes: list[Outcome] = []
        self._named = False
        self._epoch = 0
        self._topic_epoch: int | None = None
        self._next_sequence = 0
        self._encoder = Encoder(settings)

    # --- the life of a producer

    def open(self, connection: Connection, now: float) -> int:
        """Send PRODUCER on ``connection``; return the request id."""
        self.phase = Phase.OPENING
        self._connection = connection
        return connection.request(Kind.PRODUCER, self._ask, now)

    def _ask(self, request_id: int) -> pb.BaseCommand:
        settings = self._settings
        ask = pb.CommandProducer(
            topic=self.topic,
            producer_id=self.producer_id,
            request_id=request_id,
            epoch=self._epoch,
            user_provided_producer_name=bool(settings.name),
            producer_access_mode=settings.access.value,
            encrypted=settings.encrypt is not None,
        )
        if self.name:
            ask.producer_name = self.name
        if self._topic_epoch is not None:
            ask.topic_epoch = self._topic_epoch
        if settings.schema is not None:
            ask.schema.CopyFrom(settings.schema)
        for key, value in settings.properties:
            ask.metadata.add(key=key, value=value)
        if settings.initial_subscription:
            ask.initial_subscription_name = settings.initial_subscription
        return _C(type=_C.PRODUCER, producer=ask)

    def opened(self, success: pb.CommandProducerSuccess) -> None:
        """Handle PRODUCER_SUCCESS: send all entries without a receipt, in order, with their numbers."""
        connection = self._connection
        if self.phase is not Phase.OPENING or connection is None:
            raise ValueError(f"opened in phase {self.phase.name}")
        self.phase = Phase.OPEN
        self._encoder.largest = connection.scanner.max_message_size
        self._epoch += 1
        if success.HasField("topic_epoch"):
            self._topic_epoch = success.topic_epoch
        if self._settings.schema is not None and success.schema_version:
            self._encoder.use_schema(success.schema_version)
        if not self._named:
            self._named = True
            self.name = success.producer_name
            self.last_sequence_id = self._stored = success.last_sequence_id
            first = self._settings.first_sequence_id
            self._next_sequence = max(success.last_sequence_id + 1, 0) if first is None else first
        elif self._settings.keeps_numbers and not self._is_own(success.last_sequence_id):
            # An entry may begin with records that the broker has, by another client, and would be dropped whole.
            self.fail(
                FastwireError(
                    f"the last number that the broker has stored for {self.name} was {self._stored}, and is "
                    f"{success.last_sequence_id} now"
                )
            )
            return
        sizes = {of: len(entry.body) for entry, of in self._pending if not self._encoder.takes(len(entry.body))}
        for message, size in sizes.items():
            self._drop(message, self._encoder.too_large(size))  # this broker's limit is lower than the last one's
        self._said = 0
        self._go_on()

    def _is_own(self, number: int) -> bool:
        """Return whether the broker can have come to its last number by the entries of this producer alone."""
        ends = (max(entry.sequence_id, entry.highest_sequence_id) for entry, _ in self._pending)
        return number == self._stored or number in ends

    def detached(self) -> None:
        """Record that the connection is gone, or that the broker has closed the producer."""
        self.phase = Phase.DETACHED
        self._connection = None
        self._said = 0
        if not self._settings.resend and self._pending:
            self.fail(NotConfirmed("the connection was lost before the receipts came"))

    def close(self, now: float) -> int | None:
        """Send CLOSE_PRODUCER; return its request id, None without a connection.

        It is also called after a timeout of ``open``, because the broker may still create the producer.
        """
        connection, producer_id = self._connection, self.producer_id
        self.detached()
        if connection is None or connection.state is not State.READY:
            return None

        def ask(request_id: int) -> pb.BaseCommand:
            close = pb.CommandCloseProducer(producer_id=producer_id, request_id=request_id)
            return _C(type=_C.CLOSE_PRODUCER, close_producer=close)

        return connection.request(Kind.CLOSE_PRODUCER, ask, now)

    def fail(self, error: FastwireError) -> None:
        """End the producer: all records without a receipt fail with ``error``."""
        self.failure = self.failure or error
        self._drop_all(error)

    # --- records in

    @property
    def pending(self) -> int:
        """Number of entries without a receipt."""
        return len(self._pending)

    @property
    def idle(self) -> bool:
        """True if every record has its outcome."""
        return not self._pending and not (self._batcher and self._batcher.messages)

    def send(self, record: Record, ticket: object, now: float, wall_ms: int) -> None:
        """Queue a record; its outcome carries ``ticket``. Raises ValueError before the first ``opened``."""
        self._need_name()
        if not -_MOST <= record.event_time < _MOST:
            raise ValueError(f"an event time of {record.event_time} ms is beyond 64 bits")
        repeats = record.sequence_id is not None and record.sequence_id <= self.last_sequence_id
        if repeats != self._repeats:  # a broker drops an entry whose first number it has
            self.flush()
            self._repeats = repeats
        size = weight(record)
        self.weight += size
        batcher = self._batcher
        if batcher is None or record.deliver_at:
            self.flush()
            batch = Batch(now, wall_ms, [record], [ticket], size)
            self._encode(batch, batched=False)
            return
        if not batcher.takes(record) or not batcher.has_room(size):
            self.flush()
        batcher.add(record, ticket, size, now, wall_ms)
        if batcher.full:
            self.flush()

    def send_rows(self, routes: Routes, first: int, stop: int, now: float, wall_ms: int) -> None:
        """Queue a share of ``routes``, see ``Routes.step``; rows have no tickets. Requires batching.

        Raises as ``send``.
        """
        self._need_name()
        batcher = self._batcher
        if batcher is None:
            raise ValueError("rows need batches")
        for begin, end, key in self._runs(routes, first, stop, batcher.keys):
            if not batcher.takes_rows(key):
                self.flush()
            at = begin
            while at < end:
                before = batcher.weight
                at = batcher.add_rows(routes, at, end, key, now, wall_ms, self._next_sequence)
                self.weight += batcher.weight - before
                if at < end or batcher.full:
                    self.flush()

    def _runs(self, routes: Routes, first: int, stop: int, keys: Batching) -> Iterable[tuple[int, int, Hashable]]:
        """Return the runs of rows that may share a batch: first, stop, and the key."""
        if keys is Batching.MIXED:
            return ((first, stop, None),)
        assert isinstance(routes, MessageRoutes)
        if keys is Batching.GROUPED:
            routes.group(first, stop)
        return routes.runs(first, stop)

    @property
    def room(self) -> tuple[int, int]:
        """Messages and bytes that complete the open batch."""
        return (0, 0) if self._batcher is None else self._batcher.room

    def send_entry(self, entry: Entry, ticket: object, now: float) -> None:
        """Queue an encoded entry with its own number, after all earlier records."""
        self._need_name()
        self.flush()
        numbers = range(entry.sequence_id, entry.highest_sequence_id + 1)
        self._next_sequence = max(self._next_sequence, numbers.stop)
        message = _Message((ticket,), numbers, len(entry.body), now)
        self.weight += message.weight
        self.batches += 1
        if not self._encoder.takes(len(entry.body)):
            self._end(message, self._encoder.too_large(len(entry.body)), messages=entry.messages)
        else:
            self._queue([entry], message)

    def flush(self) -> None:
        """Close the open batches."""
        if self._batcher is not None:
            for batch in self._batcher.take():
                self._encode(batch, batched=True)

    def _need_name(self) -> None:
        if self.failure is not None:
            raise self.failure.with_traceback(None)  # it would grow with each raise
        if not self._named:
            raise ValueError("records need the name that the broker gives with the first success")

    # --- entries

    def _encode(self, batch: Batch, *, batched: bool) -> None:
        self.batches += 1
        if isinstance(batch.records, MessageBlock):
            first = self._next_sequence  # none was given away since the batch was begun
            self._next_sequence += len(batch.records)
            self._seal(batch, range(first, self._next_sequence), batched)
            return
        numbers: list[int] = []
        for record in batch.records:
            number = self._next_sequence if record.sequence_id is None else record.sequence_id
            self._next_sequence = max(self._next_sequence, number + 1)
            numbers.append(number)
        self._seal(batch, numbers, batched)

    def _seal(self, batch: Batch, numbers: Sequence[int], batched: bool) -> None:
        """Encode a batch into one entry, or several if one is too large."""
        settings = self._settings
        records = batch.records
        message = _Message(batch.tickets, numbers, batch.weight, batch.since, batch)
        try:
            entry = self._encoder.entry(self.name, batch, numbers, batched=batched)
            if self._encoder.fits(entry):
                self._queue([entry], message)
            elif len(records) > 1:
                self._halve(batch, numbers)
            elif settings.chunking:
                chunks = self._encoder.chunks(self.name, batch, numbers[0])
                # A broker knows a repeated record by its last chunk, and would store those before it.
                repeats = settings.keeps_numbers and numbers[0] <= self.last_sequence_id
                self._queue(chunks[-1:] if repeats else chunks, message)
            else:
                raise self._encoder.too_large(len(entry.body))
        except TooLargeError as exc:
            self._end(message, exc, messages=len(records), refused=True)
        except FastwireError as exc:
            self._end(message, exc, messages=len(records))
        except Exception as exc:  # a record whose parts have other types; the others of its batch are sent
            if len(records) > 1:
                self._halve(batch, numbers)
            else:
                error = FastwireError(f"a record cannot be encoded: {type(exc).__name__}: {exc}")
                self._end(message, error, messages=1, refused=True)

    def _halve(self, batch: Batch, numbers: Sequence[int]) -> None:
        middle = len(numbers) // 2
        if isinstance(batch.records, MessageBlock):
            shares = (numbers[:middle], numbers[middle:])
            for block, share in zip(batch.records.halves(), shares, strict=True):
                self._seal(Batch(batch.since, batch.publish_time, block, weight=block.weight), share, batched=True)
            return
        for part in (slice(middle), slice(middle, None)):
            records = batch.records[part]
            size = sum(weight(record) for record in records)
            half = Batch(batch.since, batch.publish_time, records, batch.tickets[part], size)
            self._seal(half, numbers[part], batched=True)

    def _queue(self, entries: Iterable[Entry], message: _Message) -> None:
        for entry in entries:
            message.size += len(entry.body)
            self._pending.append((entry, message))
        self._go_on()

    def _go_on(self) -> None:
        """Send the pending entries that may be in flight."""
        connection = self._connection
        while connection is not None and self.phase is Phase.OPEN and self._said < len(self._pending):
            entry, _ = self._pending[self._said]
            if not self._may_go(entry):
                break
            self._said += 1
            connection.say(encode_send(self.producer_id, entry))

    def _may_go(self, entry: Entry) -> bool:
        """Return False for an entry that must not be in flight with others.

        A broker that refuses an entry for its size stores what follows. With numbers of the caller it would then take
        the parts of that entry for stored. So one that is larger than all before waits until they are confirmed.
        """
        if not self._said or not self._settings.keeps_numbers:
            return True
        return max(len(entry.body), len(self._pending[0][0].body)) <= self._taken_size

    # --- outcomes

    def take_outcomes(self) -> list[Outcome]:
        """Return the outcomes since the last call."""
        outcomes, self._outcomes = self._outcomes, []
        return outcomes

    def confirmed(self, receipt: SendConfirmed) -> None:
        """Handle a receipt; one for an entry that is not pending any more is ignored.

        Raises ProtocolError if it confirms an entry other than the next one: close the connection.
        """
        if self.phase is not Phase.OPEN or not self._pending:
            return
        entry, message = self._pending[0]
        if receipt.sequence_id < entry.sequence_id:
            return  # it timed out
        if receipt.sequence_id > entry.sequence_id:
            raise ProtocolError(
                "sequence_id", detail=f"a receipt for {receipt.sequence_id}, the next one is {entry.sequence_id}"
            )
        self._pending.popleft()
        self._said = max(self._said - 1, 0)
        self._taken_size = max(self._taken_size, len(entry.body))
        self._go_on()
        self.trouble = ""
        if message.first is None:
            message.first = receipt.position
        if self._pending and self._pending[0][1] is message:
            return  # more chunks are pending
        if message.damage is not None and receipt.position.a < 0:
            # Later entries in flight were stored, so the broker takes its sequence id for that of a duplicate.
            self._end(message, message.damage, messages=entry.messages, refused=self._settings.keeps_numbers)
            return
        self._stored = max(self._stored, entry.sequence_id, entry.highest_sequence_id)
        self.weight -= message.weight
        self._outcomes.append(
            Outcome(
                message.tickets,
                message.numbers,
                entry.messages,
                message.size,
                receipt.position,
                message.first if entry.chunk else None,
                entry.batched,
            )
        )

    def refused(self, refusal: SendRefused) -> bool:
        """Handle SEND_ERROR; return True if the connection must be closed, so that all entries are resent in order."""
        if self.phase is not Phase.OPEN:
            return False
        error = refusal.error
        if error.code in _ENDS:
            self.fail(error)
            return False
        self.trouble = str(error)
        for entry, message in self._pending:
            if entry.sequence_id == refusal.sequence_id:
                bad = error.code == pb.NotAllowedError  # this entry; all other errors concern the topic
                several = bad and message.batch is not None and len(message.numbers) > 1
                if several and not (self._settings.keeps_numbers and self._said > 1):
                    self._divide(message)
                    return True  # what follows comes again behind the halves
                if error.code == pb.ChecksumError:
                    message.damage = error
                if bad or (message.damage is not None and _is_damaged(entry)):
                    # A kept number would hide it when it comes again, behind what is stored of those in flight.
                    self._drop(message, error, refused=bad or self._settings.keeps_numbers)
                    self._go_on()
                    return False
                break
        return True

    def _divide(self, message: _Message) -> None:
        """Put two entries in the place of one, each with half of its rows: the broker refuses one of them."""
        place = next(at for at, (_, of) in enumerate(self._pending) if of is message)
        behind = [one for one in list(self._pending)[place:] if one[1] is not message]
        self._pending = deque(list(self._pending)[:place])
        self._connection = None  # nothing is sent any more: all comes again in order
        assert message.batch is not None
        self._halve(message.batch, message.numbers)
        self._pending.extend(behind)

    def _drop(self, message: _Message, error: FastwireError, *, refused: bool = False) -> None:
        """Drop a message with all its chunks."""
        (entry, *_) = (entry for entry, of in self._pending if of is message)
        self._said -= sum(of is message for _, of in islice(self._pending, self._said))
        self._pending = deque(one for one in self._pending if one[1] is not message)
        self._end(message, error, messages=entry.messages, refused=refused)

    def _drop_first(self, error: FastwireError) -> None:
        """Drop the oldest message, without a search of the queue."""
        entry, message = self._pending.popleft()
        count = 1
        while self._pending and self._pending[0][1] is message:
            self._pending.popleft()
            count += 1
        self._said = max(self._said - count, 0)
        self._end(message, error, messages=entry.messages)

    def _drop_all(self, error: FastwireError) -> None:
        while self._pending:
            self._drop_first(error)
        for batch in self._batcher.take() if self._batcher is not None else ():
            message = _Message(batch.tickets, (), batch.weight, batch.since)
            self._end(message, error, messages=len(batch.records))

    def _end(self, message: _Message, error: FastwireError, *, messages: int, refused: bool = False) -> None:
        self.weight -= message.weight
        rows = _origins(message) if refused else ()
        self._outcomes.append(
            Outcome(message.tickets, message.numbers, messages, message.size, error=error, refused=rows)
        )

    # --- time

    @property
    def deadline(self) -> float | None:
        """Time by which ``tick`` must be called; None if there is no deadline."""
        batch = None if self._batcher is None else self._batcher.deadline
        timeout = self._settings.send_timeout_s
        if timeout is None or not self._pending:
            return batch
        timed_out = self._pending[0][1].queued_at + timeout
        return timed_out if batch is None else min(batch, timed_out)

    def tick(self, now: float) -> None:
        """Close batches that are due, and fail entries whose send timeout has passed."""
        if self._batcher is not None:
            deadline = self._batcher.deadline
            if deadline is not None and now >= deadline:
                self.flush()
        timeout = self._settings.send_timeout_s
        while timeout is not None and self._pending and now >= self._pending[0][1].queued_at + timeout:
            self._drop_first(SendTimeout(f"no receipt within {timeout:g} s{self.trouble and f': {self.trouble}'}"))


def _origins(message: _Message) -> Sequence[int]:
    """Return the origins of rows: numbers that came as tickets, or with the rows of a block."""
    if message.tickets:
        return [ticket for ticket in message.tickets if isinstance(ticket, int)]
    return () if message.batch is None else numbered(message.batch.records)


def _is_damaged(entry: Entry) -> bool:
    try:
        split_payload(entry.body)
    except CorruptEntryError:
        return True
    return False
