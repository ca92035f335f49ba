"""Every kind of message that a producer can make, sent to a topic, with the row that each must become."""

import base64
import itertools
import os
import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pulsar

from fastwire.pulsar import pulsar_pb2 as pb
from tests.brokers.admin import partition_names
from tests.real.raw import RawProducer, batch_payload, compress
from tests.support.waiting import eventually

MiB = 1 << 20
CODECS = {
    "none": pulsar.CompressionType.NONE,
    "lz4": pulsar.CompressionType.LZ4,
    "zlib": pulsar.CompressionType.ZLib,
    "zstd": pulsar.CompressionType.ZSTD,
    "snappy": pulsar.CompressionType.SNAPPY,
}


@dataclass(frozen=True, slots=True)
class SentRecord:
    """One record as sent: the identity that the broker gave it, and every other column of the row.

    ``timestamp`` (publish time, milliseconds) is None where the official client chose it and did not say; it is
    filled in from an independent reader before rows are compared.
    """

    topic: str
    partition: int
    ledger: int
    entry: int
    batch_index: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] | None
    producer: str
    timestamp: int | None = None
    sequence_id: int | None = None
    event_time: int | None = None
    ordering_key: bytes | None = None
    schema_version: bytes | None = None
    case: str = field(default="", compare=False)

    @property
    def identity(self) -> tuple[str, int, int, int, int]:
        """The identity of a row."""
        return (self.topic, self.partition, self.ledger, self.entry, self.batch_index)

    def row(self) -> dict[str, Any]:
        """The expected row; times in microseconds since 1970, as the files hold them, None for an unknown one."""
        return {
            "key": self.key,
            "value": self.value,
            "topic": self.topic,
            "partition": self.partition,
            "offset": self.entry,
            "timestamp": None if self.timestamp is None else self.timestamp * 1000,
            "timestampType": 0,
            "headers": None if self.headers is None else [{"key": k, "value": v} for k, v in self.headers],
            "ledger": self.ledger,
            "batchIndex": self.batch_index,
            "eventTime": None if self.event_time is None else self.event_time * 1000,
            "producer": self.producer,
            "sequenceId": self.sequence_id,
            "orderingKey": self.ordering_key,
            "schemaVersion": self.schema_version,
            "redeliveryCount": 0,
        }


def quiet_client(url: str, **options: Any) -> pulsar.Client:
    """An official client that logs nothing: it stumbles over messages that it has stored itself, line after line."""
    return pulsar.Client(url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull), **options)


@dataclass(frozen=True, slots=True)
class Message:
    """A record to send, before a broker has given it an id."""

    value: bytes | None
    key: str | None = None
    properties: dict[str, str] | None = None
    event_time: int | None = None
    ordering_key: str | None = None
    sequence_id: int | None = None


def varied(count: int, seed: int, largest: int = 2_000) -> list[Message]:
    """Messages in which every optional field is there and not there, in all combinations."""
    dice = random.Random(seed)
    keys = (None, "key", "ключ/é", "k" * 300)
    properties = (None, {"a": "1"}, {"b": "", "a": "välue", "long": "x" * 500, "z" * 80: "1"})
    times = (None, 1, 1_700_000_000_123)
    ordering = (None, "order", "über")
    sizes = (0, 1, 100, None)
    fields = list(itertools.product(keys, properties, times, ordering, sizes))
    dice.shuffle(fields)
    messages = []
    for index in range(count):
        key, some, event, order, size = fields[index % len(fields)]
        length = dice.randint(0, largest) if size is None else size
        # Every seventh is a tombstone: null is not the same as empty.
        value = None if index % 7 == 3 else _payload(dice, length)
        messages.append(Message(value, key, some, event, order))
    return messages


def _payload(dice: random.Random, length: int) -> bytes:
    """Half of it compresses and half does not."""
    return dice.randbytes(length // 2) + b"fastwire" * (length // 16) + b"." * (length - length // 2 - length // 16 * 8)


def produce_matrix(
    url: str,
    topic: str,
    partitions: int = 0,
    *,
    client: pulsar.Client | None = None,
    token: str | None = None,
    cases: tuple[str, ...] | None = None,
) -> list[SentRecord]:
    """Send the whole matrix to ``topic`` (its full name), about 8,600 messages, and return what was sent.

    ``client`` replaces the one made from ``url`` (authentication, TLS), ``token`` is for the raw producer, which speaks
    no TLS; ``cases`` names those of the official client that are wanted.
    """
    own = client or quiet_client(url)
    try:
        wanted = [(name, case) for name, case in _cases() if cases is None or name in cases]
        sent = [record for name, case in wanted for record in _labelled(name, case(own, topic))]
    finally:
        if client is None:
            own.close()
    for partition in partition_names(topic, partitions):
        index = int(partition.rpartition("-")[2]) if partitions else -1
        with RawProducer(url, partition, name=f"raw-{index}", token=token) as raw:
            sent += _labelled("raw", _raw_entries(raw, topic, index))
    return sent


def _labelled(name: str, records: list[SentRecord]) -> list[SentRecord]:
    return [replace(record, case=name) for record in records]


Case = Callable[[pulsar.Client, str], list[SentRecord]]


def _cases() -> Iterator[tuple[str, Case]]:
    for number, (name, codec) in enumerate(CODECS.items()):
        single = _official(varied(60, number), f"single-{name}", compression_type=codec)
        yield f"single {name}", single
        batched = _official(varied(400, 100 + number), f"batched-{name}", batch=100, compression_type=codec)
        yield f"batched {name}", batched
    for size in (1, 2, 999, 5_000):
        yield f"batch of {size}", _official(varied(size, size, 120), f"batch-{size}", batch=size)
    yield "one batch per key", _official(varied(200, 9), "keyed", batch=50, batching_type=pulsar.BatchingType.KeyBased)
    yield (
        "given sequence ids",
        _official([Message(b"numbered", sequence_id=7 * index + 5) for index in range(20)], "numbered"),
    )
    dice = random.Random(42)
    # The last one fills an entry: with metadata of ours and of the broker the bookie would refuse 5 MiB of payload.
    large = [dice.randbytes(length) for length in (64 * 1024, MiB - 1, MiB, MiB + 1, 5 * MiB - 200)]
    yield "large", _official([Message(value, key="big") for value in large], "large")
    # Only the compressed size is limited: a payload of 12 MiB is a legal message.
    for name in ("lz4", "zlib", "zstd", "snappy"):
        yield (
            f"inflates {name}",
            _official([Message(b"inflate!" * (12 * MiB // 8))], f"inflates-{name}", compression_type=CODECS[name]),
        )
    yield "with a schema", _with_schema


def _official(messages: list[Message], name: str, *, batch: int = 0, **options: Any) -> Case:
    """A case that sends ``messages`` by the official client, ``batch`` of them an entry (0: unbatched)."""

    def send(client: pulsar.Client, topic: str) -> list[SentRecord]:
        if batch:
            options.update(
                batching_enabled=True,
                batching_max_messages=max(2, batch),
                batching_max_allowed_size_in_bytes=4 * MiB,
                batching_max_publish_delay_ms=60_000,
            )
        producer = client.create_producer(
            topic, producer_name=name, max_pending_messages=20_000, block_if_queue_full=True, **options
        )
        return send_all(producer, topic, messages)

    return send


def send_all(
    producer: pulsar.Producer, topic: str, messages: list[Message], schema_version: bytes | None = None
) -> list[SentRecord]:
    """Send, wait for every receipt and close the producer."""
    answers: list[tuple[Any, Any]] = [(None, None)] * len(messages)

    def keep(index: int) -> Callable[[Any, Any], None]:
        def received(result: Any, message_id: Any) -> None:
            answers[index] = (result, message_id)

        return received

    for index, message in enumerate(messages):
        producer.send_async(
            message.value,
            keep(index),
            properties=message.properties,
            partition_key=message.key,
            ordering_key=message.ordering_key,
            sequence_id=message.sequence_id,
            event_timestamp=message.event_time,
        )
    producer.flush()
    # The last callbacks run on a thread of the client and may come after flush has returned.
    eventually(lambda: all(result is not None for result, _ in answers), "the broker confirms every message")
    name = producer.producer_name()
    producer.close()
    # Each partition has a producer of its own, which numbers its messages from 0 unless the caller did.
    numbers: dict[int, Iterator[int]] = defaultdict(itertools.count)
    sent = []
    for message, (result, message_id) in zip(messages, answers, strict=True):
        record = _sent(topic, name, message, result, message_id, schema_version)
        number = next(numbers[record.partition])
        sent.append(record if message.sequence_id is not None else replace(record, sequence_id=number))
    return sent


def _sent(
    topic: str, producer: str, message: Message, result: Any, message_id: Any, schema_version: bytes | None
) -> SentRecord:
    if result != pulsar.Result.Ok:
        size = "null" if message.value is None else len(message.value)
        raise RuntimeError(f"{producer}: a message of {size} bytes was refused: {result}")
    return SentRecord(
        topic=topic,
        partition=message_id.partition(),
        ledger=message_id.ledger_id(),
        entry=message_id.entry_id(),
        batch_index=message_id.batch_index(),
        key=None if message.key is None else message.key.encode(),
        value=message.value,
        headers=tuple((k, v.encode()) for k, v in sorted(message.properties.items())) if message.properties else None,
        producer=producer,
        sequence_id=message.sequence_id,
        event_time=message.event_time,
        ordering_key=None if message.ordering_key is None else message.ordering_key.encode(),
        schema_version=schema_version,
    )


def _with_schema(client: pulsar.Client, topic: str) -> list[SentRecord]:
    """The broker numbers schemas from 0; consumers see the number as eight bytes."""
    schema = pulsar.schema.StringSchema()
    producer = client.create_producer(topic, producer_name="with-schema", schema=schema)
    sent = []
    for number, text in enumerate(("", "text", "tëxt")):
        # One key, one partition: the numbers count there.
        message_id = producer.send(text, partition_key="k")
        message = Message(text.encode(), key="k", sequence_id=number)
        sent.append(_sent(topic, "with-schema", message, pulsar.Result.Ok, message_id, bytes(8)))
    producer.close()
    return sent


def _raw_entries(producer: RawProducer, topic: str, partition: int) -> list[SentRecord]:
    """Entries that the official client does not make; each call stores one and tells its rows."""
    sent: list[SentRecord] = []
    sequence = itertools.count(1_000)

    def single(value: bytes, *, checksum: bool = True, codec: Any = pb.NONE, **fields: Any) -> SentRecord:
        metadata = pb.MessageMetadata(sequence_id=next(sequence), publish_time=1_690_000_000_000, **fields)
        if codec != pb.NONE:
            metadata.compression = codec
            metadata.uncompressed_size = len(value)
        stored = producer.send(metadata, compress(codec, value), checksum=checksum)
        record = SentRecord(
            topic,
            partition,
            stored.ledgerId,
            stored.entryId,
            -1,
            None,
            value,
            None,
            producer.name,
            metadata.publish_time,
            metadata.sequence_id,
        )
        sent.append(record)
        return record

    def amend(**changes: Any) -> None:
        sent[-1] = replace(sent[-1], **changes)

    anything = bytes(range(256))
    single(b"no checksum", checksum=False)
    single(b"key of any bytes", partition_key=base64.b64encode(anything).decode(), partition_key_b64_encoded=True)
    amend(key=anything)
    single(b"empty key", partition_key="")
    amend(key=b"")
    single(b"", null_value=True)
    amend(value=None)
    single(b"", partition_key="empty, not null")
    amend(key=b"empty, not null")
    single(
        b"headers repeat and keep their order",
        properties=[pb.KeyValue(key="b", value="1"), pb.KeyValue(key="a", value="2"), pb.KeyValue(key="b", value="3")],
    )
    amend(headers=(("b", b"1"), ("a", b"2"), ("b", b"3")))
    single(b"ordering key of any bytes", ordering_key=anything)
    amend(ordering_key=anything)
    single(b"event time", event_time=1_650_000_000_001)
    amend(event_time=1_650_000_000_001)
    single(b"event time unset", event_time=0)
    single(b"a version of a schema", schema_version=b"\x00" * 7 + b"\x05")
    amend(schema_version=b"\x00" * 7 + b"\x05")
    for codec in (pb.LZ4, pb.ZLIB, pb.ZSTD, pb.SNAPPY):
        single(b"stored as Java does. " * 50, codec=codec)
        single(b"", codec=codec)
    for codec in (pb.NONE, pb.LZ4, pb.ZLIB, pb.ZSTD, pb.SNAPPY):
        sent += _raw_batch(producer, topic, partition, codec, next(sequence))
        next(sequence)
    return sent


def _raw_batch(producer: RawProducer, topic: str, partition: int, codec: Any, sequence: int) -> list[SentRecord]:
    """One entry whose elements differ in every field that an element can have."""
    element = pb.SingleMessageMetadata
    fields: list[tuple[pb.SingleMessageMetadata, bytes]] = [
        (element(partition_key="k", sequence_id=sequence), b"one"),
        (element(null_value=True, partition_key="tombstone", sequence_id=sequence + 1), b""),
        (element(event_time=5, properties=[pb.KeyValue(key="p", value="v")], sequence_id=sequence + 1), b""),
        (element(partition_key=base64.b64encode(b"\xff\x00").decode(), partition_key_b64_encoded=True), b"four" * 200),
        (element(ordering_key=b"\x00\x01", sequence_id=sequence + 9), bytes(range(256)) * 16),
    ]
    plain = batch_payload(fields)
    metadata = pb.MessageMetadata(
        sequence_id=sequence, publish_time=1_690_000_000_777, num_messages_in_batch=len(fields)
    )
    if codec != pb.NONE:
        metadata.compression = codec
        metadata.uncompressed_size = len(plain)
    stored = producer.send(metadata, compress(codec, plain))
    common = (metadata.publish_time,)
    place = (topic, partition, stored.ledgerId, stored.entryId)
    rows = [
        SentRecord(*place, 0, b"k", b"one", None, producer.name, *common, sequence),
        SentRecord(*place, 1, b"tombstone", None, None, producer.name, *common, sequence + 1),
        SentRecord(*place, 2, None, b"", (("p", b"v"),), producer.name, *common, sequence + 1, event_time=5),
        # Without a number of its own an element continues the batch's.
        SentRecord(*place, 3, b"\xff\x00", b"four" * 200, None, producer.name, *common, sequence + 3),
        SentRecord(
            *place,
            4,
            None,
            bytes(range(256)) * 16,
            None,
            producer.name,
            *common,
            sequence + 9,
            ordering_key=b"\x00\x01",
        ),
    ]
    return rows
