"""Producing entries over connections of its own."""

import asyncio
from collections.abc import Callable, Iterable

from fastwire.pulsar.format.payload import Entry
from fastwire.pulsar.names.topic import parse_service_url
from fastwire_daemon.config import TlsConfig
from fastwire_daemon.net.auth import Credentials, NoCredentials
from fastwire_daemon.net.tls import ClientTls
from fastwire_daemon.systems.produced import Produced
from fastwire_daemon.systems.pulsar.settings import ClientSettings
from fastwire_daemon.systems.pulsar.writer import open_topic


def client_settings(
    url: str, *, credentials: Credentials | None = None, tls: ClientTls | None = None
) -> ClientSettings:
    """Return settings for a broker with default options. Raises ValueError for an invalid URL."""
    service = parse_service_url(url)
    if service.tls and tls is None:
        tls = ClientTls(TlsConfig())
    return ClientSettings(url=service, credentials=credentials or NoCredentials(), tls=tls)


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
