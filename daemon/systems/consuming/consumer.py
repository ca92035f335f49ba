"""A consumer for programs, over the source of any system: chunks are handed out, and landed when they are acknowledged.

It does what a pipeline does (``systems.source``), with the program in place of the sink. Its Coverage is that of this
process alone: when a log is assigned again, what other consumers of the group have confirmed meanwhile counts, too.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Self

from fastwire.columns.chunk import Chunk
from fastwire.coverage import Coverage
from fastwire.errors import FastwireError
from fastwire.position import Log, Position, Span, positions_of

from ...runtime.budget import Budget, Level
from ...runtime.logs import get_logger
from ...runtime.tasks import on_failure, wait_for_set
from ..base import LimitedSource
from ..source import Assignment, LogStopped, ProgramEvents, SourceEvents, SourceFailed, added_firsts
from .received import ReceivedChunk

QUEUE = 2
OPEN_S = 60.0  # the longest wait for brokers at the opening
CLOSE_S = 10.0
LOOK_S = 1.0
FULL_S = 60.0  # a program that waits for a chunk, while those it holds fill the memory, is told so after this time

log = get_logger("client")


class Delivery(ReceivedChunk):
    """A received chunk. ``ack_to`` acknowledges it, and all that were received before it.

    ``terms`` are its spans, one of each partition, each with the count of assignments of its log at that time.
    """

    __slots__ = ("_consumer", "number", "terms")

    def __init__(self, chunk: Chunk, consumer: "Consumer", number: int, terms: Sequence[tuple[Span, int]]) -> None:
        super().__init__(chunk)
        self._consumer = consumer
        self.number = number
        self.terms = terms

    @property
    def spans(self) -> list[Span]:
        """The positions of the chunk: a span of each partition."""
        return [span for span, _ in self.terms]

    async def ack_to(self) -> None:
        """Acknowledge this chunk and all that were received before it; a second call does nothing.

        The group's progress follows within about a second, and when the consumer is closed. Records of a partition that
        was given to another member since are left to it: they may come there again.
        """
        self._consumer.acknowledge_to(self)


class Consumer(ProgramEvents):
    """A member of a group; iterate for chunks as they arrive.

    ``make_source`` makes the source from its events. ``budget`` bounds the memory of all chunks, those that the program
    holds among them.
    """

    def __init__(self, make_source: Callable[[SourceEvents], LimitedSource], budget: Budget) -> None:
        self._loop = asyncio.get_running_loop()
        self._budget = budget
        self._source = make_source(self)
        self._source.follows_group = True
        self._coverage = Coverage()
        self._queue: deque[Delivery] = deque()
        self._held: deque[Delivery] = deque()  # handed out and not acknowledged, in their order
        self._reading: set[Log] = set()  # the logs that are assigned
        self._received = 0
        self._terms: Counter[Log] = Counter()  # assignments so far
        # Logs that are assigned again from our own position: the cursor that comes along is as old as before.
        self._own: set[Log] = set()
        self._moved = asyncio.Event()  # set by all that ``receive`` may wait for
        self._granting: set[asyncio.Task[None]] = set()
        self._stopped: deque[LogStopped] = deque()
        self._failure: FastwireError | None = None
        self._starting: asyncio.Task[None] | None = None

    # --- for programs

    async def open(self) -> None:
        """Find the partitions. Raises FastwireError if brokers refuse, or none answers in time."""
        self._budget.watch(self._source.on_budget)
        self._budget.start()
        self._starting = self._loop.create_task(self._source.start(self._coverage), name="consumer")
        await asyncio.wait([self._starting], timeout=OPEN_S)
        if self._starting.done():
            self._starting.result()
        else:
            why = self._source.unreachable_because or "the topics are not known yet"
            raise FastwireError(f"the consumer could not begin in {OPEN_S:g} s: {why}")
        if self._failure is not None:
            raise self._failure.with_traceback(None)

    async def __aenter__(self) -> Self:
        """Open the consumer; raises as ``open`` does."""
        try:
            await self.open()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Delivery:
        delivery = await self.receive()
        assert delivery is not None, "there was no limit"
        return delivery

    async def receive(self, timeout_s: float | None = None) -> Delivery | None:
        """Return the next chunk; None if there is none within ``timeout_s`` seconds.

        Raises LogStopped once for each partition that cannot be read any more: a further call goes on with the others.
        Raises FastwireError where the brokers refuse, after ``close``, and if the chunks that the program holds leave
        no memory for another one.
        """
        until = None if timeout_s is None else self._loop.time() + timeout_s
        full_since: float | None = None
        while True:
            self._moved.clear()
            if self._stopped:  # first: where there is always a chunk it would never be told
                raise self._stopped.popleft()
            if self._queue:
                return self._hand_out()
            if self._failure is not None:
                raise self._failure.with_traceback(None)  # it would grow with each raise
            now = self._loop.time()
            if until is not None and now >= until:
                return None
            full_since = None if self._budget.check() is Level.FREE else full_since or now
            if full_since is not None and now - full_since >= FULL_S:
                raise FastwireError(
                    f"{len(self._held)} chunks that are not acknowledged, and Arrow objects made of chunks, fill the "
                    "memory of the consumer: release them, or give it more by memory="
                )
            await wait_for_set(self._moved, LOOK_S if until is None else min(LOOK_S, until - now))

    async def seek(self, positions: dict[Log, Position]) -> None:
        """Go on behind these positions of assigned logs. What was received before cannot be acknowledged any more.

        What was not acknowledged of other logs comes again. Raises ValueError for a log that is not assigned,
        and if the brokers of the system do not send again what was acknowledged.
        """
        if not self._source.goes_back:
            raise ValueError(f"{self._source.system} does not go back in a subscription here: its own client has seek")
        self._check_assigned(positions)
        self._begin_at(positions)
        self._read_again()

    def pause(self, logs: Iterable[Log]) -> None:
        """Request no more records of these assigned logs until ``resume``; a few that were requested before may come.

        It lasts while others have the log, too. Raises ValueError for a log that is not assigned, and if the system
        cannot pause one: a consumer from which nothing is taken pauses as a whole.
        """
        self._set_paused(logs, paused=True)

    def resume(self, logs: Iterable[Log]) -> None:
        """Go on with logs that ``pause`` has named; raises as ``pause`` does."""
        self._set_paused(logs, paused=False)

    @property
    def assigned(self) -> dict[Log, Position]:
        """The partitions that this consumer reads, each with the end of what was acknowledged."""
        return {
            each: end for each in self._coverage.logs() if each in self._reading and (end := self._coverage.end(each))
        }

    async def close(self) -> None:
        """Send what was acknowledged to the brokers, leave the group, and close the connections."""
        self._fail(FastwireError("the consumer was closed"))
        tasks = [*self._granting, *filter(None, [self._starting])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._budget.unwatch(self._source.on_budget)
        self._budget.stop()
        await self._source.close(CLOSE_S)
        for delivery in self._queue:
            delivery.release()
        self._queue.clear()

    # --- deliveries

    def acknowledge_to(self, delivery: Delivery) -> None:
        """See ``Delivery.ack_to``."""
        landed = False
        while self._held and self._held[0].number <= delivery.number:
            for span, term in self._held.popleft().terms:
                # Of an earlier assignment: the records come again, here or at another member.
                if self._terms[span.log] == term:
                    self._coverage.add(span)
                    landed = True
        if landed:
            self._source.landed(self._coverage)

    def _check_assigned(self, logs: Iterable[Log]) -> None:
        if strange := [each for each in logs if each not in self._reading]:
            raise ValueError(f"{strange[0]} is not assigned to this consumer")

    def _set_paused(self, logs: Iterable[Log], *, paused: bool) -> None:
        chosen = [*logs]
        self._check_assigned(chosen)
        for each in chosen:
            self._source.set_paused(self._source.logs.index(each), paused=paused)

    def _hand_out(self) -> Delivery:
        delivery = self._queue.popleft()
        self._held.append(delivery)
        self._ask_on()
        return delivery

    def _ask_on(self) -> None:
        if len(self._queue) < QUEUE:
            self._source.resume()

    def _drop(self, unwanted: Callable[[Delivery], bool]) -> None:
        """Drop chunks that were not handed out."""
        for delivery in self._queue:
            if unwanted(delivery):
                delivery.release()
        self._queue = deque(each for each in self._queue if not unwanted(each))
        self._ask_on()

    def _read_again(self) -> None:
        """Read on where Coverage ends; chunks that were handed out are not acknowledged any more."""
        self._terms.update(self._coverage.logs())
        self._own |= self._reading
        self._source.void()
        self._drop(lambda _: True)

    # --- assignments

    def _begin_at(self, positions: Mapping[Log, Position]) -> None:
        at = Coverage()
        for each, position in positions.items():
            at.add(Span(each, position, position, 0))
        self._coverage.update(at)

    async def _grant(self, assignments: Sequence[Assignment]) -> None:
        for assignment in assignments:
            each, cursor = assignment.log, assignment.cursor
            own = None if each in self._own else self._coverage.end(each)
            if own is not None and cursor is not None and _is_ahead(each, cursor, own):
                self._begin_at({each: cursor})
        self._own.difference_update(assignment.log for assignment in assignments)
        for first in await added_firsts(self._source, assignments, self._coverage):
            if first.span.gap is not None:
                log.warning("records are gone", topic=str(first.span.log), reason=first.span.gap.reason)
        self._source.grant(assignments, self._coverage)
        self._moved.set()

    def _fail(self, error: FastwireError) -> None:
        self._failure = self._failure or error
        self._moved.set()

    # --- what the source tells

    def on_chunk(self, chunk: Chunk) -> bool:
        """See ``SourceEvents.on_chunk``."""
        self._received += 1
        terms = [(span, self._terms[span.log]) for span in chunk.spans()]
        self._queue.append(Delivery(chunk, self, self._received, terms))
        self._budget.arrived(chunk.nbytes)
        self._moved.set()
        return len(self._queue) < QUEUE

    def on_grown(self) -> None:
        """See ``SourceEvents.on_grown``."""
        self._budget.check()

    def on_assigned(self, assignments: Sequence[Assignment]) -> None:
        """See ``SourceEvents.on_assigned``: what was received of an earlier assignment comes again from here on."""
        self._terms.update(each.log for each in assignments)
        self._reading.update(each.log for each in assignments)
        self._drop(lambda one: all(self._terms[span.log] != term for span, term in one.terms))
        task = self._loop.create_task(self._grant(assignments), name="assignments")
        self._granting.add(task)
        task.add_done_callback(self._granting.discard)
        on_failure(task, self._fail)

    def on_revoked(self, indexes: Sequence[int], reason: str) -> None:
        """See ``SourceEvents.on_revoked``: acknowledging what was received still counts for a while."""
        self._reading.difference_update(self._source.logs[index] for index in indexes)

    def on_diverged(self, index: int, reason: str) -> None:
        """See ``SourceEvents.on_diverged``."""
        log.warning("the broker has lost records that were received and not acknowledged", reason=reason)
        self._read_again()

    def on_stalled(self, index: int, unacked: int, reason: str) -> None:
        """See ``SourceEvents.on_stalled``."""
        log.warning("the broker waits for acknowledgements", unacknowledged=unacked, setting=reason)

    def on_floor(self, index: int, floor: Position) -> None:
        """See ``SourceEvents.on_floor``."""
        if (one := self._source.logs[index]) in self._coverage:
            self._coverage.raise_floor(one, floor)

    def on_stopped(self, index: int, error: LogStopped) -> None:
        """See ``SourceEvents.on_stopped``."""
        self._stopped.append(error)
        self._moved.set()

    def on_failed(self, error: SourceFailed) -> None:
        """See ``SourceEvents.on_failed``."""
        self._fail(error)


def _is_ahead(of: Log, cursor: Position, own: Position) -> bool:
    """Return True if the group has confirmed more of a log than what ends at ``own``."""
    positions = positions_of(of.system)
    return positions.order(cursor) > positions.order(own) if positions.ordered else cursor.a > own.a
