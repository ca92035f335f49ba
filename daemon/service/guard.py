"""Limits for the connections of strangers to the HTTP server: how many, how long without a request, how much unread."""

import asyncio
import resource
from collections.abc import Callable
from typing import cast

from ..config import HttpAddress
from ..config.values.address import host_of, is_loopback

REQUEST_S = 10.0
"""Time for the first request, whole with its headers."""
IDLE_S = 60.0
"""Time after a request for the client to take the answer and to send another request."""
MOST_CONNECTIONS = 64
MOST_UNANSWERED = 64 << 10
"""Bytes that a client may send without having been answered."""


def most_connections() -> int:
    """Return the number of connections at a time: an eighth of the open files at most, the rest is for the sinks."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_CONNECTIONS if files == resource.RLIM_INFINITY else max(4, min(MOST_CONNECTIONS, files // 8))


def is_ours(address: HttpAddress, host: str | None) -> bool:
    """Return False for a request to a loopback address whose ``Host`` is that of another site.

    A page of that site, open in a browser on this machine, can have its name resolved to 127.0.0.1 to read answers.
    """
    if host is None or address.path or not is_loopback(address.host):
        return True
    name = host_of(host)
    return name.lower() == address.host.lower() or is_loopback(name)


class Guard:
    """The open connections, each of which is closed when it exceeds a limit.

    When there are too many, the one whose last request is the longest ago makes room, so that a probe is answered
    however many idle connections there are. ``at_most`` is their number.
    """

    def __init__(self, at_most: int) -> None:
        self._at_most = at_most
        self._open: dict[asyncio.Transport, _Guarded] = {}  # by the last request

    def protocol(self, inner: asyncio.Protocol) -> asyncio.Protocol:
        """Return the protocol for a new connection that ``inner`` serves."""
        return _Guarded(inner, self._opened, self._closed)

    def begins(self, transport: asyncio.Transport | None) -> None:
        """A whole request has arrived: no limit of time holds until ``ends``."""
        if transport is not None and (guarded := self._open.pop(transport, None)) is not None:
            self._open[transport] = guarded
            guarded.begins()

    def ends(self, transport: asyncio.Transport | None) -> None:
        """The answer is made, and goes to the client."""
        if transport is not None and (guarded := self._open.get(transport)) is not None:
            guarded.expect(IDLE_S)

    def _opened(self, transport: asyncio.Transport, guarded: "_Guarded") -> None:
        while len(self._open) >= self._at_most:
            oldest = next((each for each, held in self._open.items() if not held.serving), transport)
            self._open.pop(oldest, None)
            oldest.abort()
            if oldest is transport:
                return
        self._open[transport] = guarded
        guarded.expect(REQUEST_S)

    def _closed(self, transport: asyncio.Transport) -> None:
        self._open.pop(transport, None)


class _Guarded(asyncio.Protocol):
    """Passes the events of a connection on to ``inner``."""

    def __init__(
        self,
        inner: asyncio.Protocol,
        opened: "Callable[[asyncio.Transport, _Guarded], None]",
        closed: Callable[[asyncio.Transport], None],
    ) -> None:
        self.serving = False
        """True while an answer is made."""
        self._inner, self._tell_opened, self._tell_closed = inner, opened, closed
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._unanswered = 0
        # A read of the loop goes to the parser without another call.
        self.eof_received = inner.eof_received  # type: ignore[method-assign]
        self.pause_writing = inner.pause_writing  # type: ignore[method-assign]
        self.resume_writing = inner.resume_writing  # type: ignore[method-assign]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # that of uvloop is of no class of asyncio
        self._inner.connection_made(transport)
        self._tell_opened(self._transport, self)

    def data_received(self, data: bytes) -> None:
        self._unanswered += len(data)
        if self._unanswered > MOST_UNANSWERED:
            self._abort()
        else:
            self._inner.data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._rest()
        assert self._transport is not None
        self._tell_closed(self._transport)
        self._inner.connection_lost(exc)

    def begins(self) -> None:
        self.serving, self._unanswered = True, 0
        self._rest()

    def expect(self, seconds: float) -> None:
        """Close the connection if no request begins within ``seconds``."""
        self.serving = False
        self._rest()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._abort)

    def _rest(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _abort(self) -> None:
        assert self._transport is not None
        self._transport.abort()
