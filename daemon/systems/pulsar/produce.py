"""Producing over connections of its own: for the command line, demos and tests (spec: pulsar 24)."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager

from fastwire.pulsar.payload import Entry
from fastwire.pulsar.producer import ProducerSettings
from fastwire.pulsar.routing import Router
from fastwire.pulsar.topic import parse_service_url, parse_topic

from ...config import TlsConfig
from ...net.auth import Credentials, NoCredentials
from ...net.tls import ClientTls
from ..produced import Produced
from .client_cluster import ClientCluster
from .producer import TopicProducer
from .settings import ClientSettings

__all__ = ["client_settings", "open_topic", "produce"]


def client_settings(
    url: str, *, credentials: Credentials | None = None, tls: ClientTls | None = None
) -> ClientSettings:
    """Return settings for a broker with default options. Raises ValueError for an invalid URL."""
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
    async with ClientCluster(client) as cluster:
        producer = TopicProducer(
            cluster,
            client.url,
            parse_topic(topic),
            settings,
            router=router,
            operation_timeout_s=client.operation_timeout_s,
        )
        async with producer:
            yield producer


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
