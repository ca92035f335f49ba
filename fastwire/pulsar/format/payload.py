"""Encoding of entries as a producer does: metadata, batch block, compression, checksum (spec: pulsar 1.2, 9, 10, 11,
24.2).

This is the inverse of ``scan``, for the producer, the load generator, the embedded broker, tests and benches. It
prefers plain code over fast code; only ``encode_values`` is optimised. Publish times are arguments, in milliseconds
since 1970.
"""

import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import count, repeat
from struct import Struct

import cramjam
import zstandard
from crc32c import crc32c
from google.protobuf.message import DecodeError

from fastwire.errors import CorruptEntryError
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.reason import Reason
from fastwire.wire.writer import encode_varint

MAGIC_CHECKSUM = b"\x0e\x01"
MAGIC_BROKER_ENTRY_METADATA = b"\x0e\x02"

# Takes a stored (compressed) payload and returns it encrypted; adds the encryption fields to the metadata (spec: pulsar
# 12).
Encrypt = Callable[[pb.MessageMetadata, bytes], bytes]

_U32 = Struct(">I")
_SIZES = Struct(">II")


class Compression(IntEnum):
    """Compression codecs by their wire number."""

    NONE = 0
    LZ4 = 1
    ZLIB = 2
    ZSTD = 3
    SNAPPY = 4


# At run time the generated enum's members are plain numbers; type checkers see a distinct type.
_NUMBERS = {
    Compression.NONE: pb.NONE,
    Compression.LZ4: pb.LZ4,
    Compression.ZLIB: pb.ZLIB,
    Compression.ZSTD: pb.ZSTD,
    Compression.SNAPPY: pb.SNAPPY,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One record of a producer; ``value`` None is a tombstone, which differs from an empty value."""

    value: bytes | None
    key: str | None = None
    key_is_base64: bool = False  # ``key`` is base64 text of the real key
    null_key: bool = False
    ordering_key: bytes | None = None
    properties: Sequence[tuple[str, str]] = ()
    event_time: int = 0  # milliseconds since 1970; 0: none
    sequence_id: int | None = None  # None: the batch's number plus the index in it
    deliver_at: int = 0  # milliseconds since 1970; such a record is sent alone, outside of batches
    compacted_out: bool = False  # only in batches: compaction has removed the record, its index stays taken


@dataclass(frozen=True, slots=True)
class Entry:
    """One encoded entry: ``body`` is the part of a SEND or MESSAGE frame after the command."""

    body: bytes
    messages: int  # permits that it costs
    sequence_id: int
    highest_sequence_id: int
    publish_time: int
    batched: bool
    chunk: bool = False


_SMALL = [bytes((value,)) for value in range(0x80)]
_MORE = [bytes((value | 0x80,)) for value in range(0x80)]  # the same as the first of several varint bytes


def compress(codec: Compression, data: bytes, *, open_ended: bool = False) -> bytes:
    """Compress the payload of an entry as official producers do.

    ``open_ended`` omits the end of a zlib stream, as Java's producer does: sync flush, no final block, no Adler-32.
    """
    match codec:
        case Compression.NONE:
            return data
        case Compression.LZ4:
            # An empty block is one byte of LZ4; official clients read beyond a payload of no bytes.
            return bytes(cramjam.lz4.compress_block(data, store_size=False)) if data else b"\0"
        case Compression.ZLIB:
            stream = zlib.compressobj()
            return stream.compress(data) + stream.flush(zlib.Z_SYNC_FLUSH if open_ended else zlib.Z_FINISH)
        case Compression.ZSTD:
            return zstandard.ZstdCompressor(level=3).compress(data)
        case Compression.SNAPPY:
            return bytes(cramjam.snappy.compress_raw(data))


def encode_batch(records: Iterable[Record], first_sequence: int = 0) -> bytes:
    """Return the uncompressed batch block of ``records``."""
    block = bytearray()
    for place, record in enumerate(records):
        sequence = first_sequence + place if record.sequence_id is None else record.sequence_id
        single = pb.SingleMessageMetadata(payload_size=len(record.value or b""), sequence_id=sequence)
        _describe(single, record)
        if record.compacted_out:
            single.compacted_out = True
        body = single.SerializeToString()
        block += _U32.pack(len(body)) + body + (record.value or b"")
    return bytes(block)


def encode_values(values: Sequence[bytes], first_sequence: int = 0, keys: Sequence[bytes] | None = None) -> bytes:
    """Return the batch block of plain values with optional UTF-8 keys of less than 128 bytes.

    The result equals ``encode_batch`` for such records, at a multiple of its speed. ``keys`` is as long as ``values``.
    """
    # A record's number consists of a low byte that changes and a rest that stays for 128 records. The bytes before it
    # depend only on key, length of the value and length of that rest.
    parts: list[bytes] = []
    heads: dict[tuple[bytes, int, int], bytes] = {}
    rest, rest_of = b"", -1
    if keys is not None and len(keys) != len(values):
        raise ValueError(f"{len(keys)} keys for {len(values)} values")
    for sequence, value, key in zip(count(first_sequence), values, keys or repeat(b""), strict=False):
        if sequence >> 7 != rest_of:
            rest_of = sequence >> 7
            rest = encode_varint(rest_of) if rest_of else b""
        shape = (key, len(value), len(rest))
        head = heads.get(shape)
        if head is None:
            described = b"\x12%b%b" % (_SMALL[len(key)], key) if keys else b""
            described += b"\x18%b\x40" % encode_varint(len(value))
            head = heads[shape] = _U32.pack(len(described) + 1 + len(rest)) + described
        parts += (head, (_MORE if rest else _SMALL)[sequence & 0x7F], rest, value)
    return b"".join(parts)


def record_of(message: bytes) -> Record:
    """Return the record of an encoded message of a batch block, without its number."""
    (size,) = _U32.unpack_from(message)
    single = pb.SingleMessageMetadata.FromString(message[4 : 4 + size])
    return Record(
        value=None if single.null_value else message[4 + size :],
        key=single.partition_key if single.HasField("partition_key") else None,
        key_is_base64=single.partition_key_b64_encoded,
        ordering_key=single.ordering_key if single.HasField("ordering_key") else None,
        properties=[(each.key, each.value) for each in single.properties],
        event_time=single.event_time,
    )


def encode_payload(metadata: pb.MessageMetadata, payload: bytes, *, checksum: bool = True) -> bytes:
    """Return the part of a frame that follows its command: checksum, metadata and payload.

    ``metadata`` is written as it stands, sound or not; tests use this to build damaged entries with a good checksum.
    """
    body = metadata.SerializePartialToString()
    covered = b"".join((_U32.pack(len(body)), body, payload))
    return b"".join((MAGIC_CHECKSUM, _U32.pack(crc32c(covered)), covered)) if checksum else covered


def encode_broker_entry_metadata(timestamp_ms: int, index: int) -> bytes:
    """Return the broker entry metadata that a broker adds before an entry: its time (ms since 1970), the last message's
    index.
    """
    body = pb.BrokerEntryMetadata(broker_timestamp=timestamp_ms, index=index).SerializeToString()
    return MAGIC_BROKER_ENTRY_METADATA + _U32.pack(len(body)) + body


def encode_batch_entry(
    records: Sequence[Record],
    *,
    producer_name: str,
    sequence_id: int,
    publish_time: int,
    compression: Compression = Compression.NONE,
    open_ended: bool = False,
    checksum: bool = True,
    metadata: pb.MessageMetadata | None = None,
    encrypt: Encrypt | None = None,
) -> Entry:
    """Return one entry that holds ``records`` as a batch; a batch of one is still a batch.

    ``metadata`` carries further fields (schema version, outer key, marker); what is named here replaces its own.
    Numbers that the records bring along have to rise.
    """
    last = records[-1].sequence_id if records else None
    return encode_block_entry(
        encode_batch(records, sequence_id),
        len(records),
        producer_name=producer_name,
        sequence_id=sequence_id,
        publish_time=publish_time,
        compression=compression,
        open_ended=open_ended,
        checksum=checksum,
        metadata=metadata,
        encrypt=encrypt,
        highest_sequence_id=last,
    )


def encode_block_entry(
    block: bytes,
    messages: int,
    *,
    producer_name: str,
    sequence_id: int,
    publish_time: int,
    compression: Compression = Compression.NONE,
    open_ended: bool = False,
    checksum: bool = True,
    metadata: pb.MessageMetadata | None = None,
    encrypt: Encrypt | None = None,
    highest_sequence_id: int | None = None,
) -> Entry:
    """Return one batch entry around an encoded block; ``messages`` is not checked."""
    full = _metadata(metadata, producer_name, sequence_id, publish_time, compression, len(block))
    full.num_messages_in_batch = messages
    highest = sequence_id + max(messages, 1) - 1 if highest_sequence_id is None else highest_sequence_id
    if messages > 1:
        full.highest_sequence_id = highest
    payload = compress(compression, block, open_ended=open_ended)
    if encrypt is not None:
        payload = encrypt(full, payload)
    body = encode_payload(full, payload, checksum=checksum)
    return Entry(body, messages, sequence_id, highest, publish_time, batched=True)


def encode_single_entry(
    record: Record,
    *,
    producer_name: str,
    sequence_id: int,
    publish_time: int,
    compression: Compression = Compression.NONE,
    open_ended: bool = False,
    checksum: bool = True,
    metadata: pb.MessageMetadata | None = None,
    encrypt: Encrypt | None = None,
) -> Entry:
    """Return one entry that holds one record without a batch around it."""
    value = record.value or b""
    full = _metadata(metadata, producer_name, sequence_id, publish_time, compression, len(value))
    _describe(full, record)
    if record.deliver_at:
        full.deliver_at_time = record.deliver_at
    payload = compress(compression, value, open_ended=open_ended)
    if encrypt is not None:
        payload = encrypt(full, payload)
    body = encode_payload(full, payload, checksum=checksum)
    return Entry(body, 1, sequence_id, sequence_id, publish_time, batched=False)


def encode_chunks(
    record: Record,
    *,
    chunk_bytes: int,
    producer_name: str,
    sequence_id: int,
    publish_time: int,
    compression: Compression = Compression.NONE,
    uuid: str = "",
    metadata: pb.MessageMetadata | None = None,
    encrypt: Encrypt | None = None,
) -> list[Entry]:
    """Return the entries of one message cut into chunks of at most ``chunk_bytes`` after compression.

    Encryption is applied to each chunk and adds to its size.
    """
    if chunk_bytes < 1:
        raise ValueError("chunk_bytes must be at least 1")
    value = record.value or b""
    payload = compress(compression, value)
    pieces = [payload[at : at + chunk_bytes] for at in range(0, max(len(payload), 1), chunk_bytes)]
    entries = []
    for number, piece in enumerate(pieces):
        full = _metadata(metadata, producer_name, sequence_id, publish_time, compression, len(value))
        _describe(full, record)
        if record.deliver_at:
            full.deliver_at_time = record.deliver_at
        full.uuid = uuid or f"{producer_name}-{sequence_id}"
        full.num_chunks_from_msg = len(pieces)
        full.total_chunk_msg_size = len(payload)
        full.chunk_id = number
        body = encode_payload(full, piece if encrypt is None else encrypt(full, piece))
        entries.append(Entry(body, 1, sequence_id, sequence_id, publish_time, batched=False, chunk=True))
    return entries


def encode_send(producer_id: int, entry: Entry) -> bytes:
    """Return the complete SEND frame of an entry."""
    send = pb.CommandSend(producer_id=producer_id, sequence_id=entry.sequence_id, num_messages=entry.messages)
    if entry.highest_sequence_id != entry.sequence_id:
        send.highest_sequence_id = entry.highest_sequence_id
    if entry.chunk:
        send.is_chunk = True
    command = pb.BaseCommand(type=pb.BaseCommand.SEND, send=send).SerializeToString()
    total = 4 + len(command) + len(entry.body)
    return b"".join((_SIZES.pack(total, len(command)), command, entry.body))


def broker_entry_metadata(body: bytes) -> pb.BrokerEntryMetadata | None:
    """Return the broker entry metadata of ``body``: broker time in milliseconds, index of the entry's last message.

    ``body`` is the part of a MESSAGE frame after the command, such as the payload of a ColdEntry or a dead letter.
    Returns None if the broker adds no such metadata (spec: pulsar 1.2). Raises CorruptEntryError.
    """
    written, _ = _split_broker_entry(body)
    if written is None:
        return None
    try:
        return pb.BrokerEntryMetadata.FromString(bytes(written))
    except DecodeError as exc:
        raise CorruptEntryError(Reason.METADATA, f"broker entry metadata: {exc}") from None


def _split_broker_entry(body: bytes) -> tuple[memoryview | None, memoryview]:
    view = memoryview(body)
    if view[:2] != MAGIC_BROKER_ENTRY_METADATA:
        return None, view
    if len(view) < 6 or len(view) - 6 < _U32.unpack_from(view, 2)[0]:
        raise CorruptEntryError(Reason.METADATA, "broker entry metadata ends beyond the frame")
    end = 6 + _U32.unpack_from(view, 2)[0]
    return view[6:end], view[end:]


def split_payload(body: bytes) -> tuple[pb.MessageMetadata, memoryview]:
    """Split the part of a SEND or MESSAGE frame after the command into metadata and stored payload.

    Raises CorruptEntryError. This is the slow and complete decoder, for the embedded broker, and as a reference for
    tests.
    """
    _, view = _split_broker_entry(body)
    if view[:2] == MAGIC_CHECKSUM:
        if len(view) < 6:
            raise CorruptEntryError(Reason.CHECKSUM, "the frame ends inside the checksum")
        (wanted,) = _U32.unpack_from(view, 2)
        view = view[6:]
        found = crc32c(view)
        if found != wanted:
            raise CorruptEntryError(Reason.CHECKSUM, f"frame says {wanted:08x}, its bytes give {found:08x}")
    if len(view) < 4:
        raise CorruptEntryError(Reason.METADATA, "the frame ends inside the metadata size")
    (size,) = _U32.unpack_from(view)
    if len(view) - 4 < size:
        raise CorruptEntryError(Reason.METADATA, f"metadata of {size} bytes, {len(view) - 4} present")
    try:
        metadata = pb.MessageMetadata.FromString(bytes(view[4 : 4 + size]))
    except DecodeError as exc:
        raise CorruptEntryError(Reason.METADATA, f"metadata: {exc}") from None
    return metadata, view[4 + size :]


def text_of(value: str | bytes) -> str:
    """Return a metadata field as text; the generated code returns bytes where the field is not UTF-8."""
    return value if isinstance(value, str) else value.decode(errors="replace")


def _metadata(
    base: pb.MessageMetadata | None,
    producer_name: str,
    sequence_id: int,
    publish_time: int,
    compression: Compression,
    size: int,
) -> pb.MessageMetadata:
    full = pb.MessageMetadata()
    if base is not None:
        full.CopyFrom(base)
    full.producer_name = producer_name
    full.sequence_id = sequence_id
    full.publish_time = publish_time
    if compression is not Compression.NONE:
        full.compression = _NUMBERS[compression]
    full.uncompressed_size = size
    return full


def _describe(target: pb.MessageMetadata | pb.SingleMessageMetadata, record: Record) -> None:
    """Write the fields of a record that both kinds of metadata share."""
    for key, value in record.properties:
        target.properties.add(key=key, value=value)
    if record.key is not None:
        target.partition_key = record.key
    if record.key_is_base64:
        target.partition_key_b64_encoded = True
    if record.null_key:
        target.null_partition_key = True
    if record.ordering_key is not None:
        target.ordering_key = record.ordering_key
    if record.event_time:
        target.event_time = record.event_time & 0xFFFF_FFFF_FFFF_FFFF  # as Java's clients write one before 1970
    if record.value is None:
        target.null_value = True
