"""Client of the HTTP server of a running daemon: reads its ``/status``."""

import http.client
import json
import socket
from typing import Any

from fastwire.errors import FastwireError

from ..config import HttpAddress

MOST_BYTES = 16 << 20
_ANY_HOST = {"0.0.0.0": "127.0.0.1", "::": "::1"}


class NoDaemonError(FastwireError):
    """No daemon answers at an address; the text says why."""


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def local_address(address: HttpAddress) -> HttpAddress:
    """Return the address to connect to for a server on this machine that listens at ``address``, maybe on all hosts."""
    return HttpAddress(_ANY_HOST.get(address.host, address.host), address.port, address.path)


def read_status(address: HttpAddress, timeout_s: float = 5.0) -> dict[str, Any]:
    """Return the ``/status`` of the daemon at ``address``; blocks.

    ``timeout_s`` limits the connection and each wait for more of the answer. Raises NoDaemonError.
    """
    connection = (
        _UnixConnection(address.path, timeout_s)
        if address.path
        else http.client.HTTPConnection(address.host, address.port, timeout=timeout_s)
    )
    try:
        connection.request("GET", "/status", headers={"Connection": "close"})
        response = connection.getresponse()
        body = response.read(MOST_BYTES + 1)
    except TimeoutError:
        raise NoDaemonError(f"{address}: no answer within {timeout_s:g} s") from None
    except (OSError, http.client.HTTPException) as exc:
        raise NoDaemonError(f"{address}: {getattr(exc, 'strerror', None) or exc or type(exc).__name__}") from None
    finally:
        connection.close()
    status = _decode(body) if response.status == 200 and len(body) <= MOST_BYTES else None
    if status is None:
        raise NoDaemonError(f"{address}: the server there is not a fastwire daemon (/status answers {response.status})")
    return status


def _decode(body: bytes) -> dict[str, Any] | None:
    """Return the status in ``body``; None if it is something else."""
    try:
        status = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(status, dict) or not isinstance(pipelines := status.get("pipelines"), dict):
        return None
    return status if all(isinstance(each, dict) for each in pipelines.values()) else None
