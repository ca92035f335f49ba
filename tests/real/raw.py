"""A small blocking Pulsar client that sends exactly what it is told to, where the official client would not.

For entries that no official Python client makes (keys of any bytes, repeated properties, batches whose elements
differ, streams that end as Java's do, frames without a checksum), and for the cursor of a subscription, which a broker
without an admin interface tells in no other way.
"""

import itertools
import socket
import time
import zlib
from types import TracebackType
from typing import NamedTuple, Self
from urllib.parse import urlsplit

import cramjam
import crc32c
import lz4.block
import zstandard

from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.format.command import PROTOCOL_VERSION, decode_command, encode_command

CHECKSUM_MAGIC = b"\x0e\x01"
BOOKIE_S = 45.0
# What a broker may say at any time and a client without a queue need not hear.
IGNORED = {pb.BaseCommand.ACTIVE_CONSUMER_CHANGE, pb.BaseCommand.REACHED_END_OF_TOPIC, pb.BaseCommand.PONG}


def compress(codec: pb.CompressionType, plain: bytes) -> bytes:
    """``plain`` as a Java producer would store it: its zlib streams end in a sync flush, without a final block."""
    if codec == pb.NONE:
        return plain
    if codec == pb.LZ4:
        return bytes(lz4.block.compress(plain, store_size=False))
    if codec == pb.ZLIB:
        stream = zlib.compressobj()
        return stream.compress(plain) + stream.flush(zlib.Z_SYNC_FLUSH)
    if codec == pb.ZSTD:
        return zstandard.ZstdCompressor(write_content_size=False).compress(plain)
    if codec == pb.SNAPPY:
        return bytes(cramjam.snappy.compress_raw(plain))
    raise ValueError(f"no such codec: {codec}")


def batch_payload(elements: list[tuple[pb.SingleMessageMetadata, bytes]]) -> bytes:
    """The uncompressed payload of an entry that holds ``elements``; payload sizes are filled in."""
    parts: list[bytes] = []
    for metadata, value in elements:
        metadata.payload_size = len(value)
        head = metadata.SerializeToString()
        parts += [len(head).to_bytes(4, "big"), head, value]
    return b"".join(parts)


class _Connection:
    """One connection to the owner of one topic (a partition has its own name); use as a context manager."""

    def __init__(self, url: str, topic: str, token: str | None) -> None:
        address = urlsplit(url)
        self._socket = socket.create_connection((address.hostname or "127.0.0.1", address.port or 6650), timeout=30)
        self._ids = itertools.count(1)
        self._topic = topic
        try:
            self._connect(token)
            self._look_up()
            self._begin()
        except BaseException:
            self._socket.close()
            raise

    def _begin(self) -> None:
        """Use a connection, once the topic is known to be served here."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def _connect(self, token: str | None) -> None:
        connect = pb.CommandConnect(client_version="raw-test-producer", protocol_version=PROTOCOL_VERSION)
        if token is not None:
            connect.auth_method_name = "token"
            connect.auth_data = token.encode()
        self._ask(pb.BaseCommand(type=pb.BaseCommand.CONNECT, connect=connect), pb.BaseCommand.CONNECTED)

    def _look_up(self) -> None:
        # The standalone broker owns everything, but only a lookup makes it take the namespace bundle.
        lookup = pb.CommandLookupTopic(topic=self._topic, request_id=next(self._ids))
        self._ask(pb.BaseCommand(type=pb.BaseCommand.LOOKUP, lookupTopic=lookup), pb.BaseCommand.LOOKUP_RESPONSE)

    def _ask(self, command: pb.BaseCommand, expected: pb.BaseCommand.Type) -> pb.BaseCommand:
        self._socket.sendall(encode_command(command))
        answer = self._receive()
        if answer.type != expected:
            raise RuntimeError(f"expected {pb.BaseCommand.Type.Name(expected)}, the broker said {answer}")
        return answer

    def _receive(self) -> pb.BaseCommand:
        while True:
            total = int.from_bytes(self._exactly(4), "big")
            frame = self._exactly(total)
            command = decode_command(frame[4 : 4 + int.from_bytes(frame[:4], "big")])
            if command.type not in IGNORED:
                if command.type != pb.BaseCommand.PING:
                    return command
                self._socket.sendall(encode_command(pb.BaseCommand(type=pb.BaseCommand.PONG, pong=pb.CommandPong())))

    def _exactly(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = self._socket.recv(size - len(parts))
            if not part:
                raise ConnectionError("the broker closed the connection")
            parts += part
        return bytes(parts)


class RawProducer(_Connection):
    """One producer on a connection of its own."""

    def __init__(
        self, url: str, topic: str, *, name: str = "", token: str | None = None, schema: pb.Schema | None = None
    ) -> None:
        self.name = name
        self.schema_version = b""
        self._schema = schema
        super().__init__(url, topic, token)

    def _begin(self) -> None:
        producer = pb.CommandProducer(topic=self._topic, producer_id=1, request_id=next(self._ids))
        if self.name:
            producer.producer_name = self.name
        if self._schema is not None:
            producer.schema.CopyFrom(self._schema)
        command = pb.BaseCommand(type=pb.BaseCommand.PRODUCER, producer=producer)
        until = time.monotonic() + BOOKIE_S
        while True:
            try:
                answer = self._ask(command, pb.BaseCommand.PRODUCER_SUCCESS)
                break
            except RuntimeError as exc:
                # A standalone broker that was killed answers before it knows that its own bookie is there again.
                if "Not enough non-faulty bookies" not in str(exc) or time.monotonic() > until:
                    raise
                time.sleep(0.5)
        self.name = answer.producer_success.producer_name
        self.schema_version = answer.producer_success.schema_version

    def send(self, metadata: pb.MessageMetadata, payload: bytes, *, checksum: bool = True) -> pb.MessageIdData:
        """Store one entry and return its id; ``producer_name`` is filled in."""
        metadata.producer_name = self.name
        count = metadata.num_messages_in_batch if metadata.HasField("num_messages_in_batch") else 1
        command = pb.BaseCommand(
            type=pb.BaseCommand.SEND,
            send=pb.CommandSend(
                producer_id=1,
                sequence_id=metadata.sequence_id,
                num_messages=count,
                is_chunk=metadata.num_chunks_from_msg > 1,
            ),
        ).SerializeToString()
        head = metadata.SerializeToString()
        tail = len(head).to_bytes(4, "big") + head + payload
        if checksum:
            tail = CHECKSUM_MAGIC + crc32c.crc32c(tail).to_bytes(4, "big") + tail
        frame = len(command).to_bytes(4, "big") + command + tail
        self._socket.sendall(len(frame).to_bytes(4, "big") + frame)
        answer = self._receive()
        if answer.type != pb.BaseCommand.SEND_RECEIPT:
            raise RuntimeError(f"the broker did not store the entry: {answer}")
        return answer.send_receipt.message_id


class Cursor(NamedTuple):
    """Positions of a subscription as (ledger, entry); an entry of -1 is before the first."""

    mark_delete: tuple[int, int]
    last: tuple[int, int]

    @property
    def done(self) -> bool:
        """Return whether the whole topic is acknowledged."""
        return self.last[1] < 0 or self.mark_delete >= self.last


class _CursorConnection(_Connection):
    def __init__(self, url: str, topic: str, subscription: str, kind: str, token: str | None) -> None:
        self._subscription = subscription
        self._kind = kind
        super().__init__(url, topic, token)

    def read(self) -> Cursor:
        subscribe = pb.CommandSubscribe(
            topic=self._topic,
            subscription=self._subscription,
            consumer_id=1,
            request_id=next(self._ids),
            consumer_name="cursor",
            subType=self._kind.title(),
            initialPosition=pb.CommandSubscribe.Earliest,
        )
        self._ask(pb.BaseCommand(type=pb.BaseCommand.SUBSCRIBE, subscribe=subscribe), pb.BaseCommand.SUCCESS)
        last = pb.CommandGetLastMessageId(consumer_id=1, request_id=next(self._ids))
        answer = self._ask(
            pb.BaseCommand(type=pb.BaseCommand.GET_LAST_MESSAGE_ID, getLastMessageId=last),
            pb.BaseCommand.GET_LAST_MESSAGE_ID_RESPONSE,
        ).getLastMessageIdResponse
        close = pb.CommandCloseConsumer(consumer_id=1, request_id=next(self._ids))
        self._ask(pb.BaseCommand(type=pb.BaseCommand.CLOSE_CONSUMER, close_consumer=close), pb.BaseCommand.SUCCESS)
        return Cursor(_place(answer.consumer_mark_delete_position), _place(answer.last_message_id))


def read_cursor(url: str, topic: str, subscription: str, *, kind: str = "failover", token: str | None = None) -> Cursor:
    """The cursor of a durable subscription that nobody uses at the moment; creates it if it does not exist."""
    with _CursorConnection(url, topic, subscription, kind, token) as connection:
        return connection.read()


def _place(data: pb.MessageIdData) -> tuple[int, int]:
    return _signed(data.ledgerId), _signed(data.entryId)


def _signed(number: int) -> int:
    """Ids are unsigned on the wire and signed in meaning."""
    return number - (1 << 64) if number >> 63 else number
