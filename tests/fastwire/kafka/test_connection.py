"""A connection to a Kafka broker: versions, logins, the order of answers, deadlines, mutes; brokers are scripted."""

import unittest.mock
from struct import pack
from typing import Any

import pytest

from fastwire.errors import ProtocolError, UnsupportedError
from fastwire.kafka.format.message import APIS, decode_request, encode_response
from fastwire.kafka.protocol.connection import Connection, Key, State
from fastwire.kafka.protocol.event import Connected, FetchDone, LoginWanted, Lost, Reply, Throttled
from fastwire.kafka.protocol.sasl import OAuthBearer, Plain, SaslError
from fastwire.kafka.reading.response import Planned
from fastwire.kafka.reading.scan import Scanner
from fastwire.kafka.reading.slot import SlotTable
from fastwire.wire.pool import Pool

# What a broker of today says of itself, as far as it matters here.
MODERN = {0: (0, 13), 1: (4, 18), 3: (0, 13), 17: (0, 1), 18: (0, 4), 22: (0, 5), 36: (0, 2)}


class Wire:
    """A connection and its broker, who answers by hand."""

    def __init__(self, **options: Any) -> None:
        scanner = Scanner(SlotTable(), Pool(1 << 24))
        self.connection = Connection(scanner, client_id="me", software_version="1", **options)
        self.now = 100.0

    def said(self) -> list[tuple[int, int, int, dict[str, Any]]]:
        """Key, version, correlation id and body of what the connection has to say by now."""
        found = []
        data = b"".join(self.connection.take_outbound())
        while data:
            size = int.from_bytes(data[:4])
            api, version, correlation_id, client_id, body = decode_request(data[4 : 4 + size])
            assert client_id == "me"
            found.append((api.key, version, correlation_id, body))
            data = data[4 + size :]
        return found

    def feed(self, data: bytes, piece: int = 1 << 20) -> list[Any]:
        events: list[Any] = []
        for at in range(0, len(data), piece):
            part = data[at : at + piece]
            room = self.connection.get_buffer(-1)
            room[: len(part)] = part
            room.release()
            events += self.connection.receive(len(part), self.now)
        return events

    def answer(self, request: tuple[int, int, int, Any], piece: int = 1 << 20, **body: Any) -> list[Any]:
        key, version, correlation_id, _ = request
        return self.feed(encode_response(key, version, correlation_id, body), piece)

    def tell_versions(self, versions: dict[int, tuple[int, int]] = MODERN) -> list[Any]:
        (asked,) = self.said()
        keys = [{"api_key": key, "min_version": low, "max_version": high} for key, (low, high) in versions.items()]
        return self.answer(asked, api_keys=keys)


def ready(versions: dict[int, tuple[int, int]] = MODERN, **options: Any) -> Wire:
    wire = Wire(**options)
    wire.connection.connect(wire.now)
    assert wire.tell_versions(versions) == [Connected()]
    return wire


# --- versions


def test_versions_first() -> None:
    wire = Wire()
    wire.connection.connect(wire.now)
    ((key, version, _, body),) = wire.said()
    assert (key, version) == (18, 3)
    assert body == {"client_software_name": "fastwire", "client_software_version": "1"}


@pytest.mark.parametrize("rest", [b"", b"\x00\x00\x00\x00", bytes(range(60))])
def test_a_broker_too_old_for_the_question_is_asked_again(rest: bytes) -> None:
    """The body behind error 35 follows no version (librdkafka's mock) or version 0."""
    wire = Wire()
    wire.connection.connect(wire.now)
    ((_, _, correlation_id, _),) = wire.said()
    frame = pack(">ih", correlation_id, 35) + rest
    assert wire.feed(pack(">i", len(frame)) + frame) == []
    ((key, version, correlation_id, body),) = wire.said()
    assert (key, version, body) == (18, 0, {})
    frame = pack(">ihi", correlation_id, 0, 1) + pack(">hhh", 3, 0, 5)
    assert wire.feed(pack(">i", len(frame)) + frame) == [Connected()]
    assert wire.connection.versions == {3: (0, 5)}


def test_a_broker_that_knows_no_version_of_the_question() -> None:
    wire = Wire()
    wire.connection.connect(wire.now)
    ((_, _, correlation_id, _),) = wire.said()
    refusal = pack(">ih", correlation_id, 35)
    assert wire.feed(pack(">i", len(refusal)) + refusal) == []
    ((_, _, correlation_id, _),) = wire.said()
    refusal = pack(">ih", correlation_id, 35)
    with pytest.raises(UnsupportedError, match="ApiVersions: UNSUPPORTED_VERSION"):
        wire.feed(pack(">i", len(refusal)) + refusal)


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [((0, 18), 17), ((4, 6), 6), ((0, 4), 4), ((17, 30), 17)],
)
def test_the_highest_common_version(theirs: tuple[int, int], ours: int) -> None:
    wire = ready({Key.FETCH: theirs})
    assert wire.connection.speaks(Key.FETCH)
    assert wire.connection.version_of(Key.FETCH) == ours


@pytest.mark.parametrize("theirs", [(0, 3), (18, 30), (6, 5), None])
def test_no_common_version(theirs: tuple[int, int] | None) -> None:
    wire = ready({} if theirs is None else {Key.FETCH: theirs})
    assert not wire.connection.speaks(Key.FETCH)
    with pytest.raises(
        UnsupportedError, match=r"not offer Fetch|Fetch in versions -?\d+ to -?\d+, fastwire in 4 to 17"
    ):
        wire.connection.version_of(Key.FETCH)


def test_no_request_before_versions_are_known() -> None:
    wire = Wire()
    wire.connection.connect(wire.now)
    with pytest.raises(ValueError, match="asking for versions"):
        wire.connection.request(Key.METADATA, {}, wire.now)
    with pytest.raises(ValueError, match="before"):
        wire.connection.connect(wire.now)


# --- requests


@pytest.mark.parametrize("piece", [1, 7, 1 << 20])
def test_answers_in_order_however_they_are_cut(piece: int) -> None:
    wire = ready()
    first = wire.connection.request(Key.INIT_PRODUCER_ID, {"transactional_id": None}, wire.now)
    second = wire.connection.request(Key.METADATA, {"topics": []}, wire.now)
    one, two = wire.said()
    events = wire.answer(one, piece, producer_id=5, producer_epoch=1)
    events += wire.answer(two, piece, brokers=[{"node_id": 1, "host": "h", "port": 9092, "rack": None}])
    assert [(type(event), event.request_id) for event in events] == [(Reply, first), (Reply, second)]
    assert (events[0].answer["producer_id"], events[1].answer["brokers"][0]["host"]) == (5, "h")
    assert not wire.connection.awaiting


def test_an_answer_out_of_turn_is_a_breach() -> None:
    wire = ready()
    wire.connection.request(Key.METADATA, {"topics": []}, wire.now)
    wire.connection.request(Key.INIT_PRODUCER_ID, {"transactional_id": None}, wire.now)
    _, two = wire.said()
    with pytest.raises(ProtocolError, match="correlation id"):
        wire.answer(two, producer_id=5)


def test_an_answer_that_nobody_asked_for_is_a_breach() -> None:
    wire = ready()
    with pytest.raises(ProtocolError, match="the next answer is none"):
        wire.feed(pack(">ii", 4, 77))


def test_fetches_are_decoded_where_they_arrive() -> None:
    wire = ready()
    body = {"max_wait_ms": 500, "min_bytes": 1, "topics": []}
    correlation_id = wire.connection.fetch(body, Planned(12, False, {}), wire.now)
    assert wire.connection.fetches_outstanding == 1
    assert not wire.connection.awaiting  # nobody waits for a long poll
    (asked,) = wire.said()
    (done,) = wire.answer(asked, responses=[], throttle_time_ms=0)
    assert isinstance(done, FetchDone)
    assert (done.fetched.correlation_id, wire.connection.fetches_outstanding) == (correlation_id, 0)


# --- time


def test_a_broker_that_says_nothing_is_given_up() -> None:
    wire = Wire()
    wire.connection.connect(wire.now)
    assert wire.connection.tick(wire.now + 9.9) == ()
    assert wire.connection.tick(wire.now + 10) == (Lost("asking for versions took too long"),)
    other = ready(request_timeout_s=30.0)
    other.connection.request(Key.METADATA, {"topics": []}, other.now)
    assert other.connection.tick(other.now + 29.9) == ()
    assert other.connection.tick(other.now + 30) == (Lost("Metadata was not answered in time"),)


def test_time_that_nothing_is_read_in_does_not_count() -> None:
    wire = ready(request_timeout_s=30.0)
    wire.connection.request(Key.METADATA, {"topics": []}, wire.now)
    wire.connection.suspend(wire.now + 20)
    assert wire.connection.tick(wire.now + 500) == ()
    wire.connection.resume(wire.now + 500)
    assert wire.connection.tick(wire.now + 509) == ()
    assert wire.connection.tick(wire.now + 510) == (Lost("Metadata was not answered in time"),)


def test_a_throttled_client_is_silent_as_long_as_it_is_told_to() -> None:
    wire = ready(request_timeout_s=30.0)
    wire.connection.request(Key.METADATA, {"topics": []}, wire.now)
    (asked,) = wire.said()
    wire.connection.request(Key.METADATA, {"topics": []}, wire.now)
    wire.answer(asked, throttle_time_ms=60_000)
    assert not wire.connection.has_outbound
    assert wire.said() == []
    assert wire.connection.tick(wire.now + 59) == ()
    assert wire.said() == []
    assert wire.connection.tick(wire.now + 60) == ()  # no Lost: it could not have been answered
    assert len(wire.said()) == 1
    assert wire.connection.tick(wire.now + 90) == (Lost("Metadata was not answered in time"),)


def test_a_request_made_while_throttled_has_its_time_when_it_is_sent() -> None:
    """A Fetch that waits for the end of a long throttle is not unanswered: breaking off would evade the quota."""
    wire = ready(request_timeout_s=30.0)
    wire.connection.request(Key.METADATA, {"topics": []}, wire.now)
    (asked,) = wire.said()
    assert wire.answer(asked, throttle_time_ms=45_000) == [Throttled(45.0), Reply(asked[2], unittest.mock.ANY)]
    wire.connection.request(Key.METADATA, {"topics": []}, wire.now + 1)
    assert wire.connection.throttled_s(wire.now + 1) == 44
    assert wire.connection.tick(wire.now + 44.9) == ()
    assert wire.said() == []
    assert wire.connection.tick(wire.now + 45) == ()
    assert wire.connection.throttled_s(wire.now + 45) == 0
    assert len(wire.said()) == 1
    assert wire.connection.tick(wire.now + 74.9) == ()
    assert wire.connection.tick(wire.now + 75) == (Lost("Metadata was not answered in time"),)


def test_throttles_that_overlap_count_once() -> None:
    wire = ready()
    wire.connection.request(Key.METADATA, {"topics": []}, wire.now)
    wire.connection.request(Key.METADATA, {"topics": []}, wire.now)
    wire.connection.request(Key.METADATA, {"topics": []}, wire.now)
    first, second, third = wire.said()
    assert wire.answer(first, throttle_time_ms=10_000)[0] == Throttled(10.0)
    assert [type(event) for event in wire.answer(second, throttle_time_ms=4_000)] == [Reply]
    wire.now += 5
    assert wire.answer(third, throttle_time_ms=20_000)[0] == Throttled(15.0)
    assert wire.connection.throttled_s(wire.now) == 20


def test_a_throttled_handshake_goes_on_when_it_may() -> None:
    wire = Wire()
    wire.connection.connect(wire.now, Plain("us", "pw"))
    (asked,) = wire.said()
    keys = [{"api_key": key, "min_version": low, "max_version": high} for key, (low, high) in MODERN.items()]
    assert wire.answer(asked, api_keys=keys, throttle_time_ms=60_000) == [Throttled(60.0)]
    assert wire.said() == []
    assert wire.connection.tick(wire.now + 60) == ()  # no Lost: it could not be logged in yet
    ((key, *_),) = wire.said()
    assert key == Key.SASL_HANDSHAKE


# --- logins


def begin(mechanism: Any) -> Wire:
    wire = Wire()
    wire.connection.connect(wire.now, mechanism)
    assert wire.tell_versions() == []
    assert wire.connection.state is State.LOGIN
    return wire


def log_in(wire: Wire, **said: Any) -> list[Any]:
    """Play the broker's part of PLAIN."""
    (shaking,) = wire.said()
    assert shaking[:2] == (Key.SASL_HANDSHAKE, 1)
    assert shaking[3] == {"mechanism": "PLAIN"}
    assert wire.answer(shaking, mechanisms=["PLAIN"]) == []
    (token,) = wire.said()
    assert token[:2] == (Key.SASL_AUTHENTICATE, 2)
    assert token[3] == {"auth_bytes": b"\0alice\0secret"}
    return wire.answer(token, error_message=None, **said)


def test_a_login() -> None:
    wire = begin(Plain("alice", "secret"))
    assert log_in(wire) == [Connected()]
    assert wire.connection.state is State.READY
    assert wire.connection.tick(wire.now + 1e6) == ()  # it lasts


def test_a_mechanism_that_is_not_offered() -> None:
    wire = begin(Plain("alice", "secret"))
    (shaking,) = wire.said()
    with pytest.raises(SaslError, match="the broker does not take PLAIN; it offers SCRAM-SHA-512, OAUTHBEARER"):
        wire.answer(shaking, error_code=33, mechanisms=["SCRAM-SHA-512", "OAUTHBEARER"])


def test_a_handshake_refused_for_another_reason() -> None:
    wire = begin(Plain("alice", "secret"))
    (shaking,) = wire.said()
    with pytest.raises(SaslError, match="PLAIN: ILLEGAL_SASL_STATE"):
        wire.answer(shaking, error_code=34, mechanisms=[])


def test_a_refused_login_says_what_the_broker_says_and_no_secret() -> None:
    wire = begin(Plain("alice", "secret"))
    (shaking,) = wire.said()
    wire.answer(shaking, mechanisms=["PLAIN"])
    (token,) = wire.said()
    with pytest.raises(SaslError, match="PLAIN: the broker refuses the login: Invalid username") as refused:
        wire.answer(token, error_code=58, error_message="Invalid username or password")
    assert "secret" not in str(refused.value)


def test_a_refused_token_is_asked_after() -> None:
    wire = begin(OAuthBearer("t"))
    (shaking,) = wire.said()
    wire.answer(shaking, mechanisms=["OAUTHBEARER"])
    (token,) = wire.said()
    assert wire.answer(token, error_message=None, auth_bytes=b'{"status":"invalid_token"}') == []
    (why,) = wire.said()
    assert why[3] == {"auth_bytes": b"\x01"}
    with pytest.raises(SaslError, match=r'refuses the login: \{"status":"invalid_token"\}'):
        wire.answer(why, error_code=58, error_message='{"status":"invalid_token"}')


def test_a_broker_without_logins() -> None:
    wire = Wire()
    wire.connection.connect(wire.now, Plain("alice", "secret"))
    with pytest.raises(UnsupportedError, match="has no login"):
        wire.tell_versions({3: (0, 5)})
    assert wire.said() == []


def test_another_login_before_the_first_one_ends() -> None:
    wire = begin(Plain("alice", "secret"))
    assert log_in(wire, session_lifetime_ms=10_000) == [Connected()]
    assert wire.connection.tick(wire.now + 8.9) == ()
    assert wire.connection.tick(wire.now + 9) == (LoginWanted(),)
    assert wire.connection.tick(wire.now + 9.1) == ()  # it has been said
    wire.now += 9.2
    # An answer is still to come when the login begins, and a request is made meanwhile: it has to wait, for brokers
    # take anything between the steps of a login for a breach.
    before = wire.connection.request(Key.METADATA, {"topics": []}, wire.now)
    (asked,) = wire.said()
    wire.connection.log_in(Plain("alice", "secret"), wire.now)
    meanwhile = wire.connection.request(Key.METADATA, {"topics": []}, wire.now)
    assert wire.connection.awaiting
    (shaking,) = wire.said()
    assert shaking[0] == Key.SASL_HANDSHAKE
    (reply,) = wire.answer(asked)
    assert reply.request_id == before
    wire.answer(shaking, mechanisms=["PLAIN"])
    (token,) = wire.said()
    assert token[0] == Key.SASL_AUTHENTICATE
    assert wire.answer(token, error_message=None, session_lifetime_ms=10_000) == []
    (asked,) = wire.said()
    (reply,) = wire.answer(asked)
    assert reply.request_id == meanwhile
    assert wire.connection.tick(wire.now + 9) == (LoginWanted(),)


def test_a_login_of_a_moment_is_not_followed_by_another_too_soon() -> None:
    """Brokers refuse a login within a second of the one before."""
    wire = begin(Plain("alice", "secret"))
    log_in(wire, session_lifetime_ms=500)
    assert wire.connection.tick(wire.now + 1.0) == ()
    assert wire.connection.tick(wire.now + 1.1) == (LoginWanted(),)


def test_a_closed_connection_forgets() -> None:
    wire = ready()
    wire.connection.request(Key.METADATA, {"topics": []}, wire.now)
    wire.connection.close()
    assert (wire.connection.awaiting, wire.said()) == (False, [])
    assert wire.connection.tick(wire.now + 1e6) == ()
    with pytest.raises(ValueError, match="closed"):
        wire.connection.request(Key.METADATA, {}, wire.now)


@pytest.mark.parametrize("key", [Key.METADATA, Key.INIT_PRODUCER_ID, Key.PRODUCE])
def test_a_cut_answer_is_a_breach(key: int) -> None:
    body: dict[int, Any] = {Key.METADATA: {"topics": []}, Key.INIT_PRODUCER_ID: {}, Key.PRODUCE: {"topic_data": []}}
    whole = encode_response(key, min(12, APIS[key].highest), 2, {})
    for size in range(4, len(whole) - 4):
        wire = ready()
        wire.connection.request(key, body[key], wire.now)
        frame = whole[4 : 4 + size]
        with pytest.raises(ProtocolError):
            wire.feed(pack(">i", len(frame)) + frame)
