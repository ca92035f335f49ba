"""Encodes the batches of one producer into entries that its broker takes (spec: pulsar 11, 24)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fastwire.errors import FastwireError
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.format.command import DEFAULT_MAX_MESSAGE_SIZE
from fastwire.pulsar.format.payload import (
    Entry,
    Record,
    encode_batch_entry,
    encode_block_entry,
    encode_chunks,
    encode_single_entry,
    record_of,
)
from fastwire.pulsar.producing.batcher import Batch, Batching
from fastwire.pulsar.producing.outgoing import MessageBlock
from fastwire.pulsar.producing.settings import ProducerSettings

# Bytes kept free in a chunk below the largest message: for its metadata, and for the header that storage nodes add,
# whose own default limit equals the broker's.
LEAST_MARGIN, MOST_MARGIN = 32, 1024


class TooLargeError(FastwireError):
    """A record exceeds the broker's largest message, and chunking is off."""


class Encoder:
    """Makes entries of records. ``largest`` is the broker's limit of a message in bytes."""

    def __init__(self, settings: ProducerSettings) -> None:
        self.largest = DEFAULT_MAX_MESSAGE_SIZE
        self._settings = settings
        self._extra = pb.MessageMetadata()

    def use_schema(self, version: bytes) -> None:
        """Store ``version`` with the records from now on."""
        self._extra.schema_version = version

    def takes(self, size: int) -> bool:
        """Return whether the broker takes an entry of ``size`` bytes."""
        return size <= self.largest

    def fits(self, entry: Entry) -> bool:
        """Return whether an entry needs no division; chunks leave some bytes free below the limit."""
        return self.takes(len(entry.body) + (self._margin if self._settings.chunking else 0))

    def entry(self, name: str, batch: Batch, numbers: Sequence[int], *, batched: bool) -> Entry:
        """Encode the records of a batch of the producer ``name``, of any size."""
        records = batch.records
        common: dict[str, Any] = {
            "producer_name": name,
            "sequence_id": numbers[0],
            "publish_time": batch.publish_time,
            "compression": self._settings.compression,
            "encrypt": self._settings.encrypt,
        }
        if isinstance(records, MessageBlock):
            outer = self._outer(records)
            return encode_block_entry(records.encoded(), len(records), metadata=outer, **common)
        if not batched:
            return encode_single_entry(records[0], metadata=self._extra, **common)
        if any(record.sequence_id is not None for record in records):
            records = [replace(record, sequence_id=n) for record, n in zip(records, numbers, strict=True)]
        return encode_batch_entry(records, metadata=self._outer(records), **common)

    def _outer(self, records: Sequence[Record] | MessageBlock) -> pb.MessageMetadata:
        """Return the outer metadata of a batch: the common key of its records, unless keys are mixed."""
        limits = self._settings.batching
        if limits is None or limits.keys is Batching.MIXED:
            return self._extra
        first = record_of(records.encoded(0)) if isinstance(records, MessageBlock) else records[0]
        if first.key is None and first.ordering_key is None:
            return self._extra
        outer = pb.MessageMetadata()
        outer.CopyFrom(self._extra)
        if first.key is not None:
            outer.partition_key = first.key
            outer.partition_key_b64_encoded = first.key_is_base64
        if first.ordering_key is not None:
            outer.ordering_key = first.ordering_key
        return outer

    def chunks(self, name: str, batch: Batch, number: int) -> list[Entry]:
        """Encode the only record of a batch in chunks. Raises TooLargeError if its metadata fill a message."""
        records = batch.records
        record = record_of(records.encoded()) if isinstance(records, MessageBlock) else records[0]

        def cut(what: Record, chunk_bytes: int) -> list[Entry]:
            return encode_chunks(
                what,
                chunk_bytes=chunk_bytes,
                producer_name=name,
                sequence_id=number,
                publish_time=batch.publish_time,
                compression=self._settings.compression,
                metadata=self._extra,
                encrypt=self._settings.encrypt,
            )

        (probe,) = cut(replace(record, value=b""), 1024)
        room = self.largest - len(probe.body) - self._margin
        if room < 1:
            raise self.too_large(len(probe.body))
        return cut(record, room)

    @property
    def _margin(self) -> int:
        return min(max(self.largest // 16, LEAST_MARGIN), MOST_MARGIN)

    def too_large(self, size: int) -> TooLargeError:
        """Return the error of a message of ``size`` bytes."""
        return TooLargeError(f"a message of {size:,} bytes, the broker takes up to {self.largest:,}")
