"""The connection's state machine, fed byte by byte and told the time: handshake, what is legal when, keep-alive."""

import random
from collections.abc import Iterator
from typing import Any, cast

import pytest

from fastwire.errors import ProtocolError, UnsupportedError
from fastwire.position import Position
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.format.command import encode_command
from fastwire.pulsar.format.payload import Record, encode_single_entry
from fastwire.pulsar.protocol.connection import LARGEST_MESSAGE_SIZE, LEGAL, State
from fastwire.pulsar.protocol.event import AuthChallenged, Connected, ConnectRefused, Lost, TimedOut
from fastwire.pulsar.protocol.request import Kind
from tests.support import golden
from tests.support.pulsar.connection_scene import CONSUMER, TOPIC, C, Wire, batch, part_of_chunked

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


# --- keep-alive


def test_silence_is_answered_by_a_ping_and_then_by_closing() -> None:
    wire = Wire(keep_alive_s=30.0)
    wire.ready()
    connection = wire.connection
    connection.tick(1029.9)
    assert wire.heard() == []
    connection.tick(1030.0)
    assert [command.type for command in wire.heard()] == [C.PING]
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


def test_the_pings_of_a_suspended_connection_have_times_of_their_own() -> None:
    wire = Wire()
    wire.ready()

    def pings(now: float) -> int:
        wire.connection.tick(now)
        return len(wire.heard())

    wire.connection.suspend(1010.0)
    assert [pings(now) for now in (1010.9, 1011.0, 1020.9, 1021.0)] == [0, 1, 0, 1]
    wire.connection.resume(1025.0)
    assert [pings(now) for now in (1054.9, 1055.0)] == [0, 1]


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
    return kinds, chunk.rows, len(chunk.dead_letters), b"".join(wire.connection.take_outbound())


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
