"""The common base of consumers and readers: it takes the chunks of Pulsar's source, and queues them for a program."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Collection, Coroutine, Iterable, Sequence
from enum import Enum
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from fastwire.columns.chunk import Chunk, DeadLetter
from fastwire.coverage import Coverage
from fastwire.errors import FastwireError
from fastwire.pulsar.names.topic import Topic
from fastwire.pulsar.protocol.message_id import MessageId
from fastwire.pulsar.protocol.request import SubscribeRequest
from fastwire.wire.pool import Pool

from ....config import Start
from ....runtime.tasks import Tasks
from ...source import Assignment, LogStopped, ProgramEvents, SourceFailed
from ..link import Link
from ..schemas import Schemas
from ..settings import ClientSettings
from ..source import PulsarSource
from ..source.partition import Partition
from ..source.settings import with_client
from .member import Member, refused_at_first

QUEUE_BYTES = 16 << 20  # of chunks that the application has not taken; above it reading pauses
CLOSE_S = 5.0
MOST_ELEMENTS = 1 << 19  # of a batch; no broker accepts more

_NOTHING = Coverage()  # a program keeps no Coverage: the slots and the broker know what it has acknowledged

M = TypeVar("M", bound=Member)


class State(Enum):
    """The states of an intake, in their order. A failure does not change it: the chunks read before it can be taken."""

    NEW = "new"
    OPEN = "open"
    CLOSED = "closed"


class _Source(PulsarSource):
    """The source of one intake, whose partitions are its members."""

    def __init__(
        self, settings: ClientSettings, intake: "Intake[Any]", pool: Pool, *, create: bool, **own: Any
    ) -> None:
        self._intake = intake
        self.creates = create
        self._asking = 0  # tasks that wait for an answer of the broker, which must be read
        super().__init__(
            with_client(settings, start=Start("earliest"), cluster=settings.url.hosts, **own), intake, pool
        )

    @property
    def ordered(self) -> bool:
        """See ``PulsarSource.ordered``."""
        return self._intake.ordered

    @property
    def holding(self) -> bool:
        """See ``PulsarSource.holding``."""
        return self._intake.failed or (self._full and self._asking > 0)

    def _answering(self) -> Collection[Link]:
        return self.cluster.links.values() if self._asking else ()

    async def asking(self, waits: Awaitable[Any]) -> Any:
        """Await answers of the broker, which are read even if the queue is full."""
        self._asking += 1
        self._steer()
        try:
            return await waits
        finally:
            self._asking -= 1
            self._steer()

    def hold_on(self) -> None:
        """Request no more records after a failure."""
        self._ask_on()

    def after_read(self, link: Link) -> None:
        """See ``PulsarSource.after_read``."""
        super().after_read(link)
        self._intake.after_read(link)

    def _look(self, now: float) -> None:
        self._intake.look(now)
        super()._look(now)

    def _count(self, now: float) -> None:
        """Count nothing: there are no metrics, and a program asks for lag itself."""

    def _give_up_if_refused(self, exc: FastwireError) -> None:
        if refused_at_first(exc) or self._loop.time() >= self._intake.deadline:
            raise exc

    def _want(self, name: Topic, consumer_id: int, *, late: bool) -> SubscribeRequest:
        return self._intake.want(name, consumer_id, late=late)

    def _partition(self, name: Topic, *parts: Any, **more: Any) -> Partition:
        member: Partition = self._intake.add(name, self, *parts, **more)
        return member


class Intake(ProgramEvents, Generic[M]):
    """The common base of consumers and readers. ``kind`` makes the members: one for each partition.

    It opens at its first use, or by ``async with``; every method may be cancelled at any await, and ``close`` may be
    called at any time and more than once. With ``create`` brokers may create a missing topic; ``own`` are fields of
    ``PulsarSettings``.
    """

    ordered = False
    """See ``PulsarSource.ordered``."""

    def __init__(
        self,
        settings: ClientSettings,
        pool: Pool,
        topics: Iterable[Topic],
        kind: type[M],
        *,
        window: int,
        patience_s: float | None = None,
        create: bool = False,
        **own: Any,
    ) -> None:
        if window < 1:
            raise ValueError("window must be 1 or more")
        topics = tuple(topics)
        if bool(topics) == (own.get("pattern") is not None):
            raise ValueError("topics is empty" if not topics else "give either topics or a pattern, not both")
        for topic in topics:
            if not topic.persistent:
                raise ValueError(
                    f"{topic}: non-persistent topics are not read: the broker gives all of their messages the same "
                    "position, and sends none of them again"
                )
        self.settings = settings
        self.members: list[M] = []  # by the number of the consumer
        self._kind = kind
        self._patience_s = settings.operation_timeout_s if patience_s is None else patience_s
        self.deadline = 0.0  # the loop's time after which a first subscribe is not tried again
        self._loop = asyncio.get_running_loop()
        self._queue: deque[Chunk] = deque()
        self._bytes = 0
        self._arrived = asyncio.Event()
        self._takers = 0  # tasks that wait for a chunk
        self._opening: asyncio.Task[None] | None = None  # ``close`` cancels it
        self._state = State.NEW
        self._closing: asyncio.Task[None] | None = None
        self._failure: FastwireError | None = None
        self.over: asyncio.Future[None] = self._loop.create_future()  # done after a failure, and by ``close``
        self._tasks = Tasks(lambda fault: self.fail(FastwireError(fault)), (FastwireError,))
        self._source = _Source(settings, self, pool, create=create, topics=topics, most_permits=window, **own)
        self.slots = self._source.slots
        self.cluster = self._source.cluster
        self.schemas = Schemas(self.cluster, settings.url)

    # --- for subclasses

    def want(self, topic: Topic, number: int, *, late: bool) -> SubscribeRequest:
        """Return the first request for one partition; ``late`` if it was added after ``open``."""
        raise NotImplementedError

    def added(self, member: M) -> None:
        """Prepare a new member, and its slot."""

    def prepare(self, member: M) -> SubscribeRequest:
        """Return the request for the next subscribe."""
        return member.consumer.want

    async def subscribed(self, member: M) -> bool:
        """Finish a subscribe, before permits are granted; return False to repeat it at once with a new ``prepare``."""
        return True

    def admit(self, chunk: Chunk) -> None:
        """Inspect a new chunk."""

    def look(self, now: float) -> None:
        """Do the periodic work of the subclass; ``now`` is the event loop's time."""

    def after_read(self, link: Link) -> None:
        """Pass the open chunk on if a task waits for one."""
        if self._takers and not self._queue:
            link.hand_on()

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

    @property
    def failed(self) -> bool:
        """True after ``fail``."""
        return self._failure is not None

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
        self.check()

    async def _be_open(self) -> None:
        """Open once for all concurrent callers. Returns without an error if ``close`` interrupts it."""
        if self._state is not State.NEW or self._failure is not None:
            return
        if self._opening is None:
            self.deadline = self._loop.time() + self._patience_s
            self._opening = self.run(self._open(), "open")
        opening = self._opening
        await asyncio.wait([opening])
        try:
            if not opening.cancelled():
                opening.result()
        finally:
            del opening  # the task holds its exception, which holds this frame

    async def _open(self) -> None:
        try:
            await self._source.start(_NOTHING)
        except FastwireError as exc:
            self.fail(exc)
            raise
        await self._source.heads()
        if self._failure is not None:
            raise self._failure.with_traceback(None)
        if self._state is State.NEW:  # ``close`` may have come meanwhile
            self._state = State.OPEN

    def add(self, topic: Topic, *parts: Any, **more: Any) -> M:
        """Add a member for a partition that the source has found."""
        member = self._kind(self, topic, *parts, **more)
        self.members.append(member)
        self.added(member)
        return member

    def member_of(self, letter: DeadLetter) -> M:
        """Return the member that read an entry."""
        return next(one for one in self.members if self.slots.log(one.number) is letter.log)

    def renew(self, member: M) -> None:
        """Reset the member's slot after a move of its cursor."""
        self.slots.remove(member.number)
        self.slots.add(member.number, member.index, ordered=self.ordered)
        self.cluster.completion.assembly.forget(member.number)
        member.reset()
        self.added(member)

    def fail(self, error: FastwireError) -> None:
        """End reading: ``take`` returns the chunks read so far, then raises ``error``."""
        if self._failure is None:
            self.cluster.hand_on()
            self._failure = error
            self._source.hold_on()
            self._end()

    def _end(self) -> None:
        self._arrived.set()
        if not self.over.done():
            self.over.set_result(None)
        for member in self.members:
            member.inform(None)

    def check(self) -> None:
        """Raise the error of ``fail``, and FastwireError after ``close``."""
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
            self._end()
            self._closing = self._loop.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        await self._tasks.close()
        await self._source.close(CLOSE_S)
        self._drop_queue()

    # --- chunks

    async def take(self) -> Chunk | None:
        """Return the next chunk, waiting for it; None at the end and after ``close``. Raises the error of ``fail``."""
        await self._be_open()
        while not self._queue or self.closed:
            if self.closed:
                return None
            self.check()
            self.cluster.hand_on()
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
        self._ask_on()
        return chunk

    def at_end(self) -> bool:
        """Return True if no chunk can follow: every topic was terminated and read to its end."""
        watching = self._source.settings.pattern is not None
        return not watching and bool(self.members) and all(member.terminated for member in self.members)

    def on_end(self) -> None:
        """Note that a topic was terminated and everything in it delivered, or that it is not read any more."""
        self.cluster.hand_on()
        self._arrived.set()

    def drop_chunks(self, moved: Sequence[M]) -> list[M]:
        """Drop all chunks that were not taken; return the members beside ``moved`` that have lost entries by that.

        Their entries count as new when they are redelivered, which happens at ``rejoin``.
        """
        self.cluster.hand_on()
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
        self._ask_on()

    def _ask_on(self) -> None:
        if self._bytes <= QUEUE_BYTES // 2:
            self._source.resume()

    async def asking(self, waits: Awaitable[Any]) -> Any:
        """See ``_Source.asking``."""
        return await self._source.asking(waits)

    # --- what the source tells

    def on_chunk(self, chunk: Chunk) -> bool:
        """Queue a chunk; return False if there is room for no other one."""
        if self.closed or self._failure is not None:
            chunk.release()
            return True
        self.admit(chunk)
        self._queue.append(chunk)
        self._bytes += chunk.nbytes + chunk.dead_letter_bytes
        self._arrived.set()
        return self._bytes < QUEUE_BYTES

    def on_assigned(self, assignments: Sequence[Assignment]) -> None:
        """Request records at once."""
        self._source.grant(assignments, _NOTHING)

    def on_revoked(self, indexes: Sequence[int], reason: str) -> None:
        """See ``SourceEvents.on_revoked``: records that were received stay, and can be acknowledged."""

    def on_diverged(self, index: int, reason: str) -> None:
        """See ``SourceEvents.on_diverged``: ``on_stopped`` follows."""

    def on_stopped(self, index: int, error: LogStopped) -> None:
        """End reading with ``error``."""
        self.fail(error)

    def on_failed(self, error: SourceFailed) -> None:
        """End reading with ``error``."""
        self.fail(error)

    # --- requests

    @property
    def live(self) -> list[M]:
        """The members whose topics exist, and are in this cluster."""
        return [member for member in self.members if not member.over]

    async def last_message_ids(self) -> dict[str, MessageId]:
        """Return the last message id of each partition, by its name; empty partitions are left out."""
        await self.open()
        live = self.live
        found = await self.asking(together(member.last_id() for member in live))
        return {str(member.topic): last for member, (last, _) in zip(live, found, strict=True) if last.entry >= 0}


async def together(waits: Iterable[Awaitable[Any]]) -> list[Any]:
    """Return the results of all awaitables, in order. Raises the first error."""
    return await asyncio.gather(*waits)
