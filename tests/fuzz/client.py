"""The client's state machines, led as their drivers lead them, and what must hold whatever a broker says."""

from collections import Counter
from collections.abc import Iterable
from itertools import count

from fastwire.columns.chunk import Chunk
from fastwire.errors import FastwireError
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.format.command import decode_command
from fastwire.pulsar.format.payload import Record
from fastwire.pulsar.names.namespace import list_topics, topics_hash, unwatch, watch
from fastwire.pulsar.names.pattern import parse_pattern
from fastwire.pulsar.names.topic import parse_address
from fastwire.pulsar.position import PULSAR_EARLIEST
from fastwire.pulsar.producing.batcher import BatchLimits
from fastwire.pulsar.producing.producer import Phase as Writing
from fastwire.pulsar.producing.producer import Producer
from fastwire.pulsar.producing.settings import ProducerSettings
from fastwire.pulsar.protocol.completion import Completion
from fastwire.pulsar.protocol.connection import LARGEST_MESSAGE_SIZE, Connection, State
from fastwire.pulsar.protocol.consumer import ConsumerMachine
from fastwire.pulsar.protocol.consumer import Phase as Reading
from fastwire.pulsar.protocol.event import (
    ActiveChanged,
    AuthChallenged,
    ChunkReady,
    Connected,
    ConnectRefused,
    ConsumerClosed,
    EntryRejected,
    Event,
    ProducerClosed,
    Reply,
    SendConfirmed,
    SendRefused,
    TimedOut,
    TopicMigrated,
    TopicsChanged,
)
from fastwire.pulsar.protocol.request import Kind, SubscribeRequest
from fastwire.pulsar.protocol.schema import ask_schema, schema_of, split_key_value
from fastwire.pulsar.reading.assembly import Assembly
from fastwire.pulsar.reading.scan import Scanner
from fastwire.pulsar.reading.slot import SlotTable
from fastwire.wire.pool import Pool
from tests.fuzz.pulsar import TIME, Opener
from tests.support.pulsar.frames import LOG

WINDOW = 50
ORDERED, SHARED = 7, 8
TYPES = {ORDERED: pb.CommandSubscribe.Failover, SHARED: pb.CommandSubscribe.Shared}
BATCHING, CHUNKING = 1, 2
SETTINGS = {
    BATCHING: ProducerSettings(batching=BatchLimits(messages=3, delay_s=1.0)),
    CHUNKING: ProducerSettings(name="mine", batching=None, chunking=True),
}
PATTERN = parse_pattern("persistent://public/default/t.*")
# A broker may announce messages as large as we take, and then begin one.
MOST_MEMORY = LARGEST_MESSAGE_SIZE + (96 << 20)

_C = pb.BaseCommand
_FIELDS = {number: field.name for number, field in _C.DESCRIPTOR.fields_by_number.items()}


class Client:
    """The state machines of a client, led as their drivers lead them; ``step`` takes one word of a case."""

    def __init__(self) -> None:
        self.reached: Counter[str] = Counter()
        self.asked: list[tuple[int, int]] = []  # what the broker was asked and has not answered: command, request id
        self.sent: list[tuple[int, int]] = []  # producer and number of entries without a receipt
        self.pool = Pool(1 << 30)
        self.slots = SlotTable([LOG])
        self.consumers = {}
        for number, kind in TYPES.items():
            self.slots.add(number, 0, ordered=number == ORDERED)
            want = SubscribeRequest(
                topic=LOG.topic, subscription="s", subscription_type=kind, consumer_id=number, consumer_name="c"
            )
            self.consumers[number] = ConsumerMachine(want, self.slots, WINDOW)
        self.producers = {number: Producer(LOG.topic, number, want) for number, want in SETTINGS.items()}
        self.completion = Completion(Assembly(self.pool), decryptor=Opener(), on_failure="consume")
        self.connection: Connection | None = None
        self._links = 0
        self._now = 1000.0
        self._request_ids = count(1)
        self._purpose: dict[int, tuple[str, int]] = {}  # of requests: what they are to do once they are answered
        self._open: set[int] = set()
        self._tickets = count()
        self._undecided: set[object] = set()

    # --- steps

    def step(self, word: str) -> None:
        """Take one step; those that make no sense now are nothing."""
        name, *arguments = word.split(":")
        if name == "feed":
            self._feed(bytes.fromhex(arguments[0]))
        elif name == "connect":
            self._connect()
        elif name == "lost":
            self._lose()
        elif name == "tick":
            self._tick(float(arguments[0]))
        elif name in ("open", "send", "flush", "shut"):
            self._produce(name, self.producers[int(arguments[0])], int(arguments[-1]))
        elif self.connection is not None and self.connection.state is State.READY:
            self._consume(name, self.connection, int(arguments[0]) if arguments else 0)
        self._listen()
        self._check()

    def _connect(self) -> None:
        if self.connection is not None:
            return
        self._links += 1
        scanner = Scanner(self.slots, self.pool, self._links, buffer_bytes=1 << 16)
        self.connection = Connection(scanner, self.completion, client_version="f", request_ids=self._request_ids)
        self.connection.connect(self._now, method="token", data=b"secret")

    def _lose(self) -> None:
        connection, self.connection = self.connection, None
        if connection is None:
            return
        self._take(connection)
        connection.close()
        for consumer in self.consumers.values():
            consumer.detached(self._now)
            self.slots.void_staged(consumer.consumer_id)
            self.completion.assembly.forget(consumer.consumer_id)
        for producer in self.producers.values():
            producer.detached()
        self.asked.clear()
        self.sent.clear()
        self._open.clear()
        self._purpose.clear()

    def _lose_if_closed(self, connection: Connection) -> None:
        if connection.state is State.CLOSED:
            self._lose()

    def _tick(self, seconds: float) -> None:
        self._now += seconds
        for producer in self.producers.values():
            producer.tick(self._now)
        connection = self.connection
        if connection is None:
            return
        for consumer in self.consumers.values():
            consumer.acknowledge_again(self._now)
            if consumer.acks.due(self._now):
                consumer.send_acks(self._now)
            if consumer.permits.started:
                consumer.settle()
        self._on(connection, connection.tick(self._now))
        self._lose_if_closed(connection)
        if self.connection is None:
            return
        if connection.open_since is not None:
            self._take(connection)
        torn = self.completion.assembly.expired(self.consumers, seconds)
        self._on(connection, self.completion.give_up(torn, connection.scanner))

    def _produce(self, name: str, producer: Producer, size: int) -> None:
        connection = self.connection
        ready = connection is not None and connection.state is State.READY
        if name == "open":
            if connection is not None and ready and producer.phase is Writing.DETACHED and producer.failure is None:
                self._purpose[producer.open(connection, self._now)] = ("opened", producer.producer_id)
        elif name == "send":
            if producer.phase is Writing.OPEN and producer.failure is None:
                ticket = next(self._tickets)
                self._undecided.add(ticket)
                producer.send(Record(value=b"v" * size, key="k"), ticket, self._now, TIME)
        elif name == "flush":
            producer.flush()
        else:
            producer.close(self._now)

    def _consume(self, name: str, connection: Connection, number: int) -> None:
        consumer = self.consumers.get(number)
        now = self._now
        if name == "stats":
            connection.consumer_stats(number, now)
        elif name == "last":
            connection.get_last_message_id(number, now)
        elif name == "lookup":
            connection.lookup(LOG.topic, now)
        elif name == "metadata":
            connection.partitioned_metadata(LOG.topic, now)
        elif name == "list":
            connection.request(Kind.LIST_TOPICS, list_topics(PATTERN, ""), now)
        elif name == "watch":
            connection.request(Kind.WATCH_TOPICS, watch(PATTERN, 1, ""), now)
        elif name == "unwatch":
            connection.request(Kind.UNWATCH_TOPICS, unwatch(1), now)
        elif name == "schema":
            connection.request(Kind.GET_SCHEMA, ask_schema(LOG.topic), now)
        elif name == "suspend":
            connection.suspend(now)
        elif name == "resume":
            connection.resume(now)
        elif consumer is None:
            raise ValueError(f"no step: {name}")
        elif name == "subscribe":
            if consumer.phase is Reading.DETACHED:
                self._purpose[consumer.subscribe(connection, self._links, now)] = ("subscribed", number)
        elif name == "seek":
            if consumer.phase is Reading.READY:
                self._purpose[connection.seek(number, now, position=PULSAR_EARLIEST)] = ("sought", number)
        elif name == "leave":
            if consumer.phase is Reading.READY:
                self._purpose[connection.unsubscribe(number, now)] = ("left", number)
        elif name == "close":
            if consumer.phase in (Reading.READY, Reading.SUBSCRIBING):
                consumer.close(now)
        elif name == "hold":
            consumer.hold(not consumer.permits.hold)
        elif name == "again":
            consumer.redeliver([(12, 0, 2)], now)
        elif name == "part":
            consumer.acks.elements((12, 3), b"\x05" + bytes(7), now)
        else:
            raise ValueError(f"no step: {name}")

    # --- what the broker says

    def _feed(self, data: bytes) -> None:
        connection = self.connection
        if connection is None or connection.state is State.CLOSED:
            return
        try:
            while data:
                view = connection.get_buffer(-1)
                size = min(len(view), len(data))
                view[:size] = data[:size]
                view.release()
                data = data[size:]
                self._on(connection, connection.receive(size, self._now))
                while connection.more:
                    self._on(connection, connection.receive(0, self._now))
            for consumer in self.consumers.values():
                if consumer.permits.started:
                    consumer.pump()
        except FastwireError:
            self.reached["broken"] += 1
            self._lose()
        else:
            self._lose_if_closed(connection)

    def _on(self, connection: Connection, events: Iterable[Event]) -> None:
        for event in events:
            self._event(connection, event)

    def _event(self, connection: Connection, event: Event) -> None:
        match event:
            case Connected():
                self.reached["connected"] += 1
            case AuthChallenged(method):
                self.reached["challenged"] += 1
                connection.auth_response(method, b"renewed")
            case ChunkReady(chunk):
                self._landed(chunk)
            case EntryRejected():
                self.reached["rejected"] += 1
            case Reply():
                self._answered(event.request_id)
                self._reply(connection, event)
            case TimedOut(request_id):
                self.reached["timed out"] += 1
                self._answered(request_id)
                self._given_up(request_id)
            case ConsumerClosed(number) | TopicMigrated(number):
                self.reached["migrated" if isinstance(event, TopicMigrated) else "closed consumer"] += 1
                if number in self.consumers:
                    self.consumers[number].detached(self._now)
            case ActiveChanged(number, active):
                if number in self.consumers:
                    self.consumers[number].active = active
            case ProducerClosed(number):
                self.reached["closed producer"] += 1
                if number in self.producers:
                    self.producers[number].detached()
            case SendConfirmed(number):
                if number in self.producers:
                    self.producers[number].confirmed(event)
            case SendRefused(number):
                if number in self.producers and self.producers[number].refused(event):
                    raise FastwireError("all is sent again")
            case TopicsChanged():
                self.reached["topics"] += 1
                PATTERN.chosen(event.new)
                topics_hash((*event.new, *event.deleted))
            case ConnectRefused():
                self.reached["refused connection"] += 1
            case _:
                pass

    def _answered(self, request_id: int) -> None:
        assert request_id in self._open, f"request {request_id} was answered twice, or never made"
        self._open.discard(request_id)

    def _reply(self, connection: Connection, reply: Reply) -> None:
        self.reached["reply" if reply.error is None else "refusal"] += 1
        if reply.kind is Kind.ACK:
            for consumer in self.consumers.values():
                consumer.acks.receipt(reply.request_id, reply.error is None)
            return
        if reply.error is not None:
            str(reply.error), reply.error.remedy
            self._given_up(reply.request_id)
            return
        command = reply.command
        if reply.kind is Kind.LIST_TOPICS:
            PATTERN.chosen(command.getTopicsOfNamespaceResponse.topics)
        elif reply.kind is Kind.GET_SCHEMA:
            split_key_value(schema_of(command.getSchemaResponse).definition)
        elif reply.kind is Kind.LOOKUP:
            try:
                parse_address(command.lookupTopicResponse.brokerServiceUrl)
            except ValueError:
                pass
        purpose, number = self._purpose.pop(reply.request_id, ("", 0))
        if purpose == "subscribed" and self.consumers[number].phase is Reading.SUBSCRIBING:
            self.consumers[number].subscribed(self._now)
            self.consumers[number].grant()
        elif purpose == "opened" and self.producers[number].phase is Writing.OPENING:
            self.producers[number].opened(command.producer_success)
        elif purpose in ("sought", "left"):
            self.consumers[number].acks.forget()
            self.consumers[number].detached(self._now)

    def _given_up(self, request_id: int) -> None:
        purpose, number = self._purpose.pop(request_id, ("", 0))
        for consumer in self.consumers.values():
            consumer.acks.receipt(request_id, False)
        if purpose == "subscribed" and self.consumers[number].phase is Reading.SUBSCRIBING:
            self.consumers[number].close(self._now)
            self.consumers[number].detached(self._now)
        elif purpose == "opened":
            self.producers[number].close(self._now)

    def _take(self, connection: Connection) -> None:
        chunk = connection.take_chunk()
        if chunk is not None:
            self._landed(chunk)

    def _landed(self, chunk: Chunk) -> None:
        self.reached["rows"] += chunk.rows
        assert sum(span.rows for span in chunk.spans()) == chunk.rows
        runs = {(ledger, first, first) for ledger, first, _ in chunk.runs()}
        self.consumers[SHARED].landed(None, sorted(runs), self._now)
        position = self.slots.last_position(ORDERED)
        if position is not None:
            self.slots.set_landed(ORDERED, position)
            self.consumers[ORDERED].landed(position, (), self._now)
        chunk.release()

    # --- what we say

    def _listen(self) -> None:
        """Be the broker's ears: what we say must be sound, whatever happened."""
        connection = self.connection
        if connection is None:
            return
        data = memoryview(b"".join(connection.take_outbound()))
        while data:
            size, inner = int.from_bytes(data[:4], "big"), int.from_bytes(data[4:8], "big")
            assert len(data) >= 4 + size, "half a frame goes out"
            self._heard(decode_command(data[8 : 8 + inner]))
            data = data[4 + size :]

    def _heard(self, command: pb.BaseCommand) -> None:
        if command.type == _C.SEND:
            self.sent.append((command.send.producer_id, command.send.sequence_id))
            return
        body = getattr(command, _FIELDS[command.type])
        if "request_id" in body.DESCRIPTOR.fields_by_name and body.HasField("request_id"):
            assert body.request_id not in self._open, "a request id is used twice"
            self._open.add(body.request_id)
            self.asked.append((command.type, body.request_id))

    def _check(self) -> None:
        for consumer in self.consumers.values():
            if consumer.phase is Reading.READY:
                assert consumer.outstanding <= WINDOW, f"{consumer.outstanding} permits of {WINDOW}"
        for producer in self.producers.values():
            for outcome in producer.take_outcomes():
                self.reached["stored" if outcome.error is None else "not stored"] += 1
                for ticket in outcome.tickets:
                    assert ticket in self._undecided, f"record {ticket} has two outcomes"
                    self._undecided.discard(ticket)
            assert producer.weight >= 0
            assert not producer.idle or producer.weight == 0

    def finish(self) -> None:
        """Everything has an end: each record its outcome, all memory given back."""
        self._lose()
        for producer in self.producers.values():
            producer.fail(FastwireError("the end"))
        self._check()
        assert not self._undecided, f"{len(self._undecided)} records without an outcome"
        assert all(producer.idle for producer in self.producers.values())
        self.completion.assembly.forget()
        assert self.pool.used == 0, f"{self.pool.used} bytes are still out"
        assert self.pool.peak <= MOST_MEMORY, f"{self.pool.peak} bytes were out at once"
