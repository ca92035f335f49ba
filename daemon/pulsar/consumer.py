"""A subscription for people: chunks come out, acknowledgements go in (pulsar 7, 15, 16, 18.1)."""

import asyncio
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Literal, Self

from fastwire.columns.chunk import Chunk, DeadLetter
from fastwire.errors import FastwireError
from fastwire.position import Position, Span
from fastwire.pulsar.ackset import words_of
from fastwire.pulsar.message_id import EARLIEST, LATEST, MessageId
from fastwire.pulsar.namespace import TopicPattern
from fastwire.pulsar.redelivery import Deadlines
from fastwire.pulsar.request import SubscribeRequest
from fastwire.pulsar.topic import Topic, parse_topic
from fastwire.wire.pool import Pool

from ..endpoint import LinkLost
from ..logs import get_logger
from .deadletters import DeadLetters, Origin, records_of
from .intake import MOST_ELEMENTS, Intake, together
from .member import Member
from .options import ConsumerOptions
from .settings import ClientSettings

__all__ = ["Consumer", "Delivery", "Rows", "SeekTo"]

Rows = int | slice | Iterable[int]
SeekTo = MessageId | datetime | Literal["earliest", "latest"]
Run = tuple[int, int, int]  # ledger, first entry, last entry

NACK_TICK_S = 0.1
UNSTORED_S = 1.0  # before a dead letter that could not be stored is tried again
TIMEOUT_TICK_S = 1.0


log = get_logger("client")


class Delivery:
    """A chunk that was received, and what can be done about it.

    It has the Arrow C data interface (``pyarrow.record_batch(delivery)``) without a copy; the memory lives as long as
    the delivery or anything of Arrow that was made of it, also after its consumer is closed. ``rows`` records come from
    any of the subscription's partitions, in each of them in the order of the broker. ``diverted`` are entries that
    could not be decoded; acknowledging the whole chunk acknowledges them, too.

    Rows are named by a number, a slice, or several numbers. Rows of one batch are one entry for the broker: it sends
    an entry again as a whole, but rows that were acknowledged do not come out here again.
    """

    __slots__ = ("_chunk", "_consumer", "done", "moves")

    def __init__(self, chunk: Chunk, consumer: "Consumer", moves: int) -> None:
        self._chunk = chunk
        self._consumer = consumer
        self.moves = moves  # seeks before it
        self.done = 0  # rows that were acknowledged, as bits

    def __arrow_c_schema__(self) -> object:
        return self._chunk.__arrow_c_schema__()

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        return self._chunk.__arrow_c_array__(requested_schema)

    def __len__(self) -> int:
        return self._chunk.rows

    @property
    def chunk(self) -> Chunk:
        """The chunk itself."""
        return self._chunk

    @property
    def rows(self) -> int:
        """Records in it."""
        return self._chunk.rows

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return self._chunk.nbytes

    @property
    def diverted(self) -> list[DeadLetter]:
        """Entries that could not be decoded."""
        return self._chunk.diverted

    def spans(self) -> list[Span]:
        """What it is, by partition: entries from behind a start to an end."""
        return self._chunk.spans()

    def message_id(self, row: int) -> MessageId:
        """Where a record is. Raises IndexError, or ValueError if ledger, offset or batchIndex were not built."""
        row = range(self.rows)[row]
        ((number, ledger, entry, *_),) = self._chunk.elements(row, row + 1)
        return MessageId(ledger, entry, self._chunk.batch_index(row), int(self._chunk.log(number).partition))

    async def ack(self, rows: Rows | None = None, *, receipt: bool = False) -> None:
        """These records, by default all, are done: they never come again.

        Acks are sent in groups, a moment later. With ``receipt`` this returns when the broker has taken them (one that
        is older than 2.8 does not say) and raises AckRefused when it has not.
        """
        await self._consumer.acknowledge(self, rows, receipt=receipt)

    async def ack_to(self, row: int | None = None, *, receipt: bool = False) -> None:
        """Everything up to this record, by default to the end of the chunk, is done: also what came before.

        Each partition is acknowledged up to what the chunk holds of it, or only that of ``row``. Raises ValueError on
        Shared and Key_Shared, which know nothing of an order.
        """
        await self._consumer.acknowledge_to(self, row, receipt=receipt)

    async def nack(self, rows: Rows | None = None, *, delay_s: float | None = None) -> None:
        """These records, by default all, could not be dealt with: they come again, after the backoff or ``delay_s``.

        The rest of their batches comes with them, unless it was acknowledged.
        """
        self._consumer.reject(self, rows, delay_s)

    async def retry(self, rows: Rows | None = None, *, delay_s: float = 0.0) -> None:
        """Publish these records, by default all, to the retry topic, then acknowledge them here.

        They come again after ``delay_s`` with the property RECONSUMETIMES, and as dead letters when that has become
        too large. Raises ProduceError, and then nothing is acknowledged; ValueError without a policy that retries.
        """
        await self._consumer.try_again(self, slice(None) if rows is None else rows, delay_s)

    def release(self) -> None:
        """Let go of the memory now; whole-chunk acks still work, and Arrow keeps what it holds."""
        self._chunk.release()


class Consumer(Intake):
    """A subscription to some topics and all their partitions: ``async for chunk in consumer``.

    It opens when it is first used, survives whatever happens to connections and brokers, and is closed by ``close``,
    ``async with``, or with its client. A record comes out once, until it is asked for again by a negative ack, an ack
    timeout or ``redeliver``; what was not acknowledged when it closes goes to the next consumer. Several tasks may
    take chunks of one consumer.
    """

    def __init__(
        self,
        settings: ClientSettings,
        pool: Pool,
        topics: Iterable[str | Topic],
        subscription: str,
        options: ConsumerOptions,
        *,
        pattern: TopicPattern | None = None,
    ) -> None:
        if not subscription:
            raise ValueError("a subscription has a name")
        policy = options.dead_letters
        names = tuple(topic if isinstance(topic, Topic) else parse_topic(topic) for topic in topics)
        self._sources = {topic.base: topic.base for topic in names}  # what a topic is called after
        if policy is not None and policy.retry:
            for topic in names:
                self._sources.setdefault(parse_topic(policy.again_topic(topic, subscription)), topic.base)
            names += tuple(topic for topic, source in self._sources.items() if topic != source)
            names = tuple(
                dict.fromkeys([*names, *(parse_topic(policy.again_topic(one, subscription)) for one in names)])
            )
        super().__init__(
            settings,
            pool,
            names,
            pattern=pattern,
            window=options.window,
            ack_group_s=options.ack_group_s,
            partition_poll_s=options.partition_poll_s,
        )
        self.subscription = subscription
        self.options = options
        self._nacked = Deadlines(NACK_TICK_S)
        self._rejected: set[tuple[int, int, int]] = set()  # consumer, ledger, entry: waits for its negative ack
        self._timeouts = Deadlines(TIMEOUT_TICK_S)
        self._moves = 0  # seeks
        self._moving = asyncio.Lock()
        self._letters = None if policy is None else DeadLetters(settings, policy, subscription)
        self._burying: set[tuple[int, int, int]] = set()  # consumer, ledger, entry: on its way to the dead letters

    # --- taking

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Delivery:
        found = await self.receive()
        if found is None:
            raise StopAsyncIteration
        return found

    async def receive(self) -> Delivery | None:
        """The next chunk, waiting for it; None when there will be none: closed, or every topic has ended."""
        while (chunk := await self.take()) is not None and not chunk.rows and not chunk.diverted:
            for number, runs in self._runs(chunk).items():
                self.members[number].acknowledge(runs)  # markers, and what compaction has left of entries
        if chunk is None:
            return None
        if self.options.ack_timeout_s:
            due = self._loop.time() + self.options.ack_timeout_s
            for number, runs in self._runs(chunk).items():
                self._timeouts.add(number, runs, due)
        return Delivery(chunk, self, self._moves)

    # --- acknowledging

    async def acknowledge(self, delivery: Delivery, rows: Rows | None = None, *, receipt: bool = False) -> None:
        """See ``Delivery.ack``."""
        self._need(delivery)
        touched = set()
        if rows is None:
            for number, runs in self._runs(delivery.chunk).items():
                if member := self._current(number, delivery):
                    member.acknowledge(runs)
                    touched.add(number)
        else:
            for (number, ledger, entry), (_, held, done) in _elements(delivery.chunk, rows).items():
                if member := self._current(number, delivery):
                    member.acknowledge_elements(ledger, entry, held, done, tell=self.options.batch_index_acks)
                    touched.add(number)
            touched |= self._finish(delivery, rows)
        if receipt:
            await self._receipts(touched)

    def _finish(self, delivery: Delivery, rows: Rows) -> set[int]:
        """When all rows are done, so is what has none: parts of chunked messages before the last one, markers."""
        chunk, touched = delivery.chunk, set()
        for first, end in _ranges(chunk.rows, rows):
            delivery.done |= ((1 << end - first) - 1) << first
        if delivery.done + 1 == 1 << chunk.rows:
            seen = {one[:3] for one in chunk.elements(0, chunk.rows)}
            for number, runs in self._runs(chunk).items():
                bare = [
                    (ledger, at, at)
                    for ledger, start, last in runs
                    for at in range(start, last + 1)
                    if (number, ledger, at) not in seen
                ]
                if bare and (member := self._current(number, delivery)):
                    member.acknowledge(bare)
                    touched.add(number)
        return touched

    async def acknowledge_to(self, delivery: Delivery, row: int | None = None, *, receipt: bool = False) -> None:
        """See ``Delivery.ack_to``."""
        if not self.options.ordered:
            raise ValueError(f"a {self.options.type} subscription has no order: acknowledge records, not up to one")
        self._need(delivery)
        touched = set()
        if row is None:
            ends: dict[int, Position] = {}
            for number, ledger, _, last in delivery.chunk.entries():
                ends[number] = Position(ledger, last)
            for number, end in ends.items():
                if member := self._current(number, delivery):
                    member.acknowledge_to(end)
                    touched.add(number)
        else:
            row = range(delivery.rows)[row]
            ((number, ledger, entry, _, held, bit),) = delivery.chunk.elements(row, row + 1)
            if member := self._current(number, delivery):
                done = held & ((bit << 1) - 1)  # it, and what comes before it in its batch
                member.acknowledge_to(Position(ledger, entry - 1))
                member.acknowledge_elements(ledger, entry, held, done, tell=self.options.batch_index_acks)
                touched.add(number)
        if receipt:
            await self._receipts(touched)

    async def _receipts(self, numbers: Iterable[int]) -> None:
        waits = []
        for number in numbers:
            member = self.members[number]
            waits.append(member.receipt())
            member.send_acks()
            if member.link is not None:
                member.link.flush()
        await self.asking(together(waits))

    def _need(self, delivery: Delivery) -> None:
        if self._closed:
            raise FastwireError("the consumer was closed: what it has not acknowledged goes to the next one")

    def _current(self, number: int, delivery: Delivery) -> Member | None:
        """The member, unless a seek has made what came before nobody's business."""
        member = self.members[number]
        return member if delivery.moves >= member.moves else None

    # --- asking again

    def reject(self, delivery: Delivery, rows: Rows | None = None, delay_s: float | None = None) -> None:
        """See ``Delivery.nack``."""
        self._need(delivery)
        backoff = self.options.nack_backoff
        now = self._loop.time()
        chunk = delivery.chunk
        if rows is None and (delay_s is not None or backoff.factor == 1.0):
            wait_s = backoff.first_s if delay_s is None else delay_s
            for number, runs in self._runs(chunk).items():
                if self._current(number, delivery):
                    self._reject(number, runs, now + wait_s)
            return
        for (number, ledger, entry), (row, _, _) in _elements(chunk, slice(None) if rows is None else rows).items():
            if self._current(number, delivery):
                wait_s = backoff.delay_s(chunk.redeliveries(row)) if delay_s is None else delay_s
                self._reject(number, [(ledger, entry, entry)], now + wait_s)

    def _reject(self, number: int, runs: Sequence[Run], due: float) -> None:
        self._nacked.add(number, runs, due)
        if self.options.ack_timeout_s:
            self._rejected.update((number, ledger, at) for ledger, first, last in runs for at in range(first, last + 1))

    def turn(self, now: float) -> None:
        """Ask again for what is due."""
        for number, runs in self._nacked.take(now).items():
            if self._rejected:
                self._rejected.difference_update(
                    (number, ledger, at) for ledger, first, last in runs for at in range(first, last + 1)
                )
            self._redeliver(number, runs)
        for number, runs in self._timeouts.take(now).items():
            self._redeliver(number, self._unrejected(number, runs))

    def _unrejected(self, number: int, runs: Iterable[Run]) -> Sequence[Run]:
        if not self._rejected:
            return tuple(runs)
        return [
            (ledger, at, at)
            for ledger, first, last in runs
            for at in range(first, last + 1)
            if (number, ledger, at) not in self._rejected
        ]

    def _redeliver(self, number: int, runs: Iterable[Run]) -> None:
        """Ask for what of ``runs`` was not acknowledged meanwhile."""
        member = self.members[number]
        staged = self.slots.staged_of(number, runs)
        if not staged:
            return
        self.slots.release_runs(number, staged)
        member.send_acks()
        member.consumer.redeliver(staged, self._loop.time())

    async def redeliver(self) -> None:
        """Let everything come again that was not acknowledged, whether it was taken or not."""
        await self.open()
        self.drop_chunks(self.members)
        for member in self.members:
            self._forget(member)
            self._redeliver(member.number, [run[:3] for run in self.slots.entry_runs(member.number)])
            if member.link is not None:
                member.link.flush()

    def _runs(self, chunk: Chunk) -> dict[int, list[Run]]:
        """The entries of a chunk, by consumer, without those that are on their way to the dead letters."""
        found: dict[int, list[Run]] = {}
        for number, ledger, first, last in chunk.entries():
            runs = found.setdefault(number, [])
            if self._burying:
                for at in range(first, last + 1):
                    if (number, ledger, at) in self._burying:
                        if at > first:
                            runs.append((ledger, first, at - 1))
                        first = at + 1
            if first <= last:
                runs.append((ledger, first, last))
        return found

    # --- dead letters

    def added(self, member: Member) -> None:
        """See ``Intake.added``."""
        if self._letters is not None:
            self.slots.limit_redeliveries(member.number, self._letters.policy.most_redeliveries)

    def admit(self, chunk: Chunk) -> bool:
        """See ``Intake.admit``: what came too often does not come out."""
        if self._letters is not None:
            for letter in tuple(chunk.diverted):
                if letter.reason.startswith("RedeliveredTooOften"):
                    chunk.diverted.remove(letter)
                    self._bury(self._letters, letter)
        return True

    def _bury(self, letters: DeadLetters, letter: DeadLetter) -> None:
        member = next(one for one in self.members if self.slots.log(one.number) == letter.log)
        ledger, entry = letter.position
        self._burying.add((member.number, ledger, entry))
        self.run(self._publish(letters, letter, member), f"dead letter {letter.position}")

    async def _publish(self, letters: DeadLetters, letter: DeadLetter, member: Member) -> None:
        ledger, entry = letter.position
        try:
            await letters.bury(letter, self._source_of(member))
        except FastwireError as exc:
            log.warning("dead letter is not stored, trying again", topic=str(member.topic), error=str(exc))
            self._nacked.add(member.number, [(ledger, entry, entry)], self._loop.time() + UNSTORED_S)
        else:
            member.acknowledge([(ledger, entry, entry)])
        finally:
            self._burying.discard((member.number, ledger, entry))

    def _source_of(self, member: Member) -> Topic:
        return self._sources.get(member.topic.base, member.topic)

    async def try_again(self, delivery: Delivery, rows: Rows, delay_s: float) -> None:
        """See ``Delivery.retry``."""
        letters = self._letters
        if letters is None or not letters.policy.retry:
            raise ValueError("there is no retry topic: dead_letters=DeadLetterPolicy(retry=True) has one")
        self._need(delivery)
        places = [row for first, end in _ranges(delivery.rows, rows) for row in range(first, end)]
        by_source: dict[Topic, list[Origin]] = {}
        for row, record in zip(places, records_of(delivery.chunk, places), strict=True):
            member = self.members[delivery.chunk.elements(row, row + 1)[0][0]]
            origin = record, delivery.message_id(row), str(member.topic.base)
            by_source.setdefault(self._source_of(member), []).append(origin)
        for source, records in by_source.items():
            await letters.retry(records, source, delay_s)
        await self.acknowledge(delivery, rows)

    async def _close(self) -> None:
        await super()._close()
        if self._letters is not None:
            await self._letters.close()

    # --- moving

    async def seek(self, to: SeekTo, *, topic: str = "") -> None:
        """Read on from somewhere else, for all consumers of the subscription.

        A time (with a zone), ``"earliest"`` and ``"latest"`` move every partition; a message id moves its own, which
        is the one of that number, or ``topic`` (a partition's name) where several topics are read. The message itself
        comes next. What was taken before and is acknowledged afterwards is ignored. Raises ValueError for a place that
        is not clear, BrokerError where the broker refuses.
        """
        await self.open()
        where, elements = _place(to)
        moved = self._partition_of(to, topic) if isinstance(to, MessageId) and to not in (EARLIEST, LATEST) else None
        members = self.members if moved is None else [moved]
        task = self.run(self._seek(members, where, elements), "seek")
        await self.asking(together([asyncio.shield(task)]))

    async def _seek(self, members: Sequence[Member], where: MessageId | int, elements: tuple[int, ...]) -> None:
        async with self._moving:
            left = list(members)
            try:
                while left:
                    await self._seek_one(left[0], where, elements, left)
                    del left[0]
            except BaseException:
                for member in left:  # it may have lost what waited to be taken
                    self.run(member.rejoin(), f"rejoin {member.topic}")
                raise

    async def _seek_one(
        self, member: Member, where: MessageId | int, elements: tuple[int, ...], still: Sequence[Member]
    ) -> None:
        deadline = self._loop.time() + self.settings.operation_timeout_s
        while True:
            try:
                await member.seek(where, elements, lambda: self._moved(member, where, still))
                return
            except LinkLost:
                if self._loop.time() >= deadline:
                    raise
                await asyncio.sleep(0.02)

    def _moved(self, member: Member, where: MessageId | int, still: Sequence[Member]) -> None:
        """A cursor was moved: forget what came before, and let nobody lose by that what is not his."""
        self._moves += 1
        member.moves = self._moves
        self._forget(member)
        for other in self.drop_chunks([member]):
            if other not in still:
                self.run(other.rejoin(), f"rejoin {other.topic}")
        self.renew(member)
        if isinstance(where, MessageId) and where.batch_index > 0:
            # Brokers that do not look at the elements send all of the batch.
            words = words_of((1 << MOST_ELEMENTS) - (1 << where.batch_index))
            self.slots.narrow(member.number, where.ledger, where.entry, words)

    def _forget(self, member: Member) -> None:
        self._nacked.forget(member.number)
        self._timeouts.forget(member.number)
        self._rejected = {one for one in self._rejected if one[0] != member.number}

    def _partition_of(self, at: MessageId, topic: str) -> Member:
        if topic:
            found = [one for one in self.members if topic in (str(one.topic), one.topic.local)]
        elif len(self.members) == 1:
            found = list(self.members)
        else:
            found = [one for one in self.members if one.topic.partition == at.partition]
        if len(found) != 1:
            names = ", ".join(str(one.topic) for one in self.members[:5])
            raise ValueError(f"{at} could be of {len(found)} of the partitions that are read: name one of {names}")
        return found[0]

    # --- the end

    async def unsubscribe(self, *, force: bool = False) -> None:
        """Delete the subscription with its progress, then close. ``force``: even if other consumers use it."""
        await self.open()
        await self.asking(together(member.unsubscribe(force) for member in self.members))
        await self.close()

    # --- what the intake asks

    def want(self, topic: Topic, number: int, *, late: bool) -> SubscribeRequest:
        """See ``Intake.want``."""
        options = self.options
        return SubscribeRequest(
            topic=str(topic),
            subscription=self.subscription,
            subscription_type=options.wire_type,
            consumer_id=number,
            consumer_name=options.name,
            priority_level=options.priority,
            create=options.create,
            latest=options.start == "latest" and not late,
            read_compacted=options.read_compacted,
            hash_ranges=options.hash_ranges,
            any_order=options.any_order,
            properties=options.properties,
        )

    @property
    def _creates(self) -> bool:
        return self.options.create


def _elements(chunk: Chunk, rows: Rows) -> dict[tuple[int, int, int], tuple[int, int, int]]:
    """Rows by entry: (consumer, ledger, entry) -> its first row, what was delivered of it, what of that is meant."""
    found: dict[tuple[int, int, int], tuple[int, int, int]] = {}
    for first, end in _ranges(chunk.rows, rows):
        for number, ledger, entry, row, held, bits in chunk.elements(first, end):
            _, _, before = found.get((number, ledger, entry), (row, held, 0))
            found[number, ledger, entry] = row, held, before | bits
    return found


def _ranges(count: int, rows: Rows) -> list[tuple[int, int]]:
    """Rows as ranges (first, end), in order. Raises IndexError."""
    places = range(count)
    if isinstance(rows, int):
        row = places[rows]
        return [(row, row + 1)]
    if isinstance(rows, slice):
        chosen = places[rows]
        if chosen.step == 1:
            return [(chosen.start, chosen.stop)] if chosen else []
        rows = chosen
    found: list[tuple[int, int]] = []
    for row in sorted(places[row] for row in rows):
        if found and found[-1][1] >= row:
            found[-1] = found[-1][0], row + 1
        else:
            found.append((row, row + 1))
    return found


def _place(to: SeekTo) -> tuple[MessageId | int, tuple[int, ...]]:
    """The place for the command, and the words of the elements of its batch that come."""
    if isinstance(to, datetime):
        if to.tzinfo is None:
            raise ValueError(f"{to.isoformat()} has no zone: nobody knows which moment that is")
        return max(0, int(to.timestamp() * 1000)), ()
    if isinstance(to, str):
        if to not in ("earliest", "latest"):
            raise ValueError(f"{to!r} is no place: earliest, latest, a time or a message id")
        return (EARLIEST if to == "earliest" else LATEST), ()
    if to.batch_index <= 0:
        return to, ()
    if not to.batch_size:  # how many there are the broker does not know either: the batch comes, and is cut here
        return to, ()
    bits = (1 << to.batch_size) - (1 << to.batch_index)
    words = memoryview(words_of(bits)).cast("q")
    return to, tuple(words)
