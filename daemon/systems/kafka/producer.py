"""Producer for one topic: sends to the partition leaders and reports the outcome of each record (spec: kafka 14).

Exactly once and in order within a partition for as long as the object lives: every producer is idempotent.
"""

import asyncio

from fastwire.errors import FastwireError, UnsupportedError
from fastwire.kafka.format.error import REFRESH, BrokerError, Code
from fastwire.kafka.producing.partitioner import Partitioner
from fastwire.kafka.producing.payload import Compression, Record
from fastwire.kafka.producing.producer import Producer, ProducerSettings, Sending, weight
from fastwire.kafka.protocol.connection import Key
from fastwire.producer import TransactionLost

from ..producing.leaderwriter import OPEN_S, LeaderPart, LeaderWriter
from ..producing.topicwriter import PENDING_BYTES
from ..reading.topics import MISSING_S
from .cluster import Cluster
from .fence import fenced_name, identify
from .link import Answer, Link
from .refusal import is_for_good
from .transactions import Transactions

REPLICATION_MS = 20_000  # less than an answer may take
ZSTD_FROM = 7  # the version of Produce


class TopicProducer(LeaderWriter["_Part", Record]):
    """Writes to all partitions of one topic. As a context, a normal exit waits until all records are confirmed.

    The owner of ``cluster`` has to tick its links. A ``sender`` can be fenced by its name (``fence.py``). With
    ``transactions`` all records are part of these. Everything raises ProduceError.
    """

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        settings: ProducerSettings | None = None,
        *,
        sender: str = "",
        transactions: Transactions | None = None,
        most_pending_bytes: int = PENDING_BYTES,
    ) -> None:
        super().__init__(topic, Partitioner(1), most_pending_bytes=most_pending_bytes)
        self.settings = settings or ProducerSettings()
        self.cluster = cluster
        self.sender = sender
        self.transactions = transactions

    def patience_s(self, error: FastwireError) -> float:
        """See ``LeaderWriter.patience_s``."""
        if not isinstance(error, BrokerError) or is_for_good(error):
            return 0.0
        return MISSING_S if error.code == Code.UNKNOWN_TOPIC_OR_PARTITION else OPEN_S

    def ends(self, error: FastwireError) -> bool:
        """See ``LeaderWriter.ends``."""
        return is_for_good(error) or isinstance(error, TransactionLost)

    async def _count(self) -> int:
        await self.cluster.refresh([self.topic], create=True)
        known = self.cluster.metadata.topics.get(self.topic)
        if known is None or known.error:
            code = Code.UNKNOWN_TOPIC_OR_PARTITION if known is None else known.error
            missing = code == Code.UNKNOWN_TOPIC_OR_PARTITION
            raise BrokerError(code, "does not exist, and the broker does not make it" if missing else "cannot be found")
        return len(known.leaders)

    def _make(self, number: int) -> "_Part":
        return _Part(self, number)

    def _weigh(self, record: Record) -> int:
        return weight(record)

    def _key(self, record: Record) -> bytes | None:
        return record.key


class _Part(LeaderPart[Producer]):
    def __init__(self, owner: TopicProducer, partition: int) -> None:
        name = "" if owner.transactions is None else owner.transactions.name
        machine = Producer(owner.settings, fenceable=bool(owner.sender), transaction=name)
        super().__init__(machine, owner, partition)
        self._owner = owner
        self._link: Link | None = None
        self._stale = False  # the metadata are known to be old

    def _set_back(self) -> None:
        self._stale = True

    async def _send(self) -> None:
        """Send all requests that are allowed now."""
        machine = self.machine
        transactions = self._owner.transactions
        if transactions is not None:
            if not machine.waits:
                return
            identity = await transactions.join((self._owner.topic, self.partition))
            if identity != machine.identity:
                machine.identify(*identity)
        elif machine.needs_identity:
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
                body = sending.request(self._owner.topic, self.partition, REPLICATION_MS)
                most = None if transactions is None else transactions.most_produce
                answer = link.begin(Key.PRODUCE, body, most=most)
            except FastwireError:
                machine.unanswered(self._loop.time())
                raise
            answer.add_done_callback(lambda done, sending=sending: self._answered(sending, done))  # type: ignore[misc]

    async def _identity(self) -> tuple[int, int]:
        cluster = self._owner.cluster
        if self._owner.sender:
            return await identify(cluster, fenced_name(self._owner.sender, self.partition))
        link = await cluster.any()
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
