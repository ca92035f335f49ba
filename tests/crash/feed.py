"""Numbered records for a topic, as many as a test wants, in small entries."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from confluent_kafka import Producer

from fastwire.pulsar import pulsar_pb2 as pb
from tests.audit import numbered
from tests.brokers.admin import partition_names
from tests.real.raw import RawProducer, batch_payload, compress

__all__ = ["Feed", "KafkaFeed", "PulsarFeed"]

Store = Callable[[list[bytes]], None]
"""Stores these values as one entry."""


class Feed(ABC):
    """Adds records to a topic, numbered from 0; ``count`` of them so far, ``size`` is the bytes of the next ones."""

    def __init__(self, partitions: int, batch: int, size: int) -> None:
        self.count = 0
        self.size = size
        self._partitions = partitions
        self._batch = batch

    def add(self, entries: int) -> None:
        """Store ``entries`` entries in every partition. A connection of its own each time: brokers drop silent ones."""
        for partition in range(max(self._partitions, 1)):
            with self._storing(partition) as store:
                for _ in range(entries):
                    store([numbered(number, self.size) for number in range(self.count, self.count + self._batch)])
                    self.count += self._batch

    @abstractmethod
    def _storing(self, partition: int) -> AbstractContextManager[Store]: ...


class PulsarFeed(Feed):
    """By the bare protocol."""

    def __init__(
        self, url: str, topic: str, partitions: int = 0, *, token: str | None = None, batch: int = 50, size: int = 100
    ) -> None:
        super().__init__(partitions, batch, size)
        self._url = url
        self._names = partition_names(topic, partitions)
        self._token = token

    @contextmanager
    def _storing(self, partition: int) -> Iterator[Store]:
        with RawProducer(self._url, self._names[partition], token=self._token) as producer:
            yield lambda values: self._send(producer, values)

    def _send(self, producer: RawProducer, values: list[bytes]) -> None:
        plain = batch_payload([(pb.SingleMessageMetadata(), value) for value in values])
        metadata = pb.MessageMetadata(
            sequence_id=self.count,
            publish_time=int(time.time() * 1000),
            num_messages_in_batch=len(values),
            compression=pb.LZ4,
            uncompressed_size=len(plain),
        )
        producer.send(metadata, compress(pb.LZ4, plain))


class KafkaFeed(Feed):
    """By the official client."""

    def __init__(self, servers: str, topic: str, partitions: int = 1, *, batch: int = 50, size: int = 100) -> None:
        super().__init__(partitions, batch, size)
        self._servers = servers
        self._topic = topic

    @contextmanager
    def _storing(self, partition: int) -> Iterator[Store]:
        settings = {"bootstrap.servers": self._servers, "log_level": 0, "linger.ms": 1000, "compression.type": "lz4"}
        producer = Producer({**settings, "batch.num.messages": self._batch})

        def store(values: list[bytes]) -> None:
            for value in values:
                producer.produce(self._topic, value, partition=partition)
            assert producer.flush(30) == 0

        yield store
