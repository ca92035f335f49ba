"""Produce requests and answers, for client and broker (spec: tank 7)."""

from dataclasses import dataclass
from struct import pack
from typing import Self

from fastwire.errors import ProtocolError
from fastwire.tank.format.error import ProduceCode
from fastwire.tank.format.message import Address, MessageType, PayloadReader, encode_address, encode_str8
from fastwire.wire.writer import encode_varint

_WHOLE_TOPIC = frozenset({ProduceCode.UNKNOWN_TOPIC, ProduceCode.READ_ONLY})


@dataclass(frozen=True, slots=True)
class PartitionBundle:
    """The bundle for one partition; ``base`` is its first sequence if the producer chooses the sequences."""

    partition: int
    bundle: bytes
    base: int | None = None


@dataclass(frozen=True, slots=True)
class ProduceRequest:
    """Request to store bundles: per topic its partitions, each at most once.

    All bundles have a ``base`` (message type 5, sparse bundles only), or none has. ``acks`` and ``ack_timeout_ms``
    count in a cluster only: 0 = all in-sync replicas, 255 = their majority, else that many.
    """

    topics: tuple[tuple[str, tuple[PartitionBundle, ...]], ...]
    acks: int = 0
    ack_timeout_ms: int = 0
    client_id: str = ""
    version: int = 2

    @property
    def kind(self) -> MessageType:
        """PRODUCE_SEQUENCE if the bundles have a base."""
        with_base = any(one.base is not None for _, bundles in self.topics for one in bundles)
        return MessageType.PRODUCE_SEQUENCE if with_base else MessageType.PRODUCE

    def encode(self, request_id: int) -> bytes:
        """Return the payload. Raises ValueError for a request that the broker would not survive."""
        parts = [pack("<HI", self.version, request_id), encode_str8(self.client_id.encode())]
        parts.append(pack("<BIB", self.acks, self.ack_timeout_ms, len(self.topics)))
        with_base = self.kind == MessageType.PRODUCE_SEQUENCE
        for name, bundles in self.topics:
            parts += (encode_str8(name.encode()), bytes((len(bundles),)))
            for one in bundles:
                if not one.bundle or (one.base is None) == with_base:
                    raise ValueError(f"partition {one.partition} of {name}: an empty bundle, or one base is missing")
                parts.append(pack("<H", one.partition) + encode_varint(len(one.bundle)))
                if one.base is not None:
                    parts.append(pack("<Q", one.base))
                parts.append(one.bundle)
        return b"".join(parts)

    @classmethod
    def decode(cls, payload: bytes, *, with_base: bool = False) -> tuple[int, Self]:
        """Return request id and request; ``with_base`` for message type 5. Raises ProtocolError."""
        r = PayloadReader(payload, "produce request")
        version, request_id, client_id, acks, timeout_ms = r.u16(), r.u32(), r.text(), r.u8(), r.u32()
        topics = []
        for _ in range(r.u8()):
            name = r.text()
            bundles = []
            for _ in range(r.u8()):
                partition, size = r.u16(), r.varint()
                base = r.u64() if with_base else None
                bundles.append(PartitionBundle(partition, r.take(size), base))
            topics.append((name, tuple(bundles)))
        r.end()
        return request_id, cls(tuple(topics), acks, timeout_ms, client_id, version)


@dataclass(frozen=True, slots=True)
class ProduceResult:
    """The result of one partition; ``partition`` is None if it is that of the whole topic. ``code``: a ProduceCode."""

    topic: str
    partition: int | None
    code: int
    leader: Address | None = None


@dataclass(frozen=True, slots=True)
class ProduceAnswer:
    """The results of a produce request, in its order."""

    results: tuple[ProduceResult, ...]

    def encode(self, request_id: int) -> bytes:
        """Return the payload, which is of type PRODUCE in any case."""
        parts = [pack("<I", request_id)]
        for one in self.results:
            parts += (bytes((one.code,)), encode_address(one.leader) if one.leader else b"")
        return b"".join(parts)

    @classmethod
    def decode(cls, payload: bytes, request: ProduceRequest) -> tuple[int, Self]:
        """Return request id and answer to ``request``, which lists what is answered. Raises ProtocolError."""
        r = PayloadReader(payload, "produce answer")
        request_id = r.u32()
        results = []
        for topic, bundles in request.topics:
            for place, one in enumerate(bundles):
                code = r.u8()
                if code in _WHOLE_TOPIC:
                    if place:
                        raise ProtocolError(r.what, r.at - 1, detail=f"{code:#x} after another result of {topic}")
                    results.append(ProduceResult(topic, None, code))
                    break
                leader = r.address() if code == ProduceCode.REDIRECT else None
                results.append(ProduceResult(topic, one.partition, code, leader))
        r.end()
        return request_id, cls(tuple(results))

    def of(self, topic: str, partition: int) -> ProduceResult | None:
        """Return the result that covers a partition; None if the request did not name it."""
        return next((one for one in self.results if one.topic == topic and one.partition in (None, partition)), None)
