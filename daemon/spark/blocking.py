"""Sockets of Spark's processes: one connection's state machine, driven by whoever calls, without an event loop."""

import socket
import ssl
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from fastwire.columns.chunk import Chunk
from fastwire.errors import FastwireError

from ..endpoint import LinkLost, Machine, tune, unreachable

__all__ = ["TURN_S", "BlockingLink", "Wire"]

SEND_TIMEOUT_S = 30.0
TURN_S = 0.2  # the longest wait for bytes, after which whoever waits looks around

M = TypeVar("M", bound=Machine[Any])  # the machine of a system's connection,
E = TypeVar("E")  # its events,
A = TypeVar("A")  # and what answers a request


class Wire(Generic[E]):
    """A machine with a connected socket. Used by one thread at a time.

    Raises UnreachableError if there is nobody to connect to. ``server_name`` is the name that the certificate has to
    carry if it is not ``host``.
    """

    def __init__(
        self,
        machine: Machine[E],
        host: str,
        port: int,
        *,
        tls: ssl.SSLContext | None,
        server_name: str,
        timeout_s: float,
    ) -> None:
        self._machine = machine
        self._suspended = False
        sock: socket.socket | None = None
        try:
            sock = socket.create_connection((host, port), timeout=timeout_s)
            tune(sock)
            self._socket = sock if tls is None else tls.wrap_socket(sock, server_hostname=server_name or host)
        except OSError as exc:
            if sock is not None:
                sock.close()
            raise unreachable(exc, host, port, timeout_s) from None

    def read(self, timeout_s: float) -> Sequence[E]:
        """Send what is to be said, then wait for bytes, at most so long; the events of both.

        Raises LinkLost when the connection is gone, or what is wrong with what the peer sent.
        """
        machine = self._machine
        now = time.monotonic()
        if self._suspended:
            self._suspended = False
            machine.resume(now)
        if machine.more:
            events = machine.receive(0, now)
            self.flush()
            return events
        ticked = machine.tick(now)
        self.flush()
        if ticked:
            return ticked
        try:
            self._socket.settimeout(timeout_s)
            with machine.get_buffer(-1) as free:
                nbytes = self._socket.recv_into(free)
        except (TimeoutError, ssl.SSLWantReadError):
            return ()
        except OSError as exc:
            raise LinkLost(exc.strerror or str(exc)) from None
        if nbytes == 0:
            raise LinkLost("closed by the broker")
        events = machine.receive(nbytes, time.monotonic())
        self.flush()
        return events

    def rest(self) -> None:
        """Call it every second or so while nothing is read: the broker gets its signs of life."""
        now = time.monotonic()
        self._suspended = True
        self._machine.suspend(now)
        self._machine.tick(now)
        self.flush()

    def flush(self) -> None:
        """Send what the machine has to say. Raises LinkLost."""
        if out := self._machine.take_outbound():
            try:
                self._socket.settimeout(SEND_TIMEOUT_S)
                self._socket.sendall(b"".join(out))
            except OSError as exc:
                raise LinkLost(exc.strerror or str(exc)) from None

    def close(self) -> None:
        """Close the socket; the machine is of no use any more."""
        self._machine.close()
        self._socket.close()


class BlockingLink(ABC, Generic[M, E, A]):
    """One connection to a broker: requests that are waited for, chunks that are taken. ``name`` is for people.

    Methods that send or wait raise LinkLost, what the broker refuses, or what is wrong with what it sent.
    """

    _wire: Wire[E]

    def __init__(self, name: str, connection: M) -> None:
        self.connection = connection
        self.chunks: deque[Chunk] = deque()
        self._name = name
        self._replies: dict[int, A | FastwireError] = {}
        self._awaited: set[int] = set()

    def __str__(self) -> str:
        return self._name

    @property
    @abstractmethod
    def ready(self) -> bool:
        """Whether the broker has let us in."""

    @abstractmethod
    def on_event(self, event: E) -> None:
        """See to one event."""

    def _open(self, wire: Wire[E], greet: Callable[[], None]) -> None:
        """Go on over ``wire`` until the broker has let us in; ``greet`` says the first word."""
        self._wire = wire
        try:
            greet()
            while not self.ready:
                self.pump(TURN_S)
        except BaseException:
            self.close()
            raise

    def ask(self, request: Callable[[M, float], int]) -> A:
        """Make a request and wait for its answer."""
        return self.answer(self.begin(request))

    def begin(self, request: Callable[[M, float], int]) -> int:
        """Make a request; ``answer`` waits for it. So many can be under way at the same time."""
        self.check()
        request_id = request(self.connection, time.monotonic())
        self._awaited.add(request_id)
        return request_id

    def answer(self, request_id: int) -> A:
        """Wait for the answer to a request that was begun."""
        while (reply := self._replies.pop(request_id, None)) is None:
            self.check()
            self.pump(TURN_S)
        if isinstance(reply, FastwireError):
            raise reply
        return reply

    def check(self) -> None:
        """Raise LinkLost if nothing can be sent any more."""
        if not self.ready:
            raise LinkLost(f"connection to {self} is closed")

    def pump(self, timeout_s: float) -> None:
        """Say what is to be said, read once, and see to what came."""
        try:
            for event in self._wire.read(timeout_s):
                self.on_event(event)
        except FastwireError as exc:
            self.close()
            if isinstance(exc, LinkLost):
                raise LinkLost(f"connection to {self}: {exc}") from None
            raise

    def rest(self) -> None:
        """Nothing is read for a while: stay alive."""
        self._wire.rest()

    def flush(self) -> None:
        """Send what waits."""
        self._wire.flush()

    def close(self) -> None:
        """Close the socket at once; brokers need no farewell."""
        self._wire.close()

    def _replied(self, request_id: int, reply: A | FastwireError) -> None:
        if request_id in self._awaited:  # nobody waits for the receipt of an ack or of a farewell
            self._awaited.discard(request_id)
            self._replies[request_id] = reply
