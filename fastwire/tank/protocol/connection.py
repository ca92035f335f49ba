"""State machine of one connection to a TANK broker (spec: tank 3, 4); its base is ``fastwire.connection``."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol, TypeVar

from fastwire.connection import CONNECT_TIMEOUT_S, ChunkConnection
from fastwire.errors import ProtocolError
from fastwire.tank.format.message import PING, MessageType, encode_frame
from fastwire.tank.protocol.consume import ConsumeRequest
from fastwire.tank.protocol.event import Answer, Connected, CorruptFound, Event, FetchDone, Lost, Reply
from fastwire.tank.protocol.produce import ProduceAnswer, ProduceRequest
from fastwire.tank.reading.response import Fetched, Planned
from fastwire.tank.reading.scan import CorruptBundle, Scanner

REQUEST_TIMEOUT_S = 30.0
MOST_POSTPONED = 9  # timeouts by which bytes that keep arriving postpone a deadline
WAIT_SLACK_MS = 1000  # a broker rounds the wait of a request up (spec: tank 5.4)
MOST_WAIT_MS = 3_600_000  # a broker waits no longer


_NOTHING: tuple[Event, ...] = ()

T_co = TypeVar("T_co", covariant=True)


class State(Enum):
    """The progress of a connection."""

    NEW = "new"
    GREETING = "waiting for the broker's ping"
    READY = "ready"
    CLOSED = "closed"


class Question(Protocol[T_co]):
    """A request of ``fastwire.tank.format.message``."""

    @property
    def kind(self) -> MessageType:
        """The message type of request and answer."""

    @property
    def answer(self) -> type[T_co]:
        """The class of the answer."""

    def encode(self, request_id: int, /) -> bytes:
        """Return the payload."""


Request = Question[Any] | ProduceRequest


@dataclass(slots=True)
class _Pending:
    request: Request | ConsumeRequest
    deadline: float


class Connection(ChunkConnection[Scanner, Event]):
    """One connection: the handshake, requests with deadlines, answers in any order, and the scanner's messages."""

    def __init__(self, scanner: Scanner, *, request_timeout_s: float = REQUEST_TIMEOUT_S) -> None:
        super().__init__(scanner)
        self.state = State.NEW
        self.fetches_outstanding = 0
        self._request_timeout_s = request_timeout_s
        self._pending: dict[int, _Pending] = {}
        self._request_id = 0
        self._pinged = False  # the broker speaks first: before ``connect`` if it is fast

    # --- bytes in

    def _found(self, now: float, events: list[Event]) -> bool:
        found = self.scanner.take_found()
        if isinstance(found, Fetched):
            self._pending.pop(found.request_id, None)
            self.fetches_outstanding -= 1
            events.append(FetchDone(found))
        elif isinstance(found, CorruptBundle):
            events.append(CorruptFound(found))
        elif found is not None:
            kind, payload = found
            if kind != MessageType.PING:
                self._answered(kind, payload, events)
                return False
            self._pinged = True
            if self.state is State.GREETING:
                events.append(self._greeted())
        return False

    def _greeted(self) -> Connected:
        self.state = State.READY
        # The broker closes a connection on which nothing was sent for 16 s (spec: tank 4).
        self._out.append(PING)
        return Connected()

    def _answered(self, kind: int, payload: bytes, events: list[Event]) -> None:
        request_id = int.from_bytes(payload[:4], "little")
        if len(payload) < 4:
            raise ProtocolError("request id", 5, 4, len(payload))
        pending = self._pending.pop(request_id, None)
        if pending is None:
            return  # the answer to a request that was given up
        request = pending.request
        wanted = MessageType.PRODUCE if isinstance(request, ProduceRequest) else request.kind
        # The scanner reads the answers to consume requests.
        if kind != wanted or isinstance(request, ConsumeRequest):
            raise ProtocolError(
                "message type", 0, detail=f"{kind:#x} answers request {request_id} of type {request.kind:#x}"
            )
        answer: Answer
        if isinstance(request, ProduceRequest):
            _, answer = ProduceAnswer.decode(payload, request)
        else:
            _, answer = request.answer.decode(payload)
        events.append(Reply(request_id, answer))

    # --- time

    @property
    def ready(self) -> bool:
        """True if requests can be made."""
        return self.state is State.READY

    @property
    def awaiting(self) -> bool:
        """True if an answer other than that to a consume request is pending."""
        return len(self._pending) > self.fetches_outstanding

    def tick(self, now: float) -> Sequence[Event]:
        """Handle deadlines: of the handshake and of requests."""
        self.scanner.rest()
        if self.state in (State.NEW, State.CLOSED) or self._suspended_at is not None:
            return _NOTHING
        if self.state is State.GREETING:
            late = now >= self._connect_deadline
            return (Lost("the broker sent no ping after the connection was accepted"),) if late else _NOTHING
        timeout_s = self._request_timeout_s
        for pending in self._pending.values():
            # Large answers to other requests may be before this one. They do not excuse it for ever.
            postponed = min(self._received_at + timeout_s, pending.deadline + MOST_POSTPONED * timeout_s)
            if now >= max(pending.deadline, postponed):
                return (Lost(f"{pending.request.kind.name.lower()} was not answered in time"),)
        return _NOTHING

    def _postpone(self, rested: float, now: float) -> None:
        for pending in self._pending.values():
            pending.deadline += rested

    def close(self) -> None:
        """Close the connection and forget all requests."""
        super().close()
        self.state = State.CLOSED
        self._pending.clear()
        self.fetches_outstanding = 0

    # --- requests

    def connect(self, now: float) -> Sequence[Event]:
        """Start on an open socket: ``Connected`` follows after the broker's ping, or at once if it has come already."""
        if self.state is not State.NEW:
            raise ValueError("connect was called before")
        if self._pinged:
            return (self._greeted(),)
        self._connect_deadline = now + CONNECT_TIMEOUT_S
        self.state = State.GREETING
        return _NOTHING

    def request(self, request: Request, now: float) -> int:
        """Queue a request and return its id. A ``Reply`` follows, or ``Lost``."""
        return self._send(request, now, self._request_timeout_s)

    def give_up(self, request_id: int) -> None:
        """Forget a request other than a consume request; its answer is dropped."""
        self._pending.pop(request_id, None)

    def fetch(self, request: ConsumeRequest, planned: Planned, now: float) -> int:
        """Queue a consume request whose answer the scanner decodes; ``FetchDone`` follows its messages."""
        wait_ms = min(request.max_wait_ms + WAIT_SLACK_MS if request.max_wait_ms else 0, MOST_WAIT_MS)
        request_id = self._send(request, now, self._request_timeout_s + wait_ms / 1000)
        self.scanner.plan(request_id, planned)
        self.fetches_outstanding += 1
        return request_id

    def _send(self, request: Request | ConsumeRequest, now: float, wait_s: float) -> int:
        if self.state is not State.READY:
            raise ValueError(f"the connection is {self.state.value}")
        while True:
            self._request_id = self._request_id % 0xFFFFFFFF + 1
            if self._request_id not in self._pending:
                break
        self._out.append(encode_frame(request.kind, request.encode(self._request_id)))
        self._pending[self._request_id] = _Pending(request, now + wait_s)
        return self._request_id
