"""Numbered records for a topic, as many as a test wants, in small entries."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from confluent_kafka import Producer

from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.format.payload import Entry, Record, encode_chunks, split_payload
from fastwire_daemon.devbroker.base import DevBroker
from tests.brokers.admin import partition_names
from tests.real.raw import RawProducer, batch_payload, compress
from tests.support.sequence_audit import numbered

Store = Callable[[list[bytes]], None]
"""Stores these values as one entry."""


class Feed(ABC):
    """Adds records to a topic, numbered from 0; ``count`` of them so far, ``size`` is the bytes of the next ones.

    ``interleaves`` makes Pulsar's end each addition with chunked messages of two producers, of which one is completed
    by the next addition, or by ``complete``.
    """

    def __init__(self, partitions: int, batch: int, size: int) -> None:
        self.count = 0
        self.size = size
        self.interleaves = False
        self._partitions = partitions
        self._batch = batch

    def add(self, entries: int) -> None:
        """Store ``entries`` entries in every partition. A connection of its own each time: brokers drop silent ones."""
        for partition in range(max(self._partitions, 1)):
            with self._storing(partition) as store:
                for _ in range(entries):
                    store([numbered(number, self.size) for number in range(self.count, self.count + self._batch)])
                    self.count += self._batch

    def complete(self) -> None:
        """Store what is missing of messages that are not whole."""
        return  # Kafka's always are

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
        self._open: dict[int, Entry] = {}  # by partition, the last part of a message

    def complete(self) -> None:
        for partition in tuple(self._open):
            with self._storing(partition):
                pass

    @contextmanager
    def _storing(self, partition: int) -> Iterator[Store]:
        with RawProducer(self._url, self._names[partition], token=self._token) as producer:
            missing = self._open.pop(partition, None)
            if missing is not None:
                _send_part(producer, missing)
            before = self.count
            yield lambda values: self._send(producer, values)
            if self.interleaves and self.count > before:
                self._interleave(producer, partition)

    def _interleave(self, producer: RawProducer, partition: int) -> None:
        """A message in parts between the parts of another, of which the last one is left out."""
        (first, self._open[partition]), whole = self._chunked("slow"), self._chunked("quick")
        for part in (first, *whole):
            _send_part(producer, part)

    def _chunked(self, name: str) -> list[Entry]:
        value = numbered(self.count, self.size)
        self.count += 1
        return encode_chunks(
            Record(value=value),
            chunk_bytes=-(-len(value) // 2),
            producer_name=name,
            sequence_id=self.count,
            publish_time=int(time.time() * 1000),
        )

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


def _send_part(producer: RawProducer, part: Entry) -> None:
    metadata, payload = split_payload(part.body)
    producer.send(metadata, bytes(payload))


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


class EmbeddedFeed(Feed):
    """Into an embedded broker."""

    def __init__(self, broker: DevBroker, topic: str, partitions: int = 1, *, batch: int = 50) -> None:
        super().__init__(partitions, batch, 100)
        self._broker = broker
        self._topic = topic

    @contextmanager
    def _storing(self, partition: int) -> Iterator[Store]:
        codec = self._broker.usual_codec
        yield lambda values: self._broker.produce(self._topic, values, partition, codec=codec)
