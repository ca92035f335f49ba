"""A blocking GET request with one deadline for the whole of it, from the connection to the end of the answer."""

import http.client
import io
import socket
import ssl
from collections.abc import Mapping
from time import monotonic
from typing import Any

_PIECE = 64 << 10


def get(
    host: str,
    port: int | None,
    path: str,
    headers: Mapping[str, str],
    *,
    tls: ssl.SSLContext | None,
    server_name: str,
    most_s: float,
    most_bytes: int,
) -> tuple[int, bytes]:
    """Return the status and the body of an answer of ``most_bytes`` at most. Redirects are not followed.

    ``server_name`` is what the certificate must be for. Raises OSError (TimeoutError after ``most_s`` seconds, which
    the resolver of names alone may exceed) and http.client.HTTPException.
    """
    connection = _Connection(host, port, monotonic() + most_s, tls, server_name)
    try:
        connection.request("GET", path, headers=dict(headers))
        answer = connection.getresponse()
        body = bytearray()
        while piece := answer.read(_PIECE):
            body += piece
            if len(body) > most_bytes:
                raise OSError(f"the answer is larger than {most_bytes} bytes")
    except TimeoutError:
        raise TimeoutError(f"no whole answer within {most_s:.0f} s") from None
    finally:
        connection.close()
        connection.hang_up()
    return answer.status, bytes(body)


class _Connection(http.client.HTTPConnection):
    """A connection whose socket has a deadline."""

    def __init__(self, host: str, port: int | None, until: float, tls: ssl.SSLContext | None, server_name: str) -> None:
        self.default_port = http.client.HTTP_PORT if tls is None else http.client.HTTPS_PORT
        super().__init__(host, port)
        self._until, self._tls, self._server_name = until, tls, server_name
        self._plain: socket.socket | None = None

    def connect(self) -> None:
        """Connect to the first address of the host that answers."""
        failure: OSError | None = None
        for family, kind, protocol, _, address in socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM):
            plain = socket.socket(family, kind, protocol)
            try:
                plain.settimeout(_left(self._until))
                plain.connect(address)
                plain.settimeout(_left(self._until))
                if self._tls is not None:
                    plain = self._tls.wrap_socket(plain, server_hostname=self._server_name)
                self._plain = plain
                self.sock = _Timed(plain, self._until)
                return
            except OSError as exc:
                plain.close()
                failure = exc
        raise failure or OSError(f"{self.host} has no address")

    def hang_up(self) -> None:
        """Close the socket."""
        if self._plain is not None:
            self._plain.close()


class _Timed:
    """As much of a socket as a connection uses; each call waits until the deadline at most."""

    def __init__(self, plain: socket.socket, until: float) -> None:
        self._plain, self._until = plain, until

    def sendall(self, data: bytes) -> None:
        self._plain.settimeout(_left(self._until))
        self._plain.sendall(data)

    def makefile(self, mode: str) -> io.BufferedReader:
        assert mode == "rb"
        return io.BufferedReader(_Incoming(self._plain, self._until), _PIECE)

    def close(self) -> None:
        """Do nothing: the connection closes it before an answer that ends with the connection is read."""


class _Incoming(io.RawIOBase):
    """The bytes that arrive until the deadline."""

    def __init__(self, plain: socket.socket, until: float) -> None:
        super().__init__()
        self._plain, self._until = plain, until

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._plain.settimeout(_left(self._until))
        return self._plain.recv_into(buffer)


def _left(until: float) -> float:
    left = until - monotonic()
    if left <= 0:
        raise TimeoutError
    return left
