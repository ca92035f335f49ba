"""The command ``produce`` on topics of Kafka."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from fastwire.kafka.payload import Compression, Record
from fastwire.kafka.producer import BatchLimits, ProducerSettings

from ...config import Connection
from ...runtime.clock import now_ms
from ..load import Load
from ..produced import Produced
from ..writer import Put, WriteOptions, codec_named
from .client_cluster import ClientCluster
from .producer import TopicProducer
from .settings import ClientSettings, client_fields

__all__ = ["KafkaWriter", "open_writer"]


class KafkaWriter:
    """Implementation of ``Writer`` for Kafka."""

    def __init__(self, producer: TopicProducer) -> None:
        self._producer = producer

    @property
    def topic(self) -> str:
        """See ``Writer.topic``."""
        return self._producer.topic

    @property
    def produced(self) -> Produced:
        """See ``Writer.produced``."""
        return self._producer.produced

    async def write(self, put: Put) -> None:
        """Take a record. Raises ValueError for what Kafka does not have."""
        if put.ordering_key is not None:
            raise ValueError('Kafka has no "ordering_key"')
        record = Record(
            value=put.value,
            key=put.key.encode() if isinstance(put.key, str) else put.key,
            headers=[(name, value.encode()) for name, value in put.properties],
            timestamp=put.event_time or now_ms(),
        )
        await self._producer.put(record, partition=put.partition)

    async def generate(self, load: Load) -> AsyncIterator[int]:
        """Write a load, round the partitions; yields how many records each step has taken."""
        for number in range(load.first, load.first + load.records):
            record = Record(value=load.record(number), timestamp=now_ms())
            await self._producer.put(record, partition=number % self._producer.partitions)
            yield 1

    async def flush(self) -> None:
        """Wait until everything is confirmed."""
        await self._producer.flush()


def open_writer(connection: Connection, topic: str, options: WriteOptions) -> AbstractAsyncContextManager[KafkaWriter]:
    """See ``System.open_writer``."""
    if options.public_keys:
        raise ValueError("Kafka has no encryption of records")
    codec = codec_named(Compression, options.compression, "Kafka")
    settings = ProducerSettings(compression=codec, batching=BatchLimits(records=max(options.batch, 1)))
    return _open(ClientSettings(**client_fields(connection)), topic, settings)


@asynccontextmanager
async def _open(client: ClientSettings, topic: str, settings: ProducerSettings) -> AsyncIterator[KafkaWriter]:
    async with ClientCluster(client) as cluster, TopicProducer(cluster, topic, settings) as producer:
        yield KafkaWriter(producer)
