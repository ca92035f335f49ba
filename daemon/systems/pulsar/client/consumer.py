"""Consumers: they deliver chunks of a subscription and take acknowledgements (spec: pulsar 7, 15, 16, 18.1)."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime
from functools import partial
from typing import Literal, Self

from fastwire.columns.chunk import Chunk, DeadLetter
from fastwire.errors import FastwireError
from fastwire.position import Position
from fastwire.pulsar.columns import elements, redeliveries
from fastwire.pulsar.format.ackset import words_of
from fastwire.pulsar.format.payload import Encrypt
from fastwire.pulsar.names.pattern import TopicPattern
from fastwire.pulsar.names.topic import Topic, parse_topic
from fastwire.pulsar.protocol.message_id import EARLIEST, LATEST, MessageId
from fastwire.pulsar.protocol.redelivery import Deadlines
from fastwire.pulsar.protocol.request import SubscribeRequest
from fastwire.pulsar.reading.cold import ColdEntry
from fastwire.reason import Reason
from fastwire.wire.pool import Pool

from ....runtime.logs import get_logger
from ..settings import ClientSettings
from .acking import AckingMember, without_entries
from .deadletters import DeadLetters, Origin, records_of
from .delivery import Delivery, Element, Rows, Run, elements_of, ranges
from .intake import MOST_ELEMENTS, Intake, together
from .options import ConsumerOptions
from .places import Place, place_of

__all__ = ["Consumer", "Delivery", "Rows"]

NACK_TICK_S = 0.1
UNSTORED_S = 1.0  # before a dead letter that could not be stored is tried again
TIMEOUT_TICK_S = 1.0
MOST_NAMED = 5  # partitions, in an error


log = get_logger("client")


class Consumer(Intake[AckingMember]):
    """A subscription to topics and all their partitions: ``async for chunk in consumer``.

    It opens at its first use, reconnects after failures of connections and brokers, and is closed by ``close``,
    ``async with``, or with its client. A record is delivered once, unless a negative ack, an ack timeout or
    ``redeliver`` requests it again; records that are not acknowledged when it closes go to the next consumer. Several
    tasks may take chunks of one consumer.
    """

    def __init__(
        self,
        settings: ClientSettings,
        pool: Pool,
        topics: Iterable[Topic],
        subscription: str,
        options: ConsumerOptions,
        *,
        pattern: TopicPattern | None = None,
        encrypt: Encrypt | None = None,
    ) -> None:
        if not subscription:
            raise ValueError("subscription must not be empty")
        policy = options.dead_letters
        if policy is not None and policy.retry and settings.decryptor is not None and encrypt is None:
            raise ValueError(
                "a retry topic for encrypted records needs public_keys, or they would be published in clear text"
            )
        names = tuple(topics)
        self._sources = {topic.base: topic.base for topic in names}  # the topic that a retry topic belongs to
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
            AckingMember,
            window=options.window,
            create=options.create,
            pattern=pattern,
            subscription=subscription,
            subscription_type=options.type,
            partition_poll_s=options.partition_poll_s,
        )
        self.subscription = subscription
        self.options = options
        self.name = options.name or secrets.token_hex(5)
        self._nacked = Deadlines(NACK_TICK_S)
        self._rejected: set[Element] = set()  # elements whose negative ack is due later
        self._timeouts = Deadlines(TIMEOUT_TICK_S)
        self._moves = 0  # the count of seeks
        self._moving = asyncio.Lock()
        self._dead_letters = None if policy is None else DeadLetters(settings, policy, subscription, encrypt=encrypt)
        self._burying: set[Element] = set()  # being published as dead letters
        self._joined: set[Element] = set()  # the last parts of chunked messages that were not taken yet
        self.cluster.completion.on_whole = self._on_whole

    # --- taking

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Delivery:
        found = await self.receive()
        if found is None:
            raise StopAsyncIteration
        return found

    async def receive(self) -> Delivery | None:
        """Return the next chunk, waiting for it; None if none can follow: closed, or every topic has ended."""
        while (chunk := await self.take()) is not None and not chunk.rows and not chunk.dead_letters:
            for number, runs in self._runs(chunk).items():
                self.members[number].acknowledge(runs)  # markers, and entries that compaction has emptied
        if chunk is None:
            return None
        if self.options.ack_timeout_s:
            due = self._loop.time() + self.options.ack_timeout_s
            for number, runs in self._runs(chunk).items():
                self._timeouts.add(number, runs, due)
        return Delivery(chunk, self, self._moves, self._parts_in(chunk) if self._joined else None)

    def _on_whole(self, entries: Sequence[ColdEntry]) -> None:
        """Record the positions of the parts of a chunked message."""
        last = entries[-1]
        member = self.members[last.consumer_id]
        member.parts[last.ledger, last.entry] = tuple((each.ledger, each.entry) for each in entries)
        self._joined.add((last.consumer_id, last.ledger, last.entry))

    def _parts_in(self, chunk: Chunk) -> dict[Element, list[Run]]:
        """Return the parts, without the last ones, of the chunked messages in ``chunk``, which is taken now."""
        spans: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for number, ledger, first, last in chunk.entries():
            spans.setdefault((number, ledger), []).append((first, last))
        found = {}
        for number, ledger, entry in tuple(self._joined):
            if any(first <= entry <= last for first, last in spans.get((number, ledger), ())):
                self._joined.remove((number, ledger, entry))
                parts = self.members[number].parts.get((ledger, entry), ())
                found[number, ledger, entry] = [(of, at, at) for of, at in parts[:-1]]
        return found

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
            for (number, ledger, entry), (_, held, done) in elements_of(delivery.chunk, rows).items():
                if member := self._current(number, delivery):
                    parts = delivery.parts.get((number, ledger, entry), ())
                    tell = self.options.batch_index_acks
                    member.acknowledge_elements(ledger, entry, held, done, tell=tell, parts=parts)
                    touched.add(number)
            touched |= self._finish(delivery, rows)
        if receipt:
            await self._receipts(touched)

    def _finish(self, delivery: Delivery, rows: Rows) -> set[int]:
        """Acknowledge the entries without rows once all rows were acknowledged or rejected."""
        for first, end in ranges(delivery.rows, rows):
            delivery.dealt |= ((1 << end - first) - 1) << first
        touched = set()
        if delivery.dealt + 1 == 1 << delivery.rows:
            for number, bare in self._bare(delivery).items():
                if member := self._current(number, delivery):
                    member.acknowledge(bare)
                    touched.add(number)
        return touched

    def _bare(self, delivery: Delivery) -> dict[int, list[Run]]:
        """Return the entries without a row, by consumer: markers, and entries that could not be decoded."""
        chunk = delivery.chunk
        seen = {one[:3] for one in elements(chunk, 0, chunk.rows)}
        for (number, _, _), parts in delivery.parts.items():
            seen.update((number, *part[:2]) for part in parts)
        found: dict[int, list[Run]] = {}
        for number, runs in self._runs(chunk).items():
            for ledger, start, last in runs:
                for at in range(start, last + 1):
                    if (number, ledger, at) not in seen:
                        found.setdefault(number, []).append((ledger, at, at))
        return found

    async def acknowledge_to(self, delivery: Delivery, row: int | None = None, *, receipt: bool = False) -> None:
        """See ``Delivery.ack_to``."""
        if not self.options.ordered:
            raise ValueError(f"a {self.options.type} subscription has no order: acknowledge single records instead")
        self._need(delivery)
        touched = set()
        if row is None:
            ends: dict[int, Position] = {}
            for number, ledger, _, last in delivery.chunk.entries():
                end = Position(ledger, last)
                ends[number] = max(ends.get(number, end), end)  # parts of a chunked message follow its last one
            for number, end in ends.items():
                if member := self._current(number, delivery):
                    member.acknowledge_to(end)
                    touched.add(number)
        else:
            row = range(delivery.rows)[row]
            ((number, ledger, entry, _, held, bit),) = elements(delivery.chunk, row, row + 1)
            if member := self._current(number, delivery):
                done = held & ((bit << 1) - 1)  # the record and those before it in its batch
                parts = delivery.parts.get((number, ledger, entry), ())
                member.acknowledge_to(Position(ledger, entry - 1))
                tell = self.options.batch_index_acks
                member.acknowledge_elements(ledger, entry, held, done, tell=tell, parts=parts)
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
        if self.closed:
            raise FastwireError("the consumer was closed: records that it has not acknowledged go to the next one")

    def _current(self, number: int, delivery: Delivery) -> AckingMember | None:
        """Return the member, or None if a seek has made the delivery obsolete."""
        member = self.members[number]
        return member if delivery.moves >= member.moves else None

    # --- redelivery

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
        for (number, ledger, entry), (row, _, _) in elements_of(chunk, slice(None) if rows is None else rows).items():
            if self._current(number, delivery):
                wait_s = backoff.delay_s(redeliveries(chunk, row)) if delay_s is None else delay_s
                parts = delivery.parts.get((number, ledger, entry), ())
                self._reject(number, [(ledger, entry, entry), *parts], now + wait_s)
        if rows is not None:
            self._finish(delivery, rows)
            return
        for number, bare in self._bare(delivery).items():
            if self._current(number, delivery):
                self._reject(number, bare, now + backoff.first_s)

    def _reject(self, number: int, runs: Sequence[Run], due: float) -> None:
        self._nacked.add(number, runs, due)
        if self.options.ack_timeout_s:
            self._rejected.update((number, ledger, at) for ledger, first, last in runs for at in range(first, last + 1))

    def look(self, now: float) -> None:
        """Request redelivery for the negative acks and ack timeouts that are due."""
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
        """Request redelivery of the entries of ``runs`` that were not acknowledged meanwhile."""
        member = self.members[number]
        staged = self.slots.staged_of(number, runs)
        if not staged:
            return
        self.slots.release_runs(number, staged)
        member.forget_parts(staged)
        member.send_acks()
        member.consumer.redeliver(staged, self._loop.time())

    async def redeliver(self) -> None:
        """Request redelivery of all records that are not acknowledged, taken or not."""
        await self.open()
        self.drop_chunks(self.members)
        for member in self.members:
            self._forget(member)
            self.cluster.completion.assembly.forget(member.number)  # parts of incomplete messages are redelivered, too
            self._redeliver(member.number, [run[:3] for run in self.slots.entry_runs(member.number)])
            if member.link is not None:
                member.link.flush()

    def _runs(self, chunk: Chunk) -> dict[int, list[Run]]:
        """Return the entries of a chunk, by consumer, without those that are being published as dead letters."""
        found: dict[int, list[Run]] = {}
        for number, ledger, first, last in chunk.entries():
            burying = [(of, at) for one, of, at in self._burying if one == number] if self._burying else []
            found.setdefault(number, []).extend(without_entries((ledger, first, last), burying))
        return found

    # --- dead letters

    def added(self, member: AckingMember) -> None:
        """See ``Intake.added``."""
        member.consumer.acks.group_s = self.options.ack_group_s
        if self._dead_letters is not None:
            self.slots.limit_redeliveries(member.number, self._dead_letters.policy.most_redeliveries)

    def admit(self, chunk: Chunk) -> None:
        """See ``Intake.admit``: entries that were redelivered too often become dead letters."""
        if self._dead_letters is not None:
            for letter in tuple(chunk.dead_letters):
                if letter.damage is Reason.REDELIVERED:
                    chunk.dead_letters.remove(letter)
                    self._bury(self._dead_letters, letter)

    def _bury(self, dead_letters: DeadLetters, letter: DeadLetter) -> None:
        member = self.member_of(letter)
        place = letter.position.a, letter.position.b
        self._joined.discard((member.number, *place))
        runs = [(ledger, entry, entry) for ledger, entry in member.parts.get(place, (place,))]
        self._burying.update((member.number, *run[:2]) for run in runs)
        self.run(self._publish(dead_letters, letter, member, runs), f"dead letter {letter.position}")

    async def _publish(
        self, dead_letters: DeadLetters, letter: DeadLetter, member: AckingMember, runs: Sequence[Run]
    ) -> None:
        try:
            await dead_letters.bury(letter, self._source_of(member))
        except FastwireError as exc:
            log.warning("a dead letter could not be stored, retrying", topic=str(member.topic), error=str(exc))
            self._nacked.add(member.number, runs, self._loop.time() + UNSTORED_S)
        else:
            member.acknowledge(runs)
        finally:
            self._burying.difference_update((member.number, *run[:2]) for run in runs)

    def _source_of(self, member: AckingMember) -> Topic:
        return self._sources.get(member.topic.base, member.topic)

    async def try_again(self, delivery: Delivery, rows: Rows, delay_s: float) -> None:
        """See ``Delivery.retry``."""
        dead_letters = self._dead_letters
        if dead_letters is None or not dead_letters.policy.retry:
            raise ValueError("there is no retry topic: set dead_letters=DeadLetterPolicy(retry=True)")
        self._need(delivery)
        places = [row for first, end in ranges(delivery.rows, rows) for row in range(first, end)]
        by_source: dict[Topic, list[Origin]] = {}
        for row, record in zip(places, records_of(delivery.chunk, places), strict=True):
            member = self.members[elements(delivery.chunk, row, row + 1)[0][0]]
            origin = record, delivery.message_id(row), str(member.topic.base)
            by_source.setdefault(self._source_of(member), []).append(origin)
        for source, records in by_source.items():
            await dead_letters.retry(records, source, delay_s)
        await self.acknowledge(delivery, rows)

    async def _close(self) -> None:
        await super()._close()
        for member in self.members:
            member.refuse_receipts()
        if self._dead_letters is not None:
            await self._dead_letters.close()

    # --- seeking

    async def seek(self, to: Place, *, topic: str = "") -> None:
        """Move the subscription's cursor, for all its consumers.

        A time (with a time zone, or before now), ``"earliest"`` and ``"latest"`` move every partition; a message id, or
        what ``send`` has returned, moves the partition of its number, or ``topic`` (a partition's name) if several
        topics are read. The message itself is delivered next. Acks of chunks taken before are ignored. Raises
        ValueError for an ambiguous or invalid position, FastwireError if a broker refuses, or if none could be asked
        within ``operation_timeout_s``. Brokers move each partition for itself, and none back: where one fails the
        others have moved, and the error says how many, and which not.
        """
        place = place_of(to)
        await self.open()
        where, elements = _ask(place)
        one = isinstance(place, MessageId) and place not in (EARLIEST, LATEST)
        moved = self._partition_of(place, topic) if isinstance(place, MessageId) and one else None
        members = self.live if moved is None else [moved]
        task = self.run(self._seek(members, where, elements), "seek")
        await self.asking(together([asyncio.shield(task)]))

    async def _seek(self, members: Sequence[AckingMember], where: MessageId | int, elements: tuple[int, ...]) -> None:
        async with self._moving:
            spared: set[AckingMember] = set()  # they have lost chunks that were not taken

            async def move(member: AckingMember) -> None:
                moved = partial(self._moved, member, where, spared)
                await member.ask(partial(member.seek, at=where, elements=elements, moved=moved))

            try:
                await _each(members, move, "were moved")
            finally:
                for member in spared:
                    member.rejoin()

    def _moved(self, member: AckingMember, where: MessageId | int, spared: set[AckingMember]) -> None:
        """Forget a moved member's records; ``spared`` gets other members whose chunks were dropped with them."""
        self._moves += 1
        member.moves = self._moves
        self._forget(member)
        spared.update(self.drop_chunks([member]))
        spared.discard(member)
        self.renew(member)
        if isinstance(where, MessageId) and where.batch_index > 0:
            # Brokers that do not look at the elements send all of the batch.
            words = words_of((1 << MOST_ELEMENTS) - (1 << where.batch_index))
            self.slots.narrow(member.number, where.ledger, where.entry, words)

    def _forget(self, member: AckingMember) -> None:
        self._nacked.forget(member.number)
        self._timeouts.forget(member.number)
        self._rejected = {one for one in self._rejected if one[0] != member.number}
        self._joined = {one for one in self._joined if one[0] != member.number}

    def _partition_of(self, at: MessageId, topic: str) -> AckingMember:
        if topic:
            found = [one for one in self.live if topic in (str(one.topic), one.topic.local)]
        elif len(self.live) == 1:
            found = self.live
        else:
            found = [one for one in self.live if one.topic.partition == at.partition]
        if len(found) != 1:
            names = ", ".join(str(one.topic) for one in self.live[:MOST_NAMED])
            raise ValueError(f"{at} matches {len(found)} of the partitions: set topic to one of {names}")
        return found[0]

    # --- unsubscribing

    async def unsubscribe(self, *, force: bool = False) -> None:
        """Delete the subscription with its cursor, then close. ``force``: even if other consumers use it.

        Raises FastwireError if a broker refuses: the error says how many partitions have lost it, and which not. Those
        are read on, and asked by another call.
        """
        await self.open()
        await self.asking(_each(self.live, lambda member: member.unsubscribe(force), "have lost the subscription"))
        await self.close()

    # --- called by the intake

    def want(self, topic: Topic, number: int, *, late: bool) -> SubscribeRequest:
        """See ``Intake.want``."""
        options = self.options
        return SubscribeRequest(
            topic=str(topic),
            subscription=self.subscription,
            subscription_type=options.wire_type,
            consumer_id=number,
            consumer_name=self.name,
            priority_level=options.priority,
            create=options.create,
            latest=options.start == "latest" and not late,
            read_compacted=options.read_compacted,
            hash_ranges=options.hash_ranges,
            any_order=options.any_order,
            properties=options.properties,
            subscription_properties=options.subscription_properties,
            replicate_state=options.replicate_state,
            schema=options.schema,
        )


async def _each(members: Sequence[AckingMember], do: Callable[[AckingMember], Awaitable[None]], done: str) -> None:
    """Await ``do`` for all members. Raises FastwireError that says how many were ``done``, and why others failed."""
    results = await asyncio.gather(*map(do, members), return_exceptions=True)
    failed = [result for result in results if isinstance(result, BaseException)]
    if not failed:
        return
    if len(members) == 1 or not all(isinstance(error, FastwireError) for error in failed):
        raise failed[0]
    texts = "; ".join(map(str, failed[:MOST_NAMED])) + (" …" if len(failed) > MOST_NAMED else "")
    raise FastwireError(
        f"{len(members) - len(failed)} of {len(members)} partitions {done}, the others failed: {texts}"
    ) from failed[0]


def _ask(to: MessageId | datetime | Literal["earliest", "latest"]) -> tuple[MessageId | int, tuple[int, ...]]:
    """Return the position for SEEK, and the words of the elements of its batch that are delivered."""
    if isinstance(to, datetime):
        return max(0, int(to.timestamp() * 1000)), ()
    if isinstance(to, str):
        return (EARLIEST if to == "earliest" else LATEST), ()
    if to.batch_index <= 0:
        return to, ()
    if not to.batch_size:  # the broker does not know the size either: it sends the whole batch, which is cut here
        return to, ()
    bits = (1 << to.batch_size) - (1 << to.batch_index)
    words = memoryview(words_of(bits)).cast("q")
    return to, tuple(words)
