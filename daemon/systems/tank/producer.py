"""Producer for one topic: sends to the partition leaders and reports the outcome of each message (spec: tank 7).

In order within a partition. While no other producer writes to a partition, each message is stored once, also over lost
connections (``fastwire.tank.producing.producer``).
"""

import asyncio

from fastwire.errors import FastwireError
from fastwire.tank.format.error import BrokerError, PartitionStatus, ProduceCode
from fastwire.tank.producing.bundle import Message
from fastwire.tank.producing.partitioner import Partitioner
from fastwire.tank.producing.producer import Producer, ProducerSettings, weight
from fastwire.tank.protocol.event import Answer
from fastwire.tank.protocol.produce import ProduceAnswer, ProduceRequest

from ...runtime.logs import get_logger
from ..producing.leaderwriter import OPEN_S, LeaderPart, LeaderWriter
from ..producing.topicwriter import PENDING_BYTES
from .cluster import Cluster
from .refusal import is_for_good

ACK_TIMEOUT_MS = 20_000  # less than an answer may take
ALL_IN_SYNC = 0  # acknowledgements of all in-sync replicas; a standalone broker ignores the number

log = get_logger("producer")


class TopicProducer(LeaderWriter["_Part", Message]):
    """Writes to all partitions of one topic. As a context, a normal exit waits until all messages are confirmed.

    With ``create`` a topic that does not exist is created with so many partitions. The owner of ``cluster`` has to tick
    its links. Everything raises ProduceError.
    """

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        settings: ProducerSettings | None = None,
        *,
        create: int = 0,
        most_pending_bytes: int = PENDING_BYTES,
    ) -> None:
        super().__init__(topic, Partitioner(1), most_pending_bytes=most_pending_bytes)
        self.settings = settings or ProducerSettings()
        self.cluster = cluster
        self._create = create

    def patience_s(self, error: FastwireError) -> float:
        """See ``LeaderWriter.patience_s``."""
        missing = isinstance(error, BrokerError) and error.code is PartitionStatus.UNKNOWN_TOPIC
        passes = missing and self._create  # a cluster makes it known to its brokers one after the other
        return OPEN_S if passes else 0.0

    def ends(self, error: FastwireError) -> bool:
        """See ``LeaderWriter.ends``."""
        return is_for_good(error)

    async def _count(self) -> int:
        try:
            return (await self.cluster.ranges(self.topic)).count
        except BrokerError as exc:
            if exc.code is not PartitionStatus.UNKNOWN_TOPIC:
                raise
            if not self._create:
                advice = "brokers make no topic by themselves; --create N makes it with N partitions"
                raise BrokerError(exc.code, "does not exist", advice) from None
        if await self.cluster.create(self.topic, self._create):
            log.info("created the topic", topic=self.topic, partitions=self._create)
        return (await self.cluster.ranges(self.topic)).count

    def _make(self, number: int) -> "_Part":
        return _Part(self, number)

    def _weigh(self, record: Message) -> int:
        return weight(record)

    def _key(self, record: Message) -> bytes | None:
        return record.key


class _Part(LeaderPart[Producer]):
    def __init__(self, owner: TopicProducer, partition: int) -> None:
        super().__init__(Producer(owner.settings), owner, partition)
        self._cluster = owner.cluster
        self._place = (owner.topic, partition)
        self._numbered = owner.settings.numbered

    def _set_back(self) -> None:
        self._cluster.lead(self._place, None)

    async def _send(self) -> None:
        machine = self.machine
        if machine.needs_sequence:
            topic, partition = self._place
            machine.number((await self._cluster.ranges(topic)).of(partition).last + 1)
            self._settle()
        if self._numbered and not machine.numbered:
            self._numbered = False
            what = "another producer writes to the partition: a lost connection may store messages twice"
            log.warning(what, topic=self._writer.topic, partition=self.partition)
        if machine.idle:
            return
        link = await self._cluster.leader("produce", self._place)
        sending = machine.take(self._loop.time())
        if sending is None:
            return
        topic, partition = self._place
        bundles = ((topic, (sending.part(partition),)),)
        try:
            answer = link.begin(ProduceRequest(bundles, ALL_IN_SYNC, ACK_TIMEOUT_MS, self._cluster.client_id))
        except FastwireError:
            machine.unanswered(self._loop.time())
            raise
        answer.add_done_callback(self._answered)

    def _answered(self, answer: "asyncio.Future[Answer]") -> None:
        now = self._loop.time()
        self._woken.set()
        try:
            said = answer.result()
            assert isinstance(said, ProduceAnswer)
        except (FastwireError, asyncio.CancelledError):
            self.machine.unanswered(now)
            return
        result = said.of(*self._place)
        assert result is not None  # the request has named it
        if result.code in (ProduceCode.REDIRECT, ProduceCode.NO_LEADER):
            self._cluster.lead(self._place, result.leader)
        self.machine.answered(result.code, now)
        self._settle()
