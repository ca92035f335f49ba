"""Frames, and the requests and answers without messages, for client and broker (spec: tank 2-4, 8-12).

Every request is a class with ``kind``, ``encode`` and ``decode``; the class of its answer is ``Request.answer``.
``encode(request_id)`` returns a payload; ``decode(payload)`` returns the request id and the object, and raises
ProtocolError for bytes of a peer of another form.
"""

from dataclasses import dataclass, field
from enum import IntEnum
from struct import Struct, pack
from typing import ClassVar, Self

from fastwire.errors import ProtocolError
from fastwire.wire.writer import encode_varint

FRAME_HEAD = 5  # bytes before a payload
MOST_REQUEST = 256 << 20  # of the payload of a request; a broker closes the connection for more
UNKNOWN = 0xFFFFFFFFFFFFFFFF  # the sequence of "end", and of a range that the broker does not have

_STANDALONE = 0xFFFF
_MOST_CODE = 0xFD

_U16 = Struct("<H")
_U32 = Struct("<I")
_U64 = Struct("<Q")

Address = tuple[str, int]
"""An IPv4 address as text, and a port."""


class MessageType(IntEnum):
    """The type of a frame (spec: tank 3)."""

    PRODUCE = 0x01
    CONSUME = 0x02
    PING = 0x03
    PRODUCE_SEQUENCE = 0x05  # answered as PRODUCE
    DISCOVER_PARTITIONS = 0x06
    CREATE_TOPIC = 0x07
    DISCOVER_TOPICS = 0x0B
    DISCOVER_TOPOLOGY = 0x0C


def encode_frame(kind: int, *parts: bytes) -> bytes:
    """Return a frame around a payload in parts."""
    return b"".join((pack("<BI", kind, sum(map(len, parts))), *parts))


PING = encode_frame(MessageType.PING)
"""The frame of a ping, which a broker sends once after it has accepted a connection."""


def encode_str8(text: bytes) -> bytes:
    """Return a text of at most 255 bytes with its length. Raises ValueError for a longer one."""
    if len(text) > 255:
        raise ValueError(f"{text[:20]!r}… has {len(text)} bytes, at most 255 fit")
    return bytes((len(text),)) + text


def encode_address(address: Address) -> bytes:
    """Return the bytes of an address: the host in network order, the port little-endian."""
    host, port = address
    return bytes(map(int, host.split("."))) + _U16.pack(port)


class PayloadReader:
    """Reads the fields of one payload; raises ProtocolError where it ends too early. ``what`` names the message."""

    __slots__ = ("at", "data", "what")

    def __init__(self, data: bytes, what: str) -> None:
        self.data = data
        self.what = what
        self.at = 0

    @property
    def left(self) -> int:
        """The number of unread bytes."""
        return len(self.data) - self.at

    def take(self, size: int) -> bytes:
        """Return the next ``size`` bytes."""
        if size > self.left:
            raise ProtocolError(self.what, self.at, size, self.left)
        self.at += size
        return self.data[self.at - size : self.at]

    def u8(self) -> int:
        """Return the next byte."""
        return self.take(1)[0]

    def u16(self) -> int:
        """Return the next number of two bytes."""
        return int(_U16.unpack(self.take(2))[0])

    def u32(self) -> int:
        """Return the next number of four bytes."""
        return int(_U32.unpack(self.take(4))[0])

    def u64(self) -> int:
        """Return the next number of eight bytes."""
        return int(_U64.unpack(self.take(8))[0])

    def varint(self) -> int:
        """Return the next varint of at most five bytes."""
        start, value = self.at, 0
        for shift in range(0, 35, 7):
            byte = self.u8()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value > 0xFFFFFFFF:
                    break
                return value
        raise ProtocolError(self.what, start, detail="varint does not fit 32 bits")

    def text(self) -> str:
        """Return the next str8."""
        start = self.at
        try:
            return self.take(self.u8()).decode()
        except UnicodeDecodeError:
            raise ProtocolError(self.what, start, detail="is not UTF-8") from None

    def address(self) -> Address:
        """Return the next address."""
        host = ".".join(map(str, self.take(4)))
        return host, self.u16()

    def end(self) -> None:
        """Raise ProtocolError if bytes are left."""
        if self.left:
            raise ProtocolError(self.what, self.at, detail=f"{self.left} bytes more than it has fields")


@dataclass(frozen=True, slots=True)
class _Bare:
    """A request without fields."""

    kind: ClassVar[MessageType]

    def encode(self, request_id: int) -> bytes:
        """Return the payload."""
        return pack("<IB", request_id, 0)

    @classmethod
    def decode(cls, payload: bytes) -> tuple[int, Self]:
        """Read a payload; see the module."""
        r = PayloadReader(payload, f"{cls.kind.name.lower().replace('_', ' ')} request")
        request_id = r.u32()
        r.u8()
        return request_id, cls()


# --- partitions of a topic


@dataclass(frozen=True, slots=True)
class PartitionRange:
    """The sequences of a partition: the first available one and the last, both 0 if it is empty.

    ``status`` is a PartitionStatus other than OK if the broker does not know; ``leader`` is the one to ask then.
    """

    first: int = 0
    last: int = 0
    status: int = 0
    leader: Address | None = None


@dataclass(frozen=True, slots=True)
class PartitionRanges:
    """The answer to DiscoverPartitions: the ranges of the partitions from 0 on, none if the topic is unknown.

    ``count`` may be larger than the number of ranges in a cluster, where disabled partitions are not listed.
    """

    topic: str
    ranges: tuple[PartitionRange, ...]
    count: int = -1  # -1: the number of ranges

    def encode(self, request_id: int) -> bytes:
        """Return the payload."""
        count = len(self.ranges) if self.count < 0 else self.count
        parts = [_U32.pack(request_id), encode_str8(self.topic.encode()), _U16.pack(count)]
        for one in self.ranges:
            if one.status:
                parts += (pack("<QQB", UNKNOWN, UNKNOWN, one.status), encode_address(one.leader) if one.leader else b"")
            else:
                parts.append(pack("<QQ", one.first, one.last))
        return b"".join(parts)

    @classmethod
    def decode(cls, payload: bytes) -> tuple[int, Self]:
        """Read a payload; see the module."""
        r = PayloadReader(payload, "discover partitions answer")
        request_id, topic, count = r.u32(), r.text(), r.u16()
        ranges: list[PartitionRange] = []
        while len(ranges) < count and r.left:
            first, last = r.u64(), r.u64()
            if first == last == UNKNOWN:
                status = r.u8()
                if not 0xFB <= status <= _MOST_CODE:
                    raise ProtocolError(r.what, r.at - 1, detail=f"code {status:#x} of a partition")
                ranges.append(PartitionRange(0, 0, status, r.address() if status == 0xFC else None))
            else:
                ranges.append(PartitionRange(first, last))
        r.end()
        return request_id, cls(topic, tuple(ranges), count)


@dataclass(frozen=True, slots=True)
class DiscoverPartitions:
    """Request for the partitions of a topic, with their first and last sequences."""

    kind: ClassVar[MessageType] = MessageType.DISCOVER_PARTITIONS
    answer: ClassVar[type[PartitionRanges]] = PartitionRanges
    topic: str

    def encode(self, request_id: int) -> bytes:
        """Return the payload."""
        return _U32.pack(request_id) + encode_str8(self.topic.encode())

    @classmethod
    def decode(cls, payload: bytes) -> tuple[int, Self]:
        """Read a payload; a list of partitions after the topic is not read."""
        r = PayloadReader(payload, "discover partitions request")
        return r.u32(), cls(r.text())


# --- topics


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic in the list of a broker; ``replicas`` is 0 outside of a cluster."""

    name: str
    partitions: int
    enabled: bool = True
    replicas: int = 0


@dataclass(frozen=True, slots=True)
class TopicList:
    """The answer to DiscoverTopics, in no particular order."""

    topics: tuple[TopicInfo, ...]
    cluster_aware: bool = False

    def encode(self, request_id: int) -> bytes:
        """Return the payload."""
        parts = [pack("<IIB", request_id, len(self.topics), self.cluster_aware)]
        for one in self.topics:
            parts += (encode_str8(one.name.encode()), pack("<BH", one.enabled, one.partitions))
            if self.cluster_aware:
                parts.append(bytes((one.replicas,)))
        return b"".join(parts)

    @classmethod
    def decode(cls, payload: bytes) -> tuple[int, Self]:
        """Read a payload; see the module."""
        r = PayloadReader(payload, "discover topics answer")
        request_id, count, aware = r.u32(), r.u32(), r.u8() != 0
        if count > r.left // 4:  # a topic has at least four bytes
            raise ProtocolError(r.what, 4, count * 4, r.left)
        topics = []
        for _ in range(count):
            name, enabled, partitions = r.text(), r.u8() != 0, r.u16()
            topics.append(TopicInfo(name, partitions, enabled, r.u8() if aware else 0))
        r.end()
        return request_id, cls(tuple(topics), aware)


@dataclass(frozen=True, slots=True)
class DiscoverTopics(_Bare):
    """Request for all topics."""

    kind: ClassVar[MessageType] = MessageType.DISCOVER_TOPICS
    answer: ClassVar[type[TopicList]] = TopicList


@dataclass(frozen=True, slots=True)
class TopicResult:
    """The answer to CreateTopic: a CreateCode."""

    topic: str
    code: int

    def encode(self, request_id: int) -> bytes:
        """Return the payload."""
        return _U32.pack(request_id) + encode_str8(self.topic.encode()) + bytes((self.code,))

    @classmethod
    def decode(cls, payload: bytes) -> tuple[int, Self]:
        """Read a payload; see the module."""
        r = PayloadReader(payload, "topic answer")
        request_id, topic, code = r.u32(), r.text(), r.u8()
        r.end()
        return request_id, cls(topic, code)


@dataclass(frozen=True, slots=True)
class CreateTopic:
    """Request to create a topic; ``configuration`` has lines ``key=value``."""

    kind: ClassVar[MessageType] = MessageType.CREATE_TOPIC
    answer: ClassVar[type[TopicResult]] = TopicResult
    topic: str
    partitions: int
    configuration: str = ""

    def encode(self, request_id: int) -> bytes:
        """Return the payload."""
        text = self.configuration.encode()
        head = _U32.pack(request_id) + encode_str8(self.topic.encode()) + _U16.pack(self.partitions)
        return head + encode_varint(len(text)) + text

    @classmethod
    def decode(cls, payload: bytes) -> tuple[int, Self]:
        """Read a payload; see the module."""
        r = PayloadReader(payload, "create topic request")
        request_id, topic, partitions = r.u32(), r.text(), r.u16()
        return request_id, cls(topic, partitions, r.take(r.varint()).decode("utf-8", "replace"))


# --- brokers


@dataclass(frozen=True, slots=True)
class Node:
    """A broker of a cluster; ``endpoint`` is None if the answer does not give it."""

    node_id: int
    endpoint: Address | None = None
    available: bool = True
    blocked: bool = False
    replicas: int = 0


@dataclass(frozen=True, slots=True)
class Topology:
    """The answer to DiscoverTopology; ``cluster`` is None for a standalone broker."""

    cluster: str | None = None
    nodes: tuple[Node, ...] = field(default=())

    def encode(self, request_id: int) -> bytes:
        """Return the payload."""
        if self.cluster is None:
            return pack("<IH", request_id, _STANDALONE)
        parts = [pack("<IH", request_id, len(self.nodes)), encode_str8(self.cluster.encode())]
        for node in self.nodes:
            bits = (node.endpoint is not None) | node.available << 1 | node.blocked << 2
            parts.append(pack("<HB", node.node_id, bits))
            parts += (encode_address(node.endpoint) if node.endpoint else b"", _U16.pack(node.replicas))
        return b"".join(parts)

    @classmethod
    def decode(cls, payload: bytes) -> tuple[int, Self]:
        """Read a payload; see the module."""
        r = PayloadReader(payload, "topology answer")
        request_id, count = r.u32(), r.u16()
        if count == _STANDALONE:
            r.end()
            return request_id, cls()
        cluster = r.text()
        nodes = []
        for _ in range(count):
            node_id, bits = r.u16(), r.u8()
            endpoint = r.address() if bits & 1 else None
            nodes.append(Node(node_id, endpoint, bool(bits & 2), bool(bits & 4), r.u16()))
        r.end()
        return request_id, cls(cluster, tuple(nodes))


@dataclass(frozen=True, slots=True)
class DiscoverTopology(_Bare):
    """Request for the brokers of a cluster."""

    kind: ClassVar[MessageType] = MessageType.DISCOVER_TOPOLOGY
    answer: ClassVar[type[Topology]] = Topology
