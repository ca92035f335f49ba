"""The member of a consumer: acknowledgements, receipts, seeks, unsubscribing (spec: pulsar 15, 16, 18, 20)."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from fastwire.errors import FastwireError
from fastwire.position import Position
from fastwire.pulsar.format.ackset import AckSets, EntryId, words_of
from fastwire.pulsar.protocol.consumer import Run
from fastwire.pulsar.protocol.message_id import MessageId

from ....net.endpoint import LinkLost
from ...reading.stage import Stage
from ..link import Link
from .member import Member

UNSENT = 0  # not the id of a request: it stands for acks that are not sent yet


class AckRefused(FastwireError):  # noqa: N818 - what the broker did, named as its answer
    """The broker refused an acknowledgement, or did not confirm it in time: the records will be redelivered."""


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


class AckingMember(Member):
    """A member whose entries the program acknowledges."""

    def __init__(self, *parts: Any, **more: Any) -> None:
        super().__init__(*parts, **more)
        self.moves = 0  # the consumer's count of seeks at the last seek of this member
        self.sets = AckSets()
        # The parts of chunked messages that are not acknowledged, by the last part.
        self.parts: dict[EntryId, tuple[EntryId, ...]] = {}
        self._asked: list[_Receipt] = []  # receipts for acks that are not sent yet
        self._waiting: dict[int, list[_Receipt]] = {}  # by request id

    # --- events of the broker

    def on_receipt(self, request_id: int, accepted: bool) -> None:
        """Handle the confirmation or refusal of an ack command."""
        sent = self.consumer.acks.receipt(request_id, accepted)
        if sent is not None and accepted and sent.runs:
            # The broker has stored the ack: an entry that is sent again all the same counts as new.
            self._host.slots.release_runs(self.number, sent.runs)
        for receipt in self._waiting.pop(request_id, ()):
            receipt.answered(request_id, accepted)

    def _detached(self, reason: str = "") -> None:
        super()._detached(reason)
        # Acks without a receipt are sent again, and their receipts wait for the new requests.
        again = {id(one): one for waiting in self._waiting.values() for one in waiting}
        self._waiting.clear()
        for receipt in again.values():
            receipt.left = {UNSENT}
        self._asked += (receipt for receipt in again.values() if receipt not in self._asked)
        if self.over:
            self.refuse_receipts()

    # --- requests

    async def seek(self, link: Link, at: MessageId | int, elements: tuple[int, ...], moved: Callable[[], None]) -> None:
        """Move the cursor to a message or to a time (milliseconds), then call ``moved`` and subscribe again.

        Raises BrokerError if the broker refuses, LinkLost if the connection is lost; the cursor may have moved then.
        """
        self.send_acks()
        done: asyncio.Future[None] = self._loop.create_future()
        self._there.clear()
        self._host.slots.detach(self.number)  # entries that arrive from here on are from before the seek
        self._instead(Stage.CONNECTING, "a seek", partial(self._go_to, done, link, at, elements, moved))
        if self._task is not None:
            self._task.add_done_callback(lambda _: self._given_up(done))
        await done

    def _given_up(self, done: "asyncio.Future[None]") -> None:
        """Fail a seek in place of which this member does something else now; it may not have begun."""
        if not done.done():
            done.set_exception(LinkLost(f"{self.topic}: the seek was interrupted"))

    async def _go_to(
        self,
        done: "asyncio.Future[None]",
        link: Link,
        at: MessageId | int,
        elements: tuple[int, ...],
        moved: Callable[[], None],
    ) -> None:
        where: dict[str, Any] = {"publish_time_ms": at} if isinstance(at, int) else {"position": at.begin}
        try:
            await link.ask(lambda connection, now: connection.seek(self.number, now, elements=elements, **where))
            self.consumer.acks.forget()
            moved()
        except FastwireError as exc:
            if not done.done():
                done.set_exception(exc)
        else:
            if not done.done():
                done.set_result(None)
        await self._rejoin()

    async def unsubscribe(self, force: bool) -> None:
        """Delete the subscription with its cursor; ``force`` also if other consumers use it."""
        await self.ask(
            lambda link: link.ask(lambda connection, now: connection.unsubscribe(self.number, now, force=force)),
            again=False,  # other consumers of the subscription are a refusal of this kind
        )
        if not self.over:
            self._end(Stage.REPLACED, "unsubscribed")  # another subscribe would create the subscription again

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
            self.acknowledge(piece for run in received for piece in without_entries(run, unfinished))
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

    def acknowledge_again(self) -> Sequence[Run]:
        """Acknowledge again the entries that were redelivered because their ack was lost, each for itself."""
        if runs := self._host.slots.take_landed_again(self.number):
            self.consumer.acks.individual(runs, self._loop.time())
        return ()

    def _acked(self) -> None:
        self._host.note_acks(self)
        if self.consumer.acks.due(self._loop.time()):
            self.send_acks()
            if self.link is not None:
                self.link.flush()

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
            if self.over:
                self.refuse_receipts()
        return done

    def refuse_receipts(self) -> None:
        """Raise AckRefused where a receipt is waited for: none comes any more."""
        for receipt in (*self._asked, *(one for waiting in self._waiting.values() for one in waiting)):
            receipt.answered(UNSENT, False)
        self._asked.clear()
        self._waiting.clear()

    def reset(self) -> None:
        """Forget the state from before a move of the cursor."""
        super().reset()
        self.sets = AckSets()
        self.parts.clear()


def _within(runs: Iterable[Run], ledger: int, entry: int) -> bool:
    return any(run[0] == ledger and run[1] <= entry <= run[2] for run in runs)


def without_entries(run: Run, places: Iterable[EntryId]) -> Iterator[Run]:
    """Yield the rest of ``run`` without the entries ``places``."""
    ledger, first, last = run
    for at in sorted(entry for of, entry in places if of == ledger and first <= entry <= last):
        if at > first:
            yield ledger, first, at - 1
        first = at + 1
    if first <= last:
        yield ledger, first, last
