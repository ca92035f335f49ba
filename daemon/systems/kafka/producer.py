"""Producer for one topic: sends to the partition leaders and reports the outcome of each record (spec: kafka 14).

Exactly once and in order within a partition for as long as the object lives: every producer is idempotent.
"""

import asyncio
from dataclasses import dataclass

from fastwire.errors import FastwireError, UnsupportedError
from fastwire.kafka.connection import Key
from fastwire.kafka.error import REFRESH, BrokerError, Code
from fastwire.kafka.partitioner import Partitioner
from fastwire.kafka.payload import Compression, Record
from fastwire.kafka.producer import Outcome, Producer, ProducerSettings, Sending, weight

from ...net.backoff import Backoff
from ...runtime.logs import get_logger
from ..topicwriter import PENDING_BYTES, Part, TopicWriter, failed
from .cluster import MISSING_S, Cluster
from .link import Answer, Link
from .refusal import is_for_good

__all__ = ["Sent", "TopicProducer"]

REPLICATION_MS = 20_000  # less than an answer may take
ZSTD_FROM = 7  # the version of Produce
RETRY_S = 2.0  # at most between two tries
OPEN_S = 30.0

log = get_logger("producer")


@dataclass(frozen=True, slots=True)
class Sent:
    """Position of a stored record; offset -1: the broker recognised a duplicate, and no longer knows its offset."""

    partition: int
    offset: int


class TopicProducer(TopicWriter["_Part", Record, Sent]):
    """Writes to all partitions of one topic. As a context, a normal exit waits until all records are confirmed.

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
        super().__init__(topic, most_pending_bytes=most_pending_bytes)
        self.topic = topic
        self.settings = settings or ProducerSettings()
        self.cluster = cluster
        self._partitioner = Partitioner(1)

    # --- coming and going

    @property
    def partitions(self) -> int:
        """The number of partitions that are written to."""
        return len(self._parts)

    async def open(self) -> None:
        """Find the partitions. A topic that does not exist is created if the broker creates topics automatically.

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
                missing = isinstance(exc, BrokerError) and exc.code == Code.UNKNOWN_TOPIC_OR_PARTITION
                patience = MISSING_S if missing else OPEN_S
                passing = isinstance(exc, BrokerError) and not is_for_good(exc)
                if not passing or loop.time() >= began + patience:
                    raise failed(self.topic, exc) from exc
            await asyncio.sleep(backoff.next())
        self._partitioner.partitions = count
        self._parts = [self._part(number) for number in range(count)]
        self._watch()

    async def _count(self) -> int:
        await self.cluster.refresh([self.topic], create=True)
        known = self.cluster.metadata.topics.get(self.topic)
        if known is None or known.error:
            code = Code.UNKNOWN_TOPIC_OR_PARTITION if known is None else known.error
            missing = code == Code.UNKNOWN_TOPIC_OR_PARTITION
            raise BrokerError(code, "does not exist, and the broker does not make it" if missing else "cannot be found")
        return len(known.leaders)

    async def _add(self, number: int) -> "_Part":
        return self._part(number)

    def _part(self, number: int) -> "_Part":
        part = _Part(self, number)
        part.start()
        return part

    def _chooser(self) -> Partitioner:
        return self._partitioner

    def _weigh(self, record: Record) -> int:
        return weight(record)

    def _key(self, record: Record) -> bytes | None:
        return record.key

    def settled(self, part: "_Part", outcome: Outcome) -> None:
        """Resolve the records of a batch that is confirmed or has failed."""
        partition, offset = part.partition, outcome.offset
        if outcome.error is not None:
            self._given_up(part, outcome.tickets, failed(f"{self.topic} partition {partition}", outcome.error))
            return
        places = (Sent(partition, offset + place if offset >= 0 else -1) for place in range(len(outcome.tickets)))
        placed = zip(outcome.tickets, places, strict=True)
        self._confirmed(part, placed, records=len(outcome.tickets), size=outcome.size)


class _Part(Part[Producer]):
    def __init__(self, owner: TopicProducer, partition: int) -> None:
        super().__init__(Producer(owner.settings))
        self._owner = owner
        self.partition = partition
        self._link: Link | None = None
        self._stale = False  # the metadata are known to be old
        self._woken = asyncio.Event()

    def send(self, record: Record, ticket: object) -> None:
        try:
            self.machine.send(record, ticket, self._loop.time())
        except FastwireError as exc:
            raise failed(f"{self._owner.topic} partition {self.partition}", exc) from exc
        self._moved()

    def _moved(self) -> None:
        self._woken.set()

    def _fail(self, error: FastwireError) -> None:
        super()._fail(error)
        self._settle()

    def _settle(self) -> None:
        for outcome in self.machine.take_outcomes():
            error = outcome.error
            self._owner.settled(self, outcome)
            if isinstance(error, BrokerError) and is_for_good(error):
                self.machine.fail(error)
                self._settle()

    # --- at the leader

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
                if is_for_good(exc):
                    self._fail(exc)
                    return
                self._stale = True
                await asyncio.sleep(backoff.failed(log, "cannot write, trying again", exc, topic=self._owner.topic))
                continue
            deadline = self.machine.deadline
            try:
                async with asyncio.timeout_at(deadline):
                    await self._woken.wait()
            except TimeoutError:
                pass  # it is time for something

    async def _send(self) -> None:
        """Send all requests that are allowed now."""
        machine = self.machine
        if machine.needs_identity:
            machine.identify(*await self._identity())
        while (link := self._link) is None or not link.ready or self._stale:
            if self._stale:
                await self._owner.cluster.refresh([self._owner.topic])
                self._stale = False
            self._link = await self._owner.cluster.leader("produce", (self._owner.topic, self.partition))
        if self._owner.settings.compression is Compression.ZSTD and link.connection.version_of(Key.PRODUCE) < ZSTD_FROM:
            raise UnsupportedError(f"{link} is too old a broker for zstd")
        while (sending := machine.take(self._loop.time())) is not None:
            try:
                answer = link.begin(Key.PRODUCE, sending.request(self._owner.topic, self.partition, REPLICATION_MS))
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
        try:
            said = sending.answer(answer.result(), self._owner.topic, self.partition)
        except (FastwireError, asyncio.CancelledError):
            self._stale = True
            self.machine.unanswered(now)
            return
        code = said["error_code"]
        self._stale |= code in REFRESH
        self.machine.answered(sending, code, said["base_offset"], now, said.get("error_message"))
        self._settle()
