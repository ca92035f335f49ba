"""The common base of topic producers, with one producer per partition: routing, and a limit of unconfirmed bytes."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, Generic, Protocol, Self, TypeVar

from fastwire.columns.routes import Routes
from fastwire.errors import FastwireError
from fastwire.producer import KeyPartitioner

from ...runtime.logs import get_logger
from ...runtime.tasks import on_failure
from ..produced import Produced, ProduceError, Refused

PENDING_BYTES = 16 << 20  # unconfirmed bytes of the whole topic, before compression
PARTITION_POLL_S = 60.0
TURN_BYTES = 256 << 10  # after this many bytes the event loop gets its turn, or no receipt would ever be read

M = TypeVar("M", bound="PartMachine")
R = TypeVar("R")
S = TypeVar("S")

log = get_logger("producer")


class PartMachine(Protocol):
    """The state machine of one partition's producer."""

    batches: int
    """Number of closed batches so far."""

    weight: int
    """Unconfirmed bytes."""

    failure: FastwireError | None
    """The error after which no record can be sent any more; None if there is none."""

    @property
    def idle(self) -> bool:
        """True if all records are confirmed or have failed."""

    def flush(self) -> None:
        """Close the open batches."""

    def fail(self, error: FastwireError, /) -> None:
        """Fail all unconfirmed and later records with ``error``."""


class Part(ABC, Generic[M]):
    """The producer of one partition, which follows it to its broker; the ``machine`` implements the protocol."""

    def __init__(self, machine: M) -> None:
        self.machine = machine
        self.counted = 0  # the part of the writer's sum of unconfirmed bytes that is of this partition
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Open the producer in the background, and again whenever its connection is lost."""
        self._task = asyncio.create_task(self._run(), name="producer")
        on_failure(self._task, self._fail)

    @abstractmethod
    async def _run(self) -> None:
        """Keep the producer open at the partition's broker, until it is closed or refused for good."""

    @abstractmethod
    def _moved(self) -> None:
        """Send the machine's output and report its results, after a change of its state."""

    async def _leave(self) -> None:
        """Tell the broker that the producer closes, if the protocol requires it."""

    @property
    def broken(self) -> bool:
        """True if no record can be sent any more."""
        return self.machine.failure is not None

    @abstractmethod
    def send(self, record: Any, ticket: object) -> None:
        """Pass a record to the machine; results refer to it by ``ticket``. Raises ProduceError."""

    def send_rows(self, routes: Routes, first: int, stop: int) -> None:
        """Pass a share of ``routes`` to the machine. Raises ProduceError."""
        raise NotImplementedError("the system takes records only")

    def flush(self) -> None:
        """Close the open batches."""
        self.machine.flush()
        self._moved()

    def _fail(self, error: FastwireError) -> None:
        self.machine.fail(error)
        self._moved()

    async def close(self) -> None:
        """Close the producer; unconfirmed records fail with ProduceError."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
        await self._leave()
        self._fail(ProduceError("the producer was closed"))


P = TypeVar("P", bound=Part[Any])


class PendingWriter(ABC, Generic[P, R, S]):
    """A producer for a topic, limited in unconfirmed bytes: parts ``P`` take records ``R``, each stored at an ``S``.

    Use it as an async context manager: leaving it without an exception waits until all records are confirmed. All
    methods raise ProduceError. Calls take effect in the order in which they begin, so the records of a partition keep
    it; a call that is cancelled while it waits for its turn or for room takes no record more.
    """

    def __init__(self, name: str, *, most_pending_bytes: int) -> None:
        self.produced = Produced()
        self.name = name
        self._most_pending_bytes = most_pending_bytes
        self._parts: list[P] = []
        self._pending_bytes = 0  # the sum of the parts' weights; a sum for each record would cost a loop over all parts
        self._taken_bytes = 0  # of all records so far
        self._since_turn = 0
        self._error: ProduceError | None = None  # the first one that ``flush`` has not raised yet
        self._refused: list[Refused] = []
        self._changed = asyncio.Event()
        self._turn = asyncio.Lock()  # of the call that takes records: it hands on in the order of the calls

    # --- opening and closing

    @abstractmethod
    async def open(self) -> None:
        """Find the partitions and open the producers; required before the first record."""

    async def close(self) -> None:
        """Close all producers; unconfirmed records fail with ProduceError."""
        await asyncio.gather(*(part.close() for part in self._parts))

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                await self.flush()
        finally:
            await self.close()

    # --- records

    @abstractmethod
    def _choose(self, record: R, partition: int | None) -> P:
        """Return the part that takes a record; ``partition`` is the requested one, or None. Raises ProduceError."""

    @abstractmethod
    def _weigh(self, record: R) -> int: ...

    def _crowded(self, part: P) -> bool:
        """Return True if a part has reached its own limit of requests in flight."""
        return False

    async def put(self, record: R, *, partition: int | None = None) -> "asyncio.Future[S]":
        """Take a record, waiting while too many bytes are unconfirmed; the future returns its position, or raises."""
        async with self._turn:
            return await self._put(record, partition)

    async def put_each(self, records: Iterable[tuple[R, int | None]]) -> None:
        """Take records, each with its requested partition, as ``put`` does. Others were taken if one is refused."""
        async with self._turn:
            for record, partition in records:
                await self._put(record, partition)

    async def _put(self, record: R, partition: int | None) -> "asyncio.Future[S]":
        part = self._choose(record, partition)
        await self._make_room(part, self._weigh(record))
        future: asyncio.Future[S] = asyncio.get_running_loop().create_future()
        part.send(record, future)
        self._count_pending(part)
        return future

    def _count_pending(self, part: P) -> None:
        """Update the sum of unconfirmed bytes after a change of one part."""
        weight = part.machine.weight
        self._pending_bytes += weight - part.counted
        part.counted = weight

    async def flush(self) -> None:
        """Send the open batches and wait until all records of earlier calls are confirmed.

        Raises the first failure since the last call. Others may go on writing: when they have had as many bytes as may
        be unconfirmed together, their calls wait for this one, which would never end otherwise.

        Rows with an origin that the broker refuses for good are no failure: see :meth:`take_refused`.
        """
        async with self._turn:  # calls that wait have come before
            for part in self._parts:
                part.flush()
        began = self._taken_bytes
        while not self._idle:
            if self._taken_bytes - began > self._most_pending_bytes:
                async with self._turn:
                    while not self._idle:
                        await self._change()
                break
            await self._change()
        error, self._error = self._error, None
        if error is not None:
            raise error

    def take_refused(self) -> list[Refused]:
        """Return the rows with an origin that the broker has refused for good since the last call."""
        refused, self._refused = self._refused, []
        return refused

    async def _make_room(self, part: P, size: int) -> None:
        while not part.broken:
            used = self._pending_bytes
            if not self._crowded(part) and (not used or used + size <= self._most_pending_bytes):
                break
            for each in self._parts:
                each.flush()
            await self._change()
        self._taken_bytes += size
        self._since_turn += size
        if self._since_turn >= TURN_BYTES:
            self._since_turn = 0
            await asyncio.sleep(0)

    @property
    def _idle(self) -> bool:
        return all(part.machine.idle for part in self._parts)

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    # --- results of parts

    def _confirmed(self, part: P, placed: Iterable[tuple[object, S]], *, records: int, size: int) -> None:
        """Complete the tickets of an entry of ``records`` that is stored, with the position of each."""
        self._count_pending(part)
        self._changed.set()
        self.produced.records += records
        self.produced.entries += 1
        self.produced.bytes += size
        self.produced.trouble = ""
        for ticket, sent in placed:
            if isinstance(ticket, asyncio.Future) and not ticket.done():
                ticket.set_result(sent)

    def _given_up(self, part: P, tickets: Iterable[object], error: ProduceError, refused: Sequence[int] = ()) -> None:
        """Fail the tickets of records that will never be stored, or note the origins of rows that are refused."""
        self._count_pending(part)
        self._changed.set()
        if refused:
            self._refused.append(Refused(refused, error))
            return
        self._error = self._error or error
        for ticket in tickets:
            if isinstance(ticket, asyncio.Future) and not ticket.done():
                ticket.set_exception(error)
                ticket.exception()  # a caller that ignores the future gets the error from ``flush``


class TopicWriter(PendingWriter[P, R, S]):
    """A producer for a topic with a part for each partition, which looks for added partitions."""

    def __init__(self, name: str, chooser: KeyPartitioner[Any], *, most_pending_bytes: int) -> None:
        super().__init__(name, most_pending_bytes=most_pending_bytes)
        self.chooser = chooser
        self._watching: asyncio.Task[None] | None = None
        self._batches = 0  # those of the current partition when it was chosen

    def _watch(self) -> None:
        """Start to look for added partitions, which are then written to as well."""
        self._watching = asyncio.create_task(self._look_for_more())

    async def _look_for_more(self) -> None:
        while True:
            await asyncio.sleep(PARTITION_POLL_S)
            try:
                for number in range(len(self._parts), await self._count()):
                    self._parts.append(await self._add(number))
                    self.chooser.partitions = len(self._parts)
            except FastwireError as exc:
                log.debug("cannot ask for new partitions", topic=self.name, error=str(exc))

    @abstractmethod
    async def _count(self) -> int:
        """Return the current number of partitions."""

    @abstractmethod
    async def _add(self, number: int) -> P:
        """Return an open producer for a new partition."""

    async def close(self) -> None:
        """See ``PendingWriter.close``."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait((self._watching,))
        await super().close()

    @abstractmethod
    def _key(self, record: R) -> object: ...

    def _of(self, partition: int) -> P:
        if not 0 <= partition < len(self._parts):
            raise ProduceError(f"{self.name} has no partition {partition}: there are {len(self._parts)}")
        return self._parts[partition]

    async def put_rows(self, routes: Routes) -> None:
        """Take rows, waiting while too many bytes are unconfirmed."""
        for number in routes.requested:
            self._of(number)
        most = min(TURN_BYTES, self._most_pending_bytes)
        async with self._turn:
            while routes.left:
                for number, first, stop, size in self._step(routes, most):
                    part = self._of(number)
                    await self._make_room(part, size)
                    part.send_rows(routes, first, stop)
                    self._count_pending(part)

    def _step(self, routes: Routes, most_bytes: int) -> list[tuple[int, int, int, int]]:
        part = self._current() if routes.begins_loose else self._of(self.chooser.current)
        room = part.machine.room if part.machine.batches == self._batches else (0, 0)
        return routes.step(len(self._parts), self.chooser.current, room, most_bytes)

    def _choose(self, record: R, partition: int | None) -> P:
        if partition is not None:
            return self._of(partition)
        if not self._parts:
            raise ProduceError(f"{self.name}: the producer is not open")
        key = self._key(record)
        return self._current() if key is None else self._parts[self.chooser.of_key(key)]

    def _current(self) -> P:
        """Return the part for a record without a key: the next one if the last has closed a batch meanwhile."""
        part = self._of(self.chooser.current)
        if part.machine.batches != self._batches:
            self.chooser.turn()
            part = self._parts[self.chooser.current]
            self._batches = part.machine.batches
        return part


W = TypeVar("W", bound=PendingWriter[Any, Any, Any])


class ProducerWriter(Generic[W]):
    """Implementation of ``ConfirmedWriter`` over the producer ``W`` of a topic."""

    def __init__(self, producer: W) -> None:
        self._producer = producer

    @property
    def topic(self) -> str:
        """See ``ConfirmedWriter.topic``."""
        return self._producer.name

    @property
    def produced(self) -> Produced:
        """See ``ConfirmedWriter.produced``."""
        return self._producer.produced

    async def flush(self) -> None:
        """See ``ConfirmedWriter.flush``."""
        await self._producer.flush()

    def take_refused(self) -> list[Refused]:
        """See ``ConfirmedWriter.take_refused``."""
        return self._producer.take_refused()


def failed(what: str, exc: FastwireError) -> ProduceError:
    """Return the error for ``what``, to which no record can be written any more, with ``exc`` as its cause."""
    error = ProduceError(f"{what}: {exc}")
    error.__cause__ = exc
    return error
