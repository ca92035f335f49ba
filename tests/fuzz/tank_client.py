"""TANK's state machines, led as their drivers lead them, and what must hold whatever a broker says."""

from dataclasses import dataclass
from typing import Any

from fastwire.position import Log, Position
from fastwire.producer import BatchLimits
from fastwire.tank.format.error import PartitionStatus
from fastwire.tank.format.message import (
    FRAME_HEAD,
    PING,
    CreateTopic,
    DiscoverPartitions,
    DiscoverTopics,
    DiscoverTopology,
    MessageType,
    PartitionRanges,
)
from fastwire.tank.producing.bundle import Message
from fastwire.tank.producing.producer import Producer, ProducerSettings
from fastwire.tank.protocol.connection import Connection, Request, State
from fastwire.tank.protocol.consume import ConsumeRequest, FetchPartition
from fastwire.tank.protocol.event import ChunkReady, Connected, CorruptFound, Event, FetchDone, Lost, Reply
from fastwire.tank.protocol.produce import ProduceAnswer, ProduceRequest
from fastwire.tank.reading.response import Fetched, Planned
from fastwire.tank.reading.scan import Scanner
from fastwire.tank.reading.slot import SlotTable
from tests.fuzz.scanning_client import ScanningClient, TopicPartition

PLACES: list[TopicPartition] = [(topic, number) for topic in ("t", "u") for number in range(2)]
STORED = PLACES[0]  # where the producer's messages go
QUESTIONS: dict[str, Request] = {
    "partitions": DiscoverPartitions("t"),
    "topics": DiscoverTopics(),
    "topology": DiscoverTopology(),
    "create": CreateTopic("t", 2),
}


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that the broker has and has not answered, decoded from the bytes that went out."""

    request_id: int
    request: Request | ConsumeRequest


class Client(ScanningClient[Connection, Asked]):
    """A connection with its scanner, four partitions, a producer that numbers its messages.

    ``step`` takes one word of a case.
    """

    def __init__(self) -> None:
        super().__init__(PLACES)
        self.slots = SlotTable()
        for topic, number in PLACES:
            self.slots.add(Log("tank", "c", topic, str(number)))
        limits = BatchLimits(records=3, delay_s=1.0)
        self.producer = Producer(ProducerSettings(batching=limits, send_timeout_s=40.0, numbered=True))

    # --- steps

    def step(self, word: str) -> None:
        """Take one step; a step that makes no sense now does nothing."""
        name, *arguments = word.split(":")
        connection = self.connection
        match name:
            case "feed":
                self._feed(bytes.fromhex(arguments[0]))
            case "connect":
                self._connect()
            case "lost":
                self._lose()
            case "tick":
                self._tick(float(arguments[0]))
            case "send":
                self._produce(Message(value=b"v" * int(arguments[0]), key=b"k", timestamp=1))
            case "attach":
                self._attach(int(arguments[0]), int(arguments[1]))
            case "detach":
                self._detach(int(arguments[0]))
            case "room":
                self.slots.limit_rows(int(arguments[0]))
            case "suspend" | "resume" if connection is not None:
                (connection.suspend if name == "suspend" else connection.resume)(self._now)
            case _ if connection is not None and connection.ready:
                self._ask(connection, name, arguments)
        self._listen()
        self._check()

    def _connect(self) -> None:
        if self.connection is None:
            self.connection = Connection(Scanner(self.slots, self.pool, buffer_bytes=1 << 16))
            self.connection.connect(self._now)

    def _forget(self) -> None:
        self.producer.unanswered(self._now)

    def _attach(self, index: int, skip: int) -> None:
        """Read on where reading ended, or behind a gap."""
        if index in self.attached:
            return
        at = self.slots.position(index).a if index in self._begun else 0
        if skip:
            if self.connection is not None:
                self._take(self.connection)
            at = self._next[index] = at + skip
        self._begun.add(index)
        self.slots.attach(index, Position(at, 0), next(self._sessions))
        self.attached.add(index)

    def _detach(self, index: int) -> None:
        self.attached.discard(index)
        self.slots.detach(index)

    def _ask(self, connection: Connection, name: str, arguments: list[str]) -> None:
        if name == "fetch":
            self._fetch(connection, int(arguments[0]), int(arguments[1]))
        elif name == "flush":
            self.producer.flush()
            self._send(connection)
        elif name == "forget":
            for request_id in self._open:
                connection.give_up(request_id)
            self._open.clear()
            self.producer.unanswered(self._now)
        else:
            self._request(connection, name, QUESTIONS[name])

    def _request(self, connection: Connection, name: str, request: Request) -> None:
        self._open[connection.request(request, self._now)] = (name, request)

    def _fetch(self, connection: Connection, max_wait_ms: int, fetch_bytes: int) -> None:
        """Ask for all attached partitions, also for those that another request is out for."""
        asked: dict[str, list[FetchPartition]] = {}
        planned: dict[bytes, dict[int, tuple[int, int]]] = {}
        for index in sorted(self.attached):
            topic, number = PLACES[index]
            asked.setdefault(topic, []).append(FetchPartition(number, self.slots.position(index).a, fetch_bytes))
            planned.setdefault(topic.encode(), {})[number] = (index, self.slots.session(index))
        if asked:
            topics = tuple((topic, tuple(partitions)) for topic, partitions in asked.items())
            connection.fetch(ConsumeRequest(topics, max_wait_ms), Planned(planned), self._now)

    def _send(self, connection: Connection) -> None:
        topic, number = STORED
        if self.producer.needs_sequence:
            if not any(name == "number" for name, _ in self._open.values()):
                self._request(connection, "number", DiscoverPartitions(topic))
        elif (sending := self.producer.take(self._now)) is not None:
            self._request(connection, "produce", ProduceRequest(((topic, (sending.part(number),)),)))

    # --- what the broker says

    def _event(self, connection: Connection, event: Event) -> None:
        match event:
            case Connected():
                self.reached["connected"] += 1
                assert connection.state is State.READY
            case ChunkReady(chunk):
                self._landed(chunk)
            case FetchDone(fetched):
                self._fetched(connection, fetched)
            case CorruptFound(bundle):
                self.reached["corrupt"] += 1
                assert self.slots.session(bundle.index) == 0
                self._detach(bundle.index)
            case Reply(request_id, answer):
                assert request_id in self._open, f"request {request_id} was answered twice, or never made"
                self.reached["reply"] += 1
                self._replied(*self._open.pop(request_id), answer)
            case Lost():
                self.reached["timed out"] += 1
                self._lose()

    def _fetched(self, connection: Connection, fetched: Fetched) -> None:
        self.reached["fetched"] += 1
        assert connection.fetches_outstanding >= 0
        self._take(connection)
        for index in fetched.answered:
            result = self.slots.result(index)
            self.reached[f"status {PartitionStatus(result.status).name}"] += 1
            self.reached["cut off"] += result.needed > 0
            self.reached["stuck"] += result.stuck
            assert (result.leader is not None) == (result.status == PartitionStatus.REDIRECT)
            if result.status not in (PartitionStatus.OK, PartitionStatus.OK_SPARSE):
                self._detach(index)

    def _replied(self, name: str, request: Any, answer: Any) -> None:
        if name == "number":
            assert isinstance(answer, PartitionRanges)
            if answer.ranges and not answer.ranges[0].status and answer.ranges[0].last < 1 << 62:
                self.producer.number(answer.ranges[0].last + 1)
        elif name == "produce":
            assert isinstance(answer, ProduceAnswer)
            result = answer.of(*STORED)
            if result is None:
                self.producer.unanswered(self._now)
            else:
                self.producer.answered(result.code, self._now)
        else:
            assert isinstance(answer, request.answer)

    # --- what we say

    def _listen(self) -> None:
        """Be the broker's ears: each frame that goes out is whole, and a request that can be read."""
        connection = self.connection
        for frame in connection.take_outbound() if connection is not None else ():
            if frame == PING:
                continue
            kind, payload = frame[0], frame[FRAME_HEAD:]
            assert int.from_bytes(frame[1:FRAME_HEAD], "little") == len(payload), "a frame announces another size"
            if kind == MessageType.CONSUME:
                self.asked.append(Asked(*ConsumeRequest.decode(payload)))
            elif kind in (MessageType.PRODUCE, MessageType.PRODUCE_SEQUENCE):
                with_base = kind == MessageType.PRODUCE_SEQUENCE
                self.asked.append(Asked(*ProduceRequest.decode(payload, with_base=with_base)))
            else:
                (request,) = {type(one) for one in QUESTIONS.values() if one.kind == kind}
                self.asked.append(Asked(*request.decode(payload)))  # type: ignore[union-attr]
