"""Writer whose records and positions are one transaction: the positions are in a compacted topic (spec: kafka 14.2)."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import replace

import pyarrow as pa

from fastwire.errors import FastwireError
from fastwire.kafka.producing.payload import Record
from fastwire.kafka.producing.producer import ProducerSettings
from fastwire.kafka.protocol.question import LATEST
from fastwire.wire.pool import Pool

from ...config import Connection, Start, TopicChoice
from ...net.backoff import Backoff
from ...runtime.clock import now_ms
from ...runtime.logs import get_logger
from ...runtime.outside import waits_for
from ..ledger import LedgerOptions, LedgerRefused
from ..produced import ProduceError
from ..producing.topicwriter import failed
from ..source import LogStopped
from ..writer import WriteOptions
from .cluster import ClientCluster, Cluster
from .fence import patiently
from .ledgercheck import LETTERS, POSITIONS, create_topic, find_coordinator, refusals, refuse_retention
from .producer import TopicProducer
from .settings import ClientSettings, client_fields
from .source import DRIVER, reader_settings
from .transactions import Transactions
from .writer import KafkaWriter, producer_settings

PARTITION = 0  # the others are not used: a topic that gets more of them later must not lose its entries
READ_BYTES = 16 << 20
COORDINATOR_S = 30.0  # at first use a cluster makes the topic of the coordinators, and at its start it may hide it
COMMIT_S = 5.0  # a commit of a process that lives takes less, with brokers that answer
STABLE_S = 900.0  # the longest that brokers leave a transaction open by default

log = get_logger("sink")


class KafkaLedgerWriter(KafkaWriter):
    """Implementation of ``LedgerWriter`` for Kafka."""

    def __init__(
        self,
        producer: TopicProducer,
        positions: TopicProducer,
        transactions: Transactions,
        connection: Connection,
        cluster: Cluster,
        dead_letters: TopicProducer | None = None,
    ) -> None:
        super().__init__(producer)
        self._dead_letters = None if dead_letters is None else KafkaWriter(dead_letters)
        self._positions = positions
        self._transactions = transactions
        self._connection = connection
        self._cluster = cluster

    @property
    def name(self) -> str:
        """See ``LedgerWriter.name``."""
        return self._transactions.name

    @property
    def dead_letters(self) -> KafkaWriter | None:
        """See ``LedgerWriter.dead_letters``."""
        return self._dead_letters

    async def fence(self, name: str) -> None:
        """See ``LedgerWriter.fence``."""
        await self._transactions.fence(name)

    async def commit(self, entries: Mapping[bytes, bytes | None]) -> None:
        """See ``LedgerWriter.commit``."""
        await self._producer.flush()
        with refusals("positions"):
            # These come last: an open transaction hides what others commit behind its first record.
            for key, value in entries.items():
                await self._positions.put(Record(value=value, key=key, timestamp=now_ms()), partition=PARTITION)
            await self._positions.flush()
            await self._transactions.commit()

    async def settle(self, rivals: Callable[[Iterable[bytes]], Collection[str]]) -> None:
        """See ``LedgerWriter.settle``."""
        with refusals("positions"):
            await self._settle(rivals)

    async def _settle(self, rivals: Callable[[Iterable[bytes]], Collection[str]]) -> None:
        topic = self._positions.topic
        end = await patiently(lambda: _end(self._cluster, topic, read_committed=False))
        backoff, now = Backoff(most_s=1.0), asyncio.get_running_loop().time
        began, fenced = now(), set[str]()
        look_at = began + COMMIT_S
        with waits_for(f"the end of a transaction of another producer on {topic}", STABLE_S):
            while await patiently(lambda: _end(self._cluster, topic, read_committed=True)) < end:
                if now() - began >= STABLE_S:
                    place = f"{topic} partition {PARTITION}"
                    raise ProduceError(f"a transaction on {place} has not ended for {STABLE_S:g} s")
                if now() >= look_at:
                    for name in {*rivals(await self._read(read_committed=False))} - fenced:
                        log.info("a commit does not end: a writer that may have left it open is fenced", writer=name)
                        await self._transactions.fence(name)
                        fenced.add(name)
                    look_at = now() + COMMIT_S
                await asyncio.sleep(backoff.next())

    async def entries(self) -> dict[bytes, bytes]:
        """See ``LedgerWriter.entries``."""
        with refusals("positions"):
            return await self._read(read_committed=True)

    async def _read(self, *, read_committed: bool) -> dict[bytes, bytes]:
        found: dict[bytes, bytes] = {}
        settings = reader_settings(self._connection, TopicChoice((self._positions.topic,)), Start("earliest"))
        limits = replace(settings.limits, read_committed=read_committed)
        settings = replace(settings, columns=frozenset({"key", "value"}), limits=limits)
        reader = DRIVER.reader(settings, Pool(READ_BYTES))
        try:
            await reader.open()
            async for chunk in reader.up_to_now():
                if chunk.rows:
                    batch = pa.record_batch(chunk)
                    keys, values = (batch.column(name).to_pylist() for name in ("key", "value"))
                    for key, value in zip(keys, values, strict=True):
                        found.pop(key, None)
                        if key and value:
                            found[key] = value  # at the end: the order is that of the commits
                chunk.release()
        except LogStopped as exc:
            if exc.reason == "refused":
                raise LedgerRefused(str(exc)) from exc
            raise
        finally:
            await reader.close()
        return found


async def _end(cluster: Cluster, topic: str, *, read_committed: bool) -> int:
    await cluster.refresh([topic])
    offsets = await cluster.list_offsets({(topic, PARTITION): LATEST}, read_committed=read_committed)
    return offsets.of((topic, PARTITION))[0]


def open_ledger(
    connection: Connection, topic: str, options: WriteOptions, ledger: LedgerOptions
) -> AbstractAsyncContextManager[KafkaLedgerWriter]:
    """See ``System.open_ledger``."""
    return _open(connection, topic, producer_settings(options), ledger)


@asynccontextmanager
async def _open(
    connection: Connection, topic: str, settings: ProducerSettings, ledger: LedgerOptions
) -> AsyncIterator[KafkaLedgerWriter]:
    async with ClientCluster(ClientSettings(**client_fields(connection))) as cluster:
        transactions = Transactions(cluster, ledger.name, int(ledger.timeout_s * 1000))
        try:
            with refusals(topic):
                await find_coordinator(cluster, ledger.name, topic, COORDINATOR_S)
                await patiently(lambda: create_topic(cluster, ledger.topic, "positions", POSITIONS))
                await patiently(lambda: refuse_retention(cluster, ledger.topic))
                if ledger.dead_letters:
                    await patiently(lambda: create_topic(cluster, ledger.dead_letters, "dead letters", LETTERS))
                await transactions.open()
        except LedgerRefused:
            raise
        except FastwireError as exc:
            raise failed(topic, exc) from exc
        opened = False
        try:
            async with AsyncExitStack() as stack:

                async def enter(name: str) -> TopicProducer:
                    return await stack.enter_async_context(
                        TopicProducer(cluster, name, settings, transactions=transactions)
                    )

                producer = await enter(topic)
                with refusals("positions and dead letters"):
                    positions = await enter(ledger.topic)
                    letters = await enter(ledger.dead_letters) if ledger.dead_letters else None
                opened = True
                yield KafkaLedgerWriter(producer, positions, transactions, connection, cluster, letters)
        finally:
            if opened:
                await transactions.close()
