"""What all drivers of connections share: the machine they drive, how a socket is set, what can go wrong with it."""

import os
import socket
import ssl
from collections.abc import Sequence
from typing import Protocol, TypeVar

from fastwire.errors import FastwireError

__all__ = ["CONNECT_TIMEOUT_S", "LinkLost", "Machine", "RequestTimeout", "UnreachableError", "tune", "unreachable"]

CONNECT_TIMEOUT_S = 10.0
# Kernel keep-alive, as the official C++ client sets it: idle, interval, probes.
KEEP_ALIVE = (60, 6, 10)

E_co = TypeVar("E_co", covariant=True)


class UnreachableError(FastwireError):
    """No connection could be made: nobody listens, the name is unknown, TLS does not agree, it took too long."""


class LinkLost(FastwireError):  # noqa: N818 - what has happened, not what went wrong with a request
    """The connection is gone: cut, silent, or closed because of what came on it."""


class RequestTimeout(FastwireError):  # noqa: N818 - what has happened, as LinkLost
    """The broker has not answered a request in time."""


class Machine(Protocol[E_co]):
    """A connection's state machine, as sans-IO protocols have it."""

    more: bool

    @property
    def awaiting(self) -> bool:
        """Whether an answer is waited for: then reading never rests."""

    def get_buffer(self, sizehint: int, /) -> memoryview: ...
    def receive(self, nbytes: int, now: float) -> Sequence[E_co]: ...
    def take_outbound(self) -> list[bytes]: ...
    def tick(self, now: float) -> Sequence[E_co]: ...
    def suspend(self, now: float) -> None: ...
    def resume(self, now: float) -> None: ...
    def close(self) -> None: ...


def tune(sock: socket.socket) -> None:
    """Set what every socket to a broker has: nothing waits for more to send, a dead peer is noticed."""
    idle, interval, probes = KEEP_ALIVE
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, idle)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, interval)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, probes)


def unreachable(exc: OSError, host: str, port: int, timeout_s: float) -> UnreachableError:
    """Say why a connection to ``host`` could not be made within ``timeout_s``."""
    netloc = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    if isinstance(exc, TimeoutError):
        return UnreachableError(f"no connection to {netloc} within {timeout_s:g} s")
    if isinstance(exc, ssl.SSLCertVerificationError):
        return UnreachableError(f"the certificate of {netloc} is not accepted: {exc.verify_message}")
    if isinstance(exc, ssl.SSLError):
        return UnreachableError(f"no TLS connection to {netloc}: {exc.reason or exc}")
    return UnreachableError(f"cannot connect to {netloc}: {_why(exc)}")


def _why(exc: OSError) -> str:
    # The loops write the address into the text; a failed look-up of a name has a text and a number of its own.
    if isinstance(exc, socket.gaierror) or not exc.errno:
        return exc.strerror or str(exc) or "closed by the broker"
    return os.strerror(exc.errno)
