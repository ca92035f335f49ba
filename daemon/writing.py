"""Topics of every system as ``fastwire-consume produce`` writes to them."""

import base64
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from enum import Enum
from typing import TypeVar

from fastwire.kafka import payload as kafka
from fastwire.kafka.names import BootstrapUrl
from fastwire.kafka.producer import BatchLimits as KafkaBatchLimits
from fastwire.kafka.producer import ProducerSettings as KafkaProducerSettings
from fastwire.pulsar.batcher import BatchLimits
from fastwire.pulsar.payload import Compression, Record
from fastwire.pulsar.producer import ProducerSettings
from fastwire.pulsar.routing import Hashing, Router

from .config import SourceConfig
from .input import Put
from .kafka import producer as kafka_producer
from .kafka.quiet import QuietCluster
from .kafka.settings import ClientSettings as KafkaClientSettings
from .kafka.settings import client_fields as kafka_client_fields
from .load import Load
from .produce import open_topic
from .produced import Produced
from .pulsar.producer import TopicProducer
from .pulsar.settings import ClientSettings, client_fields

__all__ = ["KafkaWriter", "PulsarWriter", "opening"]

C = TypeVar("C", bound=Enum)


class PulsarWriter:
    """A ``feed.Writer``."""

    def __init__(self, producer: TopicProducer) -> None:
        self._producer = producer

    @property
    def topic(self) -> str:
        return str(self._producer.topic)

    @property
    def produced(self) -> Produced:
        return self._producer.produced

    async def write(self, put: Put) -> None:
        """Take a record; a key of bytes goes out as base64."""
        key = put.key if put.key is None or isinstance(put.key, str) else base64.b64encode(put.key).decode()
        record = Record(
            value=put.value,
            key=key,
            key_is_base64=isinstance(put.key, bytes),
            ordering_key=put.ordering_key,
            properties=put.properties,
            event_time=put.event_time,
        )
        await self._producer.put(record, partition=put.partition)

    async def generate(self, load: Load) -> AsyncIterator[int]:
        """Write a load; yields how many records each step has taken."""
        producer = self._producer
        load = replace(load, partitions=producer.partitions, compression=producer.settings.compression)
        for partition, entry in load.entries(_now_ms):
            await producer.put_entry(entry, partition=partition)
            yield entry.messages

    async def flush(self) -> None:
        """Wait until everything is confirmed."""
        await self._producer.flush()


class KafkaWriter:
    """A ``feed.Writer``."""

    def __init__(self, producer: kafka_producer.TopicProducer) -> None:
        self._producer = producer

    @property
    def topic(self) -> str:
        return self._producer.topic

    @property
    def produced(self) -> Produced:
        return self._producer.produced

    async def write(self, put: Put) -> None:
        """Take a record. Raises ValueError for what Kafka does not have."""
        if put.ordering_key is not None:
            raise ValueError('Kafka has no "ordering_key"')
        record = kafka.Record(
            value=put.value,
            key=put.key.encode() if isinstance(put.key, str) else put.key,
            headers=[(name, value.encode()) for name, value in put.properties],
            timestamp=put.event_time or _now_ms(),
        )
        await self._producer.put(record, partition=put.partition)

    async def generate(self, load: Load) -> AsyncIterator[int]:
        """Write a load, round the partitions; yields how many records each step has taken."""
        for number in range(load.first, load.first + load.records):
            record = kafka.Record(value=load.record(number), timestamp=_now_ms())
            await self._producer.put(record, partition=number % self._producer.partitions)
            yield 1

    async def flush(self) -> None:
        """Wait until everything is confirmed."""
        await self._producer.flush()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def opening(
    source: SourceConfig, topic: str, *, compression: str, batch: int, hashing: str
) -> AbstractAsyncContextManager[PulsarWriter | KafkaWriter]:
    """What opens a topic for writing; leaving its block in order waits until all is confirmed. It raises ProduceError.

    ``compression`` is the name of a codec, ``batch`` how many records share an entry, ``hashing`` what Pulsar makes of
    keys. Raises ConfigError for unusable files, and ValueError for a codec that the system does not have.
    """
    if isinstance(source.url, BootstrapUrl):
        codec = _codec(kafka.Compression, compression, "Kafka")
        return _open_kafka(
            KafkaClientSettings(**kafka_client_fields(source)),
            topic,
            KafkaProducerSettings(compression=codec, batching=KafkaBatchLimits(records=max(batch, 1))),
        )
    settings = ProducerSettings(
        compression=_codec(Compression, compression, "Pulsar"),
        batching=BatchLimits(messages=batch) if batch else None,
        chunking=True,
    )
    return _open_pulsar(ClientSettings(**client_fields(source)), topic, settings, Hashing(hashing))


def _codec(codecs: type[C], name: str, system: str) -> C:
    if name not in codecs.__members__:
        raise ValueError(f"{system} has no {name.lower()}: {', '.join(codec.lower() for codec in codecs.__members__)}")
    return codecs[name]


@asynccontextmanager
async def _open_pulsar(
    client: ClientSettings, topic: str, settings: ProducerSettings, hashing: Hashing
) -> AsyncIterator[PulsarWriter]:
    async with open_topic(client, topic, settings, router=Router(1, hashing=hashing)) as producer:
        yield PulsarWriter(producer)


@asynccontextmanager
async def _open_kafka(
    client: KafkaClientSettings, topic: str, settings: KafkaProducerSettings
) -> AsyncIterator[KafkaWriter]:
    async with QuietCluster(client) as cluster, kafka_producer.TopicProducer(cluster, topic, settings) as producer:
        yield KafkaWriter(producer)
