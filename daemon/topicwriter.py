"""Writing to a topic by one producer for each partition, whatever the system: who takes a record, how much may wait."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, Generic, Protocol, Self, TypeVar

from fastwire.errors import FastwireError

from .logs import get_logger
from .produced import Produced, ProduceError

__all__ = ["PENDING_BYTES", "Part", "TopicWriter", "failed"]

PENDING_BYTES = 16 << 20  # of the whole topic, before compression
PARTITION_POLL_S = 60.0
TURN_BYTES = 256 << 10  # after so many the event loop gets its turn, or no receipt would ever be read

M = TypeVar("M", bound="PartMachine")
R = TypeVar("R")
S = TypeVar("S")

log = get_logger("producer")


class PartMachine(Protocol):
    """The state machine of a part's producer."""

    batches: int
    """How many were closed so far."""

    weight: int
    """Bytes that are not confirmed."""

    failure: FastwireError | None
    """Why nothing can be sent any more."""

    @property
    def idle(self) -> bool: ...
    def flush(self) -> None: ...
    def fail(self, error: FastwireError, /) -> None: ...


class Part(ABC, Generic[M]):
    """One producer, on whatever connection leads to its partition; the ``machine`` says what is sent."""

    def __init__(self, machine: M) -> None:
        self.machine = machine
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Open, and again whenever that is lost."""
        self._task = asyncio.create_task(self._run())

    @abstractmethod
    async def _run(self) -> None:
        """Be where the partition is, until it is closed or can never be sent to again."""

    @abstractmethod
    def _moved(self) -> None:
        """Something was said to the machine: send and tell what follows of it."""

    async def _leave(self) -> None:
        """The end has come: tell the broker, where it has to know."""

    @property
    def broken(self) -> bool:
        """Whether nothing can be sent any more."""
        return self.machine.failure is not None

    @abstractmethod
    def send(self, record: Any, ticket: object) -> None:
        """Hand a record to the machine. Raises ProduceError."""

    def flush(self) -> None:
        """Close the open batches."""
        self.machine.flush()
        self._moved()

    def _fail(self, error: FastwireError) -> None:
        self.machine.fail(error)
        self._moved()

    async def close(self) -> None:
        """Stop; what is not confirmed has failed."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
        await self._leave()
        self._fail(ProduceError("the producer was closed"))


P = TypeVar("P", bound=Part[Any])


class Chooser(Protocol):
    """Which partition a record goes to: by its key, or the ``current`` one, until a batch of it is closed."""

    partitions: int
    current: int

    def of_key(self, key: Any, /) -> int: ...
    def turn(self) -> None: ...


class TopicWriter(ABC, Generic[P, R, S]):
    """Parts ``P`` take records ``R``, and tell where they are stored by an ``S``.

    Use it as a context: leaving it in order waits until everything is confirmed. Everything raises ProduceError.
    """

    def __init__(self, name: str, *, most_pending_bytes: int) -> None:
        self.produced = Produced()
        self._name = name
        self._most_pending_bytes = most_pending_bytes
        self._watching: asyncio.Task[None] | None = None
        self._parts: list[P] = []
        self._batches = 0  # of the current partition, when it became that
        self._since_turn = 0
        self._error: ProduceError | None = None  # the first one that no flush has told yet
        self._changed = asyncio.Event()

    # --- coming and going

    @abstractmethod
    async def open(self) -> None:
        """Find the partitions; only then records are taken."""

    def _watch(self) -> None:
        """From now on partitions that are added are written to, too."""
        self._watching = asyncio.create_task(self._look_for_more())

    async def _look_for_more(self) -> None:
        while True:
            await asyncio.sleep(PARTITION_POLL_S)
            try:
                for number in range(len(self._parts), await self._count()):
                    self._parts.append(await self._add(number))
                    self._chooser().partitions = len(self._parts)
            except FastwireError as exc:
                log.debug("cannot ask for new partitions", topic=self._name, error=str(exc))

    @abstractmethod
    async def _count(self) -> int:
        """How many partitions there are now."""

    @abstractmethod
    async def _add(self, number: int) -> P:
        """A producer for a new partition, as soon as it takes records."""

    async def close(self) -> None:
        """Stop; what is not confirmed by then has failed."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait((self._watching,))
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
    def _chooser(self) -> Chooser: ...

    @abstractmethod
    def _weigh(self, record: R) -> int: ...

    @abstractmethod
    def _key(self, record: R) -> object: ...

    def _crowded(self, part: P) -> bool:
        """Whether a part has enough under way, whatever all have together."""
        return False

    async def put(self, record: R, *, partition: int | None = None) -> "asyncio.Future[S]":
        """Take a record, waiting while too much is not confirmed; the future says where it is stored, or raises."""
        part = self._choose(record, partition)
        await self._make_room(part, self._weigh(record))
        future: asyncio.Future[S] = asyncio.get_running_loop().create_future()
        part.send(record, future)
        return future

    async def flush(self) -> None:
        """Send what waits in batches and wait until everything is confirmed; raises the first failure since then."""
        for part in self._parts:
            part.flush()
        while not all(part.machine.idle for part in self._parts):
            await self._change()
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _of(self, partition: int) -> P:
        if not 0 <= partition < len(self._parts):
            raise ProduceError(f"{self._name} has no partition {partition}: there are {len(self._parts)}")
        return self._parts[partition]

    def _choose(self, record: R, partition: int | None) -> P:
        if partition is not None:
            return self._of(partition)
        if not self._parts:
            raise ProduceError(f"{self._name}: the producer is not open")
        chooser = self._chooser()
        key = self._key(record)
        if key is not None:
            return self._parts[chooser.of_key(key)]
        part = self._parts[chooser.current]
        if part.machine.batches != self._batches:
            chooser.turn()
            part = self._parts[chooser.current]
            self._batches = part.machine.batches
        return part

    async def _make_room(self, part: P, size: int) -> None:
        while not part.broken:
            used = sum(each.machine.weight for each in self._parts)
            if not self._crowded(part) and (not used or used + size <= self._most_pending_bytes):
                break
            for each in self._parts:
                each.flush()
            await self._change()
        self._since_turn += size
        if self._since_turn >= TURN_BYTES:
            self._since_turn = 0
            await asyncio.sleep(0)

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    # --- what parts tell

    def _confirmed(self, placed: Iterable[tuple[object, S]], *, records: int, size: int) -> None:
        """An entry of ``records`` is stored: each of its tickets learns where."""
        self._changed.set()
        self.produced.records += records
        self.produced.entries += 1
        self.produced.bytes += size
        for ticket, sent in placed:
            if isinstance(ticket, asyncio.Future) and not ticket.done():
                ticket.set_result(sent)

    def _given_up(self, tickets: Iterable[object], error: ProduceError) -> None:
        """These records will never be stored."""
        self._changed.set()
        self._error = self._error or error
        for ticket in tickets:
            if isinstance(ticket, asyncio.Future) and not ticket.done():
                ticket.set_exception(error)
                ticket.exception()  # who does not look at the future is told by ``flush``


def failed(what: str, exc: FastwireError) -> ProduceError:
    """Why nothing more can be written to ``what``."""
    error = ProduceError(f"{what}: {exc}")
    error.__cause__ = exc
    return error
