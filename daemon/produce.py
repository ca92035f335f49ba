"""Writing to a topic over connections of one's own: for the command line, demos and tests (pulsar 24)."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager

from fastwire.columns.chunk import Chunk
from fastwire.pulsar.payload import Entry
from fastwire.pulsar.producer import ProducerSettings
from fastwire.pulsar.routing import Router
from fastwire.pulsar.slot import SlotTable
from fastwire.pulsar.topic import parse_service_url, parse_topic
from fastwire.wire.pool import Pool

from .auth import Credentials, NoCredentials
from .config import TlsConfig
from .pulsar.cluster import Cluster
from .pulsar.link import Link
from .pulsar.producer import Produced, ProduceError, TopicProducer
from .pulsar.settings import ClientSettings
from .tls import ClientTls

__all__ = ["ProduceError", "Produced", "client_settings", "open_topic", "produce"]

TICK_S = 0.5
MEMORY = 1 << 20  # nothing is consumed


def client_settings(
    url: str, *, credentials: Credentials | None = None, tls: ClientTls | None = None
) -> ClientSettings:
    """Settings for a broker where nothing else is to be said. Raises ValueError for a URL that is none."""
    service = parse_service_url(url)
    if service.tls and tls is None:
        tls = ClientTls(TlsConfig())
    return ClientSettings(url=service, credentials=credentials or NoCredentials(), tls=tls)


@asynccontextmanager
async def open_topic(
    client: ClientSettings,
    topic: str,
    settings: ProducerSettings | None = None,
    *,
    router: Router | None = None,
) -> AsyncIterator[TopicProducer]:
    """Open a topic for writing; leaving the block in order waits until everything is confirmed.

    Raises ProduceError.
    """
    owner = _Owner(client)
    clock = asyncio.create_task(owner.tick())
    producer = TopicProducer(
        owner.cluster,
        client.url,
        parse_topic(topic),
        settings,
        router=router,
        operation_timeout_s=client.operation_timeout_s,
    )
    try:
        async with producer:
            yield producer
    finally:
        clock.cancel()
        await owner.cluster.close()


async def produce(
    client: ClientSettings,
    topic: str,
    entries: Iterable[tuple[int, Entry]],
    *,
    progress: Callable[[int], None] = lambda records: None,
) -> Produced:
    """Send entries, each with the partition it is for, and return when all are confirmed.

    ``progress`` is called with the number of confirmed records now and then. The partition of a topic without
    partitions is 0. Raises ProduceError.
    """
    async with open_topic(client, topic) as producer:
        for number, (partition, entry) in enumerate(entries):
            await producer.put_entry(entry, partition=partition)
            if number % 16 == 0:
                await asyncio.sleep(0)  # receipts are read meanwhile, whatever making entries costs
                progress(producer.produced.records)
        await producer.flush()
        progress(producer.produced.records)
        return producer.produced


class _Owner:
    """Of links on which nothing is consumed."""

    def __init__(self, client: ClientSettings) -> None:
        self.cluster = Cluster(client, SlotTable(), Pool(MEMORY), self)

    async def tick(self) -> None:
        """Keep the time of the links until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(TICK_S)
            for link in tuple(self.cluster.links.values()):
                link.tick(loop.time(), TICK_S)

    def on_lost(self, link: Link, reason: Exception | None) -> None:
        self.cluster.forget(link)

    def on_chunk(self, chunk: Chunk) -> None: ...
    def on_connected(self, link: Link) -> None: ...
    def after_read(self, link: Link) -> None: ...
