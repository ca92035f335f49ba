"""Publishes the dead letters of a consumer, and records for its retry topic (spec: pulsar 17)."""

from base64 import b64encode
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

from fastwire.columns.chunk import Chunk, DeadLetter
from fastwire.columns.rows import Rows
from fastwire.errors import CorruptEntryError
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.format.ackset import bits_of
from fastwire.pulsar.format.payload import Encrypt, Record, split_payload
from fastwire.pulsar.names.topic import Topic, parse_topic
from fastwire.pulsar.producing.settings import ProducerSettings
from fastwire.pulsar.protocol.completion import sealed
from fastwire.pulsar.protocol.deadletter import (
    DeadLetterPolicy,
    dead_letter_properties,
    reconsume_times,
    retry_properties,
)
from fastwire.pulsar.protocol.message_id import MessageId
from fastwire.pulsar.reading.batch import MessageBatch
from fastwire.pulsar.reading.scan import Scanner
from fastwire.pulsar.reading.slot import SlotTable
from fastwire.reason import Reason
from fastwire.wire.pool import Pool

from ....runtime.clock import now_ms
from ..cluster import ClientCluster
from ..producer import TopicProducer
from ..settings import ClientSettings

MEMORY = 1 << 30  # the client's own limit, so an entry that it has decoded can be decoded here

Origin = tuple[Record, MessageId, str]  # a record, its id and its topic


class DeadLetters:
    """The producers for dead-letter and retry topics, opened at their first use."""

    def __init__(
        self, settings: ClientSettings, policy: DeadLetterPolicy, subscription: str, *, encrypt: Encrypt | None = None
    ) -> None:
        self.policy = policy
        self._encrypt = encrypt  # for records that were not encrypted, or are known by their rows only
        self._settings = settings
        self._subscription = subscription
        self._stack = AsyncExitStack()
        self._cluster: ClientCluster | None = None
        self._producers: dict[str, TopicProducer] = {}

    async def bury(self, letter: DeadLetter, source: Topic) -> None:
        """Publish an entry's records as dead letters of ``source``; returns when they are stored.

        Encrypted records are encrypted again, under their own data key, so that their readers can read the dead
        letter; an entry that no key decrypts is published as its ciphertext. Raises ProduceError if they are not
        stored, CorruptEntryError for an entry that cannot be decoded.
        """
        topic = self.policy.dead_topic(source, self._subscription)
        metadata, data, encrypt = self._opened(letter)
        dead = [
            _with(record, dead_letter_properties(record.properties, letter.log.topic, at))
            for record, at in _decode(letter, metadata, data)
        ]
        if encrypt is None:
            await self._send((topic, record) for record in dead)
            return
        # A producer has one data key: this one is for this entry alone.
        async with self._make(await self._connected(), topic, encrypt) as producer:
            for record in dead:
                await producer.put(record)

    def _opened(self, letter: DeadLetter) -> tuple[pb.MessageMetadata, bytes | memoryview, Encrypt | None]:
        """Return metadata and decrypted payload of an entry, and the encryption for its dead letters."""
        metadata, stored = split_payload(letter.payload)
        if not metadata.encryption_keys:
            return metadata, stored, None
        from ..entryencryptor import encrypt_again  # its package is large, and most entries are not encrypted

        decryptor = self._settings.decryptor
        try:
            if decryptor is None:
                raise CorruptEntryError(Reason.DECRYPTION, "no private key is given")
            # A chunked message was decrypted part by part, and has no parameter any more.
            data = decryptor.decrypt(metadata, stored) if metadata.encryption_param else stored
            return metadata, data, encrypt_again(decryptor, metadata)
        except CorruptEntryError:
            return sealed(metadata), stored, None

    async def retry(self, records: Iterable[Origin], source: Topic, delay_s: float) -> None:
        """Publish records to the retry topic, or as dead letters after the last retry. Raises ProduceError."""
        again = self.policy.again_topic(source, self._subscription)
        dead = self.policy.dead_topic(source, self._subscription)
        out = []
        for record, at, topic in records:
            if reconsume_times(record.properties) >= self.policy.most_redeliveries:
                out.append((dead, _with(record, dead_letter_properties(record.properties, topic, at))))
                continue
            properties = retry_properties(record.properties, topic, at, retry_topic=again, delay_s=delay_s)
            due = now_ms() + round(delay_s * 1000) if delay_s > 0 else 0
            out.append((again, _with(record, properties, deliver_at=due)))
        await self._send(out)

    async def close(self) -> None:
        """Close the producers."""
        await self._stack.aclose()

    async def _send(self, records: Iterable[tuple[str, Record]]) -> None:
        waits = [await (await self._producer(topic)).put(record) for topic, record in records]
        for wait in waits:
            await wait

    async def _producer(self, topic: str) -> TopicProducer:
        if topic not in self._producers:
            producer = self._make(await self._connected(), topic, self._encrypt)
            await producer.open()
            self._stack.push_async_callback(producer.close)
            self._producers[topic] = producer
        return self._producers[topic]

    async def _connected(self) -> ClientCluster:
        if self._cluster is None:
            self._cluster = await self._stack.enter_async_context(ClientCluster(self._settings))
        return self._cluster

    def _make(self, cluster: ClientCluster, topic: str, encrypt: Encrypt | None) -> TopicProducer:
        return TopicProducer(
            cluster,
            self._settings.url,
            parse_topic(topic),
            ProducerSettings(
                batching=None,
                chunking=True,
                encrypt=encrypt,
                initial_subscription=self.policy.initial_subscription,
            ),
            operation_timeout_s=self._settings.operation_timeout_s,
        )


def _decode(
    letter: DeadLetter, metadata: pb.MessageMetadata, data: bytes | memoryview
) -> list[tuple[Record, MessageId]]:
    """Return the records of an entry that were not acknowledged."""
    block = Scanner(SlotTable(), Pool(MEMORY), 1).inflate(metadata.compression, bytes(data), metadata.uncompressed_size)
    position, partition = letter.position, int(letter.log.partition)
    if not metadata.HasField("num_messages_in_batch"):
        record = Record(
            value=None if metadata.null_value else block,
            key=metadata.partition_key if metadata.HasField("partition_key") else None,
            key_is_base64=metadata.partition_key_b64_encoded,
            null_key=metadata.null_partition_key,
            ordering_key=metadata.ordering_key if metadata.HasField("ordering_key") else None,
            properties=[(one.key, one.value) for one in metadata.properties],
            event_time=metadata.event_time,
        )
        return [(record, MessageId(position.a, position.b, -1, partition))]
    wanted = bits_of(letter.wanted) if letter.wanted else -1
    return [
        (
            Record(
                value=one.value,
                **_key(one.key),
                ordering_key=one.ordering_key,
                properties=one.properties,
                event_time=one.event_time,
            ),
            MessageId(position.a, position.b, one.batch_index, partition),
        )
        for one in MessageBatch(block, metadata.num_messages_in_batch)
        if wanted >> one.batch_index & 1 and not one.compacted_out
    ]


def records_of(chunk: Chunk, rows: Iterable[int]) -> list[Record]:
    """Return rows as records to be published again. Raises ValueError after ``release``."""
    given = Rows(chunk)
    found = []
    for row in rows:
        value, key, headers, event_time, ordering_key, _ = given.record(row)
        assert not isinstance(key, str), "keys of chunks are bytes"
        found.append(
            Record(
                value=value,
                **_key(key),
                ordering_key=ordering_key,
                properties=[(name, (text or b"").decode("utf-8", "replace")) for name, text in headers],
                event_time=event_time or 0,
            )
        )
    return found


def _key(key: bytes | None) -> dict[str, Any]:
    if key is None:
        return {"key": None}
    try:
        return {"key": key.decode()}
    except UnicodeDecodeError:
        return {"key": b64encode(key).decode(), "key_is_base64": True}


def _with(record: Record, properties: Sequence[tuple[str, str]], *, deliver_at: int = 0) -> Record:
    return replace(record, properties=properties, deliver_at=deliver_at)
