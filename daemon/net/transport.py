"""Sockets to brokers: the only module that opens them. A state machine defines the protocol that they carry.

``open_transport`` connects and attaches a machine to the event loop, asyncio's or uvloop's.
"""

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from enum import IntFlag
from time import perf_counter_ns
from typing import Any, Generic, TypeVar, cast

from fastwire.errors import FastwireError

from .endpoint import CONNECT_TIMEOUT_S, Machine, tune, unreachable

# Read moderation: for small reads the wake-up costs more than the parse.
WINDOW_READS = 16
SMALL_READ = 4096
CLOSE_S = 0.005  # reads less than this apart count as back to back
REST_S = 0.005  # then reading pauses this long, and the bytes that gather arrive in one read

E = TypeVar("E")


class Pause(IntFlag):
    """Reasons to pause reading; any one is enough."""

    NONE = 0
    MEMORY = 1  # the budget is used up
    QUEUE = 2  # the pipeline has no room for another chunk
    MORE = 4  # the last read gave enough events for one turn of the loop
    REST = 8  # read moderation


# Plain numbers: an operation on a flag costs a microsecond, and some are tested at every read.
_LONG = int(Pause.MEMORY | Pause.QUEUE)
_MORE = int(Pause.MORE)
_REST = int(Pause.REST)


class Transport(asyncio.BufferedProtocol, Generic[E]):
    """Feeds a state machine from a socket, writes its outbound bytes, and drives its timers.

    ``on_events`` gets the machine's events of each read or tick, and ``after_read`` is called after each read, before
    the outbound bytes are written. ``on_lost`` is called once when the socket is closed by either side; its argument
    is the reason given to ``abort``, the error of the socket, or None for an orderly end.
    """

    def __init__(
        self,
        machine: Machine[E],
        *,
        on_events: Callable[[Sequence[E]], None],
        on_lost: Callable[[Exception | None], None],
        after_read: Callable[[], None] | None = None,
    ) -> None:
        self.machine = machine
        self.paused = 0  # Pause flags, as a number
        self.bytes_read = 0
        self._loop = asyncio.get_running_loop()
        self._time = self._loop.time
        self._receive = machine.receive
        self._take_outbound = machine.take_outbound
        self._on_events = on_events
        self._on_lost = on_lost
        self._after_read = after_read or _do_nothing
        self._transport: asyncio.Transport | None = None
        self._reason: Exception | None = None
        self._sizes: deque[int] = deque(maxlen=WINDOW_READS)
        self._gathered = 0
        self._full_since = 0  # nanoseconds of a clock; 0 while there is room
        self._full_ns = 0
        self.held_since: float | None = None  # by the loop's clock: paused for memory or the queue from then on
        self._ready_at = 0.0
        self._rest: asyncio.TimerHandle | None = None
        # asyncio asks for the base class, uvloop for the attribute; both then call the machine's own compiled method.
        self.get_buffer = machine.get_buffer  # type: ignore[method-assign, assignment]

    # --- called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin with the connected socket: write the outbound bytes that wait."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass of it
        self._ready_at = self._time()
        if self.paused:
            self._loop.call_soon(self._pause_reading)  # uvloop begins to read after this call, even if paused here
        self.flush()

    def buffer_updated(self, nbytes: int) -> None:
        """Process ``nbytes`` that the loop has read into the machine's buffer."""
        self.bytes_read += nbytes
        now = self._time()
        self._take(nbytes, now)
        if nbytes >= SMALL_READ * WINDOW_READS:
            self._sizes.clear()
            self._gathered = 0
            self._ready_at = now
        else:
            self._moderate(nbytes, now)

    def eof_received(self) -> None:
        """Close the socket when the peer has closed its side: nothing that is written now is of use to it."""

    def connection_lost(self, exc: Exception | None) -> None:
        """Call ``on_lost`` once, then release the machine."""
        self._transport = None
        if self._rest is not None:
            self._rest.cancel()
        reason, self._reason = (exc if self._reason is None else self._reason), None
        on_lost = self._on_lost
        self.forget()
        try:
            on_lost(reason)
        finally:
            self.machine.close()

    # --- called by the owner

    @property
    def open(self) -> bool:
        """True while the socket is connected and not closing."""
        return self._transport is not None and not self._transport.is_closing()

    def flush(self) -> None:
        """Write the machine's outbound bytes."""
        out = self._take_outbound()
        if out and self._transport is not None and not self._transport.is_closing():
            self._transport.writelines(out)  # one system call for all of them
        if self.paused & _REST and self.machine.awaiting:
            self.go_on(_REST)

    def tick(self) -> None:
        """Let the machine handle its timeouts, deliver its events and write its outbound bytes."""
        if not self.open:
            return
        if events := self.machine.tick(self._time()):
            self._on_events(events)
        self.flush()

    def pause(self, why: int) -> None:
        """Pause reading until ``go_on`` was called for every reason (``Pause``) that was given."""
        before = self.paused
        self.paused = before | int(why)
        if not before:
            self._pause_reading()
        if why & _LONG and not before & _LONG:
            self._full_since = perf_counter_ns()
            self.held_since = self._time()
            # The machine does not take silence for a dead peer while reading is paused.
            self.machine.suspend(self._time())
            self.flush()

    def take_full_ns(self) -> int:
        """Return the nanoseconds since the last call for which back-pressure (MEMORY, QUEUE) paused reading."""
        full, self._full_ns = self._full_ns, 0
        if self._full_since:
            now = perf_counter_ns()
            full += now - self._full_since
            self._full_since = now
        return full

    def _pause_reading(self) -> None:
        if self.paused and self.open:
            cast(asyncio.Transport, self._transport).pause_reading()

    def go_on(self, why: int) -> None:
        """Remove a reason (``Pause``) to pause; reading resumes when none is left."""
        before = self.paused
        self.paused = before & ~int(why)
        if before & _LONG and not self.paused & _LONG:
            self._full_ns += perf_counter_ns() - self._full_since
            self._full_since = 0
            self.held_since = None
            self.machine.resume(self._time())
            if self.paused & _MORE:
                self._loop.call_soon(self._again)
        if why & _REST and self._rest is not None:
            self._rest.cancel()
            self._rest = None
        if before and not self.paused and self.open:
            self._ready_at = self._time()
            cast(asyncio.Transport, self._transport).resume_reading()

    def close(self) -> None:
        """Write the outbound bytes, then close the socket."""
        self.flush()
        if self._transport is not None:
            self._transport.close()

    def abort(self, reason: Exception) -> None:
        """Close the socket at once; ``on_lost`` gets ``reason``."""
        if self._reason is None:
            # Its frames would hold this object, and with it the receive buffer, until the next full collection.
            self._reason = reason.with_traceback(None)
        if self._transport is not None:
            self._transport.abort()

    def forget(self) -> None:
        """Drop the callbacks: for a transport that never got a connection, or has lost it.

        Owner and transport refer to each other; this frees the receive buffer without the garbage collector.
        """
        self._on_events = _ignore
        self._on_lost = _ignore
        self._after_read = _do_nothing

    # --- reading

    def _take(self, nbytes: int, now: float) -> None:
        try:
            events = self._receive(nbytes, now)
        except FastwireError as exc:
            self.abort(exc)
            return
        if events:
            self._on_events(events)
        self._after_read()
        self.flush()
        if self.machine.more and self.open:
            self.pause(_MORE)
            if not self.paused & _LONG:
                self._loop.call_soon(self._again)

    def _again(self) -> None:
        """Process the rest of the last read, unless the connection was closed or paused meanwhile."""
        if not self.paused & _MORE or self.paused & _LONG or not self.open:
            return
        self._take(0, self._time())
        if not self.machine.more:
            self.go_on(_MORE)

    def _moderate(self, nbytes: int, now: float) -> None:
        sizes = self._sizes
        if now - self._ready_at >= CLOSE_S:
            sizes.clear()
            self._gathered = 0
        elif len(sizes) == WINDOW_READS:
            self._gathered -= sizes[0]
        sizes.append(nbytes)
        self._gathered += nbytes
        self._ready_at = now
        if len(sizes) < WINDOW_READS or self._gathered >= SMALL_READ * WINDOW_READS:
            return
        if self.paused or self.machine.awaiting or not self.open:
            return
        self.pause(_REST)
        self._rest = self._loop.call_later(REST_S, self._rested)

    def _rested(self) -> None:
        self._rest = None
        self.go_on(_REST)


def _ignore(_: object) -> None:
    """Stand in for a callback that was dropped."""


def _do_nothing() -> None:
    """Stand in for a callback that was dropped, or not given."""


async def open_transport(
    protocol: Transport[Any],
    host: str,
    port: int,
    *,
    tls: ssl.SSLContext | None = None,
    server_name: str = "",
    timeout_s: float = CONNECT_TIMEOUT_S,
) -> None:
    """Connect ``protocol`` to a broker, trying the addresses of ``host`` in order. Raises UnreachableError.

    ``server_name`` is the name that the certificate must carry instead of ``host``.
    """
    loop = asyncio.get_running_loop()
    sock: socket.socket | None = None
    handshaking = False
    try:
        async with asyncio.timeout(timeout_s):
            sock = await _connect(loop, host, port)
            tune(sock)
            if tls is None:
                await loop.create_connection(lambda: protocol, sock=sock)
            else:
                handshaking = True
                await loop.create_connection(
                    lambda: protocol,
                    sock=sock,
                    ssl=tls,
                    server_hostname=server_name or host,
                    ssl_handshake_timeout=timeout_s,
                )
            sock = None
    except OSError as exc:
        raise unreachable(exc, host, port, timeout_s, handshaking=handshaking) from None
    finally:
        if sock is not None:
            sock.close()


async def _connect(loop: asyncio.AbstractEventLoop, host: str, port: int) -> socket.socket:
    places = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    failure: OSError = OSError(f"{host} has no address")
    for family, kind, protocol, _, address in places:
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setblocking(False)
            await loop.sock_connect(sock, address)
        except OSError as exc:
            sock.close()
            failure = exc
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    try:
        raise failure
    finally:
        del failure  # it holds this frame and its callers', with the receive buffer in them
