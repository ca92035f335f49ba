"""MESSAGE frames for tests, a driver of the scanner, and an oracle: the same rows by generated protobuf code."""

import base64
import re
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import lz4.block
import pyarrow as pa
import snappy
import zstandard

from fastwire.columns.chunk import Chunk, DeadLetter
from fastwire.columns.scan import Stop
from fastwire.position import Log, Span
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.format.payload import encode_payload, split_payload, text_of
from fastwire.pulsar.reading.cold import ColdEntry
from fastwire.pulsar.reading.scan import Scanner
from fastwire.pulsar.reading.slot import SlotTable
from fastwire.wire.pool import Pool
from fastwire.wire.writer import encode_varint
from tests.support.times import nearest_millis

CONSUMER = 7
CONNECTION = 1
LOG = Log("pulsar", "test", "persistent://public/default/ev", "0")
Row = dict[str, Any]


def words(bits: Iterable[int]) -> list[int]:
    """The ack_set in which exactly ``bits`` are set: signed words, no trailing zeros (Pulsar 15.3)."""
    whole = sum(1 << bit for bit in set(bits))
    out = []
    while whole:
        word = whole & 0xFFFFFFFFFFFFFFFF
        out.append(word - (1 << 64) if word >> 63 else word)
        whole >>= 64
    return out


def bits(ack_set: Sequence[int]) -> set[int]:
    """The bits that an ack_set has."""
    return {place * 64 + bit for place, word in enumerate(ack_set) for bit in range(64) if word >> bit & 1}


def command_frame(command: pb.BaseCommand | bytes, behind: bytes = b"") -> bytes:
    """A frame around a command, with what stands behind it."""
    body = command if isinstance(command, bytes) else command.SerializePartialToString()
    return (4 + len(body) + len(behind)).to_bytes(4, "big") + len(body).to_bytes(4, "big") + body + behind


def message_frame(
    body: bytes,
    *,
    consumer: int = CONSUMER,
    ledger: int = 12,
    entry: int = 0,
    redelivery: int = 0,
    ack_set: Sequence[int] = (),
    epoch: int | None = None,
    permits: int | None = None,
    partition: int = 0,
) -> bytes:
    """A MESSAGE frame whose command is followed by ``body``."""
    message = pb.CommandMessage(
        consumer_id=consumer,
        message_id=pb.MessageIdData(
            ledgerId=ledger & (1 << 64) - 1, entryId=entry & (1 << 64) - 1, partition=partition
        ),
        redelivery_count=redelivery,
        ack_set=ack_set,
    )
    if epoch is not None:
        message.consumer_epoch = epoch
    raw = message.SerializeToString()
    if permits is not None:  # a proposed field, which our tables do not have
        raw += b"\x30" + encode_varint(permits)
    return command_frame(b"\x08\x09\x4a" + encode_varint(len(raw)) + raw, body)


def scanner(
    pool: Pool | None = None, *, ordered: bool = True, consumers: Iterable[int] = (CONSUMER,), **options: Any
) -> tuple[Scanner, SlotTable]:
    """A scanner with one log and attached consumers, all of that log unless there are several."""
    wanted = list(consumers)
    logs = [LOG, *(Log("pulsar", "test", LOG.topic, str(number)) for number in range(1, len(wanted)))]
    slots = SlotTable(logs)
    for index, consumer in enumerate(wanted):
        slots.add(consumer, index, ordered=ordered)
        slots.attach(consumer, CONNECTION)
    return Scanner(slots, pool or Pool(1 << 30), CONNECTION, **options), slots


@dataclass
class Seen:
    """All that came out of a scanner."""

    rows: list[Row] = field(default_factory=list)
    commands: list[bytes] = field(default_factory=list)
    cold: list[ColdEntry] = field(default_factory=list)
    dead_letters: list[DeadLetter] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    runs: list[tuple[int, int, int]] = field(default_factory=list)
    chunk_rows: list[int] = field(default_factory=list)
    unfit_times: int = 0
    stops: list[Stop] = field(default_factory=list)

    def take(self, chunk: Chunk | None, validate: bool = True) -> None:
        if chunk is None:
            return
        self.rows += rows_of(chunk, validate)
        self.dead_letters += chunk.dead_letters
        self.spans += chunk.spans()
        self.runs += chunk.runs()
        self.chunk_rows.append(chunk.rows)
        self.unfit_times += chunk.unfit_times
        chunk.release()


def put(to: Scanner, data: bytes | memoryview, seen: Seen | None = None) -> None:
    """All bytes of ``data`` into the scanner's buffer; scans between reads only if there is ``seen`` to fill."""
    rest = memoryview(data)
    while rest:
        view = to.get_buffer()
        count = min(len(view), len(rest))
        view[:count] = rest[:count]
        view.release()
        to.received(count)
        rest = rest[count:]
        if seen is not None:
            drain(to, seen)


def feed(to: Scanner, data: bytes, cuts: Sequence[int] = (), *, close: bool = True, seen: Seen | None = None) -> Seen:
    """Give ``data`` in parts, cut at ``cuts``, and collect what comes out; ``close`` takes the last chunk too."""
    seen = seen or Seen()
    edges = [0, *cuts, len(data)]
    for start, end in pairwise(edges):
        put(to, memoryview(data)[start:end], seen)
    drain(to, seen)
    if close:
        seen.take(to.take_chunk())
    return seen


def drain(to: Scanner, seen: Seen) -> None:
    """Scan until more bytes are needed."""
    while (stop := Stop(to.scan())) is not Stop.NEED_BYTES:
        seen.stops.append(stop)
        if stop is Stop.CHUNK_FULL:
            chunk = to.take_chunk()
            assert chunk is not None, "CHUNK_FULL without a chunk"
            seen.take(chunk)
        elif stop is Stop.FOUND:
            found = to.take_found()
            if isinstance(found, ColdEntry):
                seen.cold.append(found)
            else:
                assert found is not None
                seen.commands.append(found)
        else:
            to.resume()


def rows_of(chunk: Chunk, validate: bool = True) -> list[Row]:
    """The rows of a chunk as plain Python; times in microseconds, headers as pairs."""
    if not chunk.rows:
        return []
    batch = pa.record_batch(chunk)
    if validate:
        batch.validate(full=True)
    assert batch.num_rows == chunk.rows
    columns = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.int64())
        values = column.to_pylist()
        if name == "headers":
            values = [row and [(pair["key"], pair["value"]) for pair in row] for row in values]
        columns[name] = values
    if not columns:
        return [{} for _ in range(chunk.rows)]
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def inflate(codec: int, data: bytes, size: int) -> bytes:
    """Decompress with packages that the product does not use for it, where there are such."""
    if codec == 0:
        return data
    if size == 0:
        return b""
    match codec:
        case 1:
            out = lz4.block.decompress(data, uncompressed_size=size)
        case 2:
            out = zlib.decompressobj().decompress(data)
        case 3:
            out = zstandard.ZstdDecompressor().decompressobj().decompress(data)
        case 4:
            out = snappy.uncompress(data)
        case _:
            raise ValueError(f"codec {codec}")
    assert len(out) == size
    return bytes(out)


def key_of(single: pb.SingleMessageMetadata | pb.MessageMetadata) -> bytes | None:
    if not single.HasField("partition_key") or single.null_partition_key:
        return None
    text = single.partition_key
    if single.partition_key_b64_encoded:
        bare = text.rstrip("=")
        if len(text) - len(bare) <= 2 and len(bare) % 4 != 1 and re.fullmatch(r"[A-Za-z0-9+/_-]*", bare, re.ASCII):
            return base64.urlsafe_b64decode(bare.translate({43: 45, 47: 95}) + "=" * (-len(bare) % 4))
    return text.encode()


def oracle(frame: bytes, log: Log = LOG) -> list[Row]:
    """The rows of a sound MESSAGE frame, by the generated protobuf code."""
    size = int.from_bytes(frame[4:8], "big")
    message = pb.BaseCommand.FromString(frame[8 : 8 + size]).message
    metadata, stored = split_payload(frame[8 + size :])
    payload = inflate(metadata.compression, bytes(stored), metadata.uncompressed_size)
    wanted = bits(message.ack_set) if message.ack_set else None
    rows: list[Row] = []

    def add(index: int, value: bytes, single: Any, sequence: int) -> None:
        if wanted is not None and max(index, 0) not in wanted:
            return
        rows.append(
            {
                "key": key_of(single),
                "value": None if single.null_value else value,
                "topic": log.topic,
                "partition": int(log.partition),
                "offset": message.message_id.entryId,
                "timestamp": nearest_millis(metadata.publish_time),
                "timestampType": 0,
                "headers": [(text_of(pair.key), pair.value.encode()) for pair in single.properties] or None,
                "ledger": message.message_id.ledgerId,
                "batchIndex": index,
                "eventTime": nearest_millis(single.event_time) if single.event_time else None,
                "producer": metadata.producer_name,
                "sequenceId": sequence if sequence < 1 << 63 else sequence - (1 << 64),
                "orderingKey": single.ordering_key if single.HasField("ordering_key") else None,
                "schemaVersion": metadata.schema_version or None,
                "redeliveryCount": message.redelivery_count,
            }
        )

    if not metadata.HasField("num_messages_in_batch"):
        add(-1, payload, metadata, metadata.sequence_id)
        return rows
    at = 0
    for index in range(metadata.num_messages_in_batch):
        head = int.from_bytes(payload[at : at + 4], "big")
        single = pb.SingleMessageMetadata.FromString(payload[at + 4 : at + 4 + head])
        at += 4 + head + single.payload_size
        assert at <= len(payload)
        if single.compacted_out:
            continue
        number = single.sequence_id if single.HasField("sequence_id") else metadata.sequence_id + index
        add(index, payload[at - single.payload_size : at], single, number)
    return rows


def resealed(body: bytes, change: Callable[[pb.MessageMetadata], object], payload: bytes | None = None) -> bytes:
    """Return the body of a frame with other metadata (and payload) under a good checksum."""
    metadata, stored = split_payload(body)
    change(metadata)
    return encode_payload(metadata, bytes(stored) if payload is None else payload)
