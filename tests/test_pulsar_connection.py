"""The connection's state machine, fed byte by byte and told the time."""

import random
from collections.abc import Iterator
from itertools import count
from typing import Any, cast

import pytest

from fastwire.errors import ProtocolError, UnsupportedError
from fastwire.position import PULSAR_EARLIEST, Log, Position
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.assembly import Assembly
from fastwire.pulsar.command import decode_command, encode_command
from fastwire.pulsar.completion import Completion
from fastwire.pulsar.connection import LARGEST_MESSAGE_SIZE, LEGAL, Connection, State
from fastwire.pulsar.event import (
    ActiveChanged,
    AuthChallenged,
    ChunkReady,
    Connected,
    ConnectRefused,
    ConsumerClosed,
    EndOfTopic,
    EntryRejected,
    Lost,
    More,
    Notice,
    ProducerClosed,
    ProducerMigrated,
    ProducerQueued,
    Reply,
    SendConfirmed,
    SendRefused,
    TimedOut,
    TopicMigrated,
    TopicsChanged,
)
from fastwire.pulsar.payload import Compression, Entry, Record, encode_batch_entry, encode_chunks, encode_single_entry
from fastwire.pulsar.request import Kind, SubscribeRequest
from fastwire.pulsar.scan import Scanner
from fastwire.pulsar.slot import SlotTable
from fastwire.wire.pool import Pool
from tests import golden

C = pb.BaseCommand
TOPIC = "persistent://public/default/t"
CONSUMER = 3


class Wire:
    """A connection, its scanner and one attached consumer; ``say`` is the broker."""

    def __init__(self, **options: Any) -> None:
        self.slots = SlotTable([Log("pulsar", "c", TOPIC, "-1", "0")])
        self.slots.add(CONSUMER, 0, ordered=True)
        self.slots.attach(CONSUMER, 1)
        divert = options.pop("divert", True)
        pool = Pool(1 << 28)
        self.scanner = Scanner(self.slots, pool, 1, on_corrupt="divert" if divert else "stop")
        completion = Completion(Assembly(pool), divert=divert)
        self.connection = Connection(self.scanner, completion, client_version="fw-0.1", **options)
        self.now = 1000.0

    def feed(self, data: bytes, piece: int = 1 << 30) -> list[Any]:
        events: list[Any] = []
        for at in range(0, len(data), piece):
            part = data[at : at + piece]
            while part:
                view = self.connection.get_buffer(-1)
                size = min(len(view), len(part))
                view[:size] = part[:size]
                view.release()
                events += self.connection.receive(size, self.now)
                while self.connection.more:
                    events += self.connection.receive(0, self.now)
                part = part[size:]
        return events

    def say(self, kind: "pb.BaseCommand.Type", **parts: Any) -> list[Any]:
        return self.feed(encode_command(C(type=kind, **parts)))

    def heard(self) -> list[pb.BaseCommand]:
        """What we have said since the last call, as commands."""
        data = b"".join(self.connection.take_outbound())
        commands = []
        while data:
            size = int.from_bytes(data[:4], "big")
            commands.append(decode_command(data[8 : 4 + size]))
            data = data[4 + size :]
        return commands

    def ready(self, version: int = 21, **parts: Any) -> list[Any]:
        self.connection.connect(self.now)
        answer = pb.CommandConnected(server_version="b", protocol_version=version, **parts)
        events = self.say(C.CONNECTED, connected=answer)
        self.heard()
        return events

    def entry(self, entry: Entry, number: int, consumer: int = CONSUMER, ledger: int = 7) -> bytes:
        message = pb.CommandMessage(consumer_id=consumer)
        message.message_id.ledgerId = ledger
        message.message_id.entryId = number
        command = C(type=C.MESSAGE, message=message).SerializeToString()
        total = 4 + len(command) + len(entry.body)
        return total.to_bytes(4, "big") + len(command).to_bytes(4, "big") + command + entry.body


def batch(number: int, rows: int = 10, size: int = 10, compression: Compression = Compression.NONE) -> Entry:
    records = [Record(value=b"%d:%d" % (number, at) + b"." * size) for at in range(rows)]
    return encode_batch_entry(records, producer_name="p", sequence_id=number, publish_time=1, compression=compression)


# --- handshake


def test_connect_is_the_golden_frame() -> None:
    wire = Wire()
    wire.connection.connect(wire.now, method="token", data=b"abc.def.ghi")
    (command,) = wire.heard()
    expected = pb.BaseCommand.FromString(golden.load("pulsar_e01_connect")[8:])
    # The worked bytes are of a client that never asks about a topic without creating it.
    expected.connect.feature_flags.supports_get_partitioned_metadata_without_auto_creation = True
    expected.connect.client_version = command.connect.client_version
    assert command == expected
    assert wire.connection.state is State.HANDSHAKE
    assert wire.connection.awaiting


def test_connected_by_the_golden_frame() -> None:
    wire = Wire()
    wire.connection.connect(wire.now)
    events = wire.feed(golden.load("pulsar_e02_connected"))
    assert events == [Connected("Pulsar Server4.0.7", 21, 5242880)]
    assert wire.connection.features.supports_topic_watchers
    assert wire.connection.state is State.READY
    assert not wire.connection.awaiting


def test_connect_through_a_proxy_and_without_credentials() -> None:
    wire = Wire()
    wire.connection.connect(wire.now, proxy_to="broker-1:6650")
    (command,) = wire.heard()
    assert command.connect.proxy_to_broker_url == "broker-1:6650"
    assert not command.connect.HasField("auth_data")
    assert not command.connect.HasField("auth_method_name")
    assert command.connect.feature_flags.supports_auth_refresh
    assert command.connect.feature_flags.supports_broker_entry_metadata


def test_the_lower_version_counts_and_too_low_is_refused() -> None:
    wire = Wire()
    assert wire.ready(version=99)[0].protocol_version == 21
    wire = Wire()
    assert wire.ready(version=12)[0].protocol_version == 12
    wire = Wire()
    with pytest.raises(UnsupportedError, match="speaks protocol version 11, 12 is the oldest"):
        wire.ready(version=11)


@pytest.mark.parametrize(
    ("announced", "taken"), [(0, 5 << 20), (-5, 5 << 20), (1000, 1000), (2**31 - 1, LARGEST_MESSAGE_SIZE)]
)
def test_the_announced_message_size_is_bounded(announced: int, taken: int) -> None:
    wire = Wire()
    assert wire.ready(max_message_size=announced)[0].max_message_size == taken
    assert wire.scanner.max_message_size == taken


def test_refused_at_the_door() -> None:
    wire = Wire()
    wire.connection.connect(wire.now)
    error = pb.CommandError(request_id=2**64 - 1, error=pb.AuthenticationError, message="who?")
    (event,) = wire.say(C.ERROR, error=error)
    assert isinstance(event, ConnectRefused)
    assert (event.error.code, event.error.name, event.error.message) == (3, "AuthenticationError", "who?")
    assert wire.connection.state is State.CLOSED


def test_a_challenge_before_and_after_connected() -> None:
    wire = Wire()
    wire.connection.connect(wire.now)
    wire.heard()
    challenge = pb.CommandAuthChallenge(challenge=pb.AuthData(auth_method_name="token", auth_data=b"PulsarAuthRefresh"))
    assert wire.say(C.AUTH_CHALLENGE, authChallenge=challenge) == [AuthChallenged("token", b"PulsarAuthRefresh")]
    wire.connection.auth_response("token", b"")
    (command,) = wire.heard()
    assert command.authResponse.response.HasField("auth_data")
    wire.say(C.CONNECTED, connected=pb.CommandConnected(server_version="b", protocol_version=21))
    assert wire.say(C.AUTH_CHALLENGE, authChallenge=challenge) == [AuthChallenged("token", b"PulsarAuthRefresh")]


def test_nothing_is_said_before_connected() -> None:
    connection = Wire().connection
    for intention in (
        lambda: connection.lookup(TOPIC, 0.0),
        lambda: connection.flow(CONSUMER, 1),
        lambda: connection.ack_runs(CONSUMER, [(1, 1, 1)], 0.0),
        lambda: connection.ack_cumulative(CONSUMER, Position(1, 1), 0.0),
        lambda: connection.ping(0.0),
        lambda: connection.auth_response("token", b""),
    ):
        with pytest.raises(ValueError, match="in state NEW"):
            intention()
    assert connection.take_outbound() == []


def test_connect_has_to_be_answered_in_time() -> None:
    wire = Wire()
    wire.connection.connect(wire.now)
    assert wire.connection.next_deadline() == wire.now + 10
    assert wire.connection.tick(wire.now + 9.9) == ()
    assert wire.connection.tick(wire.now + 10) == (Lost("no answer to CONNECT"),)
    assert wire.connection.state is State.CLOSED


# --- the table of what is legal when


def every_command() -> Iterator[pb.BaseCommand]:
    """Each known command with all that it requires, as a broker or a client would send it."""
    for kind in C.Type.values():
        field = C.DESCRIPTOR.fields_by_number.get(kind)
        command = C(type=cast(Any, kind))
        if field is not None:
            fill(getattr(command, field.name))
            getattr(command, field.name).SetInParent()
        yield command


def fill(message: Any) -> None:
    for field in message.DESCRIPTOR.fields:
        if field.is_required:
            if field.message_type:
                fill(getattr(message, field.name))
            elif field.enum_type:
                setattr(message, field.name, field.enum_type.values[0].number)
            else:
                setattr(message, field.name, {field.TYPE_STRING: "x", field.TYPE_BYTES: b"x"}.get(field.type, 999))


@pytest.mark.parametrize("state", [State.HANDSHAKE, State.READY])
def test_every_command_is_legal_or_a_protocol_error(state: State) -> None:
    for command in every_command():
        if command.type == C.MESSAGE or C.DESCRIPTOR.fields_by_number.get(command.type) is None:
            continue
        wire = Wire()
        if state is State.READY:
            wire.ready()
        else:
            wire.connection.connect(wire.now)
        if command.type == C.CONNECTED:
            command.connected.protocol_version = 21
        if command.type in LEGAL[state]:
            wire.feed(encode_command(command))
        else:
            with pytest.raises(ProtocolError, match=f"{C.Type.Name(command.type)} in state {state.name}"):
                wire.feed(encode_command(command))


def test_commands_of_the_future_are_ignored() -> None:
    wire = Wire()
    wire.ready()
    for body in (bytes([8, 99, 1]), bytes([8, 70]), bytes([8, 81])):
        assert wire.feed((len(body) + 4).to_bytes(4, "big") + len(body).to_bytes(4, "big") + body) == []
    assert wire.say(C.PONG, pong=pb.CommandPong()) == []
    assert wire.connection.state is State.READY


@pytest.mark.parametrize("body", [b"", b"\xff", bytes([8, 13]), bytes([8, 13, 0x6A, 0])])
def test_a_command_that_is_none_breaks_the_connection(body: bytes) -> None:
    wire = Wire()
    wire.ready()
    with pytest.raises(ProtocolError):
        wire.feed((len(body) + 4).to_bytes(4, "big") + len(body).to_bytes(4, "big") + body)


def test_an_error_code_of_the_future_still_answers() -> None:
    wire = Wire()
    wire.ready()
    request_id = wire.connection.close_consumer(CONSUMER, wire.now)
    error = bytes([8, request_id, 16, 77]) + b"\x1a\x03new"
    body = bytes([8, 14, 0x72, len(error)]) + error
    (event,) = wire.feed((len(body) + 4).to_bytes(4, "big") + len(body).to_bytes(4, "big") + body)
    assert (event.error.name, event.error.message) == ("UnknownError", "new")


# --- requests


def test_replies_find_their_requests_in_any_order() -> None:
    ids = count(50)
    wire = Wire(request_ids=ids)
    wire.ready()
    connection = wire.connection
    lookup = connection.lookup(TOPIC, wire.now, authoritative=True, listener="inner")
    parts = connection.partitioned_metadata(TOPIC, wire.now)
    last = connection.get_last_message_id(CONSUMER, wire.now)
    assert [lookup, parts, last] == [50, 51, 52]
    asked = wire.heard()
    assert asked[0].lookupTopic.authoritative
    assert asked[0].lookupTopic.advertised_listener_name == "inner"
    assert asked[0].lookupTopic.topic == TOPIC
    assert connection.awaiting
    answer = pb.CommandGetLastMessageIdResponse(request_id=last)
    answer.last_message_id.ledgerId = answer.last_message_id.entryId = 5
    (event,) = wire.say(C.GET_LAST_MESSAGE_ID_RESPONSE, getLastMessageIdResponse=answer)
    assert (event.request_id, event.kind, event.error) == (last, Kind.GET_LAST_MESSAGE_ID, None)
    found = pb.CommandLookupTopicResponse(
        request_id=lookup, response=pb.CommandLookupTopicResponse.Connect, brokerServiceUrl="pulsar://x"
    )
    (event,) = wire.say(C.LOOKUP_RESPONSE, lookupTopicResponse=found)
    assert event.command.lookupTopicResponse.brokerServiceUrl == "pulsar://x"
    success = pb.CommandPartitionedTopicMetadataResponse.Success
    counted = pb.CommandPartitionedTopicMetadataResponse(request_id=parts, response=success, partitions=4)
    (event,) = wire.say(C.PARTITIONED_METADATA_RESPONSE, partitionMetadataResponse=counted)
    assert (event.kind, event.error) == (Kind.PARTITIONED_METADATA, None)
    assert not connection.awaiting


def test_each_way_to_say_no() -> None:
    wire = Wire()
    wire.ready()
    connection = wire.connection

    cases: list[tuple[int | None, pb.BaseCommand.Type, str, Any, str]] = [
        (
            connection.lookup(TOPIC, 0.0),
            C.LOOKUP_RESPONSE,
            "lookupTopicResponse",
            pb.CommandLookupTopicResponse(
                response=pb.CommandLookupTopicResponse.Failed, error=pb.ServiceNotReady, message="later"
            ),
            "ServiceNotReady",
        ),
        # Without a kind it must not pass for the default, which is a redirect to nowhere.
        (
            connection.lookup(TOPIC, 0.0),
            C.LOOKUP_RESPONSE,
            "lookupTopicResponse",
            pb.CommandLookupTopicResponse(message="?"),
            "UnknownError",
        ),
        (
            connection.partitioned_metadata(TOPIC, 0.0),
            C.PARTITIONED_METADATA_RESPONSE,
            "partitionMetadataResponse",
            pb.CommandPartitionedTopicMetadataResponse(
                response=pb.CommandPartitionedTopicMetadataResponse.Failed, error=pb.TopicNotFound
            ),
            "TopicNotFound",
        ),
        (
            connection.consumer_stats(CONSUMER, 0.0),
            C.CONSUMER_STATS_RESPONSE,
            "consumerStatsResponse",
            pb.CommandConsumerStatsResponse(error_code=pb.ConsumerNotFound),
            "ConsumerNotFound",
        ),
        (
            connection.ack_cumulative(CONSUMER, Position(1, 2), 0.0),
            C.ACK_RESPONSE,
            "ackResponse",
            pb.CommandAckResponse(consumer_id=CONSUMER, error=pb.MetadataError),
            "MetadataError",
        ),
        (
            connection.seek(CONSUMER, 0.0, publish_time_ms=5),
            C.ERROR,
            "error",
            pb.CommandError(error=pb.NotAllowedError, message="no"),
            "NotAllowedError",
        ),
    ]
    for request_id, kind, name, body, error in cases:
        body.request_id = request_id
        (event,) = wire.say(kind, **{name: body})
        assert isinstance(event, Reply)
        assert event.error is not None
        assert event.error.name == error


def test_an_answer_of_the_wrong_kind_breaks_the_connection() -> None:
    wire = Wire()
    wire.ready()
    request_id = wire.connection.lookup(TOPIC, wire.now)
    with pytest.raises(ProtocolError, match=f"SUCCESS answers request {request_id}, a LOOKUP"):
        wire.say(C.SUCCESS, success=pb.CommandSuccess(request_id=request_id))


def test_answers_that_nobody_asked_for_are_dropped() -> None:
    wire = Wire()
    wire.ready()
    assert wire.say(C.SUCCESS, success=pb.CommandSuccess(request_id=77)) == []
    assert wire.say(C.ERROR, error=pb.CommandError(request_id=77, error=pb.UnknownError, message="")) == []
    assert wire.say(C.ACK_RESPONSE, ackResponse=pb.CommandAckResponse(consumer_id=1)) == []
    assert wire.connection.unmatched_replies == 3


def test_requests_time_out_one_by_one_and_late_answers_are_dropped() -> None:
    wire = Wire(operation_timeout_s=30.0)
    wire.ready()
    first = wire.connection.lookup(TOPIC, wire.now)
    second = wire.connection.close_consumer(CONSUMER, wire.now + 5)
    wire.now += 20
    wire.say(C.PONG, pong=pb.CommandPong())
    assert wire.connection.tick(1029.9) == ()
    assert wire.connection.tick(1030.0) == [TimedOut(first, Kind.LOOKUP)]
    assert wire.connection.tick(1036.0) == [TimedOut(second, Kind.CLOSE_CONSUMER)]
    assert not wire.connection.awaiting
    assert wire.say(C.SUCCESS, success=pb.CommandSuccess(request_id=second)) == []


def test_subscribe_says_what_a_daemon_wants() -> None:
    wire = Wire()
    wire.ready()
    want = SubscribeRequest(
        topic=TOPIC,
        subscription="s",
        subscription_type=pb.CommandSubscribe.Key_Shared,
        consumer_id=9,
        consumer_name="n",
    )
    request_id = wire.connection.subscribe(want, wire.now)
    (command,) = wire.heard()
    asked = command.subscribe
    assert (asked.topic, asked.subscription, asked.consumer_id, asked.consumer_name) == (TOPIC, "s", 9, "n")
    assert asked.request_id == request_id
    assert asked.durable
    assert asked.initialPosition == pb.CommandSubscribe.Earliest
    assert asked.keySharedMeta.keySharedMode == pb.AUTO_SPLIT
    wire = Wire()
    wire.ready(version=13)
    with pytest.raises(UnsupportedError, match="Key_Shared needs protocol version 14"):
        wire.connection.subscribe(want, wire.now)


def test_seek_to_a_place_or_a_time() -> None:
    wire = Wire()
    wire.ready()
    wire.connection.seek(CONSUMER, wire.now, position=Position(4, 5))
    wire.connection.seek(CONSUMER, wire.now, position=PULSAR_EARLIEST)
    wire.connection.seek(CONSUMER, wire.now, publish_time_ms=0)
    place, earliest, time = (command.seek for command in wire.heard())
    assert (place.message_id.ledgerId, place.message_id.entryId) == (4, 5)
    assert (earliest.message_id.ledgerId, earliest.message_id.entryId) == (2**64 - 1, 2**64 - 1)
    assert time.HasField("message_publish_time")
    assert not time.HasField("message_id")
    with pytest.raises(ValueError):
        wire.connection.seek(CONSUMER, wire.now)
    with pytest.raises(ValueError):
        wire.connection.seek(CONSUMER, wire.now, position=Position(1, 1), publish_time_ms=1)


def test_acks_have_receipts_where_brokers_give_them() -> None:
    wire = Wire()
    wire.ready()
    receipt = wire.connection.ack_cumulative(CONSUMER, Position(7, 8), wire.now)
    runs = wire.connection.ack_runs(CONSUMER, [(7, 0, 1499)], wire.now)
    assert receipt is not None
    assert len(runs) == 2
    one, *others = (command.ack for command in wire.heard())
    assert (one.ack_type, one.request_id) == (pb.CommandAck.Cumulative, receipt)
    assert [len(other.message_id) for other in others] == [1000, 500]
    assert [other.request_id for other in others] == runs
    assert wire.connection.receipts_outstanding == 3
    assert not wire.connection.awaiting  # nobody waits for them
    wire.say(C.ACK_RESPONSE, ackResponse=pb.CommandAckResponse(consumer_id=CONSUMER, request_id=receipt))
    assert wire.connection.receipts_outstanding == 2
    wire = Wire()
    wire.ready(version=16)
    assert wire.connection.ack_cumulative(CONSUMER, Position(7, 8), wire.now) is None
    assert wire.connection.ack_runs(CONSUMER, [(7, 0, 3)], wire.now) == []
    assert not any(command.ack.HasField("request_id") for command in wire.heard())


def test_flow_is_never_nothing() -> None:
    wire = Wire()
    wire.ready()
    wire.connection.flow(7, 1000)
    assert b"".join(wire.connection.take_outbound()) == golden.load("pulsar_e05_flow")
    with pytest.raises(ValueError):
        wire.connection.flow(7, 0)


# --- what brokers say by themselves


def test_notices_become_events() -> None:
    wire = Wire()
    wire.ready()
    closed = pb.CommandCloseConsumer(consumer_id=3, request_id=0, assignedBrokerServiceUrl="pulsar://n")
    assert wire.say(C.CLOSE_CONSUMER, close_consumer=closed) == [ConsumerClosed(3, "pulsar://n", "")]
    change = pb.CommandActiveConsumerChange(consumer_id=3, is_active=True)
    assert wire.say(C.ACTIVE_CONSUMER_CHANGE, active_consumer_change=change) == [ActiveChanged(3, True)]
    end = pb.CommandReachedEndOfTopic(consumer_id=3)
    assert wire.say(C.REACHED_END_OF_TOPIC, reachedEndOfTopic=end) == [EndOfTopic(3)]
    moved = pb.CommandTopicMigrated(
        resource_id=3, resource_type=pb.CommandTopicMigrated.Consumer, brokerServiceUrlTls="pulsar+ssl://n"
    )
    assert wire.say(C.TOPIC_MIGRATED, topicMigrated=moved) == [TopicMigrated(3, "", "pulsar+ssl://n")]
    changed = pb.CommandWatchTopicUpdate(watcher_id=1, new_topics=["a", "b"], deleted_topics=["c"], topics_hash="h")
    (event,) = wire.say(C.WATCH_TOPIC_UPDATE, watchTopicUpdate=changed)
    assert event == TopicsChanged(1, ("a", "b"), ("c",), "h")
    (event,) = wire.say(C.END_TXN_RESPONSE, endTxnResponse=pb.CommandEndTxnResponse(request_id=1))
    assert isinstance(event, Notice)
    assert event.command.type == C.END_TXN_RESPONSE


def test_what_brokers_say_to_producers() -> None:
    wire = Wire()
    wire.ready()
    place = pb.MessageIdData(ledgerId=7, entryId=8)
    receipt = pb.CommandSendReceipt(producer_id=1, sequence_id=2, message_id=place)
    assert wire.say(C.SEND_RECEIPT, send_receipt=receipt) == [SendConfirmed(1, 2, Position(7, 8))]
    nowhere = pb.MessageIdData(ledgerId=(1 << 64) - 1, entryId=(1 << 64) - 1)
    receipt = pb.CommandSendReceipt(producer_id=1, sequence_id=3, message_id=nowhere)
    assert wire.say(C.SEND_RECEIPT, send_receipt=receipt) == [SendConfirmed(1, 3, Position(-1, -1))]
    receipt = pb.CommandSendReceipt(producer_id=1, sequence_id=4)
    assert wire.say(C.SEND_RECEIPT, send_receipt=receipt) == [SendConfirmed(1, 4, Position(-1, -1))]
    refusal = pb.CommandSendError(producer_id=1, sequence_id=5, error=pb.ChecksumError, message="no")
    (event,) = wire.say(C.SEND_ERROR, send_error=refusal)
    assert isinstance(event, SendRefused)
    assert (event.producer_id, event.sequence_id, str(event.error)) == (1, 5, "ChecksumError: no")
    closed = pb.CommandCloseProducer(producer_id=1, request_id=0, assignedBrokerServiceUrlTls="pulsar+ssl://n")
    assert wire.say(C.CLOSE_PRODUCER, close_producer=closed) == [ProducerClosed(1, "", "pulsar+ssl://n")]
    moved = pb.CommandTopicMigrated(
        resource_id=1, resource_type=pb.CommandTopicMigrated.Producer, brokerServiceUrl="pulsar://n"
    )
    assert wire.say(C.TOPIC_MIGRATED, topicMigrated=moved) == [ProducerMigrated(1, "pulsar://n", "")]


def ask_for_a_producer(wire: Wire) -> int:
    def command(request_id: int) -> pb.BaseCommand:
        ask = pb.CommandProducer(topic=TOPIC, producer_id=1, request_id=request_id)
        return C(type=C.PRODUCER, producer=ask)

    request_id = wire.connection.request(Kind.PRODUCER, command, wire.now)
    (said,) = wire.heard()
    assert said.producer.request_id == request_id
    return request_id


def test_a_producer_may_have_to_wait_its_turn() -> None:
    """The first answer says only that; the second one is the answer, however late it comes."""
    wire = Wire()
    wire.ready()
    request_id = ask_for_a_producer(wire)
    assert wire.connection.awaiting
    success = pb.CommandProducerSuccess(request_id=request_id, producer_name="p", producer_ready=False)
    assert wire.say(C.PRODUCER_SUCCESS, producer_success=success) == [ProducerQueued(request_id)]
    assert not wire.connection.awaiting
    wire.now += 29
    wire.say(C.PONG, pong=pb.CommandPong())
    wire.now += 2
    assert wire.connection.tick(wire.now) == ()
    success.producer_ready = True
    (event,) = wire.say(C.PRODUCER_SUCCESS, producer_success=success)
    assert isinstance(event, Reply)
    assert (event.request_id, event.kind, event.error) == (request_id, Kind.PRODUCER, None)
    assert wire.say(C.PRODUCER_SUCCESS, producer_success=success) == []  # it is answered
    assert wire.connection.unmatched_replies == 1
    request_id = ask_for_a_producer(wire)
    success = pb.CommandProducerSuccess(request_id=request_id, producer_name="p", producer_ready=False)
    wire.say(C.PRODUCER_SUCCESS, producer_success=success)
    error = pb.CommandError(request_id=request_id, error=pb.ProducerFenced, message="")
    (event,) = wire.say(C.ERROR, error=error)
    assert isinstance(event, Reply)
    assert event.error is not None


def test_a_ping_is_answered_at_once() -> None:
    wire = Wire()
    wire.ready()
    assert wire.feed(golden.load("pulsar_e09_ping")) == []
    assert b"".join(wire.connection.take_outbound()) == golden.load("pulsar_e10_pong")


# --- keep-alive


def test_silence_is_answered_by_a_ping_and_then_by_closing() -> None:
    wire = Wire(keep_alive_s=30.0)
    wire.ready()
    connection = wire.connection
    assert connection.next_deadline() == 1030.0
    connection.tick(1029.9)
    assert wire.heard() == []
    connection.tick(1030.0)
    assert [command.type for command in wire.heard()] == [C.PING]
    assert connection.next_deadline() == 1060.0
    assert connection.tick(1059.9) == ()
    (event,) = connection.tick(1060.0)
    assert isinstance(event, Lost)
    assert connection.state is State.CLOSED
    assert connection.take_outbound() == []


def test_anything_received_proves_life() -> None:
    wire = Wire(keep_alive_s=30.0)
    wire.ready()
    wire.connection.tick(1030.0)
    wire.heard()
    wire.now = 1059.0
    change = pb.CommandActiveConsumerChange(consumer_id=3)
    wire.say(C.ACTIVE_CONSUMER_CHANGE, active_consumer_change=change)
    assert wire.connection.tick(1060.0) == ()
    assert wire.heard() == []
    wire.connection.tick(1089.0)
    assert [command.type for command in wire.heard()] == [C.PING]
    assert wire.connection.tick(1090.0) == ()


def test_while_reading_is_paused_we_ping_and_judge_nobody() -> None:
    wire = Wire(keep_alive_s=30.0)
    wire.ready()
    connection = wire.connection
    request = connection.lookup(TOPIC, 1005.0)
    wire.heard()
    connection.suspend(1010.0)
    assert wire.heard() == []  # most pauses are short
    pings = 0
    for step in range(1200):
        assert connection.tick(1010.0 + step / 10) == ()
        pings += len(wire.heard())
    assert pings == 12  # one after a second, then one in ten seconds
    connection.suspend(1120.0)  # a second reason changes nothing
    connection.resume(1130.0)
    assert connection.tick(1131.0) == ()
    assert wire.heard() == []
    # The request had 25 s left when nothing was heard any more.
    wire.now = 1150.0
    wire.say(C.PONG, pong=pb.CommandPong())
    assert connection.tick(1154.9) == ()
    assert connection.tick(1155.0) == [TimedOut(request, Kind.LOOKUP)]


def test_a_suspended_connection_knows_its_next_ping() -> None:
    wire = Wire()
    wire.ready()
    wire.connection.suspend(1010.0)
    assert wire.connection.next_deadline() == 1011.0
    wire.connection.tick(1011.0)
    assert wire.connection.next_deadline() == 1021.0
    wire.connection.resume(1015.0)
    assert wire.connection.next_deadline() == 1045.0


# --- records


def test_wire_order_is_kept_between_chunks_and_commands() -> None:
    wire = Wire()
    wire.ready()
    full = [wire.entry(batch(number, rows=6000), number) for number in range(4)]
    change = pb.CommandActiveConsumerChange(consumer_id=CONSUMER)
    command = encode_command(C(type=C.ACTIVE_CONSUMER_CHANGE, active_consumer_change=change))
    events = wire.feed(b"".join([*full[:3], command, full[3], command]))
    kinds = [type(event) for event in events if not isinstance(event, More)]
    assert kinds == [ChunkReady, ActiveChanged, ActiveChanged]
    assert events[0].chunk.rows == 12000
    assert wire.connection.open_since == wire.now
    rest = wire.connection.take_chunk()
    assert rest is not None
    assert rest.rows == 12000
    assert wire.connection.open_since is None
    assert wire.slots.debited(CONSUMER) == 24000


def test_the_output_of_one_turn_is_bounded() -> None:
    wire = Wire()
    wire.ready()
    data = b"".join(wire.entry(batch(n, rows=100, size=20_000, compression=Compression.ZSTD), n) for n in range(12))
    view = wire.connection.get_buffer(-1)
    view[: len(data)] = data
    view.release()
    events = list(wire.connection.receive(len(data), wire.now))
    assert isinstance(events[-1], More)
    assert wire.connection.more
    rows = sum(event.chunk.rows for event in events if isinstance(event, ChunkReady))
    assert rows < 1200
    turns = 1
    while wire.connection.more:
        events = list(wire.connection.receive(0, wire.now))
        rows += sum(event.chunk.rows for event in events if isinstance(event, ChunkReady))
        turns += 1
    assert turns == 3
    last = wire.connection.take_chunk()
    assert rows + (last.rows if last else 0) == 1200


def part_of_chunked() -> Entry:
    """The last part of a message of which nothing else comes."""
    whole = Record(value=b"x" * 100)
    return encode_chunks(whole, chunk_bytes=50, producer_name="p", sequence_id=1, publish_time=1)[1]


def test_an_entry_that_is_not_decoded_is_diverted_in_its_place() -> None:
    wire = Wire()
    wire.ready()
    events = wire.feed(wire.entry(batch(0), 0) + wire.entry(part_of_chunked(), 1) + wire.entry(batch(2), 2))
    (rejected,) = events
    assert isinstance(rejected, EntryRejected)
    assert (rejected.entry.entry, rejected.entry.reason) == (1, "Chunked")
    chunk = wire.connection.take_chunk()
    assert chunk is not None
    assert chunk.rows == 20
    assert [letter.position for letter in chunk.diverted] == [Position(7, 1)]
    (span,) = chunk.spans()
    assert (span.start, span.end) == (PULSAR_EARLIEST, Position(7, 2))


def test_without_diverting_the_driver_decides_before_anything_else() -> None:
    wire = Wire(divert=False)
    wire.ready()
    data = wire.entry(batch(0), 0) + wire.entry(part_of_chunked(), 1) + wire.entry(batch(2), 2)
    view = wire.connection.get_buffer(-1)
    view[: len(data)] = data
    view.release()
    events = wire.connection.receive(len(data), wire.now)
    assert [type(event) for event in events] == [EntryRejected, More]
    wire.slots.detach(CONSUMER)
    assert wire.connection.receive(0, wire.now) == ()
    chunk = wire.connection.take_chunk()
    assert chunk is not None
    assert chunk.rows == 10
    (span,) = chunk.spans()
    assert span.end == Position(7, 0)


# --- any cut, any damage


def conversation(wire: Wire) -> bytes:
    change = pb.CommandActiveConsumerChange(consumer_id=CONSUMER, is_active=True)
    closed = pb.CommandCloseConsumer(consumer_id=CONSUMER, request_id=0)
    single = encode_single_entry(Record(value=b"v", key="k"), producer_name="p", sequence_id=1, publish_time=1)
    return b"".join(
        [
            golden.load("pulsar_e02_connected"),
            golden.load("pulsar_e09_ping"),
            wire.entry(batch(0, rows=3), 0),
            encode_command(C(type=C.ACTIVE_CONSUMER_CHANGE, active_consumer_change=change)),
            wire.entry(single, 1),
            wire.entry(part_of_chunked(), 2),
            encode_command(C(type=C.PONG, pong=pb.CommandPong())),
            encode_command(C(type=C.CLOSE_CONSUMER, close_consumer=closed)),
        ]
    )


def summary(wire: Wire, piece: int) -> tuple[list[str], int, int, bytes]:
    wire.connection.connect(wire.now)
    events = wire.feed(conversation(wire), piece)
    chunk = wire.connection.take_chunk()
    assert chunk is not None
    kinds = [type(event).__name__ for event in events]
    return kinds, chunk.rows, len(chunk.diverted), b"".join(wire.connection.take_outbound())


def test_every_way_to_cut_the_bytes_means_the_same() -> None:
    whole = summary(Wire(), 1 << 20)
    assert whole[0] == ["Connected", "ActiveChanged", "EntryRejected", "ConsumerClosed"]
    assert whole[1:3] == (4, 1)
    for piece in (1, 2, 3, 7, 64, 199):
        assert summary(Wire(), piece) == whole


def test_damage_gives_events_or_a_protocol_error() -> None:
    rng = random.Random(20260708)
    sound = bytearray(conversation(Wire()))
    for _ in range(1500):
        data = bytearray(sound)
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(data))
            data[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        wire = Wire()
        wire.connection.connect(wire.now)
        try:
            wire.feed(bytes(data), rng.choice((1 << 20, 50)))
        except (ProtocolError, UnsupportedError):
            pass
