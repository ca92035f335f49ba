"""The consumer of one partition in the Python client, which is kept subscribed (spec: pulsar 7, 15, 16, 18, 20)."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Protocol

from fastwire.errors import CorruptEntryError, FastwireError
from fastwire.position import Position
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.format.ackset import AckSets, EntryId, words_of
from fastwire.pulsar.format.server_error import Remedy
from fastwire.pulsar.names.topic import Topic
from fastwire.pulsar.position import POSITIONS
from fastwire.pulsar.protocol.consumer import ConsumerMachine, Phase
from fastwire.pulsar.protocol.event import ConsumerClosed, EntryRejected, TopicMigrated
from fastwire.pulsar.protocol.message_id import MessageId
from fastwire.pulsar.protocol.request import BrokerError, SubscribeRequest
from fastwire.pulsar.reading.slot import SlotTable
from fastwire.reason import Reason

from ....net.backoff import Backoff
from ....net.endpoint import LinkLost
from ....runtime.logs import get_logger
from ..cluster import Cluster
from ..link import Link
from ..refusal import about, is_for_good, is_transient
from ..routed import RoutedConsumer
from ..settings import ClientSettings

__all__ = ["AckRefused", "Host", "Member", "is_missing", "refused_at_first", "without"]

AGAIN_S, MOST_AGAIN_S = 0.05, 1.0  # before a request is repeated that the broker has refused for the moment
UNSENT = 0  # not the id of a request: it stands for acks that are not sent yet

Run = tuple[int, int, int]  # ledger, first entry, last entry

log = get_logger("client")


class AckRefused(FastwireError):  # noqa: N818 - what the broker did, named as its answer
    """The broker refused an acknowledgement, or did not confirm it in time: the records will be redelivered."""


def refused_at_first(error: FastwireError) -> bool:
    """Return True if a first subscribe must not be retried: it cannot succeed, or another consumer holds the place."""
    return is_for_good(error) or (isinstance(error, BrokerError) and error.remedy is Remedy.TURN)


def is_missing(error: FastwireError) -> bool:
    """Return True if the broker has answered that the topic does not exist."""
    return isinstance(error, BrokerError) and error.code == pb.TopicNotFound


class Host(Protocol):
    """The owner of members: a consumer or a reader. ``patience_s`` is the time for the first subscribe, in seconds."""

    settings: ClientSettings
    cluster: Cluster
    slots: SlotTable
    patience_s: float

    def prepare(self, member: "Member") -> SubscribeRequest:
        """Return the request for the next subscribe."""

    async def subscribed(self, member: "Member") -> bool:
        """Finish a subscribe, before permits are granted; return False to repeat it at once with a new ``prepare``."""

    def on_end(self, member: "Member") -> None:
        """Note that the topic was terminated and everything in it delivered."""

    def missed(self, member: "Member", error: FastwireError) -> bool:
        """Return True if ``error`` only means that the topic was deleted, so that the subscribe is retried."""

    def fail(self, error: FastwireError) -> None:
        """End reading with ``error``."""


class _Receipt:
    """A caller that waits until the broker has confirmed its acks."""

    __slots__ = ("done", "left")

    def __init__(self, done: "asyncio.Future[None]") -> None:
        self.done = done
        self.left: set[int] = set()

    def answered(self, request_id: int, accepted: bool) -> None:
        self.left.discard(request_id)
        if self.done.done():
            return
        if not accepted:
            self.done.set_exception(AckRefused("the broker did not confirm an acknowledgement"))
        elif not self.left:
            self.done.set_result(None)


class Member(RoutedConsumer):
    """Keeps one consumer subscribed. The future ``first`` is done after the first subscribe, or raises its refusal."""

    def __init__(
        self, host: Host, topic: Topic, want: SubscribeRequest, *, window: int, ack_group_s: float, late: bool
    ) -> None:
        super().__init__(ConsumerMachine(want, host.slots, window), host.settings.url)
        self.late = late  # found after the host was opened
        self.topic = topic  # one partition, or a topic without partitions
        self.number = want.consumer_id  # the index of the consumer, the log and the member
        self.consumer.acks.group_s = ack_group_s
        self.sets = AckSets()
        self.parts: dict[
            EntryId, tuple[EntryId, ...]
        ] = {}  # the parts of chunked messages that are not acknowledged, by the last part
        self.ended = False  # the topic was terminated, and everything in it was delivered
        self.task: asyncio.Task[None] | None = None  # ``keep``
        self.moves = 0  # the intake's count of seeks at the last seek of this member
        self.first: asyncio.Future[None] = self._loop.create_future()
        self._host = host
        self._backoff = Backoff()
        self._lost = asyncio.Event()
        self._lost.set()
        self._there = asyncio.Event()  # subscribed, and not being closed
        self._left: asyncio.Future[None] = self._loop.create_future()  # ``keep`` has ended
        self._turn = asyncio.Lock()  # subscribing, seeking, leaving: one at a time
        self._trouble = ""  # the last error of a subscribe, for messages
        self._soon = False
        self._asked: list[_Receipt] = []  # receipts for acks that are not sent yet
        self._waiting: dict[int, list[_Receipt]] = {}  # by request id

    # --- events of the broker, in wire order

    def on_receipt(self, request_id: int, accepted: bool) -> None:
        """Handle the confirmation or refusal of an ack command."""
        sent = self.consumer.acks.receipt(request_id, accepted)
        if sent is not None and accepted and sent.runs:
            # The broker has stored the ack: an entry that is sent again all the same counts as new.
            self._host.slots.release_runs(self.number, sent.runs)
        for receipt in self._waiting.pop(request_id, ()):
            receipt.answered(request_id, accepted)

    def on_closed(self, event: ConsumerClosed) -> None:
        """Handle the broker's CLOSE_CONSUMER: subscribe again, at the broker that it names if it does."""
        self._route.closed(event, self.link)
        self._detached()

    def on_link_lost(self, reason: str) -> None:
        """Subscribe again after the loss of the connection."""
        self._detached()

    def on_active(self, active: bool) -> None:
        """Note whether this consumer is the active one of a Failover subscription."""
        self.consumer.active = active

    def on_end_of_topic(self) -> None:
        """Note that the topic was terminated and everything in it delivered."""
        self.ended = True
        self._host.on_end(self)

    def on_migrated(self, event: TopicMigrated) -> None:
        """Move to the cluster that the topic was migrated to."""
        service = self._route.migrated(event)
        if service is not None:
            self._route.move(service)

    def on_rejected(self, event: EntryRejected) -> None:
        """Fail the host, unless the entry stands in its chunk as a dead letter."""
        if event.is_dead_letter:
            return
        entry = event.entry
        if entry.reason is Reason.DECRYPTION:
            what, cure = "decrypted", '; add its private key, or set on_undecryptable to "discard" or "consume"'
        elif entry.reason is Reason.FRAME:
            what, cure = "received", ""
        else:
            what, cure = "decoded", '; set on_corrupt = "dead_letter" to keep it as a dead letter and continue'
        where = POSITIONS.format(entry.position)
        text = f"entry {where} of {self.topic} cannot be {what} ({entry.detail}){cure}"
        self._host.fail(CorruptEntryError(entry.reason, text))

    # --- subscribing and closing

    async def keep(self) -> None:
        """Subscribe, and again after each loss, until cancelled or refused for good."""
        try:
            await self._keep()
        except Exception as exc:  # a bug, which the host reports
            self._trouble = f": {type(exc).__name__}: {exc}"
            raise
        finally:
            if not self.first.done():
                self.first.set_exception(self._not_read())
                self.first.exception()
            self._left.set_result(None)

    def _not_read(self) -> FastwireError:
        return FastwireError(f"{self.topic} is not read any more{self._trouble}")

    async def _keep(self) -> None:
        deadline = self._loop.time() + self._host.patience_s
        while True:
            await self._lost.wait()
            try:
                async with self._turn:
                    if self._lost.is_set():
                        await self._subscribe()
            except FastwireError as exc:
                delay = self._backoff.next()
                if not self.first.done() and self._refused(exc, self._loop.time() + delay > deadline):
                    self.first.set_exception(about(str(self.topic), exc).with_traceback(None))
                    self.first.exception()  # ``open`` raises it; without a caller it must not be reported
                    return
                self._trouble = f": {exc}"
                if self._backoff.telling:
                    log.warning("cannot subscribe, retrying", topic=str(self.topic), error=str(exc))
                await asyncio.sleep(delay)
                continue
            self._backoff.reset()
            self._trouble = ""
            if not self.first.done():
                self.first.set_result(None)
            await self._lost.wait()
            if not self._route.redirected and not self._soon:
                await asyncio.sleep(self._backoff.next())

    def _refused(self, exc: FastwireError, overdue: bool) -> bool:
        """Return True if a first subscribe is given up. For a topic that was found later the host fails."""
        if self._host.missed(self, exc):
            return False
        if not self.late:
            return overdue or refused_at_first(exc)
        if is_for_good(exc):
            self._host.fail(FastwireError(f"{self.topic}: the subscription is refused: {exc}"))
            return True
        return False

    def gone(self) -> None:
        """Stop: the topic was deleted. If it is created again, it gets a new member."""
        self.ended = True
        if self.task is not None:
            self.task.cancel()

    async def _subscribe(self) -> None:
        # After any failure the broker must not keep a consumer of this attempt (spec: pulsar 7.1).
        try:
            await self._attempt()
        except FastwireError:
            await self._withdraw()
            raise
        except BaseException:
            self._abandon()
            raise

    async def _attempt(self) -> None:
        self._soon = False
        host, consumer = self._host, self.consumer
        while True:
            consumer.want = host.prepare(self)
            link = await self._route.link(host.cluster)
            await self._join(link)
            if await host.subscribed(self):
                break
            await self._withdraw()
        self._check(link)
        # If the topic is deleted from here on, a new subscribe must not create it again.
        consumer.want = replace(consumer.want, create=False)
        self._lost.clear()
        self._there.set()
        consumer.grant()
        link.flush()

    def _abandon(self) -> None:
        """Close the consumer without waiting for the broker's response."""
        link = self.link
        if link is not None and self._known:
            self.consumer.close(self._loop.time())
            link.flush()
        self._detached()

    def _detached(self, reason: str = "") -> None:
        super()._detached(reason)
        # Acks without a receipt are sent again, and their receipts wait for the new requests.
        again = {id(one): one for waiting in self._waiting.values() for one in waiting}
        self._waiting.clear()
        for receipt in again.values():
            receipt.left = {UNSENT}
        self._asked += (receipt for receipt in again.values() if receipt not in self._asked)
        self._there.clear()
        self._lost.set()

    async def _close(self) -> None:
        self._there.clear()
        await super()._close()

    async def there(self, deadline: float | None = None) -> None:
        """Wait until the consumer is subscribed.

        Raises FastwireError if it is not kept subscribed any more, LinkLost at ``deadline``, by default after
        ``operation_timeout_s``.
        """
        patience = self._host.settings.operation_timeout_s
        deadline = self._loop.time() + patience if deadline is None else deadline
        while not self._there.is_set():
            if self._left.done():
                raise self._not_read()
            if self._loop.time() >= deadline:
                raise LinkLost(f"{self.topic}: not subscribed within {patience:g} s{self._trouble}")
            waiting = self._loop.create_task(self._there.wait())
            try:
                await asyncio.wait(
                    (waiting, self._left), timeout=deadline - self._loop.time(), return_when=asyncio.FIRST_COMPLETED
                )
            finally:
                waiting.cancel()

    async def rejoin(self, moved: Callable[[], None] | None = None) -> None:
        """Close the consumer, call ``moved``, and let ``keep`` subscribe again.

        The broker then redelivers all entries that are not acknowledged.
        """
        async with self._turn:
            await self._withdraw()
            if moved is not None:
                moved()
            self._soon = True

    async def leave(self) -> None:
        """Send the acks that wait, wait for their receipts, and close the consumer."""
        async with self._turn:
            link = self.link
            if link is None or not link.ready or self.consumer.phase is not Phase.READY:
                return
            self.send_acks()
            link.flush()
            await link.receipts()
            if self.link is link:
                await self._close()

    # --- requests

    async def ask(self, request: Callable[[Link], Any], *, again: bool = True) -> Any:
        """Await ``request(link)``, again if the connection is lost, or with ``again`` for a refusal that passes.

        Raises BrokerError for a refusal, FastwireError as ``there``.
        """
        backoff = Backoff(first_s=AGAIN_S, most_s=MOST_AGAIN_S)
        deadline = self._loop.time() + self._host.settings.operation_timeout_s
        while True:
            await self.there(deadline)
            link = self.link
            assert link is not None  # it is there together with the subscription
            try:
                return await request(link)
            except FastwireError as exc:
                lost = isinstance(exc, LinkLost)
                if not (lost or (again and is_transient(exc))) or self._loop.time() >= deadline:
                    raise about(str(self.topic), exc) from exc
                # A link that is being closed refuses requests before it is gone.
                await (asyncio.wait((link.lost,)) if lost else asyncio.sleep(backoff.next()))

    async def last(self) -> tuple[MessageId, Position | None]:
        """Return the last message of the topic (entry -1: none) and the broker's cursor, None if it is not reported."""
        found: tuple[MessageId, Position | None] = await self.ask(self._ask_end)
        return found

    async def last_on(self, link: Link) -> tuple[MessageId, Position | None]:
        """Return the result of ``last``, requested once on this connection."""
        return await self._ask_end(link)

    async def seek(self, at: MessageId | int, elements: tuple[int, ...], moved: Callable[[], None]) -> None:
        """Move the cursor to a message or to a time (milliseconds), then call ``moved`` and subscribe again.

        Raises BrokerError if the broker refuses; then the cursor has not moved. It must not be cancelled.
        """
        async with self._turn:
            link = self.link
            if link is None or self.consumer.phase is not Phase.READY:
                raise LinkLost(f"{self.topic}: no connection")
            self.send_acks()
            self._host.slots.detach(self.number)  # entries that arrive from here on are from before the seek
            where: dict[str, Any] = {"publish_time_ms": at} if isinstance(at, int) else {"position": at.begin}
            try:
                await link.ask(lambda connection, now: connection.seek(self.number, now, elements=elements, **where))
                self.consumer.acks.forget()
                moved()
            finally:
                await self._withdraw()
                self._soon = True

    async def unsubscribe(self, force: bool) -> None:
        """Delete the subscription with its cursor; ``force`` also if other consumers use it."""
        await self.ask(
            lambda link: link.ask(lambda connection, now: connection.unsubscribe(self.number, now, force=force)),
            again=False,  # other consumers of the subscription are a refusal of this kind
        )

    # --- acks

    def acknowledge(self, runs: Iterable[Run]) -> None:
        """Acknowledge whole entries."""
        slots, number = self._host.slots, self.number
        runs = tuple(runs)
        slots.set_landed_runs(number, runs)
        self.forget_parts(runs)
        self._give_up_parts(runs)
        if self.sets:
            for run in runs:
                for place in self.sets.forget(*run):
                    slots.narrow(number, *place, b"")
        self.consumer.acks.individual(runs, self._loop.time())
        self._acked()

    def acknowledge_elements(
        self, ledger: int, entry: int, held: int, done: int, *, tell: bool, parts: Iterable[Run] = ()
    ) -> None:
        """Acknowledge elements ``done`` of an entry; with ``tell`` also to the broker, before all of them are done.

        ``parts`` are acknowledged with the entry: those of a chunked message before its last part.
        """
        place = ledger, entry
        left = self.sets.take_out(place, held, done)
        if not left:
            self._host.slots.narrow(self.number, ledger, entry, b"")
            self.acknowledge([(ledger, entry, entry), *parts])
            return
        words = words_of(left)
        self._host.slots.narrow(self.number, ledger, entry, words)
        if tell:
            self.consumer.acks.elements(place, words, self._loop.time())
            self._acked()

    def acknowledge_to(self, position: Position) -> None:
        """Acknowledge everything up to ``position`` except the parts of chunked messages that end after it."""
        slots = self._host.slots
        unfinished = self._unfinished(position)
        if unfinished:
            end = position.a, position.b
            received = (
                (ledger, first, last if ledger < end[0] else min(last, end[1]))
                for ledger, first, last, landed in slots.entry_runs(self.number)
                if not landed and (ledger, first) <= end
            )
            self.acknowledge(piece for run in received for piece in without(run, unfinished))
            ledger, entry = min(unfinished)
            position = Position(ledger, entry - 1)
        slots.set_landed(self.number, position)
        for place in self.sets.forget_to(position):
            slots.narrow(self.number, *place, b"")
        self.consumer.acks.cumulative(position, self._loop.time())
        self._acked()

    def _unfinished(self, position: Position) -> set[EntryId]:
        """Return parts up to ``position`` of messages that are incomplete, or end after it and are not acknowledged."""
        end = position.a, position.b
        held = self._host.cluster.completion.assembly.held(self.number)
        found = {(at.a, at.b) for at in held if at <= position}
        for last, parts in tuple(self.parts.items()):
            if last > end:
                found.update(place for place in parts if place <= end)
            else:
                del self.parts[last]
        return found

    def forget_parts(self, runs: Iterable[Run]) -> None:
        """Forget the chunked messages that end in ``runs``: they are acknowledged, or will be redelivered."""
        if self.parts:
            runs = tuple(runs)
            for place in [place for place in self.parts if _within(runs, *place)]:
                del self.parts[place]

    def _give_up_parts(self, runs: Sequence[Run]) -> None:
        """Drop redelivered parts of acknowledged chunked messages: they will not become complete again."""
        assembly = self._host.cluster.completion.assembly
        if len(assembly):
            torn = assembly.landed(self.number, lambda position: _within(runs, position.a, position.b))
            if torn and self.link is not None:
                self.link.give_up(torn)

    def acknowledge_again(self) -> None:
        """Acknowledge again the entries that were redelivered because their ack was lost."""
        runs = self._host.slots.take_landed_again(self.number)
        if runs:
            self.consumer.acks.individual(runs, self._loop.time())

    def _acked(self) -> None:
        if self.consumer.acks.due(self._loop.time()):
            self.send_acks()
            if self.link is not None:
                self.link.flush()

    def send_acks(self) -> None:
        """Send the acks that wait, if there is a connection."""
        self._sent(self.consumer.send_acks(self._loop.time()))

    def _sent(self, acks: list[int]) -> None:
        # The receipts wait for these requests.
        if self.consumer.acks.waiting or not self._asked:
            return
        asked, self._asked = self._asked, []
        for request_id in acks:
            self._waiting[request_id] = list(asked)
        for receipt in asked:
            receipt.left.update(acks)
            receipt.answered(UNSENT, True)  # a broker that is too old to confirm acks sends nothing more

    def receipt(self) -> "asyncio.Future[None]":
        """Return a future that is done when the broker has confirmed all acks up to now; it raises AckRefused."""
        done: asyncio.Future[None] = self._loop.create_future()
        earlier = self.consumer.acks.outstanding
        if not self.consumer.acks.waiting and not earlier:
            done.set_result(None)
            return done
        receipt = _Receipt(done)
        receipt.left.update(earlier)
        for request_id in earlier:
            self._waiting.setdefault(request_id, []).append(receipt)
        if self.consumer.acks.waiting:
            self._asked.append(receipt)
            receipt.left.add(UNSENT)
        return done

    def reset(self) -> None:
        """Forget the state from before a move of the cursor."""
        self.sets = AckSets()
        self.parts.clear()
        self.ended = False


def _within(runs: Iterable[Run], ledger: int, entry: int) -> bool:
    return any(run[0] == ledger and run[1] <= entry <= run[2] for run in runs)


def without(run: Run, places: Iterable[EntryId]) -> Iterator[Run]:
    """Yield the rest of ``run`` without the entries ``places``."""
    ledger, first, last = run
    for at in sorted(entry for of, entry in places if of == ledger and first <= entry <= last):
        if at > first:
            yield ledger, first, at - 1
        first = at + 1
    if first <= last:
        yield ledger, first, last
