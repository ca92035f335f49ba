"""What people read by: the partitions of some topics, one clock for all, and a queue of chunks that never runs over."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Coroutine, Iterable, Sequence
from types import TracebackType
from typing import Any, Self

from fastwire.columns.chunk import Chunk
from fastwire.errors import FastwireError
from fastwire.position import Log
from fastwire.pulsar.message_id import MessageId
from fastwire.pulsar.namespace import TopicPattern
from fastwire.pulsar.request import SubscribeRequest
from fastwire.pulsar.slot import SlotTable
from fastwire.pulsar.topic import Topic, parse_topic
from fastwire.wire.pool import Pool

from ..backoff import Backoff
from ..logs import get_logger
from ..transport import Pause
from .cluster import Cluster
from .link import Link
from .member import Member, refused_at_first
from .schemas import Schemas
from .settings import ClientSettings
from .topics import Topics

__all__ = ["MOST_ELEMENTS", "Intake", "together"]

TICK_S = 0.05
CHUNK_AGE_S = 0.1
QUEUE_BYTES = 16 << 20  # of chunks that nobody has taken yet; above it nothing is read
CLOSE_S = 5.0
MOST_ELEMENTS = 1 << 19  # of a batch, as far as anybody lets through

log = get_logger("client")


class Intake:
    """The common part of consumers and readers.

    It opens when it is first used, or by ``async with``; every method may be cancelled at any await, and ``close`` may
    be called at any time and more than once.
    """

    ordered = False  # what the slot table is told: the spans of a chunk, and how what comes again is known

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
            raise ValueError("a window has room for at least one record")
        self.settings = settings
        self.topics = tuple(topic if isinstance(topic, Topic) else parse_topic(topic) for topic in topics)
        if bool(self.topics) == (pattern is not None):
            raise ValueError("there is no topic to read" if not self.topics else "either topics or a pattern")
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
        self._takers = 0  # those who wait for a chunk
        self._full = False
        self._asking = 0  # those who wait for an answer of the broker: it must be read
        self._opening = asyncio.Lock()
        self._opened = False
        self._closed = False
        self._closing: asyncio.Task[None] | None = None
        self._failure: FastwireError | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._unsettled: set[int] = set()
        self._polled_at = 0.0

    # --- for subclasses

    def want(self, topic: Topic, number: int, *, late: bool) -> SubscribeRequest:
        """How to subscribe to one partition; ``late`` if it was not there when we opened."""
        raise NotImplementedError

    def added(self, member: Member) -> None:
        """A partition is there, and its slot is new."""

    def prepare(self, member: Member) -> SubscribeRequest:
        """The request for the next attempt."""
        return member.consumer.want

    async def subscribed(self, member: Member) -> None:
        """An attempt has succeeded; nothing was asked for yet."""

    def turn(self, now: float) -> None:
        """What else time asks for."""

    def admit(self, chunk: Chunk) -> bool:
        """A chunk has come; false if it is not for the queue."""
        return True

    # --- life

    @property
    def closed(self) -> bool:
        """Whether ``close`` was called, or something has gone wrong for good."""
        return self._closed

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def open(self) -> None:
        """Find the partitions and subscribe. Raises FastwireError where the broker says no, or says nothing in time."""
        async with self._opening:
            if self._opened or self._closed:
                self._check()
                return
            await self._find()
            if self._timer is None:
                self._tick()
            try:
                await asyncio.gather(*(asyncio.shield(member.first) for member in tuple(self.members)))
            except FastwireError as exc:
                self.fail(exc)
                raise
            self._opened = True

    async def _find(self) -> None:
        """Add a member for each partition that there is."""
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
        self._polled_at = self._loop.time()

    async def _look(self, *, late: bool) -> None:
        """Add a member for each partition that is new."""
        if self._matching is not None:
            news = await self._matching.look()
            for found in news.found:
                for index in found.indexes:
                    self._add(found.topic, index, late=late)
            for member in self.members:
                if member.topic in news.gone or member.topic.base in news.gone:
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
        # A partition's own name is a topic like any other, and must not be asked about.
        if topic.partition >= 0:
            return 0
        return await self.cluster.partitions(str(topic), self.settings.url, create=self._creates)

    @property
    def _creates(self) -> bool:
        """Whether a topic that is missing may come into being."""
        return False

    def _add(self, topic: Topic, index: int, *, late: bool) -> None:
        name = topic if topic.partition >= 0 or index < 0 else topic.of_partition(index)
        number = self.slots.add_log(Log("pulsar", self.settings.url.hosts, str(topic.base), str(index)))
        self.slots.add(number, number, ordered=self.ordered)
        want = self.want(name, number, late=late)
        member = Member(self, name, want, window=self._window, ack_group_s=self._ack_group_s)
        member.consumer.permits.hold = self._full
        self.members.append(member)
        self.added(member)
        member.task = self.run(member.keep(), str(name))

    def renew(self, member: Member) -> None:
        """The member's cursor was moved: what the slot holds means nothing now."""
        self.slots.remove(member.number)
        self.slots.add(member.number, member.number, ordered=self.ordered)
        member.reset()
        self.added(member)

    def fail(self, error: FastwireError) -> None:
        """No more chunks will come."""
        self._failure = self._failure or error
        self._arrived.set()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._closed:
            raise FastwireError("it was closed")

    def run(self, work: Coroutine[Any, Any, Any], name: str) -> "asyncio.Task[Any]":
        """Do ``work`` in the background until it ends or ``close``."""
        task = self._loop.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)
        return task

    def _task_done(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, FastwireError):
            # Everything that brokers can do is dealt with; this is a fault of ours, and going on would hide it.
            self._loop.call_exception_handler({"message": "client task failed", "exception": error, "task": task})
            self.fail(FastwireError(f"{task.get_name()}: {type(error).__name__}: {error}"))

    async def close(self) -> None:
        """Send what acks wait, leave, and close the connections. Chunks that were taken stay valid."""
        if self._closing is None:
            self._closed = True
            self._arrived.set()
            self._closing = self._loop.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        self._steer()
        try:
            async with asyncio.timeout(CLOSE_S):
                await asyncio.gather(*(member.leave() for member in self.members), return_exceptions=True)
        except TimeoutError:
            log.warning("the broker did not confirm our leaving in time", timeout_s=CLOSE_S)
        if self._timer is not None:
            self._timer.cancel()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.cluster.close()
        self._drop_queue()

    # --- chunks

    async def take(self) -> Chunk | None:
        """The next chunk, as soon as there is one; None after ``close``. Raises what has gone wrong for good."""
        if not self._opened and not self._closed:
            await self.open()
        while not self._queue or self._closed:
            if self._closed:
                return None
            self._check()
            if self.at_end():
                return None
            self._arrived.clear()
            self._takers += 1
            try:
                for link in tuple(self.cluster.links.values()):
                    link.hand_on()
                await self._arrived.wait()
            finally:
                self._takers -= 1
        chunk = self._queue.popleft()
        self._bytes -= chunk.nbytes
        self._steer()
        return chunk

    def at_end(self) -> bool:
        """Whether nothing will come any more: every topic was terminated and read to its end."""
        return self._matching is None and bool(self.members) and all(member.ended for member in self.members)

    def on_end(self, member: Member) -> None:
        """A topic was terminated and everything in it delivered."""
        for link in tuple(self.cluster.links.values()):
            link.hand_on()
        self._arrived.set()

    def drop_chunks(self, moved: Sequence[Member]) -> list[Member]:
        """Forget all that nobody has taken yet; returns members beside ``moved`` that have lost something by that.

        What they have lost is new when it comes again, and it comes again when they rejoin.
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
        """Read and ask for as much as there is room for."""
        if self._bytes >= QUEUE_BYTES:
            self._full = True
        elif self._bytes <= QUEUE_BYTES // 2:
            self._full = False
        pause = self._full and not self._asking and not self._closed
        for link in tuple(self.cluster.links.values()):
            if not link.ready:
                continue
            if pause:
                link.transport.pause(Pause.QUEUE)
            elif link.transport.paused & Pause.QUEUE:
                link.transport.go_on(Pause.QUEUE)
        for member in self.members:
            if member.consumer.permits.hold != self._full and not self._closed:
                member.consumer.hold(self._full)
                if member.link is not None:
                    member.link.flush()

    async def asking(self, waits: Coroutine[Any, Any, Any]) -> Any:
        """Await answers of the broker, which are read however full the queue is."""
        self._asking += 1
        self._steer()
        try:
            return await waits
        finally:
            self._asking -= 1
            self._steer()

    # --- what links tell

    def on_chunk(self, chunk: Chunk) -> None:
        """A chunk for whoever takes it."""
        if self._closed or not self.admit(chunk):
            chunk.release()
            return
        self._queue.append(chunk)
        self._bytes += chunk.nbytes
        self._arrived.set()
        if not self._full and self._bytes >= QUEUE_BYTES:
            self._steer()

    def on_connected(self, link: Link) -> None:
        """A handshake is done."""
        self._steer()

    def on_lost(self, link: Link, reason: Exception | None) -> None:
        """A connection is gone; members come back by themselves."""
        self.cluster.forget(link)
        if not self._closed:
            log.info("connection lost", broker=str(link.address), reason=str(reason or "closed by the broker"))

    def after_read(self, link: Link) -> None:
        """Grant what was used up, and let nobody wait who takes what there is."""
        for number in self.slots.take_due():
            self.members[number].consumer.pump()
        if self._takers and not self._queue:
            link.hand_on()

    # --- the clock

    def _tick(self) -> None:
        self._timer = self._loop.call_later(TICK_S, self._tick)
        now = self._loop.time()
        for link in tuple(self.cluster.links.values()):
            link.tick(now, float("inf") if self._full else CHUNK_AGE_S)
        touched = set(self.slots.take_dirty())
        for number in touched:
            self.members[number].acknowledge_again()
        # Whoever got nothing since the last look has drained what the broker had: make up the window.
        for number in self._unsettled - touched:
            self.members[number].consumer.settle()
        self._unsettled = touched
        for member in self.members:
            if member.consumer.acks.due(now):
                member.send_acks()
        self.turn(now)
        for link in tuple(self.cluster.links.values()):
            if link.connection.has_outbound:
                link.flush()
        if self._opened and now - self._polled_at >= self._poll_s and self.cluster.ready:
            self._polled_at = now
            self.run(self._look(late=True), "partition poll")

    # --- questions

    async def last_message_ids(self) -> dict[str, MessageId]:
        """The last message of each partition, by its name; partitions that hold none are left out."""
        await self.open()
        found = await self.asking(together(member.last() for member in self.members))
        return {
            str(member.topic): last for member, (last, _) in zip(self.members, found, strict=True) if last.entry >= 0
        }


async def together(waits: Iterable[Awaitable[Any]]) -> list[Any]:
    """What all of them give, in order."""
    return await asyncio.gather(*waits)
