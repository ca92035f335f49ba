"""Consume requests for client and broker, and the broker's side of their answers (spec: tank 5).

``fastwire.tank.reading.response`` reads the answers.
"""

from dataclasses import dataclass
from struct import pack
from typing import ClassVar, Self

from fastwire.errors import ProtocolError
from fastwire.tank.format.error import PartitionStatus
from fastwire.tank.format.message import Address, MessageType, PayloadReader, encode_address, encode_str8

END = 0xFFFFFFFFFFFFFFFF  # messages that are appended after the request; DiscoverPartitions tells the number

_WITH_OP_FLAGS = 3  # lowest client version


@dataclass(frozen=True, slots=True)
class FetchPartition:
    """One partition of a consume request. ``sequence`` 0 is the first available message, END the end."""

    partition: int
    sequence: int
    fetch_bytes: int


@dataclass(frozen=True, slots=True)
class ConsumeRequest:
    """Request for messages: per topic its partitions, each at most once. Waits are in milliseconds, 0: none."""

    kind: ClassVar[MessageType] = MessageType.CONSUME
    topics: tuple[tuple[str, tuple[FetchPartition, ...]], ...]
    max_wait_ms: int = 0
    min_bytes: int = 0
    client_id: str = ""
    version: int = 2
    op_flags: int = 0  # bit 0: prefer a replica on the client's host; sent from version 3 on

    def encode(self, request_id: int) -> bytes:
        """Return the payload. Raises ValueError for more than 255 topics, or partitions of a topic, or none."""
        parts = [pack("<HI", self.version, request_id), encode_str8(self.client_id.encode())]
        parts.append(pack("<QI", self.max_wait_ms, self.min_bytes))
        if self.version >= _WITH_OP_FLAGS:
            parts.append(bytes((self.op_flags,)))
        parts.append(_count(self.topics, "topics"))
        for name, partitions in self.topics:
            parts += (encode_str8(name.encode()), _count(partitions, "partitions"))
            parts += (pack("<HQI", one.partition, one.sequence, one.fetch_bytes) for one in partitions)
        return b"".join(parts)

    @classmethod
    def decode(cls, payload: bytes) -> tuple[int, Self]:
        """Return request id and request. Raises ProtocolError, for which a broker closes the connection."""
        r = PayloadReader(payload, "consume request")
        version, request_id, client_id, max_wait_ms, min_bytes = r.u16(), r.u32(), r.text(), r.u64(), r.u32()
        op_flags = r.u8() if version >= _WITH_OP_FLAGS else 0
        count = r.u8()
        if count == 0:
            raise ProtocolError(r.what, r.at - 1, detail="names no topic")
        topics = []
        for _ in range(count):
            name = r.text()
            topics.append((name, tuple(FetchPartition(r.u16(), r.u64(), r.u32()) for _ in range(r.u8()))))
        return request_id, cls(tuple(topics), max_wait_ms, min_bytes, client_id, version, op_flags)


def _count(items: tuple[object, ...], what: str) -> bytes:
    if not 1 <= len(items) <= 255:
        raise ValueError(f"{len(items)} {what}: a request has 1 to 255")
    return bytes((len(items),))


@dataclass(frozen=True, slots=True)
class PartitionAnswer:
    """The record of one partition in a consume answer, and its chunk of bundles.

    ``status`` is a PartitionStatus other than UNKNOWN_TOPIC; ``first`` belongs to BOUNDARY, ``leader`` to REDIRECT.
    """

    partition: int
    status: int = PartitionStatus.OK
    base: int = 0
    high_watermark: int = 0
    chunk: bytes = b""
    first: int = 0
    leader: Address | None = None

    def encode(self) -> bytes:
        """Return the record, without the chunk."""
        parts = [pack("<HB", self.partition, self.status)]
        if self.status in (PartitionStatus.OK, PartitionStatus.BOUNDARY):
            parts.append(pack("<Q", self.base))
        if self.status in (PartitionStatus.OK, PartitionStatus.OK_SPARSE, PartitionStatus.BOUNDARY):
            parts.append(pack("<QI", self.high_watermark, len(self.chunk)))
        if self.status == PartitionStatus.BOUNDARY:
            parts.append(pack("<Q", self.first))
        if self.leader is not None:
            parts.append(encode_address(self.leader))
        return b"".join(parts)


def encode_consume_answer(request_id: int, topics: list[tuple[str, int, list[PartitionAnswer] | None]]) -> bytes:
    """Return the payload of an answer: per topic its name, the count of partitions, and their answers.

    None instead of the answers says that the topic is unknown; the count is that of the request then.
    """
    header = [pack("<IB", request_id, len(topics))]
    chunks = []
    for name, count, answers in topics:
        header += (encode_str8(name.encode()), bytes((count,)))
        if answers is None:
            header.append(b"\xff\xff")
            continue
        for one in answers:
            header.append(one.encode())
            chunks.append(one.chunk)
    size = sum(map(len, header))
    return b"".join((pack("<I", size), *header, *chunks))
