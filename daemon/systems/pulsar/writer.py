"""Writer for the command ``produce`` on topics of Pulsar."""

import base64
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace

from fastwire.columns.rows import Rows
from fastwire.pulsar.format.payload import Compression, Record
from fastwire.pulsar.names.topic import parse_topic
from fastwire.pulsar.producing.batcher import Batching, BatchLimits
from fastwire.pulsar.producing.outgoing import MessageRoutes
from fastwire.pulsar.producing.router import Hashing, Router
from fastwire.pulsar.producing.settings import ProducerSettings

from ...config import Connection
from ...runtime.clock import now_ms
from ..load import Load
from ..producing.topicwriter import ProducerWriter
from ..writer import Put, WriteOptions, checked, codec_named, puts_of, refuse_create, texts_of
from .cluster import ClientCluster
from .load import entries
from .producer import TopicProducer
from .settings import ClientSettings, client_fields, encrypt_for


class PulsarWriter(ProducerWriter[TopicProducer]):
    """Implementation of ``Writer`` for Pulsar."""

    async def write(self, put: Put) -> None:
        """Take a record; a key of bytes is sent as base64. Raises ValueError for properties that are not text."""
        await self._producer.put(record_of_put(checked(put)), partition=put.partition)

    async def write_rows(self, rows: Rows) -> None:
        """See ``Writer.write_rows``."""
        producer = self._producer
        if producer.settings.batching is None:
            records = [
                (record_of_put(put), put.partition) for put in puts_of(rows)
            ]  # all are looked at before one is sent
            await producer.put_each(records)
        else:
            await producer.put_rows(MessageRoutes(rows, now_ms(), producer.hashing is Hashing.MURMUR3))

    async def generate(self, load: Load) -> AsyncIterator[int]:
        """Write a load; yields how many records each step has taken."""
        producer = self._producer
        load = replace(load, partitions=producer.partitions, compression=producer.settings.compression.name)
        for partition, entry in entries(load, now_ms):
            await producer.put_entry(entry, partition=partition)
            yield entry.messages


def record_of_put(put: Put) -> Record:
    """Return the message of a record. Raises ValueError for properties that are not text."""
    properties = texts_of(put, "Pulsar")
    key = put.key if put.key is None or isinstance(put.key, str) else base64.b64encode(put.key).decode()
    return Record(
        value=put.value,
        key=key,
        key_is_base64=isinstance(put.key, bytes),
        ordering_key=put.ordering_key,
        properties=properties,
        event_time=put.event_time or 0,
    )


def open_writer(connection: Connection, topic: str, options: WriteOptions) -> AbstractAsyncContextManager[PulsarWriter]:
    """See ``System.open_writer``."""
    refuse_create(options, "Pulsar")
    settings = ProducerSettings(
        compression=codec_named(Compression, options.compression, "Pulsar"),
        batching=BatchLimits(messages=options.batch, keys=Batching(options.batching)) if options.batch else None,
        chunking=True,
        encrypt=encrypt_for(options.public_keys),
        name=options.name,
        resend=options.resend,
    )
    return _open(ClientSettings(**client_fields(connection)), topic, settings, Hashing(options.hashing))


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


@asynccontextmanager
async def _open(
    client: ClientSettings, topic: str, settings: ProducerSettings, hashing: Hashing
) -> AsyncIterator[PulsarWriter]:
    async with open_topic(client, topic, settings, router=Router(1, hashing=hashing)) as producer:
        yield PulsarWriter(producer)
