"""One connection to the embedded Kafka broker: requests one after the other, each answered before the next is read.

That a Fetch that waits holds up everything behind it on its connection is how real brokers do it (kafka 1).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fastwire.errors import ProtocolError
from fastwire.kafka.connection import Key
from fastwire.kafka.error import Code
from fastwire.kafka.message import Api, Body, decode_request, encode_response

from ..server import Connection
from .logins import Login

if TYPE_CHECKING:
    from .broker import KafkaDevBroker

__all__ = ["Handler", "KafkaConnection", "Request"]

MAX_REQUEST = 100 << 20


@dataclass(frozen=True, slots=True)
class Request:
    """One request, as a handler gets it."""

    api: Api
    version: int
    correlation_id: int
    client_id: str
    body: Body


Handler = Callable[["KafkaConnection", Request], Body | None]
"""Returns the answer; None if it follows by ``answer``, or none is wanted: then by ``done``."""


class KafkaConnection(Connection):
    """A client of one node. ``sent`` is how far each partition was handed out on it, and in which look-up."""

    def __init__(self, broker: "KafkaDevBroker", node: int) -> None:
        super().__init__(broker)
        self.broker = broker
        self.node = node
        self.sent: dict[tuple[bytes, int], tuple[int, int]] = {}
        self.login = Login(broker.options.users)
        self._busy = False

    def receive(self, data: memoryview) -> int:
        at = 0
        while not self._busy and not self.closing and len(data) - at >= 4:
            size = int.from_bytes(data[at : at + 4], signed=True)
            if not 0 <= size <= MAX_REQUEST:
                raise ProtocolError("size", 0, detail=f"of a request is {size}")
            if len(data) - at - 4 < size:
                break
            frame = bytes(data[at + 4 : at + 4 + size])
            at += 4 + size
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
        if not self.login.admits(key, self.broker.loop.time()):
            return self.close()  # real ones say nothing either
        request = Request(*_named(decode_request(frame)))
        self.broker.requests[request.api.name] += 1
        self._busy = True
        body = self.broker.handlers[key](self, request)
        if body is not None:
            self.answer(request, body)

    def _refuse_versions(self, correlation_id: int) -> None:
        """Answer a request for versions that is too new, in version 0 (kafka 4.1)."""
        api = [{"api_key": Key.API_VERSIONS, "min_version": 0, "max_version": self.broker.versions[18][1]}]
        body = {"error_code": Code.UNSUPPORTED_VERSION, "api_keys": api}
        self.queue(encode_response(Key.API_VERSIONS, 0, correlation_id, body))

    def answer(self, request: Request, body: Body) -> None:
        """Send the answer to the request at hand, and go on with the next one."""
        if self.closing:
            return
        throttle = self.broker.take_throttle() if "throttle_time_ms" not in body else 0
        if throttle:
            body = {**body, "throttle_time_ms": throttle}
        frame = encode_response(request.api.key, request.version, request.correlation_id, body)
        if self.broker.tamper is not None:
            frame = self.broker.tamper(request, frame)
        self.queue(frame)
        if throttle:  # the answer goes at once, what comes next is left unread (kafka 5.1)
            self.broker.loop.call_later(throttle / 1000, self.done)
        else:
            self.done()

    def done(self) -> None:
        """The request at hand is dealt with."""
        if self._busy:
            self._busy = False
            self.broker.loop.call_soon(self.proceed)

    def lost(self) -> None:
        self.broker.forget(self)


def _named(decoded: tuple[Api, int, int, str | None, Body]) -> tuple[Api, int, int, str, Body]:
    api, version, correlation_id, client_id, body = decoded
    return api, version, correlation_id, client_id or "", body
