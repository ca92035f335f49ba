"""Reading a topic without a subscription: nothing is acknowledged, no cursor moves (pulsar 25.1)."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

from fastwire.columns.chunk import Chunk
from fastwire.errors import FastwireError
from fastwire.position import PULSAR_EARLIEST, Log, Position
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.consumer import Consumer
from fastwire.pulsar.event import ConsumerClosed, EntryRejected, Reply, TopicMigrated
from fastwire.pulsar.request import SubscribeRequest
from fastwire.pulsar.slot import SlotTable
from fastwire.pulsar.topic import Topic
from fastwire.wire.pool import Pool

from ...pulsar.cluster import Cluster
from ...pulsar.link import Link
from ...pulsar.schemas import Schemas
from ...pulsar.topics import Found, Topics
from .settings import PulsarSettings

__all__ = ["Reader"]

LATEST = Position(0x7FFFFFFFFFFFFFFF, 0x7FFFFFFFFFFFFFFF)
WINDOW = 1000
TICK_S = 0.05
CHUNK_AGE_S = 0.1
QUEUE = 4


class Reader:
    """Chunks of one topic from ``settings.start`` on; ends with an error when a connection does."""

    def __init__(self, settings: PulsarSettings, pool: Pool) -> None:
        self._settings = settings
        self._slots = SlotTable()
        self._cluster = Cluster(settings, self._slots, pool, self)
        self.schemas = Schemas(self._cluster, settings.url)
        self._consumers: dict[int, Consumer] = {}
        self._heads: dict[int, Position] = {}
        self._queue: asyncio.Queue[Chunk] = asyncio.Queue()
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def open(self) -> None:
        """Find the partitions and ask for their records. Raises FastwireError where the broker says no."""
        for found in await self._find():
            for index in found.indexes:
                await self._subscribe(
                    found.topic, index, found.topic.of_partition(index) if found.partitions else found.topic
                )

    async def describe(self) -> list[tuple[str, int]]:
        """Each topic with the number of its partitions, 0 = none; asks who owns each, and reads nothing."""
        topics = await self._find()
        for found in topics:
            name = found.topic.of_partition(0) if found.partitions else found.topic
            await self._cluster.owner(str(name), self._settings.url)
        return [(str(found.topic), found.partitions) for found in topics]

    async def _find(self) -> list[Found]:
        """The topics that there are now."""
        settings = self._settings
        news = await Topics(self._cluster, settings.url, settings.topics, settings.pattern).look()
        if news.failure is not None:
            raise news.failure
        return news.found

    async def chunks(self, *, until_end: bool = False) -> AsyncIterator[Chunk]:
        """Yield chunks as they come; with ``until_end`` up to what the topic held at ``open``."""
        loop = asyncio.get_running_loop()
        while True:
            if until_end and self._at_end():
                for link in tuple(self._cluster.links.values()):
                    link.hand_on()
                if self._queue.empty():
                    return
            getting = asyncio.ensure_future(self._queue.get())
            try:
                either: list[asyncio.Future[Any]] = [getting, self._failed]
                await asyncio.wait(either, timeout=TICK_S, return_when=asyncio.FIRST_COMPLETED)
            finally:
                if not getting.done():
                    getting.cancel()
            if getting.done() and not getting.cancelled():
                yield getting.result()
            elif self._failed.done():
                self._failed.result()
            now = loop.time()
            for link in tuple(self._cluster.links.values()):
                link.tick(now, CHUNK_AGE_S)
                if self._queue.qsize() < QUEUE:
                    for consumer_id in link.tenants:
                        self._consumers[consumer_id].settle()
                link.flush()

    async def close(self) -> None:
        """Leave; the broker forgets that we were there."""
        if not self._failed.done():
            self._failed.cancel()
        await self._cluster.close()

    def _at_end(self) -> bool:
        return all(self._slots.last_position(consumer_id) >= head for consumer_id, head in self._heads.items())

    async def _subscribe(self, topic: Topic, index: int, name: Topic) -> None:
        settings = self._settings
        log_index = self._slots.add_log(Log("pulsar", settings.cluster, str(topic.base), str(index), "0"))
        consumer_id = len(self._consumers)
        self._slots.add(consumer_id, log_index, ordered=True)
        begin, rollback_s = self._begin(str(name), consumer_id)
        want = SubscribeRequest(
            topic=str(name),
            subscription=f"reader-{secrets.token_hex(5)}",
            subscription_type=pb.CommandSubscribe.Exclusive,
            consumer_id=consumer_id,
            consumer_name=settings.consumer_name,
            reader_from=begin,
            rollback_s=rollback_s,
        )
        consumer = self._consumers[consumer_id] = Consumer(want, self._slots, WINDOW)
        loop = asyncio.get_running_loop()
        link = await self._cluster.owner(str(name), settings.url)
        link.tenants[consumer_id] = _Tenant(self, str(name))

        def subscribed(reply: Reply) -> None:
            if reply.error is None:
                consumer.subscribed(loop.time())

        await link.ask(lambda connection, now: consumer.subscribe(connection, link.link_id, now), subscribed)
        answer = await link.ask(lambda connection, now: connection.get_last_message_id(consumer_id, now))
        last = answer.getLastMessageIdResponse.last_message_id
        if last.entryId < 1 << 63:
            self._heads[consumer_id] = Position(last.ledgerId, last.entryId)
        consumer.grant()
        link.flush()

    def _begin(self, name: str, consumer_id: int) -> tuple[Position, int]:
        start = self._settings.start
        if start.kind == "latest":
            return LATEST, 0
        if start.time is not None:
            return PULSAR_EARLIEST, max(1, int((datetime.now(UTC) - start.time).total_seconds()) + 1)
        if start.kind == "earliest":
            return PULSAR_EARLIEST, 0
        at = start.positions.get(name)
        if at is None:
            raise FastwireError(f"a position is one of a partition: name the partition, {name} for example")
        self._slots.set_landed(consumer_id, at)  # "last consumed": the broker sends that entry once more
        return at, 0

    def fail(self, error: FastwireError) -> None:
        """No more chunks will come."""
        if not self._failed.done():
            self._failed.set_exception(error)

    # --- what links tell

    def on_chunk(self, chunk: Chunk) -> None:
        """A chunk for whoever iterates."""
        self._queue.put_nowait(chunk)

    def on_connected(self, link: Link) -> None:
        """Nothing to do."""

    def on_lost(self, link: Link, reason: Exception | None) -> None:
        """Looking at a topic is not worth a reconnect: say so and end."""
        self.fail(
            reason if isinstance(reason, FastwireError) else FastwireError(f"the connection to {link.address} is lost")
        )

    def after_read(self, link: Link) -> None:
        """Grant what was used up, as long as somebody takes the chunks."""
        for consumer_id in self._slots.take_dirty():
            if self._queue.qsize() < QUEUE:
                self._consumers[consumer_id].pump()


class _Tenant:
    def __init__(self, reader: Reader, topic: str) -> None:
        self._reader = reader
        self._topic = topic

    def on_receipt(self, request_id: int, accepted: bool) -> None: ...
    def on_active(self, active: bool) -> None: ...
    def on_end_of_topic(self) -> None: ...
    def on_migrated(self, event: TopicMigrated) -> None: ...

    def on_closed(self, event: ConsumerClosed) -> None:
        self._reader.fail(FastwireError(f"the broker has closed {self._topic}"))

    def on_link_lost(self, reason: str) -> None: ...

    def on_rejected(self, event: EntryRejected) -> None:
        entry = event.entry
        if not event.diverted:
            self._reader.fail(
                FastwireError(f"{self._topic}: entry {entry.ledger}:{entry.entry}: {entry.reason}: {entry.detail}")
            )
