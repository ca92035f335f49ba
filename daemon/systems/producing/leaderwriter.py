"""The common base of producers that send the batches of each partition to its leader, in requests with answers."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from fastwire.columns.routes import Routes
from fastwire.columns.rows import Rows
from fastwire.errors import FastwireError
from fastwire.producer import BatchedProducer, KeyPartitioner, Outcome

from ...net.backoff import Backoff
from ...runtime.logs import get_logger
from ..load import Load
from ..writer import Put, checked
from .topicwriter import Part, ProducerWriter, TopicWriter, failed

RETRY_S = 2.0  # at most between two tries
OPEN_S = 30.0  # for what a broker says will pass

M = TypeVar("M", bound=BatchedProducer[Any, Any])
P = TypeVar("P", bound="LeaderPart[Any]")
R = TypeVar("R")

log = get_logger("producer")


@dataclass(frozen=True, slots=True)
class Sent:
    """Position of a stored record; offset -1: it is stored, and the broker has not said where."""

    partition: int
    offset: int


class LeaderWriter(TopicWriter[P, R, Sent], Generic[P, R]):
    """Writes to all partitions of the topic ``topic``. As a context, a normal exit waits until all is confirmed.

    The owner of the connections has to tick them. Everything raises ProduceError.
    """

    def __init__(self, topic: str, chooser: KeyPartitioner[bytes], *, most_pending_bytes: int) -> None:
        super().__init__(topic, chooser, most_pending_bytes=most_pending_bytes)
        self.topic = topic

    @property
    def partitions(self) -> int:
        """The number of partitions that are written to."""
        return len(self._parts)

    async def open(self) -> None:
        """Find the partitions.

        What a broker says will pass is tried again for a while; one that cannot be reached or understood is not.
        """
        backoff = Backoff(most_s=RETRY_S)
        loop = asyncio.get_running_loop()
        began = loop.time()
        while True:
            try:
                count = await self._count()
                break
            except FastwireError as exc:
                if loop.time() >= began + self.patience_s(exc):
                    raise failed(self.topic, exc) from exc
            await asyncio.sleep(backoff.next())
        self.chooser.partitions = count
        self._parts = [self._part(number) for number in range(count)]
        self._watch()

    @abstractmethod
    def patience_s(self, error: FastwireError) -> float:
        """Return for how many seconds ``open`` tries again after ``error``; 0.0 if it does not pass."""

    @abstractmethod
    def ends(self, error: FastwireError) -> bool:
        """Return True if ``error`` ends a producer: a retry cannot succeed."""

    @abstractmethod
    def _make(self, number: int) -> P:
        """Return the producer of a partition, not started."""

    async def _add(self, number: int) -> P:
        return self._part(number)

    def _part(self, number: int) -> P:
        part = self._make(number)
        part.start()
        return part

    def settled(self, part: P, outcome: Outcome) -> None:
        """Resolve the records of a batch that is confirmed or has failed."""
        partition, offset = part.partition, outcome.offset
        if outcome.error is not None:
            error = failed(f"{self.topic} partition {partition}", outcome.error)
            self._given_up(part, outcome.tickets, error, outcome.refused)
            return
        places = (Sent(partition, offset + place if offset >= 0 else -1) for place in range(len(outcome.tickets)))
        placed = zip(outcome.tickets, places, strict=True)
        self._confirmed(part, placed, records=outcome.records, size=outcome.size)


class LeaderPart(Part[M]):
    """The producer of one partition, at its leader."""

    def __init__(self, machine: M, owner: LeaderWriter[Any, Any], partition: int) -> None:
        super().__init__(machine)
        self.partition = partition
        self._writer = owner
        self._woken = asyncio.Event()

    @abstractmethod
    async def _send(self) -> None:
        """Find the leader and send all requests that are allowed now. Raises FastwireError if that fails."""

    def _set_back(self) -> None:
        """Note that sending has failed: what is known of the leader may be old."""

    def send(self, record: Any, ticket: object) -> None:
        """See ``Part.send``."""
        try:
            self.machine.send(record, ticket, self._loop.time())
        except FastwireError as exc:
            raise failed(f"{self._writer.topic} partition {self.partition}", exc) from exc
        self._moved()

    def send_rows(self, routes: Routes, first: int, stop: int) -> None:
        """See ``Part.send_rows``."""
        try:
            self.machine.send_rows(routes, first, stop, self._loop.time())
        except FastwireError as exc:
            raise failed(f"{self._writer.topic} partition {self.partition}", exc) from exc
        self._moved()

    def _moved(self) -> None:
        self._woken.set()

    def _fail(self, error: FastwireError) -> None:
        super()._fail(error)
        self._settle()

    def _settle(self) -> None:
        if self.machine.trouble:
            self._writer.produced.trouble = self.machine.trouble
        for outcome in self.machine.take_outcomes():
            error = outcome.error
            self._writer.settled(self, outcome)
            if error is not None and self._writer.ends(error):
                self.machine.fail(error)
                self._settle()

    async def _run(self) -> None:
        backoff = Backoff(most_s=RETRY_S)
        while not self.broken:
            self._woken.clear()
            self.machine.tick(self._loop.time())
            self._settle()
            try:
                await self._send()
                backoff.reset()
            except FastwireError as exc:
                if self._writer.ends(exc):
                    self._fail(exc)
                    return
                self._set_back()
                self.machine.trouble = self._writer.produced.trouble = str(exc)
                await asyncio.sleep(backoff.failed(log, "cannot write, retrying", exc, topic=self._writer.topic))
                continue
            try:
                async with asyncio.timeout_at(self.machine.deadline):
                    await self._woken.wait()
            except TimeoutError:
                pass  # it is time for something


class RecordWriter(ProducerWriter[LeaderWriter[Any, R]], ABC, Generic[R]):
    """Implementation of ``Writer`` over a producer of records ``R``."""

    @abstractmethod
    def _record(self, put: Put) -> R:
        """Return the system's record. Raises ValueError for what the system does not have."""

    @abstractmethod
    def _routes(self, rows: Rows) -> Routes:
        """Return the routes of rows. Raises ValueError for what the system does not have."""

    async def write(self, put: Put) -> None:
        """See ``Writer.write``."""
        await self._producer.put(self._record(checked(put)), partition=put.partition)

    async def write_rows(self, rows: Rows) -> None:
        """See ``Writer.write_rows``."""
        await self._producer.put_rows(self._routes(rows))

    async def generate(self, load: Load) -> AsyncIterator[int]:
        """Write a load, round the partitions; yields how many records each step has taken."""
        for number in range(load.first, load.first + load.records):
            await self.write(Put(load.record(number), partition=number % self._producer.partitions))
            yield 1
