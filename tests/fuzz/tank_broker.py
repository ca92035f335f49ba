"""A TANK broker for fuzzing: it answers what it was asked by chance, in any order, and damages some of what it says."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from fastwire.tank.format.error import PartitionStatus, ProduceCode
from fastwire.tank.format.message import (
    PING,
    MessageType,
    Node,
    PartitionRange,
    PartitionRanges,
    TopicInfo,
    TopicList,
    TopicResult,
    Topology,
    encode_frame,
)
from fastwire.tank.producing.bundle import Message, encode_bundle
from fastwire.tank.protocol.connection import State
from fastwire.tank.protocol.consume import ConsumeRequest, FetchPartition, PartitionAnswer, encode_consume_answer
from fastwire.tank.protocol.produce import ProduceAnswer, ProduceRequest, ProduceResult
from fastwire.wire.writer import encode_varint
from tests.fuzz.pulsar import mutate
from tests.fuzz.tank_client import QUESTIONS, Asked, Client

T = TypeVar("T")

_ADDRESS = ("10.0.0.1", 11011)
_NUMBERS = (0, 1, 2, 5, 100, (1 << 31) - 1, 1 << 62, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
_CODES = (*map(int, ProduceCode), 77)
_STATUSES = (
    PartitionStatus.SYSTEM_FAULT,
    PartitionStatus.REDIRECT,
    PartitionStatus.NO_LEADER,
    PartitionStatus.UNKNOWN_PARTITION,
    PartitionStatus.BOUNDARY,
)


def damaged(frame: bytes, chance: Callable[[], float]) -> bytes:
    """Change the payload of a frame, and now and then its announced length."""
    # ``mutate`` makes sizes of another protocol true in the first bytes: what it writes there is undone.
    payload = mutate(bytes(8) + frame[5:], chance)[8:]
    size = len(payload) if chance() < 0.9 else int(chance() * (1 << 32))
    return frame[:1] + size.to_bytes(4, "little") + payload


class Broker:
    """Leads a conversation: chooses the next step of the client, or the next frame of the broker."""

    def __init__(self, client: Client, chance: Callable[[], float]) -> None:
        self._client = client
        self._chance = chance

    def word(self) -> str:
        client, chance = self._client, self._chance
        connection = client.connection
        if connection is None:
            return "connect" if chance() < 0.9 else self._ours()
        if connection.state is State.GREETING and chance() < 0.9:
            return f"feed:{PING.hex()}"
        if client.asked and chance() < 0.6:
            return self._feed(self._answer(client.asked.pop(int(chance() * len(client.asked)))))
        if chance() < 0.01:
            return self._feed(
                self._one((PING, b"\x04\0\0\0\0", encode_frame(MessageType.DISCOVER_TOPOLOGY, bytes(14))))
            )
        return self._ours()

    def _one(self, of: Sequence[T]) -> T:
        return of[int(self._chance() * len(of))]

    def _ours(self) -> str:
        chance = self._chance
        if chance() < 0.01:
            return "lost"
        if chance() < 0.1:
            return f"tick:{self._one((0.2, 0.2, 1.5, 4.0, 20.0, 31.0))}"
        return self._one(
            (
                *(f"attach:{int(chance() * 4)}:{self._one((0, 0, 0, 7))}",) * 8,
                *(f"fetch:{self._one((0, 500, 1 << 40))}:{self._one((1, 1000, 1 << 20))}",) * 8,
                *(f"send:{self._one((0, 10, 3000))}",) * 3,
                *("flush",) * 3,
                f"detach:{int(chance() * 4)}",
                f"room:{self._one((0, 3, 1 << 40))}",
                "room:4000",
                "forget",
                "suspend",
                "resume",
                *QUESTIONS,
            )
        )

    def _feed(self, frame: bytes) -> str:
        return f"feed:{(damaged(frame, self._chance) if self._chance() < 0.04 else frame).hex()}"

    # --- answers

    def _answer(self, asked: Asked) -> bytes:
        request, request_id = asked.request, asked.request_id if self._chance() < 0.99 else asked.request_id + 1
        if isinstance(request, ConsumeRequest):
            return encode_frame(request.kind, self._messages(request_id, request))
        if isinstance(request, ProduceRequest):
            return encode_frame(MessageType.PRODUCE, self._results(request).encode(request_id))
        return encode_frame(request.kind, self._fact(request.kind).encode(request_id))

    def _results(self, request: ProduceRequest) -> ProduceAnswer:
        results = []
        for topic, bundles in request.topics:
            for one in bundles:
                code = self._one(_CODES) if self._chance() < 0.2 else 0
                leader = _ADDRESS if code == ProduceCode.REDIRECT else None
                results.append(ProduceResult(topic, one.partition, code, leader))
        return ProduceAnswer(tuple(results if self._chance() < 0.98 else ()))

    def _fact(self, kind: MessageType) -> Any:
        chance, number = self._chance, self._one((0, 1, 2, 255))
        match kind:
            case MessageType.DISCOVER_PARTITIONS:
                ranges = [
                    PartitionRange(1, self._one(_NUMBERS[:-1]))
                    if chance() < 0.8
                    else PartitionRange(status=PartitionStatus.REDIRECT, leader=_ADDRESS)
                    for _ in range(int(chance() * 4))
                ]
                return PartitionRanges("t", tuple(ranges), -1 if chance() < 0.9 else number + len(ranges))
            case MessageType.DISCOVER_TOPICS:
                infos = tuple(TopicInfo("t" * length, 3) for length in range(int(chance() * 4)))
                return TopicList(infos, chance() < 0.3)
            case MessageType.DISCOVER_TOPOLOGY:
                return Topology("c", (Node(1, _ADDRESS), Node(2))) if chance() < 0.7 else Topology()
        return TopicResult("t", number)

    # --- messages

    def _messages(self, request_id: int, request: ConsumeRequest) -> bytes:
        chance = self._chance
        topics: list[tuple[str, int, list[PartitionAnswer] | None]] = []
        for name, partitions in request.topics:
            answers = [self._partition(one) for one in partitions if chance() < 0.95]
            if chance() < 0.05:  # nobody has asked for it, or it comes twice
                answers.append(self._partition(FetchPartition(self._one((0, 1, 9)), 3, 100)))
            topics.append((name if chance() < 0.97 else "x", len(answers), answers if chance() < 0.97 else None))
        return encode_consume_answer(request_id, topics)

    def _partition(self, asked: FetchPartition) -> PartitionAnswer:
        chance, number, sequence = self._chance, asked.partition, asked.sequence
        if chance() < 0.08:
            status = self._one(_STATUSES)
            leader = _ADDRESS if status == PartitionStatus.REDIRECT else None
            return PartitionAnswer(number, status, high_watermark=self._one(_NUMBERS), first=sequence, leader=leader)
        base = max(sequence - int(chance() * 4), 1)
        chunk, sparse = self._bundles(base)
        status = PartitionStatus.OK_SPARSE if sparse else PartitionStatus.OK
        high = self._one((sequence + 10, sequence + 1000, 1 << 62, *_NUMBERS))
        return PartitionAnswer(number, status, base if chance() < 0.95 else self._one(_NUMBERS), high, chunk)

    def _bundles(self, sequence: int) -> tuple[bytes, bool]:
        """Up to four bundles from ``sequence`` on, and True if the first has sequences of its own."""
        chance = self._chance
        data, sparse_first = b"", False
        for place in range(int(chance() * 5)):
            sparse = chance() < 0.3
            gap = 1 + int(chance() * 3) if sparse else 1
            messages = [
                Message(
                    value=self._one((b"value", b"", b"v" * 200)),
                    key=self._one((None, b"", b"k")),
                    timestamp=self._one((0, 1_700_000_000_000, (1 << 64) - 1)),
                    sequence=sequence + step * gap,
                )
                for step in range(self._one((1, 2, 3, 15, 16, 130)))
            ]
            bundle = encode_bundle(messages, compress=chance() < 0.3, sparse=sparse)
            sequence = messages[-1].sequence + 1
            sparse_first = sparse_first or (sparse and place == 0)
            if chance() < 0.05:
                at = int(chance() * len(bundle))
                bundle = bundle[:at] + bytes([bundle[at] ^ 1 << int(chance() * 8)]) + bundle[at + 1 :]
            data += encode_varint(len(bundle)) + bundle
        if data and chance() < 0.1:
            data = data[: int(chance() * len(data))]
        return data, sparse_first
