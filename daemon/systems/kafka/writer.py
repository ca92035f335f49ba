"""Writer to topics of Kafka."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from fastwire.columns.routes import Routes
from fastwire.columns.rows import Rows
from fastwire.kafka.producing.outgoing import RecordRoutes
from fastwire.kafka.producing.payload import Compression, Record
from fastwire.kafka.producing.producer import ProducerSettings
from fastwire.producer import BatchLimits

from ...config import Connection
from ...runtime.clock import now_ms
from ..producing.leaderwriter import RecordWriter
from ..writer import Put, WriteOptions, codec_named, refuse_create
from .cluster import ClientCluster
from .fence import can_fence
from .producer import TopicProducer
from .settings import ClientSettings, client_fields


class KafkaWriter(RecordWriter[Record]):
    """Implementation of ``Writer`` for Kafka."""

    def _record(self, put: Put) -> Record:
        if put.ordering_key is not None:
            raise ValueError('Kafka has no "ordering_key"')
        return Record(
            value=put.value,
            key=put.key.encode() if isinstance(put.key, str) else put.key,
            headers=[(name, value.encode() if isinstance(value, str) else value) for name, value in put.properties],
            timestamp=now_ms() if put.event_time is None else put.event_time,
        )

    def _routes(self, rows: Rows) -> Routes:
        return RecordRoutes(rows, now_ms())


def open_writer(connection: Connection, topic: str, options: WriteOptions) -> AbstractAsyncContextManager[KafkaWriter]:
    """See ``System.open_writer``."""
    settings = producer_settings(options)
    return _open(ClientSettings(**client_fields(connection)), topic, settings, options.name)


def producer_settings(options: WriteOptions) -> ProducerSettings:
    """Return the settings of a producer. Raises ValueError for what Kafka does not have."""
    if options.public_keys:
        raise ValueError("Kafka has no encryption of records")
    refuse_create(options, "Kafka")
    codec = codec_named(Compression, options.compression, "Kafka")
    return ProducerSettings(compression=codec, batching=BatchLimits(records=max(options.batch, 1)))


@asynccontextmanager
async def _open(
    client: ClientSettings, topic: str, settings: ProducerSettings, name: str
) -> AsyncIterator[KafkaWriter]:
    async with ClientCluster(client) as cluster:
        sender = name if name and await can_fence(cluster, name) else ""
        async with TopicProducer(cluster, topic, settings, sender=sender) as producer:
            yield KafkaWriter(producer)
