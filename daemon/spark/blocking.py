"""Sockets of Spark's processes: one connection's state machine, driven by whoever calls, without an event loop."""

import socket
import ssl
import time
from collections.abc import Sequence
from typing import Generic, TypeVar

from ..endpoint import LinkLost, Machine, tune, unreachable

__all__ = ["Wire"]

SEND_TIMEOUT_S = 30.0

E = TypeVar("E")


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
