"""One connection to the embedded Kafka broker: requests one after the other, each answered before the next is read.

A Fetch that waits for records delays all requests behind it on its connection, as on a real broker (spec: kafka 1).
"""

from collections.abc import Callable, Mapping

from fastwire.errors import ProtocolError
from fastwire.kafka.format.error import Code
from fastwire.kafka.format.message import Body, encode_response
from fastwire.kafka.protocol.connection import Key

from ..server import Connection
from .cluster import Cluster
from .logins import Login, LoginRefusedError
from .requests import Request

MAX_REQUEST = 100 << 20


Handler = Callable[["KafkaConnection", Request], Body | None]
"""Returns the body of the response. None: ``answer`` sends it later, or ``done`` ends a request without a response."""


class KafkaConnection(Connection):
    """A connection to one node.

    ``sent`` has for each partition the offset behind the last batch that was sent on it, and the number of requests
    for offsets at that time.
    """

    def __init__(self, broker: Cluster, node: int, handlers: Mapping[int, Handler]) -> None:
        super().__init__(broker)
        self.broker = broker
        self.node = node
        self.sent: dict[tuple[bytes, int], tuple[int, int]] = {}
        options = broker.options
        self._login = Login(options.users, options.mechanisms, options.login_ms)
        self._handlers = handlers
        self._busy = False

    def receive(self, data: memoryview) -> int:
        """See ``Connection.receive``."""
        at = 0
        while not self._busy and not self.closing and len(data) - at >= 4:
            size = int.from_bytes(data[at : at + 4], signed=True)
            if not 0 <= size <= MAX_REQUEST:
                raise ProtocolError("size", 0, detail=f"of a request is {size}")
            if len(data) - at - 4 < size:
                break
            frame = bytes(data[at + 4 : at + 4 + size])
            at += 4 + size
            if self._login.raw:
                self._take_token(frame)
            else:
                self._handle(frame)
        return at

    def _handle(self, frame: bytes) -> None:
        key, version = (int.from_bytes(frame[place : place + 2]) for place in (0, 2))
        lowest, highest = self.broker.versions.get(key, (0, -1))
        if not lowest <= version <= highest:
            if key == Key.API_VERSIONS and len(frame) >= 8:
                self._refuse_versions(int.from_bytes(frame[4:8], signed=True))
                return
            return self.violation(f"a request {key} of version {version}, the broker speaks {lowest} to {highest}")
        if not self._login.admits(key, self.broker.loop.time()):
            return self.close()  # without a response, as a real broker
        request = Request.of_frame(frame)
        self.broker.requests[request.api.name] += 1
        self._busy = True
        body = self._handlers[key](self, request)
        if body is not None:
            self.answer(request, body)

    def handshake(self, request: Request) -> Body | None:
        """Handle SaslHandshake (spec: kafka 15)."""
        code = self._login.begin(request.body["mechanism"], self.broker.loop.time(), raw=request.version == 0)
        return {"error_code": code, "mechanisms": list(self.broker.options.mechanisms)}

    def authenticate(self, request: Request) -> Body | None:
        """Handle SaslAuthenticate; a client that is refused gets an error, and its connection is closed."""
        login = self._login
        if not login.begun:
            return {"error_code": Code.ILLEGAL_SASL_STATE, "auth_bytes": b""}
        try:
            token, over = login.step(request.body["auth_bytes"], self.broker.loop.time())
        except LoginRefusedError as exc:
            self.broker.refused_logins += 1
            refusal = {"error_code": Code.SASL_AUTHENTICATION_FAILED, "error_message": str(exc), "auth_bytes": b""}
            self.answer(request, refusal)
            self.close()
            return None
        self.broker.logins += over
        return {"error_code": 0, "auth_bytes": token, "session_lifetime_ms": login.lifetime_ms if over else 0}

    def _take_token(self, token: bytes) -> None:
        """Answer a token that comes without a request; a client that is refused gets no response."""
        try:
            answer, over = self._login.step(token, self.broker.loop.time())
        except LoginRefusedError:
            self.broker.refused_logins += 1
            self.close()
            return
        self.broker.logins += over
        self.queue(len(answer).to_bytes(4) + answer)

    def _refuse_versions(self, correlation_id: int) -> None:
        """Answer an ApiVersions request of a version that is too new, in version 0 (spec: kafka 4.1)."""
        api = [{"api_key": Key.API_VERSIONS, "min_version": 0, "max_version": self.broker.versions[18][1]}]
        body = {"error_code": Code.UNSUPPORTED_VERSION, "api_keys": api}
        self.queue(encode_response(Key.API_VERSIONS, 0, correlation_id, body))

    def answer(self, request: Request, body: Body) -> None:
        """Send the response to the current request, and continue with the next one.

        A throttled response goes out at once, and the connection is muted afterwards. That of a Fetch has no records
        then, so its handler has taken the throttle time already (spec: kafka 5.1).
        """
        if self.closing:
            return
        throttle = body.get("throttle_time_ms", 0) if request.api.key == Key.FETCH else self.broker.take_throttle()
        if throttle:
            body = {**body, "throttle_time_ms": throttle}
        frame = encode_response(request.api.key, request.version, request.correlation_id, body)
        if self.broker.tamper is not None:
            frame = self.broker.tamper(request, frame)
        self.queue(frame)
        if throttle:
            self.broker.loop.call_later(throttle / 1000, self.done)
        else:
            self.done()

    def done(self) -> None:
        """End the current request, and continue with the next one."""
        if self._busy:
            self._busy = False
            self.broker.loop.call_soon(self.proceed)

    def lost(self) -> None:
        """See ``Connection.lost``."""
        self.broker.held.drop(self)
