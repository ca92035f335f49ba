"""The common base of consumers and readers: the partitions of topics, one timer, and a bounded queue of chunks."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from types import TracebackType
from typing import Any, Self

from fastwire.columns.chunk import Chunk, DeadLetter
from fastwire.errors import FastwireError
from fastwire.position import Log
from fastwire.pulsar.names.pattern import TopicPattern
from fastwire.pulsar.names.topic import Topic, parse_topic
from fastwire.pulsar.protocol.message_id import MessageId
from fastwire.pulsar.protocol.request import SubscribeRequest
from fastwire.pulsar.reading.slot import SlotTable
from fastwire.wire.pool import Pool

from ....net.backoff import Backoff
from ....net.transport import Pause
from ....runtime.logs import get_logger
from ....runtime.tasks import Tasks
from ..cluster import Cluster
from ..link import Link
from ..refusal import about
from ..schemas import Schemas
from ..settings import ClientSettings
from ..topics import Topics
from .member import Member, is_missing, refused_at_first

__all__ = ["MOST_ELEMENTS", "Intake", "together"]

TICK_S = 0.05
CHUNK_AGE_S = 0.1
QUEUE_BYTES = 16 << 20  # of chunks that the application has not taken; above it reading pauses
CLOSE_S = 5.0
LOOK_S = 1.0
QUIET_S = 2.0  # without a record while permits are uncounted: then the broker is asked for its count
MOST_QUIET_S = 60.0
MOST_ELEMENTS = 1 << 19  # of a batch; no broker accepts more

log = get_logger("client")


@dataclass(slots=True)
class _Doubt:
    """The time since a member's last entry after one whose cost in permits is unknown, and the delay of the request."""

    since: float
    ask_after_s: float = QUIET_S


class State(Enum):
    """The states of an intake, in their order. A failure does not change it: the chunks read before it can be taken."""

    NEW = "new"
    OPEN = "open"
    CLOSED = "closed"


class Intake:
    """The common base of consumers and readers.

    It opens at its first use, or by ``async with``; every method may be cancelled at any await, and ``close`` may be
    called at any time and more than once.
    """

    ordered = False  # for the slot table: the form of spans, and how redelivered entries are recognized

    def __init__(
        self,
        settings: ClientSettings,
        pool: Pool,
        topics: Iterable[str | Topic],
        *,
        pattern: TopicPattern | None = None,
        window: int,
        patience_s: float | None = None,
        ack_group_s: float = 0.1,
        partition_poll_s: float = 60.0,
    ) -> None:
        if window < 1:
            raise ValueError("window must be 1 or more")
        self.settings = settings
        self.topics = tuple(topic if isinstance(topic, Topic) else parse_topic(topic) for topic in topics)
        if bool(self.topics) == (pattern is not None):
            raise ValueError("topics is empty" if not self.topics else "give either topics or a pattern, not both")
        for topic in self.topics:
            if not topic.persistent:
                raise ValueError(
                    f"{topic}: non-persistent topics are not read: the broker gives all of their messages the same "
                    "position, and sends none of them again"
                )
        self.patience_s = settings.operation_timeout_s if patience_s is None else patience_s
        self.members: list[Member] = []
        self.slots = SlotTable()
        self.cluster = Cluster(settings, self.slots, pool, self)
        self.schemas = Schemas(self.cluster, settings.url)
        self._window = window
        self._ack_group_s = ack_group_s
        self._poll_s = partition_poll_s
        self._counts: dict[Topic, int] = {}  # of partitions
        self._matching = None if pattern is None else Topics(self.cluster, settings.url, (), pattern)
        self._loop = asyncio.get_running_loop()
        self._queue: deque[Chunk] = deque()
        self._bytes = 0
        self._arrived = asyncio.Event()
        self._takers = 0  # tasks that wait for a chunk
        self._full = False
        self._asking = 0  # tasks that wait for a response of the broker, which must be read
        self._opening: asyncio.Task[None] | None = None  # ``close`` cancels it
        self._state = State.NEW
        self._closing: asyncio.Task[None] | None = None
        self._failure: FastwireError | None = None
        self._tasks = Tasks(lambda fault: self.fail(FastwireError(fault)), (FastwireError,))
        self._timer: asyncio.TimerHandle | None = None
        self._unsettled: set[int] = set()
        self._doubted: dict[int, _Doubt] = {}  # by member
        self._looked_at = 0.0

    # --- for subclasses

    def want(self, topic: Topic, number: int, *, late: bool) -> SubscribeRequest:
        """Return the first request for one partition; ``late`` if it was added after ``open``."""
        raise NotImplementedError

    def added(self, member: Member) -> None:
        """Prepare the new slot of a member."""

    def prepare(self, member: Member) -> SubscribeRequest:
        """See ``Host.prepare``."""
        return member.consumer.want

    async def subscribed(self, member: Member) -> bool:
        """See ``Host.subscribed``."""
        return True

    def turn(self, now: float) -> None:
        """Do the periodic work of the subclass; ``now`` is the event loop's time."""

    def admit(self, chunk: Chunk) -> bool:
        """Inspect a new chunk; return False if it must not be queued."""
        return True

    # --- opening and closing

    @property
    def discarded(self) -> int:
        """The number of entries that no key decrypted and that were dropped (``on_undecryptable`` "discard")."""
        return self.cluster.completion.discarded

    @property
    def closed(self) -> bool:
        """True once ``close`` was called."""
        return self._state is State.CLOSED

    @property
    def _is_open(self) -> bool:
        return self._state is State.OPEN

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def open(self) -> None:
        """Find the partitions and subscribe. Raises FastwireError if the broker refuses, or does not answer in time."""
        if not self._is_open:
            await self._be_open()
            if self._is_open:
                return  # if reading has failed since, ``take`` returns the chunks before that first
        self._check()

    async def _be_open(self) -> None:
        """Open once for all concurrent callers. Returns without an error if ``close`` interrupts it."""
        if self._state is not State.NEW or self._failure is not None:
            return
        if self._opening is None or self._opening.done():
            self._opening = self.run(self._open(), "open")
        opening = self._opening
        await asyncio.wait([opening])
        try:
            if not opening.cancelled():
                opening.result()
        finally:
            del opening  # the task holds its exception, which holds this frame

    async def _open(self) -> None:
        if self._timer is None:
            self._tick()  # without it a host that accepts and is silent is waited for without end
        await self._find()
        try:
            await asyncio.gather(*(asyncio.shield(member.first) for member in tuple(self.members)))
        except FastwireError as exc:
            self.fail(exc)
            raise
        if self._state is State.NEW:  # ``close`` may have come meanwhile
            self._state = State.OPEN
        self.run(self._follow(), "topics and partitions")

    async def _find(self) -> None:
        """Add a member for each existing partition."""
        backoff = Backoff()
        deadline = self._loop.time() + self.patience_s
        while True:
            try:
                await self._look(late=False)
                break
            except FastwireError as exc:
                delay = backoff.next()
                if refused_at_first(exc) or self._loop.time() + delay > deadline:
                    raise
                await asyncio.sleep(delay)

    async def _follow(self) -> None:
        """Add new partitions and topics when the broker notifies of them, or at the next poll."""
        backoff = Backoff()
        wait_s = self._poll_s
        while True:
            notified = False
            if self._matching is None:
                await asyncio.sleep(wait_s)
            else:
                notified = await self._matching.wait(wait_s)
            wait_s = self._poll_s
            try:
                await self._look(late=True, everything=not notified)
            except FastwireError as exc:
                wait_s = min(wait_s, backoff.failed(log, "cannot look for new topics and partitions", exc))
            else:
                backoff.reset()

    async def _look(self, *, late: bool, everything: bool = True) -> None:
        """Add a member for each new partition; without ``everything`` only for those in the broker's notification."""
        if self._matching is not None:
            news = await self._matching.look(everything=everything)
            for found in news.found:
                for index in found.indexes:
                    self._add(found.topic, index, late=late)
            for member in self.members:
                if member.topic in news.gone or member.topic.base in news.gone:
                    self.cluster.completion.assembly.forget(member.number)
                    member.gone()
            if news.failure is not None:
                raise news.failure
        for topic in self.topics:
            before = self._counts.get(topic)
            if before == 0:
                continue  # not partitioned; that does not change while a topic lives
            partitions = await self._count(topic)
            self._counts[topic] = max(before or 0, partitions)
            for index in range(before or 0, partitions) if partitions or before else (topic.partition,):
                self._add(topic, index, late=late)

    async def _count(self, topic: Topic) -> int:
        # The name of a partition is a topic of its own, and must not be looked up as a partitioned topic.
        if topic.partition >= 0:
            return 0
        try:
            return await self.cluster.partitions(str(topic), self.settings.url, create=self._creates)
        except FastwireError as exc:
            raise about(str(topic), exc) from exc

    @property
    def _creates(self) -> bool:
        """True if a missing topic may be created."""
        return False

    def _add(self, topic: Topic, index: int, *, late: bool) -> None:
        name = topic if topic.partition >= 0 or index < 0 else topic.of_partition(index)
        number = self.slots.add_log(Log("pulsar", self.settings.url.hosts, str(topic.base), str(index)))
        self.slots.add(number, number, ordered=self.ordered)
        want = self.want(name, number, late=late)
        member = Member(self, name, want, window=self._window, ack_group_s=self._ack_group_s, late=late)
        member.consumer.permits.hold = self._full
        self.members.append(member)
        self.added(member)
        member.task = self.run(member.keep(), str(name))

    def member_of(self, letter: DeadLetter) -> Member:
        """Return the member that read an entry; a topic that was created again has another one, with an equal log."""
        return next(one for one in self.members if self.slots.log(one.number) is letter.log)

    def renew(self, member: Member) -> None:
        """Reset the member's slot after a move of its cursor."""
        self.slots.remove(member.number)
        self.slots.add(member.number, member.number, ordered=self.ordered)
        self.cluster.completion.assembly.forget(member.number)
        member.reset()
        self.added(member)

    def missed(self, member: Member, error: FastwireError) -> bool:
        """See ``Host.missed``: a topic that was found by a pattern may be deleted at any time."""
        if self._matching is None or not is_missing(error):
            return False
        self._matching.doubt()
        return True

    def fail(self, error: FastwireError) -> None:
        """End reading: ``take`` returns the chunks read so far, then raises ``error``."""
        if self._failure is None:
            for link in tuple(self.cluster.links.values()):
                link.hand_on()
            self._failure = error
            self._steer()
        self._arrived.set()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure.with_traceback(None)  # it would grow with each raise
        if self.closed:
            raise FastwireError("the consumer or reader was closed")

    def run(self, work: Coroutine[Any, Any, Any], name: str) -> "asyncio.Task[Any]":
        """Run ``work`` in the background until it ends or ``close``."""
        return self._tasks.run(work, name)

    async def close(self) -> None:
        """Send the acks that wait, and close consumers and connections. Chunks that were taken stay valid."""
        if self._closing is None:
            self._state = State.CLOSED
            self._arrived.set()
            self._closing = self._loop.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        self._steer()
        try:
            async with asyncio.timeout(CLOSE_S):
                await asyncio.gather(*(member.leave() for member in self.members), return_exceptions=True)
        except TimeoutError:
            log.warning("the broker did not confirm the shutdown in time", timeout_s=CLOSE_S)
        if self._timer is not None:
            self._timer.cancel()
        await self._tasks.close()
        await self.cluster.close()
        self._drop_queue()

    # --- chunks

    async def take(self) -> Chunk | None:
        """Return the next chunk, waiting for it; None at the end and after ``close``. Raises the error of ``fail``."""
        await self._be_open()
        while not self._queue or self.closed:
            if self.closed:
                return None
            self._check()
            for link in tuple(self.cluster.links.values()):
                link.hand_on()
            if self._queue:
                break
            if self.at_end():
                return None
            self._arrived.clear()
            self._takers += 1
            try:
                await self._arrived.wait()
            finally:
                self._takers -= 1
        chunk = self._queue.popleft()
        self._bytes -= chunk.nbytes + chunk.dead_letter_bytes
        self._steer()
        return chunk

    def at_end(self) -> bool:
        """Return True if no chunk can follow: every topic was terminated and read to its end."""
        return self._matching is None and bool(self.members) and all(member.ended for member in self.members)

    def on_end(self, member: Member) -> None:
        """See ``Host.on_end``."""
        for link in tuple(self.cluster.links.values()):
            link.hand_on()
        self._arrived.set()

    def drop_chunks(self, moved: Sequence[Member]) -> list[Member]:
        """Drop all chunks that were not taken; return the members beside ``moved`` that have lost entries by that.

        Their entries count as new when they are redelivered, which happens at ``rejoin``.
        """
        for link in tuple(self.cluster.links.values()):
            link.hand_on()
        spared = []
        for chunk in self._queue:
            for number, ledger, first, last in chunk.entries():
                member = self.members[number]
                if member not in moved:
                    self.slots.release_runs(number, [(ledger, first, last)])
                    if member not in spared:
                        spared.append(member)
        self._drop_queue()
        return spared

    def _drop_queue(self) -> None:
        for chunk in self._queue:
            chunk.release()
        self._queue.clear()
        self._bytes = 0
        self._steer()

    def _steer(self) -> None:
        """Pause or resume reading and permits, according to the room in the queue."""
        if self._bytes >= QUEUE_BYTES:
            self._full = True
        elif self._bytes <= QUEUE_BYTES // 2:
            self._full = False
        pause = self._full and not self._asking and not self.closed
        for link in tuple(self.cluster.links.values()):
            if not link.ready:
                continue
            if pause:
                link.transport.pause(Pause.QUEUE)
            elif link.transport.paused & Pause.QUEUE:
                link.transport.go_on(Pause.QUEUE)
        hold = self._full or self._failure is not None
        for member in self.members:
            if member.consumer.permits.hold != hold and not self.closed:
                member.consumer.hold(hold)
                if member.link is not None:
                    member.link.flush()

    async def asking(self, waits: Coroutine[Any, Any, Any]) -> Any:
        """Await responses of the broker, which are read even if the queue is full."""
        self._asking += 1
        self._steer()
        try:
            return await waits
        finally:
            self._asking -= 1
            self._steer()

    # --- events of links

    def on_chunk(self, chunk: Chunk) -> None:
        """Queue a chunk, or release it if it is not wanted."""
        if self.closed or self._failure is not None or not self.admit(chunk):
            chunk.release()
            return
        self._queue.append(chunk)
        self._bytes += chunk.nbytes + chunk.dead_letter_bytes
        self._arrived.set()
        if not self._full and self._bytes >= QUEUE_BYTES:
            self._steer()

    def on_connected(self, link: Link) -> None:
        """Apply the state of the queue to a new connection."""
        self._steer()

    def on_lost(self, link: Link, reason: Exception | None) -> None:
        """Forget a lost connection; its members subscribe again on their own."""
        self.cluster.forget(link)
        if not self.closed:
            log.info("connection lost", broker=str(link.address), reason=str(reason or "closed by the broker"))

    def after_read(self, link: Link) -> None:
        """Grant permits for consumed ones, and pass the open chunk on if a task waits for one."""
        for number in self.slots.take_due():
            self.members[number].consumer.pump()
        if self._takers and not self._queue:
            link.hand_on()

    # --- the timer

    def _tick(self) -> None:
        self._timer = self._loop.call_later(TICK_S, self._tick)
        now = self._loop.time()
        for link in tuple(self.cluster.links.values()):
            link.tick(now, float("inf") if self._full else CHUNK_AGE_S)
        touched = set(self.slots.take_dirty())
        for number in touched:
            member = self.members[number]
            member.acknowledge_again()
            if member.consumer.uncounted:
                self._doubted[number] = _Doubt(now)
        # A member without new entries since the last tick has drained the broker's backlog: fill up its window.
        for number in self._unsettled - touched:
            self.members[number].consumer.settle()
        self._unsettled = touched
        if now - self._looked_at >= LOOK_S:
            self._look_after(now, min(now - self._looked_at, 2 * LOOK_S))
            self._looked_at = now
        for member in self.members:
            if member.consumer.acks.due(now):
                member.send_acks()
        self.turn(now)
        for link in tuple(self.cluster.links.values()):
            if link.connection.has_outbound:
                link.flush()

    def _look_after(self, now: float, seconds: float) -> None:
        """Recover permits that were consumed uncounted, and give up chunked messages that stay incomplete."""
        for number, doubt in tuple(self._doubted.items()):
            member = self.members[number]
            if not member.consumer.uncounted:
                del self._doubted[number]
            elif now - doubt.since >= doubt.ask_after_s and member.link is not None and not self._full:
                doubt.since, doubt.ask_after_s = now, min(2 * doubt.ask_after_s, MOST_QUIET_S)
                self.run(member.ask_stats(member.rejoin), f"permits of {member.topic}")
        assembly = self.cluster.completion.assembly
        if not len(assembly) or self._full:
            return
        reading = [one for one in self.members if one.link is not None and not one.link.transport.paused]
        torn = assembly.expired((one.number for one in reading), seconds)
        for one in reading if torn else ():
            if one.link is not None:
                one.link.give_up([each for each in torn if each.entry.consumer_id == one.number])

    # --- requests

    async def last_message_ids(self) -> dict[str, MessageId]:
        """Return the last message id of each partition, by its name; empty partitions are left out."""
        await self.open()
        found = await self.asking(together(member.last() for member in self.members))
        return {
            str(member.topic): last for member, (last, _) in zip(self.members, found, strict=True) if last.entry >= 0
        }


async def together(waits: Iterable[Awaitable[Any]]) -> list[Any]:
    """Return the results of all awaitables, in order. Raises the first error."""
    return await asyncio.gather(*waits)
