"""The common base of connections: the protocol of their state machine, socket options and errors."""

import os
import socket
import ssl
from collections.abc import Sequence
from functools import cache
from typing import Protocol, TypeVar

from fastwire.errors import FastwireError

CONNECT_TIMEOUT_S = 10.0
# Kernel keep-alive, as the official C++ client sets it: idle, interval, probes.
KEEP_ALIVE = (60, 6, 10)
ELSEWHERE = ("192.0.2.1", 9)  # an address for documentation (RFC 5737): no packet is sent to it

NO_TLS = "the server may not speak TLS at this port, which the url asks for by +ssl"
# What OpenSSL calls bytes that are no TLS.
_OF_PLAIN_TEXT = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG"})

E_co = TypeVar("E_co", covariant=True)


class UnreachableError(FastwireError):
    """No connection could be made: refused, name unknown, TLS handshake failed, or timed out."""


class ConnectionRefused(UnreachableError):  # noqa: N818 - what the host did, as ConfigurationRefused
    """The host answers, and no process listens at the port: a broker that is starting will, a moment later."""


class LinkLost(FastwireError):  # noqa: N818 - what has happened, not what went wrong with a request
    """The connection is gone: cut, silent, or closed because of invalid data."""


class WrongProtocol(LinkLost):
    """The first bytes of the server are not those of a broker of the system."""


class RequestTimeout(FastwireError):  # noqa: N818 - what has happened, as LinkLost
    """The broker did not answer a request in time."""


@cache
def own_host() -> str:
    """Return the IPv4 address of this machine's default route; 127.0.0.1 without one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(ELSEWHERE)  # only chooses a route
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


class Machine(Protocol[E_co]):
    """The sans-IO state machine of one connection. ``now`` is the event loop's time in seconds."""

    more: bool
    """True if the receive buffer holds more than the last ``receive`` has processed."""

    @property
    def awaiting(self) -> bool:
        """True while a request is in flight: read moderation is off then."""

    def get_buffer(self, sizehint: int, /) -> memoryview:
        """Return the free part of the receive buffer."""

    def receive(self, nbytes: int, now: float) -> Sequence[E_co]:
        """Process ``nbytes`` new bytes and what is left of earlier ones; return the events. Raises ProtocolError."""

    def take_outbound(self) -> list[bytes]:
        """Return and forget the bytes that are to be sent."""

    def tick(self, now: float) -> Sequence[E_co]:
        """Handle timeouts and keep-alive; return the events."""

    def suspend(self, now: float) -> None:
        """Expect no bytes until ``resume``: reading is paused."""

    def resume(self, now: float) -> None:
        """Expect bytes again."""

    def close(self) -> None:
        """Release the buffers; the connection is gone."""


def tune(sock: socket.socket) -> None:
    """Set the options of a socket to a broker: no Nagle delay, and keep-alive probes that detect a dead peer."""
    idle, interval, probes = KEEP_ALIVE
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, idle)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, interval)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, probes)


def unreachable(exc: OSError, host: str, port: int, timeout_s: float, *, handshaking: bool = False) -> UnreachableError:
    """Return the error that explains why a connection to ``host`` could not be made within ``timeout_s`` seconds.

    ``handshaking`` is true if TCP has connected, and the handshake of TLS has failed.
    """
    netloc = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    if handshaking and not isinstance(exc, ssl.SSLCertVerificationError) and _is_silence(exc):
        why = f"no answer within {timeout_s:g} s" if isinstance(exc, TimeoutError) else _why(exc)
        return UnreachableError(f"no TLS connection to {netloc}: {why}: {NO_TLS}")
    if isinstance(exc, TimeoutError):
        return UnreachableError(f"no connection to {netloc} within {timeout_s:g} s")
    if isinstance(exc, ssl.SSLCertVerificationError):
        return UnreachableError(f"the certificate of {netloc} is not accepted: {exc.verify_message}")
    if isinstance(exc, ssl.SSLError):
        hint = f": {NO_TLS}" if exc.reason in _OF_PLAIN_TEXT else ""
        return UnreachableError(f"no TLS connection to {netloc}: {exc.reason or exc}{hint}")
    kind = ConnectionRefused if isinstance(exc, ConnectionRefusedError) else UnreachableError
    return kind(f"cannot connect to {netloc}: {_why(exc)}")


def _is_silence(exc: OSError) -> bool:
    """Return True if the server has ended the handshake without a word of TLS."""
    return not isinstance(exc, ssl.SSLError) or isinstance(exc, ssl.SSLEOFError | ssl.SSLZeroReturnError)


def _why(exc: OSError) -> str:
    # The event loops write the address into the text; a failed name lookup has its own text and number.
    if isinstance(exc, socket.gaierror) or not exc.errno:
        return exc.strerror or str(exc) or "closed by the broker"
    return os.strerror(exc.errno)
