"""Writing to a topic: its partitions' producers kept at their leaders, and what became of each record (kafka 14).

Exactly once and in order within a partition for as long as the object lives: every producer is idempotent.
"""

import asyncio
from dataclasses import dataclass
from typing import Self

from fastwire.errors import FastwireError, UnsupportedError
from fastwire.kafka.connection import Key
from fastwire.kafka.error import REFRESH, BrokerError, Code
from fastwire.kafka.partitioner import Partitioner
from fastwire.kafka.payload import Compression, Record
from fastwire.kafka.producer import Outcome, Producer, ProducerSettings, Sending, weight

from ..backoff import Backoff
from ..endpoint import UnreachableError
from ..logs import get_logger
from ..produced import Produced, ProduceError
from .cluster import Cluster
from .link import Answer, Link
from .refusal import is_for_good

__all__ = ["Sent", "TopicProducer"]

PENDING_BYTES = 16 << 20  # of the whole topic, before compression
REPLICATION_MS = 20_000  # less than an answer may take
ZSTD_FROM = 7  # the version of Produce
RETRY_S = 2.0  # at most between two tries
OPEN_S = 30.0

log = get_logger("producer")


@dataclass(frozen=True, slots=True)
class Sent:
    """Where a record is stored; offset -1: the broker recognised it, and no longer knew where it is."""

    partition: int
    offset: int


class TopicProducer:
    """All partitions of one topic. Use it as a context: leaving it in order waits until everything is confirmed.

    The owner of ``cluster`` has to tick its links. Everything raises ProduceError.
    """

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        settings: ProducerSettings | None = None,
        *,
        most_pending_bytes: int = PENDING_BYTES,
    ) -> None:
        self.topic = topic
        self.settings = settings or ProducerSettings()
        self.produced = Produced()
        self.cluster = cluster
        self._partitioner = Partitioner(1)
        self._most_pending_bytes = most_pending_bytes
        self._parts: list[_Part] = []
        self._batches = 0  # of the partitioner's current partition, when it became that
        self._error: ProduceError | None = None  # the first one that no flush has told yet
        self._changed = asyncio.Event()

    # --- coming and going

    @property
    def partitions(self) -> int:
        """How many partitions are written to."""
        return len(self._parts)

    async def open(self) -> None:
        """Find the partitions. What can pass is tried again for a while; a cluster that cannot be reached is not."""
        backoff = Backoff(most_s=RETRY_S)
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + OPEN_S
        while True:
            try:
                await self.cluster.refresh([self.topic])
                known = self.cluster.metadata.topics.get(self.topic)
                code = Code.UNKNOWN_TOPIC_OR_PARTITION if known is None else known.error
                if known is not None and not code:
                    break
                raise BrokerError(code, self.topic)
            except FastwireError as exc:
                missing = isinstance(exc, BrokerError) and exc.code == Code.UNKNOWN_TOPIC_OR_PARTITION
                if missing or is_for_good(exc) or isinstance(exc, UnreachableError) or loop.time() >= give_up_at:
                    raise _failed(self.topic, exc) from exc
            await asyncio.sleep(backoff.next())
        self._partitioner.partitions = len(known.leaders)
        self._parts = [_Part(self, number) for number in sorted(known.leaders)]

    async def close(self) -> None:
        """Stop; what is not confirmed by then has failed."""
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

    async def put(self, record: Record, *, partition: int | None = None) -> "asyncio.Future[Sent]":
        """Take a record, waiting while too much is not confirmed; the future says where it is stored, or raises."""
        part = self._choose(record, partition)
        await self._make_room(part, weight(record))
        future: asyncio.Future[Sent] = asyncio.get_running_loop().create_future()
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

    def _choose(self, record: Record, partition: int | None) -> "_Part":
        partitioner = self._partitioner
        if partition is None and record.key is not None:
            partition = partitioner.of_key(record.key)
        if partition is None:
            if self._parts[partitioner.current].machine.batches != self._batches:
                partitioner.turn()
                self._batches = self._parts[partitioner.current].machine.batches
            partition = partitioner.current
        if not 0 <= partition < len(self._parts):
            raise ProduceError(f"{self.topic} has no partition {partition}: there are {len(self._parts)}")
        return self._parts[partition]

    async def _make_room(self, part: "_Part", size: int) -> None:
        while part.machine.failure is None:
            used = sum(each.machine.weight for each in self._parts)
            if not used or used + size <= self._most_pending_bytes:
                break
            for each in self._parts:
                each.flush()
            await self._change()

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def settled(self, partition: int, outcome: Outcome) -> None:
        """A batch is confirmed, or will never be."""
        self._changed.set()
        futures = [ticket for ticket in outcome.tickets if isinstance(ticket, asyncio.Future) and not ticket.done()]
        if outcome.error is not None:
            error = _failed(f"{self.topic} partition {partition}", outcome.error)
            self._error = self._error or error
            for future in futures:
                future.set_exception(error)
                future.exception()  # who does not look at the future is told by ``flush``
            return
        self.produced.records += len(outcome.tickets)
        self.produced.entries += 1
        self.produced.bytes += outcome.size
        for place, ticket in enumerate(outcome.tickets):
            if isinstance(ticket, asyncio.Future) and not ticket.done():
                ticket.set_result(Sent(partition, outcome.offset + place if outcome.offset >= 0 else -1))


def _failed(what: str, exc: FastwireError) -> ProduceError:
    error = ProduceError(f"{what}: {exc}")
    error.__cause__ = exc
    return error


class _Part:
    """The producer of one partition, on whatever connection leads to its leader."""

    def __init__(self, owner: TopicProducer, partition: int) -> None:
        self.machine = Producer(owner.settings)
        self._owner = owner
        self._partition = partition
        self._loop = asyncio.get_running_loop()
        self._link: Link | None = None
        self._stale = False  # the metadata are known to be old
        self._woken = asyncio.Event()
        self._task = asyncio.create_task(self._run())

    def send(self, record: Record, ticket: object) -> None:
        """Hand a record to the machine."""
        try:
            self.machine.send(record, ticket, self._loop.time())
        except FastwireError as exc:
            raise _failed(f"{self._owner.topic} partition {self._partition}", exc) from exc
        self._woken.set()

    def flush(self) -> None:
        """Close the open batch."""
        self.machine.flush()
        self._woken.set()

    async def close(self) -> None:
        """Stop; what is not confirmed has failed."""
        self._task.cancel()
        await asyncio.wait((self._task,))
        self._fail(ProduceError("the producer was closed"))

    def _fail(self, error: FastwireError) -> None:
        self.machine.fail(error)
        self._settle()

    def _settle(self) -> None:
        for outcome in self.machine.take_outcomes():
            error = outcome.error
            self._owner.settled(self._partition, outcome)
            if isinstance(error, BrokerError) and is_for_good(error):
                self.machine.fail(error)
                self._settle()

    # --- at the leader

    async def _run(self) -> None:
        backoff = Backoff(most_s=RETRY_S)
        while self.machine.failure is None:
            self._woken.clear()
            self.machine.tick(self._loop.time())
            self._settle()
            try:
                await self._send()
                backoff.reset()
            except FastwireError as exc:
                if is_for_good(exc):
                    self._fail(exc)
                    return
                self._stale = True
                write = log.warning if backoff.failures in (1, 4) or backoff.failures % 10 == 0 else log.debug
                write("cannot write, trying again", topic=self._owner.topic, error=str(exc))
                await asyncio.sleep(backoff.next())
                continue
            deadline = self.machine.deadline
            try:
                async with asyncio.timeout_at(deadline):
                    await self._woken.wait()
            except TimeoutError:
                pass  # it is time for something

    async def _send(self) -> None:
        """Send what may be sent now."""
        machine = self.machine
        if machine.needs_identity:
            machine.identify(*await self._identity())
        while (link := self._link) is None or not link.ready or self._stale:
            if self._stale:
                await self._owner.cluster.refresh([self._owner.topic])
                self._stale = False
            self._link = await self._owner.cluster.leader("produce", (self._owner.topic, self._partition))
        if self._owner.settings.compression is Compression.ZSTD and link.connection.version_of(Key.PRODUCE) < ZSTD_FROM:
            raise UnsupportedError(f"{link} is too old a broker for zstd")
        while (sending := machine.take(self._loop.time())) is not None:
            try:
                answer = link.begin(Key.PRODUCE, sending.request(self._owner.topic, self._partition, REPLICATION_MS))
            except FastwireError:
                machine.unanswered(self._loop.time())
                raise
            answer.add_done_callback(lambda done, sending=sending: self._answered(sending, done))  # type: ignore[misc]

    async def _identity(self) -> tuple[int, int]:
        link = await self._owner.cluster.any()
        answer = await link.ask(Key.INIT_PRODUCER_ID, {"transactional_id": None, "transaction_timeout_ms": 60_000})
        if answer["error_code"]:
            raise BrokerError(answer["error_code"], "a producer id")
        return answer["producer_id"], answer["producer_epoch"]

    def _answered(self, sending: Sending, answer: Answer) -> None:
        now = self._loop.time()
        self._woken.set()
        if answer.cancelled() or answer.exception() is not None:
            self._stale = True
            self.machine.unanswered(now)
            return
        said = answer.result()["responses"][0]["partition_responses"][0]
        code = said["error_code"]
        self._stale |= code in REFRESH
        self.machine.answered(sending, code, said["base_offset"], now, said.get("error_message"))
        self._settle()
