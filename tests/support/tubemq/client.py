"""Blocking TubeMQ clients over the sans-IO core of fastwire, for tests against real servers and the embedded one."""

import itertools
import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Any, Protocol, Self, TypeVar

import pyarrow as pa
from google.protobuf.message import Message

from fastwire.position import Log, Position, register
from fastwire.tubemq import tubemq_pb2 as pb
from fastwire.tubemq.format.credentials import VisitToken
from fastwire.tubemq.format.error import Refused
from fastwire.tubemq.format.frame import Method
from fastwire.tubemq.format.text import Broker, BrokerPartition
from fastwire.tubemq.groups.master import Change
from fastwire.tubemq.groups.membership import Membership, Settings
from fastwire.tubemq.position import POSITIONS
from fastwire.tubemq.protocol.connection import Connection
from fastwire.tubemq.protocol.event import ChunkReady, FetchDone, More, Reply
from fastwire.tubemq.protocol.request import ConsumerRequests, send_request
from fastwire.tubemq.reading.fetched import Fetched, Planned
from fastwire.tubemq.reading.scan import Scanner
from fastwire.tubemq.reading.slot import SlotTable
from fastwire.wire.pool import Pool

register(POSITIONS)

HOST = "127.0.0.1"
LOCALHOST = 0x7F000001
LIMIT_S = 180.0  # for what a server does in seconds on a quiet machine
PAUSE_S = 0.05  # between heartbeats: without it a waiting test keeps a whole core, and the Master, busy

_numbers = itertools.count(1)

M = TypeVar("M", bound=Message)


class Cluster(Protocol):
    """A Master and a Broker, real or embedded."""

    @property
    def master_port(self) -> int:
        """The port of the Master."""

    @property
    def broker_port(self) -> int:
        """The port of the Broker."""

    def fresh_topic(self) -> str:
        """Return a topic with one store of two partitions that no other test uses."""

    def flushed_topic(self) -> str:
        """Return a topic like that, whose messages are soon in its file: reads with filters see no others."""


def client_name(group: str = "") -> str:
    """Return a client id that is not used again: of a consumer with a group, of a producer without."""
    base = f"{HOST}-{time.time_ns()}-{next(_numbers)}"
    return f"{group}_{base}-Pull-fw" if group else f"{base}-fw"


def answer_of(answer: Message | Refused) -> Message:
    """Return an answer that is not an exception."""
    assert not isinstance(answer, Refused), answer
    return answer


def refusal(answer: Message | Refused) -> Refused:
    """Return the exception that a server answered with."""
    assert isinstance(answer, Refused)
    return answer


class _Closing:
    """A context manager that closes the connection at its end."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        raise NotImplementedError


class Link(_Closing):
    """One connection, and the rows that it brought; use as a context manager.

    ``sent`` and ``received`` are all bytes of the connection.
    """

    def __init__(self, port: int) -> None:
        self.slots = SlotTable()
        self.rows: list[dict[str, Any]] = []
        self.sent = bytearray()
        self.received = bytearray()
        self._connection = Connection(Scanner(self.slots, Pool(64 << 20)))
        self._socket = socket.create_connection((HOST, port), timeout=LIMIT_S)
        self._done: dict[int, Message | Refused | Fetched] = {}

    def close(self) -> None:
        self._connection.close()
        self._socket.close()

    def ask(self, method: Method, body: Message) -> Message | Refused:
        """Send a request and return its answer."""
        answer = self._wait(self._connection.request(method, body, time.monotonic()))
        assert not isinstance(answer, Fetched)
        return answer

    def call(self, method: Method, body: Message, kind: type[M]) -> M:
        """Send a request and return its answer, which is of ``kind``."""
        answer = self.ask(method, body)
        assert isinstance(answer, kind), answer
        return answer

    def plan(self, index: int, body: pb.GetMessageRequestC2B) -> int:
        """Send a GET for the slot ``index`` and return its serial number."""
        planned = Planned(index, self.slots.session(index))
        serial = self._connection.get(body, planned, time.monotonic())
        self._flush()
        return serial

    def fetched(self, serial: int) -> Fetched:
        """Wait for the end of a GET."""
        answer = self._wait(serial)
        assert isinstance(answer, Fetched), answer
        self._take(self._connection.take_chunk())
        return answer

    def raw(self, data: bytes) -> None:
        """Send bytes as they are."""
        self._socket.sendall(data)

    def _flush(self) -> None:
        for data in self._connection.take_outbound():
            self.sent += data
            self._socket.sendall(data)

    def _wait(self, serial: int) -> Message | Refused | Fetched:
        self._flush()
        nbytes = 0
        more = False
        while serial not in self._done:
            if not more:
                view = self._connection.get_buffer(65536)
                nbytes = self._socket.recv_into(view)
                self.received += view[:nbytes]
                view.release()
                if not nbytes:
                    raise EOFError("the server closed the connection")
            events = self._connection.receive(0 if more else nbytes, time.monotonic())
            more = self._connection.more
            for event in events:
                if isinstance(event, Reply):
                    self._done[event.request_id] = event.answer
                elif isinstance(event, FetchDone):
                    self._done[event.fetched.serial] = event.fetched
                elif isinstance(event, ChunkReady):
                    self._take(event.chunk)
                else:
                    assert isinstance(event, More), event
        return self._done.pop(serial)

    def _take(self, chunk: Any) -> None:
        if chunk is not None:
            if chunk.rows:
                self.rows += pa.record_batch(chunk).to_pylist()
            chunk.release()


def send(
    cluster: Cluster,
    topic: str,
    values: Iterable[bytes],
    number: int = 0,
    *,
    attributes: Sequence[Mapping[str, str]] = (),
) -> list[pb.SendMessageResponseB2P]:
    """Store messages in partition ``number`` by a producer that registers for it; ``attributes`` by message."""
    client = client_name()
    with Link(cluster.master_port) as master, Link(cluster.broker_port) as broker:
        registered = master.call(
            Method.PRODUCER_REGISTER,
            pb.RegisterRequestP2M(clientId=client, topicList=[topic], brokerCheckSum=-1, hostName=HOST),
            pb.RegisterResponseM2P,
        )
        assert registered.success, registered.errMsg
        token = VisitToken()
        token.store(registered.authorizedInfo)
        answers = []
        for at, value in enumerate(values):
            request = send_request(
                client,
                topic,
                number,
                value,
                token.for_broker(),
                address=LOCALHOST,
                attributes=attributes[at] if attributes else None,
            )
            answers.append(broker.call(Method.SEND, request, pb.SendMessageResponseB2P))
        master.ask(Method.PRODUCER_CLOSE, pb.CloseRequestP2M(clientId=client))
    return answers


class Start(IntEnum):
    """``readStatus`` of a registration: where a group without a stored offset begins."""

    OLDEST = 0
    END = 1
    ALWAYS_END = 2
    """Also a group with a stored offset begins at the end."""


class Reader(_Closing):
    """A consumer of one Broker that registers partitions without asking the Master, which no Broker minds."""

    def __init__(
        self, cluster: Cluster, topic: str, group: str, *, types: Sequence[str] = (), client_id: str = ""
    ) -> None:
        self.broker = Broker(1, HOST, cluster.broker_port)
        self.topic = topic
        self.consumer = ConsumerRequests(client_id or client_name(group), group)
        self.link = Link(cluster.broker_port)
        self.token = VisitToken()
        self._types = types
        self._indices: dict[int, int] = {}

    def close(self) -> None:
        self.link.close()

    def partition(self, number: int) -> BrokerPartition:
        return BrokerPartition(self.broker, self.topic, number)

    def register(
        self, number: int = 0, *, offset: int | None = None, start: Start = Start.OLDEST
    ) -> pb.RegisterResponseB2C:
        """Register a partition and let the slot begin where the Broker says."""
        request = self.consumer.register(
            self.partition(number), self.token.for_broker(), offset=offset, filters=self._types
        )
        request.readStatus = start
        answer = self.link.call(Method.BROKER_REGISTER, request, pb.RegisterResponseB2C)
        if answer.success:
            if number not in self._indices:
                log = Log("tubemq", "c", self.topic, self.partition(number).name)
                self._indices[number] = self.link.slots.add(log, self._types)
            index = self._indices[number]
            session = self.link.slots.session(index) + 1
            self.link.slots.attach(index, Position(answer.currOffset, 0), session)
        return answer

    def unregister(self, number: int = 0, *, confirm: bool = False) -> pb.RegisterResponseB2C:
        request = self.consumer.unregister(self.partition(number), self.token.for_broker())
        request.readStatus = 0 if confirm else 1
        return self.link.call(Method.BROKER_REGISTER, request, pb.RegisterResponseB2C)

    def plan(self, number: int = 0, *, manual: bool = True, last_consumed: bool = False, escape: bool = False) -> int:
        """Send a GET and return its serial number; a partition that is not registered gets a slot."""
        if number not in self._indices:
            log = Log("tubemq", "c", self.topic, self.partition(number).name)
            self._indices[number] = self.link.slots.add(log)
        body = self.consumer.get(self.partition(number), escape=escape)
        body.manualCommitOffset, body.lastPackConsumed = manual, last_consumed
        return self.link.plan(self._indices[number], body)

    def get(
        self, number: int = 0, *, manual: bool = True, last_consumed: bool = False, escape: bool = False
    ) -> Fetched:
        return self.link.fetched(self.plan(number, manual=manual, last_consumed=last_consumed, escape=escape))

    def commit(self, number: int = 0, *, consumed: bool = True) -> pb.CommitOffsetResponseB2C:
        body = self.consumer.commit(self.partition(number))
        body.lastPackConsumed = consumed
        return self.link.call(Method.COMMIT, body, pb.CommitOffsetResponseB2C)

    def heartbeat(self, *numbers: int) -> pb.HeartBeatResponseB2C:
        body = self.consumer.heartbeat([self.partition(each) for each in numbers], self.token.for_broker())
        return self.link.call(Method.BROKER_HEARTBEAT, body, pb.HeartBeatResponseB2C)

    def drain(self, number: int = 0) -> list[bytes]:
        """GET until the end of the partition, and return the values of all rows so far."""
        while (fetched := self.get(number)).code == 200:
            pass
        assert fetched.code == 404, fetched
        return self.values()

    def wait(self, count: int, number: int = 0) -> list[bytes]:
        """GET until ``count`` rows are there, and return the values of all."""
        deadline = time.monotonic() + LIMIT_S
        while len(self.link.rows) < count and time.monotonic() < deadline:
            if self.get(number).code != 200:
                time.sleep(0.1)
        return self.values()

    def values(self) -> list[bytes]:
        return [row["value"] for row in self.link.rows]


class Member(_Closing):
    """A member of a server-balanced group whose heartbeats go out when a test says so."""

    def __init__(self, cluster: Cluster, group: str, *topics: str, **settings: Any) -> None:
        self.link = Link(cluster.master_port)
        self.now = 0.0
        self.membership = Membership(
            Settings(
                client_id=client_name(group),
                group=group,
                host=HOST,
                topics=topics,
                session_time_ms=time.time_ns() // 1_000_000,
                **settings,
            )
        )

    def step(self) -> Change | None:
        """Send the next request of the membership, as if its time had come, and handle the answer."""
        due = self.membership.next_at()
        assert due is not None
        self.now = max(self.now, due)
        made = self.membership.take_request(self.now)
        assert made is not None
        return self.membership.answered(answer_of(self.link.ask(*made)), self.now)

    def change(self) -> Change:
        """Send heartbeats until one brings an event, and return it."""
        deadline = time.monotonic() + LIMIT_S
        while time.monotonic() < deadline:
            found = self.step()
            if found is not None:
                return found
            time.sleep(PAUSE_S)
        raise TimeoutError("the Master has assigned nothing")

    def perform(self, change: Change) -> None:
        """Take or give up the partitions of an event, and send its result."""
        for partition in change.take:
            self.membership.took(partition)
        self.membership.gave_up(change.give_up)
        assert self.membership.finished(change.rebalance_id, self.now)

    def settle(self, count: int) -> None:
        """Perform events until the member holds ``count`` partitions."""
        deadline = time.monotonic() + LIMIT_S
        while len(self.membership.held) != count:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(self.membership.held)} partitions are held")
            found = self.step()
            if found is not None:
                self.perform(found)
            else:
                time.sleep(PAUSE_S)
        self.step()  # the result

    def leave(self) -> None:
        """Leave the group."""
        self.membership.close(self.now)
        self.step()

    def close(self) -> None:
        self.link.close()
