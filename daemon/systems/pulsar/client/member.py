"""A partition of the source in the Python client, with the requests of a program (spec: pulsar 7, 18)."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from fastwire.errors import CorruptEntryError, FastwireError
from fastwire.position import Position
from fastwire.pulsar.format.server_error import Remedy
from fastwire.pulsar.names.topic import Topic
from fastwire.pulsar.position import POSITIONS
from fastwire.pulsar.protocol.consumer import Phase, Run
from fastwire.pulsar.protocol.event import EntryRejected, Reply
from fastwire.pulsar.protocol.message_id import MessageId
from fastwire.pulsar.protocol.request import BrokerError, SubscribeRequest
from fastwire.reason import Reason

from ....net.backoff import Backoff
from ....net.endpoint import LinkLost
from ...reading.stage import Stage
from ..link import Link
from ..refusal import about, is_for_good, is_missing, is_transient
from ..settings import ClientSettings
from ..source.partition import REFUSED_AS, Partition

AGAIN_S, MOST_AGAIN_S = 0.05, 1.0  # before a request is repeated that the broker has refused for the moment


def refused_at_first(error: FastwireError) -> bool:
    """Return True if a first subscribe must not be retried: it cannot succeed, or another consumer holds the place."""
    return is_for_good(error) or (isinstance(error, BrokerError) and error.remedy is Remedy.TURN)


class Owner(Protocol):
    """The owner of members: a consumer or a reader. The first subscribes are tried until ``deadline``.

    ``over`` is done after a failure, and when it is closed: ``check`` then raises the error.
    """

    settings: ClientSettings
    deadline: float
    over: "asyncio.Future[None]"

    def prepare(self, member: Any) -> SubscribeRequest:
        """Return the request for the next subscribe."""

    async def subscribed(self, member: Any) -> bool:
        """Finish a subscribe, before permits are granted; return False to repeat it at once with a new ``prepare``."""

    def on_end(self) -> None:
        """Note that a topic was terminated and everything in it delivered, or that it is not read any more."""

    def check(self) -> None:
        """Raise the error that has ended reading."""

    def fail(self, error: FastwireError) -> None:
        """End reading with ``error``."""


class Member(Partition):
    """Keeps one consumer subscribed."""

    def __init__(self, owner: Owner, topic: Topic, *parts: Any, **more: Any) -> None:
        super().__init__(*parts, **more)
        self.topic = topic  # one partition, or a topic without partitions
        self.number = self.consumer.consumer_id
        self.terminated = False  # and everything in the topic was delivered
        self._owner = owner
        self._there = asyncio.Event()  # subscribed, and not being closed

    # --- events of the broker, in wire order

    def on_end_of_topic(self) -> None:
        """Note that the topic was terminated and everything in it delivered."""
        self.terminated = True
        self._owner.on_end()

    def on_rejected(self, event: EntryRejected) -> None:
        """Fail the owner, unless the entry stands in its chunk as a dead letter."""
        if event.is_dead_letter:
            return
        entry = event.entry
        sealed = entry.reason is Reason.DECRYPTION
        cure = '; add its private key, or set on_undecryptable to "discard" or "consume"' if sealed else ""
        text = f"entry {POSITIONS.format(entry.position)} of {self.topic} cannot be "
        text += f"{REFUSED_AS.get(entry.reason, 'decoded')} ({entry.detail}){cure}"
        self._owner.fail(CorruptEntryError(entry.reason, text))

    def move(self, to: Stage) -> None:
        """See ``StagedPartition.move``; the owner may wait for what does not come any more."""
        super().move(to)
        if self.over:
            self._owner.on_end()

    # --- what comes again

    def acknowledge_again(self) -> Sequence[Run]:
        """Drop entries that were delivered again: nothing has landed, and a reader begins at one of them."""
        self._host.slots.take_landed_again(self.number)
        return ()

    # --- subscribing

    async def _subscribe(self) -> None:
        self.consumer.want = self._owner.prepare(self)
        await super()._subscribe()

    async def _learn(self) -> None:
        while not await self._owner.subscribed(self):
            await self._withdraw()
            await self._subscribe()

    def _subscribed(self, reply: Reply) -> None:
        super()._subscribed(reply)
        if self.consumer.phase is Phase.READY:
            self.terminated = False  # the topic may be another one of its name; if not, the broker tells the end again

    def _offer(self) -> None:
        super()._offer()
        self._there.set()

    def _fatal(self, exc: FastwireError) -> bool:
        if self.informed.done() or (self.discovered and is_missing(exc)):
            return False
        if self.late:
            if not is_for_good(exc):
                return False
            self._owner.fail(FastwireError(f"{self.topic}: the subscription is refused: {exc}"))
        elif refused_at_first(exc) or self._loop.time() >= self._owner.deadline:
            self._owner.fail(about(str(self.topic), exc))
        else:
            return False
        return True

    def _detached(self, reason: str = "") -> None:
        self._there.clear()
        super()._detached(reason)

    async def _close(self) -> None:
        self._there.clear()
        await super()._close()

    async def there(self, deadline: float | None = None) -> None:
        """Wait until the consumer is subscribed.

        Raises the error that has ended reading, LinkLost at ``deadline``, by default after ``operation_timeout_s``.
        """
        patience = self._owner.settings.operation_timeout_s
        deadline = self._loop.time() + patience if deadline is None else deadline
        while not self._there.is_set():
            self._owner.check()
            if self.over:
                raise FastwireError(f"{self.topic} is not read any more")
            if self._loop.time() >= deadline:
                trouble = f": {self.error}" if self.error else ""
                raise LinkLost(f"{self.topic}: not subscribed within {patience:g} s{trouble}")
            waiting = self._loop.create_task(self._there.wait())
            try:
                await asyncio.wait(
                    (waiting, self._owner.over),
                    timeout=deadline - self._loop.time(),
                    return_when=asyncio.FIRST_COMPLETED,
                )
            finally:
                waiting.cancel()

    def rejoin(self) -> None:
        """Close the consumer and subscribe again: the broker then redelivers all that is not acknowledged."""
        if not self.over:
            self._there.clear()
            self._host.slots.detach(self.number)
            self._instead(Stage.CONNECTING, "the program moves it", self._rejoin)

    def reset(self) -> None:
        """Forget the state from before a move of the cursor."""
        self.terminated = False

    # --- requests

    async def ask(self, request: Callable[[Link], Any], *, again: bool = True) -> Any:
        """Await ``request(link)``, again if the connection is lost, or with ``again`` for a refusal that passes.

        Raises BrokerError for a refusal, FastwireError as ``there``.
        """
        backoff = Backoff(first_s=AGAIN_S, most_s=MOST_AGAIN_S)
        deadline = self._loop.time() + self._owner.settings.operation_timeout_s
        refusal: FastwireError | None = None
        while True:
            try:
                await self.there(deadline)
                assert self.link is not None  # it is there together with the subscription
                return await request(self.link)
            except FastwireError as exc:
                lost = isinstance(exc, LinkLost)
                refusal = exc if refusal is None or not lost else refusal
                if not (lost or (again and is_transient(exc))) or self._loop.time() >= deadline:
                    raise about(str(self.topic), refusal) from exc
                await asyncio.sleep(backoff.next())

    async def last_id(self) -> tuple[MessageId, Position | None]:
        """Return the last message of the topic (entry -1: none) and the broker's cursor, None if it is not reported."""
        found: tuple[MessageId, Position | None] = await self.ask(self._ask_end)
        return found

    async def last_on(self, link: Link) -> tuple[MessageId, Position | None]:
        """Return the result of ``last_id``, requested once on this connection."""
        return await self._ask_end(link)
