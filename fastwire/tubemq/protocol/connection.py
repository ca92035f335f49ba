"""State machine of one connection to a Master or a Broker (spec: tubemq 2, 6); its base is ``fastwire.connection``."""

from collections.abc import Sequence
from dataclasses import dataclass

from google.protobuf.message import Message

from fastwire.connection import ChunkConnection
from fastwire.tubemq.format.frame import Method, decode_response, encode_request
from fastwire.tubemq.protocol.event import CorruptFound, Event, FetchDone, FetchRefused, Lost, Reply
from fastwire.tubemq.reading.fetched import CorruptMessage, Fetched, Planned
from fastwire.tubemq.reading.scan import Scanner

REQUEST_TIMEOUT_S = 10.0

_NOTHING: tuple[Event, ...] = ()


@dataclass(slots=True)
class _Pending:
    method: Method
    order: int  # of the requests of the connection
    deadline: float


class Connection(ChunkConnection[Scanner, Event]):
    """One connection: requests by serial number, each with a deadline, and the scanner's messages.

    There is no handshake: requests can be made on the open socket. Registrations belong to a client, not to its
    connection. A server throws a broken frame away without a word, so that a late answer means a lost connection.
    """

    def __init__(self, scanner: Scanner, *, request_timeout_s: float = REQUEST_TIMEOUT_S) -> None:
        super().__init__(scanner)
        self.closed = False
        self.fetches_outstanding = 0
        self._request_timeout_s = request_timeout_s
        self._pending: dict[int, _Pending] = {}
        self._sent = 0
        self._answered = 0  # the order of the last request that was answered

    # --- bytes in

    def _found(self, now: float, events: list[Event]) -> bool:
        found = self.scanner.take_found()
        if isinstance(found, Fetched):
            if self._take(found.serial) is not None:
                self.fetches_outstanding -= 1
                events.append(FetchDone(found))
        elif isinstance(found, CorruptMessage):
            events.append(CorruptFound(found))
        elif found is not None:
            self._answer(*found, events)
        return False

    def _take(self, serial: int) -> _Pending | None:
        pending = self._pending.pop(serial, None)
        if pending is not None:
            self._answered = max(self._answered, pending.order)
        return pending

    def _answer(self, serial: int, content: bytes, events: list[Event]) -> None:
        pending = self._take(serial)
        if pending is None:
            return  # a server that stops may answer twice (spec: tubemq 5)
        body = decode_response(content, pending.method)
        if pending.method is Method.GET:
            self.fetches_outstanding -= 1
            events.append(FetchRefused(serial, body))
        else:
            events.append(Reply(serial, body))

    # --- time

    @property
    def ready(self) -> bool:
        """True while the connection is open: there is no handshake."""
        return not self.closed

    @property
    def awaiting(self) -> bool:
        """True if a response other than that to a GET is pending."""
        return len(self._pending) > self.fetches_outstanding

    def tick(self, now: float) -> Sequence[Event]:
        """Handle the deadlines of requests.

        A server answers in the order of the requests (spec: tubemq 6). While bytes arrive, the request whose response
        they are, and those behind it, are not late; a request that was passed over is.
        """
        self.scanner.rest()
        if self.closed or self._suspended_at is not None:
            return _NOTHING
        for serial, pending in self._pending.items():
            deadline = pending.deadline
            if pending.order > self._answered:
                deadline = max(deadline, self._received_at + self._request_timeout_s)
            if now >= deadline:
                return (Lost(f"{pending.method.name} (request {serial}) was not answered in time"),)
        return _NOTHING

    def _postpone(self, rested: float, now: float) -> None:
        for pending in self._pending.values():
            pending.deadline += rested

    def close(self) -> None:
        """Close the connection and forget all requests."""
        super().close()
        self.closed = True
        self._pending.clear()
        self.fetches_outstanding = 0

    # --- requests

    def request(self, method: Method, body: Message, now: float) -> int:
        """Queue a request and return its serial number. A ``Reply`` follows, or ``Lost``.

        Raises ValueError on a closed connection, and for a GET, which has a method of its own.
        """
        if method is Method.GET:
            raise ValueError("a GET is sent by get")
        return self._send(method, body, now)

    def get(self, body: Message, planned: Planned, now: float) -> int:
        """Queue a GET whose messages the scanner decodes; ``FetchDone`` or ``FetchRefused`` follows."""
        serial = self._send(Method.GET, body, now)
        self.scanner.plan(serial, planned)
        self.fetches_outstanding += 1
        return serial

    def _send(self, method: Method, body: Message, now: float) -> int:
        if self.closed:
            raise ValueError("the connection is closed")
        limit = self._request_timeout_s
        self._sent += 1
        serial = (self._sent - 1) % 0xFFFFFFFF + 1
        self._out.append(encode_request(serial, method, body, max(1, int(limit * 1000))))
        self._pending[serial] = _Pending(method, self._sent, now + limit)
        return serial
