"""State machine of one connection to a Kafka broker (spec: kafka 1-4, 15); its base is ``fastwire.connection``."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from fastwire.connection import CONNECT_TIMEOUT_S, ChunkConnection
from fastwire.errors import ProtocolError, UnsupportedError
from fastwire.kafka.format.error import BrokerError, Code
from fastwire.kafka.format.message import APIS, Body, decode_response, encode_request, read_api_versions_error
from fastwire.kafka.protocol.event import Connected, CorruptFound, Event, FetchDone, LoginWanted, Lost, Reply, Throttled
from fastwire.kafka.protocol.sasl import LoginRefusedError, Mechanism, SaslError
from fastwire.kafka.reading.response import Fetched, Planned
from fastwire.kafka.reading.scan import Scanner

REQUEST_TIMEOUT_S = 30.0
RELOGIN_AT = 0.9  # of the lifetime of a login
LEAST_LOGIN_S = 1.1  # brokers reject a new login within one second of the last one


class Key:
    """API keys of the requests that fastwire makes."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    END_TXN = 26
    DESCRIBE_CONFIGS = 32
    SASL_AUTHENTICATE = 36
    CONSUMER_GROUP_HEARTBEAT = 68


_OF_LOGINS = frozenset({Key.SASL_HANDSHAKE, Key.SASL_AUTHENTICATE})

# The lowest and highest version used of each request (spec: kafka 4.3). Newer versions require topic ids, or have
# nothing that a consumer needs.
HIGHEST = {
    Key.PRODUCE: (3, 12),
    Key.FETCH: (4, 17),
    Key.LIST_OFFSETS: (1, 10),
    Key.METADATA: (1, 12),
    Key.OFFSET_COMMIT: (2, 9),
    Key.OFFSET_FETCH: (1, 9),
    Key.FIND_COORDINATOR: (0, 4),
    Key.JOIN_GROUP: (2, 9),
    Key.HEARTBEAT: (0, 4),
    Key.LEAVE_GROUP: (0, 5),
    Key.SYNC_GROUP: (0, 5),
    Key.SASL_HANDSHAKE: (0, 1),
    Key.API_VERSIONS: (0, 3),
    Key.CREATE_TOPICS: (2, 7),
    Key.DELETE_TOPICS: (1, 6),
    Key.INIT_PRODUCER_ID: (0, 5),
    Key.OFFSET_FOR_LEADER_EPOCH: (3, 4),
    Key.ADD_PARTITIONS_TO_TXN: (0, 3),
    Key.END_TXN: (0, 5),
    Key.DESCRIBE_CONFIGS: (1, 4),
    Key.SASL_AUTHENTICATE: (0, 2),
    Key.CONSUMER_GROUP_HEARTBEAT: (0, 1),
}

_NOTHING: tuple[Event, ...] = ()


class State(Enum):
    """The progress of a connection."""

    NEW = "new"
    VERSIONS = "asking for versions"
    LOGIN = "logging in"
    READY = "ready"
    CLOSED = "closed"


@dataclass(slots=True)
class _Pending:
    correlation_id: int
    key: int
    version: int
    deadline: float


class Connection(ChunkConnection[Scanner, Event]):
    """One connection: versions, login, requests in order with deadlines, and the scanner's records."""

    def __init__(
        self, scanner: Scanner, *, client_id: str, software_version: str, request_timeout_s: float = REQUEST_TIMEOUT_S
    ) -> None:
        super().__init__(scanner)
        self.state = State.NEW
        self.versions: dict[int, tuple[int, int]] = {}  # of the broker, by key
        self.features: dict[str, int] = {}  # finalized ones of the cluster, with their levels
        self.fetches_outstanding = 0
        self._client_id = client_id
        self._software_version = software_version
        self._request_timeout_s = request_timeout_s
        self._mechanism: Mechanism | None = None
        self._exchanging = False  # a login is in progress
        self._held: list[tuple[bytes, _Pending]] = []  # requests deferred until the login ends
        self._login_ends: float | None = None  # time of the next login
        self._pending: deque[_Pending] = deque()  # a broker answers in the order of the requests
        self._correlation_id = 0
        self._muted_until = 0.0

    # --- bytes in

    def _found(self, now: float, events: list[Event]) -> bool:
        found = self.scanner.take_found()
        if isinstance(found, Fetched):
            self._fetched(found, now, events)
        elif isinstance(found, bytes):
            self._response(found, now, events)
        elif found is not None:
            events.append(CorruptFound(found))
        return False

    # --- bytes out

    def take_outbound(self) -> list[bytes]:
        """Return the bytes for the socket, in order; none while the broker throttles this connection (spec:
        kafka 5.1).
        """
        return [] if self._muted_until else super().take_outbound()

    @property
    def has_outbound(self) -> bool:
        """True if bytes may be written to the socket now."""
        return super().has_outbound and not self._muted_until

    # --- time

    @property
    def ready(self) -> bool:
        """True if requests can be made."""
        return self.state is State.READY

    @property
    def unheard(self) -> bool:
        """True during a login of a broker before 1.0, which refuses it by closing the connection without an answer."""
        return self.scanner.raw

    @property
    def awaiting(self) -> bool:
        """True if a response other than that to a Fetch is pending."""
        return len(self._pending) + len(self._held) > self.fetches_outstanding

    def throttled_s(self, now: float) -> float:
        """Return the seconds that this connection is still throttled; 0.0 if it is not.

        A throttled connection is silent, although the broker is alive.
        """
        return max(self._muted_until - now, 0.0)

    def tick(self, now: float) -> Sequence[Event]:
        """Handle deadlines: the end of a throttle, of a login's lifetime, of a request's timeout."""
        self.scanner.rest()
        if self.state in (State.NEW, State.CLOSED):
            return _NOTHING
        if self._muted_until and now >= self._muted_until:
            self._muted_until = 0.0
        if self._suspended_at is not None:
            return _NOTHING
        if self.state is not State.READY and now >= self._connect_deadline:
            return (Lost(f"{self.state.value} took too long"),)
        if self._pending and now >= self._pending[0].deadline:
            return (Lost(f"{APIS[self._pending[0].key].name} was not answered in time"),)
        if self._login_ends is not None and now >= self._login_ends:
            self._login_ends = None
            return (LoginWanted(),)
        return _NOTHING

    def _postpone(self, rested: float, now: float) -> None:
        for pending in (*self._pending, *(held for _, held in self._held)):
            pending.deadline += rested

    def close(self) -> None:
        """Close the connection and forget all requests."""
        super().close()
        self.state = State.CLOSED
        self._pending.clear()
        self._held.clear()
        self.fetches_outstanding = 0

    # --- requests

    def connect(self, now: float, mechanism: Mechanism | None = None) -> None:
        """Start on an open socket: request versions, then log in with ``mechanism``, if any. ``Connected`` follows."""
        if self.state is not State.NEW:
            raise ValueError("connect was called before")
        self._mechanism = mechanism
        self._connect_deadline = now + CONNECT_TIMEOUT_S
        self.state = State.VERSIONS
        self._ask_versions(3, now)

    def log_in(self, mechanism: Mechanism, now: float) -> None:
        """Log in again between other requests, before the broker ends the session."""
        self._mechanism = mechanism
        self._handshake(now)

    def speaks(self, key: int) -> bool:
        """Return True if broker and client have a version of this request in common."""
        lowest, highest = HIGHEST[key]
        theirs = self.versions.get(key)
        return theirs is not None and max(lowest, theirs[0]) <= min(highest, theirs[1])

    def version_of(self, key: int, most: int | None = None) -> int:
        """Return the highest common version, not above ``most``. Raises UnsupportedError if there is none."""
        lowest, highest = HIGHEST[key]
        if most is not None:
            highest = min(highest, most)
        if key not in self.versions:
            raise UnsupportedError(f"the broker does not offer {APIS[key].name}")
        first, last = self.versions[key]
        version = min(highest, last)
        if version < max(lowest, first):
            raise UnsupportedError(
                f"the broker speaks {APIS[key].name} in versions {first} to {last}, fastwire in {lowest} to {highest}"
            )
        return version

    def request(
        self, key: int, body: Body, now: float, *, most: int | None = None, timeout_s: float | None = None
    ) -> int:
        """Queue a request in the highest common version (``most`` at most) and return its correlation id.

        A ``Reply`` follows, or ``Lost`` after ``timeout_s``: a broker answers in order, so it cannot answer later
        requests either.
        """
        if self.state is not State.READY:
            raise ValueError(f"the connection is {self.state.value}")
        return self._send(key, self.version_of(key, most), body, now, timeout_s)

    def fetch(self, body: Body, planned: Planned, now: float) -> int:
        """Queue a Fetch whose response the scanner decodes; ``FetchDone`` follows its records."""
        correlation_id = self._send(
            Key.FETCH, planned.version, body, now, self._request_timeout_s + body.get("max_wait_ms", 0) / 1000
        )
        self.scanner.plan(correlation_id, planned)
        self.fetches_outstanding += 1
        return correlation_id

    def _send(self, key: int, version: int, body: Body, now: float, timeout_s: float | None = None) -> int:
        self._correlation_id = self._correlation_id + 1 & 0x7FFFFFFF
        wait = self._request_timeout_s if timeout_s is None else timeout_s
        frame = encode_request(key, version, self._correlation_id, self._client_id, body)
        # A request made during a throttle is sent after it.
        pending = _Pending(self._correlation_id, key, version, max(now, self._muted_until) + wait)
        if self._exchanging and key not in _OF_LOGINS:
            self._held.append((frame, pending))
        else:
            self._out.append(frame)
            self._pending.append(pending)
        return self._correlation_id

    # --- answers

    def _next(self, correlation_id: int) -> _Pending:
        if not self._pending or self._pending[0].correlation_id != correlation_id:
            expected = self._pending[0].correlation_id if self._pending else "none"
            raise ProtocolError("correlation id", 4, detail=f"is {correlation_id}, the next answer is {expected}")
        return self._pending.popleft()

    def _fetched(self, fetched: Fetched, now: float, events: list[Event]) -> None:
        self._next(fetched.correlation_id)
        self.fetches_outstanding -= 1
        self._mute(fetched.throttle_ms, now, events)
        events.append(FetchDone(fetched))

    def _response(self, frame: bytes, now: float, events: list[Event]) -> None:
        if self.scanner.raw and self._mechanism is not None:
            self._answered(self._mechanism, frame, 0, now, events)
            return
        pending = self._next(int.from_bytes(frame[:4], signed=True))
        if pending.key == Key.API_VERSIONS:
            self._versions(pending, frame, now, events)
            return
        body = decode_response(pending.key, pending.version, frame, self.scanner.memory)
        self._mute(body.get("throttle_time_ms", 0), now, events)
        if pending.key == Key.SASL_HANDSHAKE:
            self._shaken(body, now)
        elif pending.key == Key.SASL_AUTHENTICATE:
            self._authenticated(body, now, events)
        else:
            events.append(Reply(pending.correlation_id, body))

    def _mute(self, milli: int, now: float, events: list[Event]) -> None:
        """Send nothing for ``milli``: the broker reads no request meanwhile, earlier ones included (spec:
        kafka 5.1).
        """
        before = max(self._muted_until, now)
        longer = now + milli / 1000 - before
        if longer <= 0:
            return
        self._muted_until = before + longer
        self._connect_deadline += longer
        self._postpone(longer, now)
        events.append(Throttled(longer))

    # --- handshake

    def _ask_versions(self, version: int, now: float) -> None:
        body: dict[str, Any] = {}
        if version >= 3:
            body = {"client_software_name": "fastwire", "client_software_version": self._software_version}
        self._send(Key.API_VERSIONS, version, body, now)

    def _versions(self, pending: _Pending, frame: bytes, now: float, events: list[Event]) -> None:
        error = read_api_versions_error(frame)
        if error == Code.UNSUPPORTED_VERSION and pending.version > 0:
            self._ask_versions(0, now)
            return
        if error:
            raise UnsupportedError(str(BrokerError(error, "ApiVersions")))
        body = decode_response(Key.API_VERSIONS, pending.version, frame)
        self._mute(body.get("throttle_time_ms", 0), now, events)
        self.versions = {one["api_key"]: (one["min_version"], one["max_version"]) for one in body["api_keys"]}
        self.features = {one["name"]: one["max_version_level"] for one in body.get("finalized_features", ())}
        if self._mechanism is None:
            self._ready(events)
        else:
            self.state = State.LOGIN
            self._handshake(now)

    def _ready(self, events: list[Event]) -> None:
        self.state = State.READY
        events.append(Connected())

    def _handshake(self, now: float) -> None:
        if self._mechanism is None:
            return
        if not self.speaks(Key.SASL_HANDSHAKE):
            raise UnsupportedError("the broker has no login")
        # From here until the end of the login a broker rejects any other request.
        self._exchanging = True
        version = int(self.speaks(Key.SASL_AUTHENTICATE))
        self._send(Key.SASL_HANDSHAKE, version, {"mechanism": self._mechanism.name}, now)

    def _shaken(self, body: Body, now: float) -> None:
        if self._mechanism is None:
            raise ProtocolError("SaslHandshake", detail="no such request is pending")
        if body["error_code"] not in (Code.NONE, Code.UNSUPPORTED_SASL_MECHANISM):
            raise SaslError(str(BrokerError(body["error_code"], self._mechanism.name)))
        if body["error_code"]:
            offered = ", ".join(body["mechanisms"]) or "none"
            raise SaslError(f"the broker does not take {self._mechanism.name}; it offers {offered}")
        if not self.speaks(Key.SASL_AUTHENTICATE):
            self.scanner.raw = True
        self._authenticate(self._mechanism.first(), now)

    def _authenticate(self, token: bytes, now: float) -> None:
        if self.scanner.raw:
            self._out.append(len(token).to_bytes(4) + token)
            return
        self._send(Key.SASL_AUTHENTICATE, self.version_of(Key.SASL_AUTHENTICATE), {"auth_bytes": token}, now)

    def _authenticated(self, body: Body, now: float, events: list[Event]) -> None:
        if self._mechanism is None:
            raise ProtocolError("SaslAuthenticate", detail="no such request is pending")
        if body["error_code"]:
            said = body["error_message"] or BrokerError(body["error_code"], "login")
            raise LoginRefusedError(f"{self._mechanism.name}: the broker refuses the login: {said}")
        self._answered(self._mechanism, body["auth_bytes"], body.get("session_lifetime_ms", 0), now, events)

    def _answered(self, mechanism: Mechanism, said: bytes, lifetime: int, now: float, events: list[Event]) -> None:
        token = mechanism.next(said)
        if token is not None:
            self._authenticate(token, now)
            return
        self.scanner.raw = self._exchanging = False
        for frame, held in self._held:
            self._out.append(frame)
            self._pending.append(held)
        self._held.clear()
        self._login_ends = now + max(lifetime / 1000 * RELOGIN_AT, LEAST_LOGIN_S) if lifetime > 0 else None
        if self.state is State.LOGIN:
            self._ready(events)
