"""Numbered records for a topic, as many as a test wants, in small entries."""

import time

from fastwire.pulsar import pulsar_pb2 as pb
from tests.audit import numbered
from tests.brokers.admin import partition_names
from tests.real.raw import RawProducer, batch_payload, compress

__all__ = ["Feed"]


class Feed:
    """Adds records to a topic, numbered from 0; ``count`` of them so far, ``size`` is the bytes of the next ones."""

    def __init__(
        self, url: str, topic: str, partitions: int = 0, *, token: str | None = None, batch: int = 50, size: int = 100
    ) -> None:
        self.count = 0
        self._url = url
        self._names = partition_names(topic, partitions)
        self._token = token
        self._batch = batch
        self.size = size

    def add(self, entries: int) -> None:
        """Store ``entries`` entries in every partition. A connection of its own each time: brokers drop silent ones."""
        for name in self._names:
            with RawProducer(self._url, name, token=self._token) as producer:
                for _ in range(entries):
                    self._send(producer)

    def _send(self, producer: RawProducer) -> None:
        element = pb.SingleMessageMetadata
        numbers = range(self.count, self.count + self._batch)
        plain = batch_payload([(element(), numbered(number, self.size)) for number in numbers])
        metadata = pb.MessageMetadata(
            sequence_id=self.count,
            publish_time=int(time.time() * 1000),
            num_messages_in_batch=self._batch,
            compression=pb.LZ4,
            uncompressed_size=len(plain),
        )
        producer.send(metadata, compress(pb.LZ4, plain))
        self.count += self._batch
