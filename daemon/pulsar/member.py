"""One partition that a person reads: its consumer, kept subscribed through everything (pulsar 7, 15, 16, 18, 20)."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Protocol

from fastwire.errors import FastwireError
from fastwire.position import Position
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.ackset import AckSets, words_of
from fastwire.pulsar.consumer import Consumer, Phase
from fastwire.pulsar.event import ConsumerClosed, EntryRejected, TopicMigrated
from fastwire.pulsar.message_id import MessageId
from fastwire.pulsar.request import BrokerError, SubscribeRequest
from fastwire.pulsar.server_error import Remedy
from fastwire.pulsar.slot import SlotTable
from fastwire.pulsar.topic import Topic

from ..backoff import Backoff
from ..endpoint import LinkLost
from ..logs import get_logger
from .cluster import Cluster
from .link import Link
from .refusal import is_for_good
from .settings import ClientSettings
from .tenancy import ConsumerTenancy

__all__ = ["AckRefused", "Host", "Member", "refused_at_first"]

UNSENT = 0  # no request's id: stands for those that will be sent

Run = tuple[int, int, int]  # ledger, first entry, last entry

log = get_logger("client")


class AckRefused(FastwireError):  # noqa: N818 - what the broker did, named as its answer
    """The broker did not take an acknowledgement, or has not said in time that it did: the records come again."""


def refused_at_first(error: FastwireError) -> bool:
    """Whether a first attempt is better given up: trying again will not help, or somebody else has the subscription."""
    return is_for_good(error) or (isinstance(error, BrokerError) and error.remedy is Remedy.TURN)


class Host(Protocol):
    """What a member needs of who reads."""

    settings: ClientSettings
    cluster: Cluster
    slots: SlotTable
    patience_s: float

    def prepare(self, member: "Member") -> SubscribeRequest: ...
    async def subscribed(self, member: "Member") -> None: ...
    def on_end(self, member: "Member") -> None: ...


class _Receipt:
    """Somebody who waits until the broker has taken what was acknowledged."""

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


class Member(ConsumerTenancy):
    """Keeps one consumer subscribed. ``first`` is done when it was subscribed once, or fails if that cannot be."""

    def __init__(self, host: Host, topic: Topic, want: SubscribeRequest, *, window: int, ack_group_s: float) -> None:
        super().__init__(Consumer(want, host.slots, window), host.settings.url)
        self.topic = topic  # one partition, or a topic that has none
        self.number = want.consumer_id  # of the consumer, the log and the member
        self.consumer.acks.group_s = ack_group_s
        self.sets = AckSets()
        self.ended = False  # the topic was terminated, and everything in it was delivered
        self.task: asyncio.Task[None] | None = None  # ``keep``
        self.moves = 0  # what the intake's count of seeks was when this one was moved last
        self.first: asyncio.Future[None] = self._loop.create_future()
        self._host = host
        self._backoff = Backoff()
        self._lost = asyncio.Event()
        self._lost.set()
        self._there = asyncio.Event()  # the opposite
        self._turn = asyncio.Lock()  # subscribing, seeking, leaving: one at a time
        self._soon = False
        self._asked: list[_Receipt] = []  # receipts for what waits to be sent
        self._waiting: dict[int, list[_Receipt]] = {}  # by request id

    # --- what the broker says, in wire order

    def on_receipt(self, request_id: int, accepted: bool) -> None:
        sent = self.consumer.acks.receipt(request_id, accepted)
        if sent is not None and accepted and sent.runs:
            # The broker holds it: should it come again all the same, its cursor was lost, and we know no better.
            self._host.slots.release_runs(self.number, sent.runs)
        for receipt in self._waiting.pop(request_id, ()):
            receipt.answered(request_id, accepted)

    def on_closed(self, event: ConsumerClosed) -> None:
        self._way.closed(event, self.link)
        self._detached()

    def on_link_lost(self, reason: str) -> None:
        self._detached()

    def on_active(self, active: bool) -> None:
        self.consumer.active = active

    def on_end_of_topic(self) -> None:
        self.ended = True
        self._host.on_end(self)

    def on_migrated(self, event: TopicMigrated) -> None:
        service = self._way.migrated(event)
        if service is not None:
            self._way.move(service)

    def on_rejected(self, event: EntryRejected) -> None:
        """It stands in its chunk as a dead letter."""

    # --- coming and going

    async def keep(self) -> None:
        """Subscribe, and again whenever that is lost, until cancelled or refused for good."""
        deadline = self._loop.time() + self._host.patience_s
        while True:
            await self._lost.wait()
            try:
                async with self._turn:
                    if self._lost.is_set():
                        await self._subscribe()
            except FastwireError as exc:
                delay = self._backoff.next()
                if not self.first.done() and (refused_at_first(exc) or self._loop.time() + delay > deadline):
                    self.first.set_exception(exc.with_traceback(None))
                    self.first.exception()  # whoever opens looks at it, if anybody still does
                    return
                log.debug("cannot subscribe, trying again", topic=str(self.topic), error=str(exc))
                await asyncio.sleep(delay)
                continue
            self._backoff.reset()
            if not self.first.done():
                self.first.set_result(None)
            await self._lost.wait()
            if not self._way.told and not self._soon:
                await asyncio.sleep(self._backoff.next())

    def gone(self) -> None:
        """The topic is not there any more, and its name will be another member's should it come back."""
        self.ended = True
        if self.task is not None:
            self.task.cancel()

    async def _subscribe(self) -> None:
        # Whatever goes wrong, the broker must hold nothing of it (pulsar 7.1).
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
        consumer.want = host.prepare(self)
        link = await self._way.link(host.cluster)
        await self._join(link)
        await host.subscribed(self)
        self._check(link)
        # Should it be deleted from here on, coming back must not make it again.
        consumer.want = replace(consumer.want, create=False)
        self._lost.clear()
        self._there.set()
        consumer.grant()
        link.flush()

    def _abandon(self) -> None:
        """Tell the broker that the consumer is gone, without waiting for what it says to that."""
        link = self.link
        if link is not None and self._known:
            self.consumer.close(self._loop.time())
            link.flush()
        self._detached()

    def _detached(self, reason: str = "") -> None:
        super()._detached(reason)
        # Acks without a receipt go out again, and so do those who wait for them.
        again = {id(one): one for waiting in self._waiting.values() for one in waiting}
        self._waiting.clear()
        for receipt in again.values():
            receipt.left = {UNSENT}
        self._asked += (receipt for receipt in again.values() if receipt not in self._asked)
        self._there.clear()
        self._lost.set()

    async def there(self) -> None:
        """Wait until it is subscribed."""
        await self._there.wait()

    async def rejoin(self, moved: Callable[[], None] | None = None) -> None:
        """Close the consumer, call ``moved``, and let ``keep`` subscribe again.

        The broker then sends what is not acknowledged once more.
        """
        async with self._turn:
            await self._withdraw()
            if moved is not None:
                moved()
            self._soon = True

    async def leave(self) -> None:
        """Send what acks wait, wait for their receipts, and close the consumer."""
        async with self._turn:
            link = self.link
            if link is None or not link.ready or self.consumer.phase is not Phase.READY:
                return
            self.send_acks()
            link.flush()
            await link.receipts()
            if self.link is link:
                await self._close()

    # --- questions

    async def ask(self, request: Callable[[Link], Any]) -> Any:
        """Await what ``request`` makes of the connection, on the next one if this one is lost meanwhile.

        Raises what the broker says, and LinkLost when there is no connection for as long as an operation may take.
        """
        deadline = self._loop.time() + self._host.settings.operation_timeout_s
        while True:
            link = self.link
            if link is not None and self.consumer.phase is Phase.READY:
                try:
                    return await request(link)
                except LinkLost:
                    if self._loop.time() >= deadline:
                        raise
            if self._loop.time() >= deadline:
                raise LinkLost(f"{self.topic}: no connection within {self._host.settings.operation_timeout_s:g} s")
            await asyncio.sleep(0.02)

    async def last(self) -> tuple[MessageId, Position | None]:
        """The last message of the topic (entry -1: there is none), and where the broker's cursor stands, if it says."""
        reply = await self.ask(
            lambda link: link.ask(lambda connection, now: connection.get_last_message_id(self.number, now))
        )
        return _last_of(reply)

    async def last_on(self, link: Link) -> tuple[MessageId, Position | None]:
        """The same, on this connection and at once."""
        return _last_of(await link.ask(lambda connection, now: connection.get_last_message_id(self.number, now)))

    async def seek(self, at: MessageId | int, elements: tuple[int, ...], moved: Callable[[], None]) -> None:
        """Move the cursor to a message or to a time (milliseconds), then call ``moved`` and subscribe again.

        Raises BrokerError where the broker refuses; then nothing has moved. Must not be cancelled half way.
        """
        async with self._turn:
            link = self.link
            if link is None or self.consumer.phase is not Phase.READY:
                raise LinkLost(f"{self.topic}: no connection")
            self.send_acks()
            self._host.slots.detach(self.number)  # what comes from here on is from before the seek
            where: dict[str, Any] = {"publish_time_ms": at} if isinstance(at, int) else {"position": at.position}
            try:
                await link.ask(lambda connection, now: connection.seek(self.number, now, elements=elements, **where))
                self.consumer.acks.forget()
                moved()
            finally:
                await self._withdraw()
                self._soon = True

    async def unsubscribe(self, force: bool) -> None:
        """Delete the subscription with its progress."""
        await self.ask(
            lambda link: link.ask(lambda connection, now: connection.unsubscribe(self.number, now, force=force))
        )

    # --- acks

    def acknowledge(self, runs: Iterable[Run]) -> None:
        """Whole entries are done."""
        slots, number = self._host.slots, self.number
        runs = tuple(runs)
        slots.set_landed_runs(number, runs)
        if self.sets:
            for run in runs:
                for place in self.sets.forget(*run):
                    slots.narrow(number, *place, b"")
        self.consumer.acks.individual(runs, self._loop.time())
        self._acked()

    def acknowledge_elements(self, ledger: int, entry: int, held: int, done: int, *, tell: bool) -> None:
        """Elements ``done`` of an entry are done; with ``tell`` the broker hears of it before all of them are."""
        place = ledger, entry
        left = self.sets.take_out(place, held, done)
        if not left:
            self._host.slots.narrow(self.number, ledger, entry, b"")
            self.acknowledge([(ledger, entry, entry)])
            return
        words = words_of(left)
        self._host.slots.narrow(self.number, ledger, entry, words)
        if tell:
            self.consumer.acks.elements(place, words, self._loop.time())
            self._acked()

    def acknowledge_to(self, position: Position) -> None:
        """Everything up to ``position`` is done."""
        slots = self._host.slots
        slots.set_landed(self.number, position)
        for place in self.sets.forget_to(position):
            slots.narrow(self.number, *place, b"")
        self.consumer.acks.cumulative(position, self._loop.time())
        self._acked()

    def acknowledge_again(self) -> None:
        """What was done has come once more: its ack was lost."""
        runs = self._host.slots.take_cut_landed(self.number)
        if runs:
            self.consumer.acks.individual(runs, self._loop.time())

    def _acked(self) -> None:
        if self.consumer.acks.due(self._loop.time()):
            self.send_acks()
            if self.link is not None:
                self.link.flush()

    def send_acks(self) -> None:
        """Send what waits, if there is a connection."""
        self._sent(self.consumer.send_acks(self._loop.time()))

    def _sent(self, acks: list[int]) -> None:
        # Whoever wants a receipt waits for these requests.
        if self.consumer.acks.waiting or not self._asked:
            return
        asked, self._asked = self._asked, []
        for request_id in acks:
            self._waiting[request_id] = list(asked)
        for receipt in asked:
            receipt.left.update(acks)
            receipt.answered(UNSENT, True)  # and that is all where the broker is too old to answer acks

    def receipt(self) -> "asyncio.Future[None]":
        """Done when the broker has taken everything that was acknowledged up to now. Raises AckRefused."""
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
        """The cursor was moved: nothing from before counts."""
        self.sets = AckSets()
        self.ended = False


def _last_of(reply: pb.BaseCommand) -> tuple[MessageId, Position | None]:
    answer = reply.getLastMessageIdResponse
    last = MessageId.from_pb(answer.last_message_id)
    if not answer.HasField("consumer_mark_delete_position"):
        return last, None
    return last, MessageId.from_pb(answer.consumer_mark_delete_position).position
