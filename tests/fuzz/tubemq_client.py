"""TubeMQ's state machines, led as their drivers lead them, and what must hold whatever a Master or a Broker says."""

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from fastwire.columns.chunk import Chunk
from fastwire.position import Log, Position
from fastwire.tubemq import tubemq_pb2 as pb
from fastwire.tubemq.format.error import BrokerError, Refused
from fastwire.tubemq.format.frame import Answer, Method, decode_request
from fastwire.tubemq.format.text import Broker, BrokerPartition
from fastwire.tubemq.groups.client_membership import ClientMembership, NodeSettings
from fastwire.tubemq.groups.master import ClientSettings, MasterClient
from fastwire.tubemq.groups.membership import Membership, Settings
from fastwire.tubemq.producing.outbox import Outbox, OutgoingMessage
from fastwire.tubemq.producing.producer import Producer
from fastwire.tubemq.protocol.connection import Connection
from fastwire.tubemq.protocol.event import ChunkReady, CorruptFound, Event, FetchDone, FetchRefused, Lost, Reply
from fastwire.tubemq.protocol.request import ConsumerRequests
from fastwire.tubemq.reading.fetched import Fetched, Planned
from fastwire.tubemq.reading.scan import Scanner
from fastwire.tubemq.reading.slot import SlotTable
from tests.fuzz.scanning_client import ScanningClient, TopicPartition
from tests.support.tubemq.golden import content_of

BROKER = Broker(1, "10.0.0.1", 8123)
PARTITIONS = [BrokerPartition(BROKER, topic, number) for topic in ("t", "u") for number in range(2)]
_PLACES: list[TopicPartition] = [(one.topic, one.number) for one in PARTITIONS]
_SHOWN: dict[str, Any] = {"client_id": "g_10.0.0.2-1-1-Pull-f", "host": "10.0.0.2", "topics": ("t", "u")}


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that the server has and has not answered, decoded from the bytes that went out."""

    serial: int
    method: Method
    body: Any


class Client(ScanningClient[Connection, Asked]):
    """A connection with its scanner, four partitions, members of both kinds of group, and a producer.

    ``step`` takes one word of a case.
    """

    def __init__(self) -> None:
        super().__init__(_PLACES)
        self.slots = SlotTable()
        for place in PARTITIONS:
            types = ("a", "b") if place.topic == "u" else ()
            self.slots.add(Log("tubemq", "c", place.topic, place.name), types)
        member = Membership(Settings(group="g", session_time_ms=1, **_SHOWN))
        node = ClientMembership(NodeSettings(group="h", source_count=2, node_id=1, **_SHOWN))
        writer = Producer(ClientSettings(**_SHOWN))
        self.clients: dict[str, MasterClient] = {"member": member, "node": node, "writer": writer}
        self.member, self.node = member, node
        self.producer = _Producer(writer)
        self._requests = ConsumerRequests("g_10.0.0.2-1-1-Pull-f", "g")
        self._ends = [Position(0, 0)] * len(PARTITIONS)

    # --- steps

    def step(self, word: str) -> None:
        """Take one step; a step that makes no sense now does nothing."""
        name, *arguments = word.split(":")
        connection = self.connection
        match name:
            case "feed":
                self._feed(bytes.fromhex(arguments[0]))
            case "connect":
                if connection is None:
                    self.connection = Connection(Scanner(self.slots, self.pool, buffer_bytes=1 << 16))
            case "lost":
                self._lose()
            case "tick":
                self._tick(float(arguments[0]))
            case "send":
                self._produce(OutgoingMessage(b"v" * int(arguments[0]), {"k": "v"}))
            case "attach":
                self._attach(int(arguments[0]), int(arguments[1]))
            case "detach":
                self._detach(int(arguments[0]))
            case "room":
                self.slots.limit_rows(int(arguments[0]))
            case "suspend" | "resume" if connection is not None:
                (connection.suspend if name == "suspend" else connection.resume)(self._now)
            case "finish":
                self.member.finished(int(arguments[0]), self._now)
            case "took" | "loses":
                place = PARTITIONS[int(arguments[0])]
                for one in (self.member, self.node):
                    if name == "took":
                        one.took(place)
                    else:
                        one.lost([place], self._now)
            case _ if connection is not None:
                self._ask(connection, name, arguments)
        self._listen()
        self._check()

    def _forget(self) -> None:
        for client in self.clients.values():
            if client.next_at() is None:
                client.failed(self._now)
        self.producer.forget(self._now)

    def _attach(self, index: int, skip: int) -> None:
        """Read on where reading ended, or where a Broker names another offset."""
        if index in self.attached:
            return
        if self.connection is not None:
            self._take(self.connection)  # what was received has landed
        at = self._ends[index]
        if skip:
            at = self._ends[index] = Position(min(at.a + 28 * skip, (1 << 63) - 1), 0)
        self.slots.attach(index, at, next(self._sessions))
        self.attached.add(index)

    def _detach(self, index: int) -> None:
        self.attached.discard(index)
        self.slots.detach(index)

    def _ask(self, connection: Connection, name: str, arguments: list[str]) -> None:
        token = pb.AuthorizedInfo(visitAuthorizedToken=1)
        if name in self.clients:
            if (due := self.clients[name].take_request(self._now)) is not None:
                self._open[connection.request(*due, self._now)] = (name, None)
        elif name == "take":
            if (taken := self.producer.outbox.take({BROKER}, self._now)) is not None:
                sending, body = taken
                self.producer.in_flight.append(sending)
                self._open[connection.request(Method.SEND, body, self._now)] = ("take", sending)
        elif name == "beat":
            beat = self._requests.heartbeat(PARTITIONS, token)
            self._open[connection.request(Method.BROKER_HEARTBEAT, beat, self._now)] = (name, None)
        else:
            index = int(arguments[0])
            place = PARTITIONS[index]
            if name == "get" and index in self.attached:
                get = self._requests.get(place)
                serial = connection.get(get, Planned(index, self.slots.session(index)), self._now)
                self._open[serial] = (name, index)
            elif name == "register":
                request = self._requests.register(place, token, offset=self._ends[index].a)
                self._open[connection.request(Method.BROKER_REGISTER, request, self._now)] = (name, index)
            elif name == "commit":
                commit = self._requests.commit(place)
                self._open[connection.request(Method.COMMIT, commit, self._now)] = (name, index)

    # --- what the servers say

    def _event(self, connection: Connection, event: Event) -> None:
        match event:
            case ChunkReady(chunk):
                self._landed(chunk)
            case FetchDone(fetched):
                name, index = self._open.pop(fetched.serial)
                assert (name, index) == ("get", fetched.index)
                self._fetched(connection, fetched)
            case FetchRefused(serial, _):
                assert self._open.pop(serial)[0] == "get"
                self.reached["refused"] += 1
            case CorruptFound(message):
                assert self.slots.session(message.index) == 0
                self._detach(message.index)
            case Reply(serial, answer):
                assert serial in self._open, f"request {serial} was answered twice, or never made"
                self._replied(*self._open.pop(serial), answer)
            case Lost():
                self.reached["timed out"] += 1
                self._lose()

    def _fetched(self, connection: Connection, fetched: Fetched) -> None:
        self.reached["fetched"] += 1
        self.reached["moved"] += fetched.moved
        self.reached["replaced"] += fetched.replaced
        self.reached["at end"] += fetched.at_end
        assert connection.fetches_outstanding >= 0
        if fetched.moved or fetched.replaced:
            assert self.slots.session(fetched.index) == 0
            self._take(connection)
            self._detach(fetched.index)

    def _replied(self, name: str, what: Any, answer: Answer) -> None:
        self.reached["reply"] += 1
        if name == "take":
            self.producer.answered(what, answer, self._now)
            return
        client = self.clients.get(name)
        if client is None:
            return
        if isinstance(answer, Refused):
            client.failed(self._now, unsent=answer.standby)
            return
        try:
            if client is self.node:
                self.node.answered(answer, self._now, int(self._now * 1000))
                share = self.node.take_share(self._now)
                self.reached["share"] += share is not None
                for one in () if share is None else share.take:
                    self.node.took(one)
            elif client is self.member:
                event = self.member.answered(answer, self._now)
                self.reached["event"] += event is not None
                if event is not None and event.rebalance_id % 2:
                    assert self.member.finished(event.rebalance_id, self._now)
                    assert not self.member.finished(event.rebalance_id, self._now), "an event with two results"
            else:
                assert isinstance(client, Producer)
                client.answered(answer, self._now)
        except BrokerError:
            self.reached["for good"] += 1
            self.clients[name].close(self._now)

    def _landed(self, chunk: Chunk) -> None:
        """Each log's spans follow one upon the other, and no row comes twice."""
        spans = chunk.spans()
        self.reached["rows"] += chunk.rows
        self.reached["dead letters"] += len(chunk.dead_letters)
        assert sum(span.rows for span in spans) == chunk.rows
        if chunk.rows:
            batch = pa.record_batch(chunk)
            batch.validate(full=True)
            columns = [batch[name].to_pylist() for name in ("topic", "partition", "offset", "row")]
            places = list(zip(*columns, strict=True))
            assert len(set(places)) == len(places)
        for index, place in enumerate(PARTITIONS):
            for span in spans:
                if (span.log.topic, span.log.partition) == (place.topic, place.name):
                    assert span.start == self._ends[index] != span.end, f"{span} follows {self._ends[index]}"
                    self._ends[index] = span.end
        chunk.release()

    def finish(self) -> None:
        """See ``ScanningClient.finish``."""
        super().finish()
        for client in self.clients.values():
            client.close(self._now)

    # --- what we say

    def _listen(self) -> None:
        """Be the servers' ears: each frame that goes out is whole, and a request that can be read."""
        connection = self.connection
        for frame in connection.take_outbound() if connection is not None else ():
            data = bytes(frame)
            request = decode_request(content_of(data))
            self.asked.append(Asked(int.from_bytes(data[4:8]), request.method, request.body))


class _Producer:
    """The outbox in the form of the other systems' producers."""

    def __init__(self, client: Producer) -> None:
        self.outbox = Outbox(client, "t", send_timeout_s=40.0)
        self.in_flight: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.outbox, name)

    def take_outcomes(self) -> list["_Outcome"]:
        return [_Outcome(one.error, (one.ticket,)) for one in self.outbox.take_results()]

    def answered(self, sending: Any, answer: Answer, now: float) -> None:
        self.in_flight.remove(sending)
        body = answer if isinstance(answer, pb.SendMessageResponseB2P) else None
        self.outbox.answered(sending, body, "refused", now)

    def forget(self, now: float) -> None:
        """End the requests in flight: their connection is lost."""
        for sending in self.in_flight:
            self.outbox.answered(sending, None, "lost", now)
        self.in_flight.clear()


@dataclass(frozen=True, slots=True)
class _Outcome:
    error: Exception | None
    tickets: tuple[object, ...]
