"""A Pulsar cluster as one of Spark's processes reads it: the daemon's connections, and consumers on them."""

import asyncio
import math
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from itertools import count

from fastwire.columns.chunk import Chunk
from fastwire.errors import FastwireError
from fastwire.position import Log, Position
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.names.topic import Address, Topic, parse_topic
from fastwire.pulsar.protocol.consumer import ConsumerMachine
from fastwire.pulsar.protocol.event import ConsumerClosed, EntryRejected, TopicMigrated
from fastwire.pulsar.protocol.request import SubscribeRequest
from fastwire.pulsar.reading.slot import SlotTable
from fastwire.wire.pool import Pool

from ....net.endpoint import LinkLost
from ....systems.links.linkbook import TimedLinkBook
from ....systems.pulsar.cluster import Cluster
from ....systems.pulsar.link import Link
from ....systems.pulsar.settings import ClientSettings, client_fields
from ..connections import POOL_BYTES, tell_unfit
from ..options import Options
from ..ranges import QueryPartition
from ..rows import Rows
from .dialect import DIALECT


def settings_of(options: Options) -> ClientSettings:
    """Return the settings of connections for the options. Raises ConfigError for unusable files."""
    return ClientSettings(**client_fields(options.connection), columns=Rows.built(DIALECT, options.columns))


def topic_of(partition: QueryPartition) -> Topic:
    """Return the name of ``partition`` as a topic."""
    topic = parse_topic(partition.topic)
    return topic if partition.index < 0 else topic.of_partition(partition.index)


class RangeCluster(Cluster, TimedLinkBook[tuple[Address, Address], Link]):
    """One connection to each broker, for questions and for the entries of one range at a time.

    ``window`` is the number of messages that are requested ahead. ``chunks`` are those that came and were not taken,
    ``ended_by`` is what has ended the reading before its end.
    """

    chunk_age_s = math.inf  # a range has an end, so a reader takes the open chunk itself

    def __init__(self, settings: ClientSettings, window: int) -> None:
        self.window = window
        self.slots = SlotTable()
        self.consumer_ids: Iterator[int] = count()
        self.service = settings.url
        self._indexes: dict[QueryPartition, int] = {}
        self.settings = replace(settings, on_corrupt="stop")  # a frame has no place for dead letters
        self.chunks: deque[Chunk] = deque()
        self.ended_by: Exception | None = None
        self._reading: Link | None = None
        self._news = asyncio.Event()
        self._time = asyncio.get_running_loop().time
        super().__init__(self.settings, self.slots, Pool(POOL_BYTES), self)

    def log_index(self, partition: QueryPartition) -> int:
        """Return the index of ``partition`` in the slot table, which it is added to if it is new."""
        if partition not in self._indexes:
            log = Log("pulsar", self.service.hosts, partition.topic, str(partition.index))
            self._indexes[partition] = self.slots.add_log(log)
        return self._indexes[partition]

    @property
    def now(self) -> float:
        """The time of the loop, in seconds."""
        return self._time()

    def watch(self, link: Link) -> None:
        """Begin to read by ``link``. Raises LinkLost if it is closed."""
        if not link.ready:
            raise LinkLost(f"connection to {link} is closed")
        self._reading, self.ended_by = link, None
        self.chunks.clear()

    def leave(self, link: Link) -> None:
        """End reading by ``link``; records that were not taken are dropped."""
        self._reading = None
        link.drop_chunk()
        self.chunks.clear()

    def take_full(self) -> Iterator[Chunk]:
        """Yield the chunks that are full, in the order of arrival."""
        while self.chunks:
            yield self.chunks.popleft()

    def take_all(self) -> Iterator[Chunk]:
        """Yield all chunks; the last one may not be full."""
        if self._reading is not None:
            self._reading.hand_on()
        return self.take_full()

    def tell(self, failure: Exception | None = None) -> None:
        """Wake the reader. ``failure`` is the error that has ended the reading, if any; the first one is kept."""
        self.ended_by = self.ended_by or failure
        self._news.set()

    async def news(self) -> None:
        """Wait until something happens that concerns the reader, at most until the links are ticked."""
        await self._news.wait()
        self._news.clear()

    # --- calls of the links and of the clock

    def on_tick(self) -> None:
        """Wake the reader, which checks its patience."""
        self._news.set()

    def on_chunk(self, chunk: Chunk) -> None:
        """Keep a chunk for the reader."""
        tell_unfit(chunk)
        self.chunks.append(chunk)
        self.tell()

    def on_lost(self, link: Link, reason: Exception | None) -> None:
        """Forget a link, and end the reading if that was its link."""
        super().on_lost(link, reason)
        if link is not self._reading:
            return
        if isinstance(reason, FastwireError) and not isinstance(reason, LinkLost):
            self.tell(reason)
        else:
            self.tell(LinkLost(f"connection to {link}: {'closed by the broker' if reason is None else reason}"))

    def after_read(self, link: Link) -> None:
        """Wake the reader: parts of chunked messages come without a chunk."""
        self.tell()


class Attached:
    """A consumer of one partition on the connection to the broker that owns it; see ``attach``.

    It is closed by the broker, or with the connection, once ``alive`` is false. ``ended``: the topic was terminated,
    and everything has come.
    """

    def __init__(
        self, cluster: RangeCluster, partition: QueryPartition, want: SubscribeRequest, window: int = 1
    ) -> None:
        self.partition = partition
        self.consumer_id = want.consumer_id
        self.ended = False
        self.link: Link
        self._cluster = cluster
        self._closed = False
        self._receipts: dict[int, asyncio.Future[None]] = {}
        cluster.slots.add(want.consumer_id, cluster.log_index(partition), ordered=True)
        self._consumer = ConsumerMachine(want, cluster.slots, window)

    async def attach(self) -> None:
        """Subscribe. Raises what the broker says of it, LinkLost, or what ``Cluster.owner`` does."""
        cluster, consumer = self._cluster, self._consumer
        try:
            self.link = link = await cluster.owner(consumer.want.topic, cluster.service)
            link.consumers[self.consumer_id] = self
            await link.ask(lambda connection, now: consumer.subscribe(connection, link.link_id, now))
            consumer.subscribed(cluster.now)
        except BaseException:
            self.forget()
            raise

    @property
    def alive(self) -> bool:
        """True while the consumer and its connection are open."""
        return not self._closed and self.link.ready

    async def last_message(self) -> pb.CommandGetLastMessageIdResponse:
        """Return the last position of the topic, which the broker reports."""
        answer = await self.link.ask(lambda connection, now: connection.get_last_message_id(self.consumer_id, now))
        return answer.getLastMessageIdResponse

    async def acknowledge(self, position: Position) -> None:
        """Acknowledge everything up to ``position``, and wait for the receipt where the broker gives any.

        Raises LinkLost, or FastwireError if the broker refuses.
        """
        link, cluster = self.link, self._cluster
        if not self.alive:
            raise LinkLost(f"connection to {link} is closed")
        request_id = link.connection.ack_cumulative(self.consumer_id, position, cluster.now)
        link.flush()
        if request_id is not None:
            self._receipts[request_id] = asyncio.get_running_loop().create_future()
            await self._receipts[request_id]

    def leave(self) -> None:
        """Close the consumer."""
        self._consumer.close(self._cluster.now)
        self.link.flush()
        self.forget()

    def forget(self) -> None:
        """Drop the consumer's state; entries that are in flight for it are ignored."""
        cluster = self._cluster
        for link in cluster.links.values():
            link.consumers.pop(self.consumer_id, None)
        cluster.completion.assembly.forget(self.consumer_id)
        cluster.slots.remove(self.consumer_id)

    # --- calls of the link

    def on_receipt(self, request_id: int, accepted: bool) -> None:
        """Wake the caller of ``acknowledge``."""
        receipt = self._receipts.pop(request_id, None)
        if receipt is None or receipt.done():
            return
        if accepted:
            receipt.set_result(None)
        else:
            receipt.set_exception(FastwireError(f"the broker has not confirmed an ack of {self._consumer.want.topic}"))

    def on_closed(self, event: ConsumerClosed) -> None:
        """The broker has closed the consumer: its topic moves."""
        self._end()

    def on_migrated(self, event: TopicMigrated) -> None:
        """The topic has moved to another cluster."""
        self._end()

    def _end(self) -> None:
        self._closed = True
        self._cluster.tell()

    def on_end_of_topic(self) -> None:
        """Everything has come."""
        self.ended = True
        self._cluster.tell()

    def on_active(self, active: bool) -> None:
        """An exclusive consumer is always the active one."""

    def on_rejected(self, event: EntryRejected) -> None:
        """Put aside what cannot be decoded."""
        self.link.scanner.keep_dead_letter(event.entry)

    def on_link_lost(self, reason: str) -> None:
        """No receipt will come."""
        self._closed = True
        receipts, self._receipts = self._receipts, {}
        for receipt in receipts.values():
            if not receipt.done():
                receipt.set_exception(LinkLost(f"connection to {self.link}: {reason}"))
