"""Consume requests, which are answered at once or held until there are messages (spec: tank 5)."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from fastwire.errors import ProtocolError
from fastwire.tank.format.error import PartitionStatus
from fastwire.tank.protocol.consume import END, ConsumeRequest, FetchPartition, PartitionAnswer, encode_consume_answer

from .connection import TankConnection
from .topics import PartitionLog, StoredBundle

__all__ = ["consume"]

LEAST_WAIT_MS = 320
WAIT_STEP_MS = 64
TIMER_STEP_MS = 128
MOST_WAIT_MS = 3_600_000
MOST_FETCH = 64 << 20
MOST_SEGMENT = 1 << 32  # a closed one is sent as a whole where its begin was compacted away

TopicPartition = tuple[str, int]


@dataclass(slots=True, eq=False)
class _Waiting:
    """A request of which every partition is at its end; ``ends`` are the last sequences when it arrived."""

    connection: TankConnection
    request_id: int
    request: ConsumeRequest
    logs: dict[TopicPartition, PartitionLog] = field(default_factory=dict)
    ends: dict[TopicPartition, int] = field(default_factory=dict)

    def answer(self, last: bool) -> bool:
        """Answer if there is enough new, or a partition has moved away, or if this is the ``last`` look.

        Enough are ``min_bytes`` of one partition, or the rest of a segment that was closed.
        """
        news = {place: log.after(self.ends[place]) for place, log in self.logs.items()}
        least = max(self.request.min_bytes, 1)
        enough = any(closed or _size(bundles) >= least for bundles, closed in news.values())
        gone = any(self.connection.broker.partition(*place) is not log for place, log in self.logs.items())
        moved = any(log.leader != self.connection.node for log in self.logs.values())
        if not (last or enough or gone or moved):
            return False
        if gone or moved:
            _answer_now(self.connection, self.request_id, self.request)
            return True
        topics: list[tuple[str, int, list[PartitionAnswer] | None]] = []
        for name, partitions in self.request.topics:
            answers = []
            for one in partitions:
                log = self.logs[name, one.partition]
                bundles = news[name, one.partition][0] if enough else []
                base = bundles[0].head.first if bundles else 0
                chunk = b"".join(stored.framed for stored in bundles)
                answers.append(PartitionAnswer(one.partition, base=base, high_watermark=log.last, chunk=chunk))
            topics.append((name, len(partitions), answers))
        self.connection.answer(self.request.kind, encode_consume_answer(self.request_id, topics))
        return True


def consume(connection: TankConnection, payload: bytes) -> None:
    """Answer a request at once, or hold it until there are messages."""
    request_id, request = ConsumeRequest.decode(payload)
    places = list(_places(request))
    if len(set(places)) != len(places) or not all(partitions for _, partitions in request.topics):
        raise ProtocolError("consume request", detail="names a partition twice, or a topic without partitions")
    waiting = _Waiting(connection, request_id, request)
    for name, partitions in request.topics:
        for one in partitions:
            log = connection.broker.partition(name, one.partition)
            if request.max_wait_ms and log is not None and log.leader == connection.node and _at_end(log, one.sequence):
                waiting.logs[name, one.partition] = log
                waiting.ends[name, one.partition] = log.last
    if len(waiting.logs) < len(places):
        _answer_now(connection, request_id, request)
        return
    wait = max(LEAST_WAIT_MS, -(-request.max_wait_ms // WAIT_STEP_MS) * WAIT_STEP_MS)
    wait = min(-(-wait // TIMER_STEP_MS) * TIMER_STEP_MS, MOST_WAIT_MS)
    connection.broker.held.hold(connection, wait / 1000, waiting.answer)


def _places(request: ConsumeRequest) -> Iterator[TopicPartition]:
    for name, partitions in request.topics:
        for one in partitions:
            yield name, one.partition


def _answer_now(connection: TankConnection, request_id: int, request: ConsumeRequest) -> None:
    topics: list[tuple[str, int, list[PartitionAnswer] | None]] = []
    for name, partitions in request.topics:
        known = name in connection.broker.topics
        topics.append((name, len(partitions), [_read(connection, name, one) for one in partitions] if known else None))
    connection.answer(request.kind, encode_consume_answer(request_id, topics))


def _read(connection: TankConnection, name: str, asked: FetchPartition) -> PartitionAnswer:
    broker = connection.broker
    number, sequence = asked.partition, asked.sequence
    log = broker.partition(name, number)
    if log is None:
        return PartitionAnswer(number, PartitionStatus.UNKNOWN_PARTITION)
    if log.leader < 0:
        return PartitionAnswer(number, PartitionStatus.NO_LEADER)
    if log.leader != connection.node:
        return PartitionAnswer(number, PartitionStatus.REDIRECT, leader=broker.address(log.leader))
    refusal = broker.read_refusals.take()
    if refusal is not None:
        return PartitionAnswer(number, refusal)
    if _at_end(log, sequence):
        return PartitionAnswer(number, base=log.first, high_watermark=log.last)
    if sequence and not log.first <= sequence <= log.last:
        return PartitionAnswer(number, PartitionStatus.BOUNDARY, high_watermark=log.last, first=log.first)
    # A sequence below the first segment of a compacted partition (spec: tank 5.2, 5.5).
    below = max(sequence, log.first) < log.bundles[0].head.first
    bundles = log.read(sequence, MOST_SEGMENT if below else min(asked.fetch_bytes, MOST_FETCH))
    first = bundles[0].head
    chunk = b"".join(stored.framed for stored in bundles)
    status = PartitionStatus.OK_SPARSE if first.sparse and not below else PartitionStatus.OK
    return PartitionAnswer(number, status, first.first, log.last, chunk)


def _at_end(log: PartitionLog, sequence: int) -> bool:
    return sequence in (END, log.last + 1) or (sequence == 0 and not log.bundles)


def _size(bundles: list[StoredBundle]) -> int:
    return sum(len(stored.framed) for stored in bundles)
