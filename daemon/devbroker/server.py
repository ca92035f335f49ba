"""A TCP server in memory: listeners, connections, and the faults of connections, whatever protocol is spoken.

A broker lives on one event loop. Its methods marked ``on_loop`` may be called from any thread: they run on the loop
while the caller waits, so that a test can ask a broker that runs in a thread for its state.
"""

import asyncio
import functools
import signal
import socket
import ssl
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from typing import Concatenate, ParamSpec, TypeVar, cast

from fastwire.address import format_host
from fastwire.errors import ProtocolError, UnsupportedError

WRITE_HIGH_WATER = 4 << 20  # bytes waiting in a connection, above which nothing more is dispatched to it
CALL_TIMEOUT_S = 30.0

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S", bound="Server")


def on_loop(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
    """Make a method of a broker callable from any thread."""

    @functools.wraps(method)
    def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.call(lambda: method(self, *args, **kwargs))

    return call


@contextmanager
def held(host: str, ports: Sequence[int]) -> Iterator[None]:
    """No other process is given the ports meanwhile, and connections to them are refused; a server may listen there."""
    with ExitStack() as places:
        for port in ports:
            place = places.enter_context(socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET))
            place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            place.bind((host, port))
        yield


class Server:
    """Listening sockets, their connections, faults of connections, and the violations of the protocol by clients.

    ``violations`` has one line for each connection that ended because its client broke the protocol, or because the
    broker itself failed. Tests check it at their end.
    """

    scheme = "tcp"

    def __init__(self, *, tls: ssl.SSLContext | None = None) -> None:
        self.tls = tls
        self.host = "127.0.0.1"
        self.ports: list[int] = []  # of each listener
        self.violations: list[str] = []
        self.connections: set[Connection] = set()
        self.accepted = 0  # connections since the server was made
        self.muted = False  # fault: what arrives is dropped without an answer
        self._cuts: list[int] = []
        self.stopped = False  # no connection is accepted until the next ``start``
        self._servers: list[asyncio.Server] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: int | None = None

    @property
    def port(self) -> int:
        """The port of the first listener; 0 before the first start."""
        return self.ports[0] if self.ports else 0

    @property
    def url(self) -> str:
        """The URL by which clients connect."""
        return f"{self.scheme}{'+ssl' if self.tls else ''}://{format_host(self.host, self.port)}"

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop of the server. Raises RuntimeError before the first start."""
        if self._loop is None:
            raise RuntimeError("the broker is not running")
        return self._loop

    @property
    def listening(self) -> list[int]:
        """The descriptors of the sockets of all listeners."""
        return [socket.fileno() for server in self._servers for socket in server.sockets]

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> None:
        """Listen; port 0 takes a free one. After a stop the same ports and everything stored are there again.

        ``port`` is that of the first listener.
        """
        self.stopped = False
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        listeners = self.listeners()
        wanted = self.ports or [0] * len(listeners)
        if port:
            wanted = [port, *wanted[1:]]
        for accept, number in zip(listeners, wanted, strict=True):
            self._servers.append(await self._loop.create_server(accept, host, number, ssl=self.tls))
        names = [server.sockets[0].getsockname() for server in self._servers]
        self.host, self.ports = names[0][0], [name[1] for name in names]

    async def stop(self) -> None:
        """Stop listening and cut every connection; what is stored stays."""
        self.stopped = True
        servers, self._servers = self._servers, []
        # A connection just accepted needs one more turn: asyncio loses the socket if its server is closed before.
        for server in servers:
            for listener in server.sockets:
                self.loop.remove_reader(listener.fileno())
        await asyncio.sleep(0)
        for server in servers:
            server.close()
        self._drop_connections()
        for server in servers:
            await server.wait_closed()
        for _ in range(5):
            await asyncio.sleep(0)  # connections that were just accepted are made and cut; transports finish closing
        self._thread = None  # from here on ``call`` runs in the calling thread

    def accept(self) -> "Connection":
        """Make the connection of one client."""
        raise NotImplementedError

    def listeners(self) -> "Sequence[Callable[[], Connection]]":
        """Return for each listener what makes its connections; a broker of several nodes has several listeners."""
        return (self.accept,)

    def call(self, function: Callable[[], T]) -> T:
        """Run ``function`` on the broker's loop, from any thread, and return what it returns."""
        if self._thread is None or self._thread == threading.get_ident():
            return function()
        result: Future[T] = Future()

        def run() -> None:
            try:
                result.set_result(function())
            except BaseException as exc:
                result.set_exception(exc)

        self.loop.call_soon_threadsafe(run)
        return result.result(CALL_TIMEOUT_S)

    @on_loop
    def drop_connections(self) -> None:
        """Cut every connection at once, as a crash of the broker would."""
        self._drop_connections()

    def _drop_connections(self) -> None:
        for connection in list(self.connections):
            connection.abort()

    @on_loop
    def cut_after(self, nbytes: int) -> None:
        """Cut one connection after it was sent ``nbytes`` more: the first one that gets there, usually in mid-frame.

        Called several times, the cuts follow each other.
        """
        self._cuts.append(nbytes)

    def restart(self, down_s: float = 0.0) -> None:
        """Stop, stay away for ``down_s``, and listen on the same port again. From other threads than the loop's."""

        async def restart() -> None:
            await self.stop()
            with held(self.host, self.ports):
                await asyncio.sleep(down_s)
                await self.start(self.host, self.port)

        asyncio.run_coroutine_threadsafe(restart(), self.loop).result(CALL_TIMEOUT_S + down_s)

    def take_cut(self, nbytes: int) -> int | None:
        """Count ``nbytes`` that are about to be sent; return how many may go if the connection is to be cut now."""
        if not self._cuts:
            return None
        if nbytes < self._cuts[0]:
            self._cuts[0] -= nbytes
            return None
        return self._cuts.pop(0)


class Connection(asyncio.Protocol):
    """One client's connection: collects received bytes for ``receive``, and queued bytes for one write a turn."""

    def __init__(self, broker: Server) -> None:
        self.server = broker
        self.transport: asyncio.Transport | None = None
        self.peer = ""
        self.writable = True
        self.closing = False
        self._in = bytearray()
        self._out: list[bytes] = []
        self._flush_scheduled = False

    # Provided by the connection of a system.

    def receive(self, data: memoryview) -> int:
        """Handle the whole frames in ``data`` and return how many bytes they took; nothing of it may be kept."""
        raise NotImplementedError

    def violated(self, text: str) -> None:
        """Send the peer the reason why its connection ends, if the protocol has a message for that."""

    def lost(self) -> None:
        """Drop the state of this connection, which is lost."""

    def resumed(self) -> None:
        """Continue to send: the write buffer has room again."""

    # The same for all systems.

    def queue(self, *parts: bytes) -> None:
        """Put bytes into the next write; it happens at the end of this turn of the loop."""
        self._out += parts
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self.server.loop.call_soon(self.flush)

    def flush(self) -> None:
        """Write what is queued."""
        self._flush_scheduled = False
        parts, self._out = self._out, []
        transport = self.transport
        if not parts or transport is None or transport.is_closing():
            return
        cut = self.server.take_cut(sum(map(len, parts)))
        if cut is None:
            transport.writelines(parts)
        else:
            transport.write(b"".join(parts)[:cut])
            self.close()

    def violation(self, text: str) -> None:
        """Record a violation of the protocol by the client, and end its connection."""
        if self.closing:
            return
        self.server.violations.append(text)
        self.violated(text)
        self.close()

    def close(self) -> None:
        """Send what is queued, then close; bytes that still arrive are dropped."""
        self.flush()
        self.closing = True
        if self.transport is not None:
            self.transport.close()

    def abort(self) -> None:
        """Close without sending what is queued."""
        self.closing = True
        self._out.clear()
        if self.transport is not None:
            self.transport.abort()

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See ``asyncio.BaseProtocol``."""
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=WRITE_HIGH_WATER)
        host, port, *_ = transport.get_extra_info("peername") or ("", 0)
        self.peer = f"{host}:{port}"
        self.server.connections.add(self)
        self.server.accepted += 1
        if self.server.stopped:
            self.abort()  # it was accepted while the broker stopped

    def connection_lost(self, exc: Exception | None) -> None:
        """See ``asyncio.BaseProtocol``."""
        self.closing = True
        self.transport = None
        self.server.connections.discard(self)
        self._guard(self.lost)

    def pause_writing(self) -> None:
        """See ``asyncio.BaseProtocol``."""
        self.writable = False

    def resume_writing(self) -> None:
        """See ``asyncio.BaseProtocol``."""
        self.writable = True
        self._guard(self.resumed)

    def data_received(self, data: bytes) -> None:
        """See ``asyncio.Protocol``."""
        if not self.closing and not self.server.muted:
            self._in += data
            self._guard(self._received)

    def proceed(self) -> None:
        """Handle bytes that were received and not taken yet."""
        if not self.closing:
            self._guard(self._received)

    def _received(self) -> None:
        with memoryview(self._in) as view:
            taken = self.receive(view)
        del self._in[:taken]

    def _guard(self, step: Callable[[], None]) -> None:
        """Run one step; a violation by the client, or a bug of the broker, ends this connection only."""
        try:
            step()
        except (ProtocolError, UnsupportedError) as exc:
            self.violation(str(exc))
        except Exception:
            self.server.violations.append("the broker failed: " + traceback.format_exc())
            self.abort()


def serve(
    server: Server,
    port: int,
    *,
    host: str = "127.0.0.1",
    ready: Callable[[str], None],
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM; ``ready`` is called with the URL once clients can connect. Raises OSError."""
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(_serve_until_signal(server, host, port, ready))


async def _serve_until_signal(server: Server, host: str, port: int, ready: Callable[[str], None]) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    await server.start(host, port)
    ready(server.url)
    await stopped.wait()
    await server.stop()


@contextmanager
def running(
    broker: S,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    loop_factory: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop,
) -> Iterator[S]:
    """Run ``broker`` in a thread of its own for the length of a ``with`` block."""
    started: Future[asyncio.Event] = Future()

    async def main() -> None:
        stopped = asyncio.Event()
        await broker.start(host, port)
        started.set_result(stopped)
        await stopped.wait()
        await broker.stop()

    def run() -> None:
        try:
            with asyncio.Runner(loop_factory=loop_factory) as runner:
                runner.run(main())
        except BaseException as exc:
            if started.done():
                raise
            started.set_exception(exc)

    thread = threading.Thread(target=run, name=f"dev-broker-{broker.scheme}", daemon=True)
    thread.start()
    stopped = started.result(CALL_TIMEOUT_S)
    try:
        yield broker
    finally:
        broker.loop.call_soon_threadsafe(stopped.set)
        thread.join(CALL_TIMEOUT_S)
