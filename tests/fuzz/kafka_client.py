"""Kafka's state machines, led as their drivers lead them, and what must hold whatever a broker says."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fastwire.errors import FastwireError, ProtocolError
from fastwire.kafka.format.error import BrokerError
from fastwire.kafka.format.message import Body, decode_request
from fastwire.kafka.groups.membership import (
    Ask,
    Assign,
    ClassicMembership,
    ConsumerMembership,
    Elsewhere,
    GroupSettings,
    Lead,
    Membership,
)
from fastwire.kafka.producing.payload import Record
from fastwire.kafka.producing.producer import Producer, ProducerSettings, Sending
from fastwire.kafka.protocol.connection import Connection, Key, State
from fastwire.kafka.protocol.event import (
    ChunkReady,
    Connected,
    CorruptFound,
    Event,
    FetchDone,
    LoginWanted,
    Lost,
    Reply,
)
from fastwire.kafka.protocol.fetch import Fetcher, FetchLimits, Target
from fastwire.kafka.protocol.metadata import Metadata
from fastwire.kafka.protocol.question import (
    EARLIEST,
    NO_MEMBER,
    ask_committed,
    ask_coordinator,
    ask_epoch_end,
    ask_offsets,
    commit_offsets,
    read_commit_errors,
    read_committed_offsets,
    read_coordinator,
    read_epoch_end,
    read_offsets,
)
from fastwire.kafka.protocol.sasl import Mechanism, Plain, Scram
from fastwire.kafka.reading.response import Fetched
from fastwire.kafka.reading.scan import Scanner
from fastwire.kafka.reading.slot import SlotTable
from fastwire.position import Log, Position
from fastwire.producer import BatchLimits
from tests.fuzz.scanning_client import ScanningClient

GROUP = "g"
TOPICS = ("t", "u")
TOPIC_IDS = {"t": bytes(range(16)), "u": bytes(range(16, 32))}
PARTITIONS = 2  # of each topic
PLACES = [(topic, number) for topic in TOPICS for number in range(PARTITIONS)]


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that the broker has and has not answered, decoded from the bytes that went out.

    A token of a login before Kafka 1.0, which has no header, is a SaslAuthenticate of version -1.
    """

    key: int
    version: int
    correlation_id: int
    body: Body


class Client(ScanningClient[Connection, Asked]):
    """A connection with its scanner and fetcher, two group members, a producer; ``step`` takes one word of a case."""

    def __init__(self) -> None:
        super().__init__(PLACES)
        self.slots = SlotTable()
        for topic, number in PLACES:
            self.slots.add(Log("kafka", "c", topic, str(number)))
        self.members: dict[str, Membership[Any]] = {}
        self.metadata = Metadata()
        self.producer = Producer(ProducerSettings(batching=BatchLimits(records=3, delay_s=1.0), send_timeout_s=40.0))
        self._fetcher = self._new_fetcher()
        self._sendings: list[Sending] = []
        for kind in ("classic", "consumer"):
            self._enrol(kind)

    def _new_fetcher(self) -> Fetcher:
        return Fetcher(
            self.slots, FetchLimits(response_bytes=1 << 18, partition_bytes=1 << 16, max_wait_ms=100, session_above=2)
        )

    def _enrol(self, kind: str) -> None:
        settings = GroupSettings(group=GROUP, topics=TOPICS)
        self.members[kind] = ClassicMembership(settings) if kind == "classic" else ConsumerMembership(settings, "me")

    # --- steps

    def step(self, word: str) -> None:
        """Take one step; a step that makes no sense now does nothing."""
        name, *arguments = word.split(":")
        connection = self.connection
        if name == "feed":
            self._feed(bytes.fromhex(arguments[0]))
        elif name == "connect":
            self._connect(arguments[0])
        elif name == "lost":
            self._lose()
        elif name == "tick":
            self._tick(float(arguments[0]))
        elif name == "send":
            self._produce(Record(value=b"v" * int(arguments[0]), key=b"k", timestamp=1))
        elif name == "attach":
            self._attach(int(arguments[0]))
        elif name == "detach":
            self._detach(int(arguments[0]))
        elif name == "released":
            member = self.members[arguments[0]]
            if member.releasing:
                self._obey(member, member.released())
        elif name == "topics":
            member = self.members[arguments[0]]
            self._obey(member, member.topics_changed(TOPICS[: int(arguments[1])]))
        elif name in ("suspend", "resume"):
            if connection is not None:
                (connection.suspend if name == "suspend" else connection.resume)(self._now)
        elif connection is not None and connection.ready:
            try:
                self._ask(connection, name, arguments)
            except FastwireError:
                self.reached["not asked"] += 1
        self._listen()
        self._check()

    def _connect(self, login: str) -> None:
        if self.connection is not None:
            return
        scanner = Scanner(self.slots, self.pool, buffer_bytes=1 << 16)
        self.connection = Connection(scanner, client_id="f", software_version="1")
        mechanisms: dict[str, Mechanism] = {
            "plain": Plain("u", "p"),
            "scram": Scram("SCRAM-SHA-256", "u", "p", "nonce"),
        }
        self.connection.connect(self._now, mechanisms.get(login))

    def _forget(self) -> None:
        self._fetcher.lost()
        for _ in self._sendings:
            self.producer.unanswered(self._now)
        self._sendings.clear()

    def _attach(self, index: int) -> None:
        if index in self.attached:
            return
        session = next(self._sessions)
        topic, number = PLACES[index]
        # The open chunk may hold what was read before: reading goes on behind it.
        at = self.slots.position(index).a if index in self._begun else 0
        self._begun.add(index)
        self.slots.attach(index, Position(at, -1), session)
        self._fetcher.add(Target(index, topic, TOPIC_IDS[topic], number, 5, session))
        self.attached.add(index)

    def _detach(self, index: int) -> None:
        if index in self.attached:
            self.attached.discard(index)
            self.slots.detach(index)
            self._fetcher.drop(index)

    def _ask(self, connection: Connection, name: str, arguments: list[str]) -> None:
        now = self._now
        if name == "fetch":
            if self._fetcher.may_ask:
                self._fetcher.pump(connection, now)
        elif name == "member":
            self._ask_as_member(connection, arguments[0])
        elif name == "flush":
            self.producer.flush()
            self._send(connection)
        elif name == "leave":
            ask = self.members[arguments[0]].leave()
            if ask is not None:
                self._request(connection, "leave", None, ask.key, ask.body)
        else:
            key, body = self._question(name)
            self._request(connection, name, None, key, body)

    def _request(self, connection: Connection, name: str, about: Any, key: int, body: Body) -> None:
        self._open[connection.request(key, body, self._now)] = (name, about)

    @staticmethod
    def _question(name: str) -> tuple[int, Body]:
        place = PLACES[0]
        match name:
            case "metadata":
                return Key.METADATA, Metadata.request(TOPICS)
            case "everything":
                return Key.METADATA, Metadata.request(None)
            case "offsets":
                return Key.LIST_OFFSETS, ask_offsets(dict.fromkeys(PLACES, EARLIEST), read_committed=True)
            case "epoch":
                return Key.OFFSET_FOR_LEADER_EPOCH, ask_epoch_end(place, 3, 5)
            case "coordinator":
                return Key.FIND_COORDINATOR, ask_coordinator(GROUP)
            case "committed":
                return Key.OFFSET_FETCH, ask_committed(GROUP, PLACES)
            case "commit":
                return Key.OFFSET_COMMIT, commit_offsets(GROUP, {place: (7, 5)}, NO_MEMBER)
        raise ValueError(f"no step: {name}")

    def _ask_as_member(self, connection: Connection, kind: str) -> None:
        member = self.members[kind]
        if any(name == "member" and about[0] == kind for name, about in self._open.values()):
            return
        step = member.next(self._now)
        if isinstance(step, Ask):
            self._request(connection, "member", (kind, step), step.key, step.body)

    def _send(self, connection: Connection) -> None:
        producer = self.producer
        if producer.needs_identity:
            if not any(name == "identify" for name, _ in self._open.values()):
                body = {"transactional_id": None, "transaction_timeout_ms": 0}
                self._request(connection, "identify", None, Key.INIT_PRODUCER_ID, body)
            return
        while connection.speaks(Key.PRODUCE) and (sending := producer.take(self._now)) is not None:
            self._sendings.append(sending)
            self._request(connection, "produce", sending, Key.PRODUCE, sending.request("t", 0, 1000))

    # --- what the broker says

    def _event(self, connection: Connection, event: Event) -> None:
        match event:
            case Connected():
                self.reached["connected"] += 1
                assert connection.state is State.READY
            case LoginWanted():
                self.reached["login again"] += 1
                connection.log_in(Plain("u", "p"), self._now)
            case ChunkReady(chunk):
                self._landed(chunk)
            case FetchDone(fetched):
                self._fetched(connection, fetched)
            case CorruptFound(batch):
                self.reached["corrupt"] += 1
                self._detach(batch.index)
            case Reply(correlation_id, body):
                assert correlation_id in self._open, f"request {correlation_id} was answered twice, or never made"
                self._replied(*self._open.pop(correlation_id), body)
            case Lost():
                self.reached["timed out"] += 1
                self._lose()
            case _:
                pass

    def _fetched(self, connection: Connection, fetched: Fetched) -> None:
        self.reached["fetched"] += 1
        self.reached["session"] += fetched.session_id > 0
        self._take(connection)
        for index in self._fetcher.done(fetched):
            if self.slots.result(index).error:
                self.reached["partition error"] += 1
                self._detach(index)

    def _replied(self, name: str, about: Any, body: Body) -> None:
        self.reached["reply"] += 1
        try:
            self._answered(name, about, body)
        except (BrokerError, ProtocolError) as exc:
            self.reached["refusal"] += 1
            str(exc)
            if name == "member":
                self._enrol(about[0])

    def _answered(self, name: str, about: Any, body: Body) -> None:
        match name:
            case "member":
                kind, ask = about
                self._obey(self.members[kind], self.members[kind].answered(ask, body, self._now))
            case "metadata" | "everything":
                self.metadata.update(body, self._now, everything=name == "everything")
                for topic, number in PLACES:
                    self.metadata.missing_s(topic, self._now)
                    self.metadata.node(self.metadata.leader(topic, number).node_id)
            case "offsets":
                read_offsets(body)
            case "epoch":
                read_epoch_end(body)
            case "coordinator":
                read_coordinator(body, GROUP)
            case "committed":
                read_committed_offsets(body, GROUP)
            case "commit":
                read_commit_errors(body)
            case "identify":
                if body["error_code"] == 0 and self.producer.needs_identity:
                    self.producer.identify(body["producer_id"], body["producer_epoch"])
            case "produce":
                self._stored(about, body)
            case _:
                pass

    def _stored(self, sending: Sending, body: Body) -> None:
        self._sendings.remove(sending)
        try:
            said = sending.answer(body, "t", 0)
        except ProtocolError:
            self.producer.unanswered(self._now)
        else:
            self.producer.answered(sending, said["error_code"], said["base_offset"], self._now)

    def _obey(self, member: Membership[Any], events: Iterable[Any]) -> None:
        for event in events:
            match event:
                case Assign():
                    self.reached[f"assigned {member.kind}"] += 1
                case Lead(topics):
                    self.reached["leads"] += 1
                    assert isinstance(member, ClassicMembership)
                    numbers: Mapping[str, int] = dict.fromkeys(sorted(topics)[:10], PARTITIONS)
                    member.lead(numbers)
                case Elsewhere():
                    self.reached["elsewhere"] += 1
                case _:
                    self.reached["taken away"] += 1

    # --- what we say

    def _listen(self) -> None:
        """Be the broker's ears: each frame that goes out is whole, and a request by the tables."""
        connection = self.connection
        if connection is None:
            return
        for frame in connection.take_outbound():
            assert int.from_bytes(frame[:4]) == len(frame) - 4, "a frame announces another size than it has"
            if connection.unheard:
                self.reached["raw tokens"] += 1
                self.asked.append(Asked(Key.SASL_AUTHENTICATE, -1, 0, {"auth_bytes": frame[4:]}))
                continue
            api, version, correlation_id, _, body = decode_request(frame[4:])
            self.asked.append(Asked(api.key, version, correlation_id, body))
