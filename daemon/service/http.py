"""The HTTP server for operators and orchestrators: / /metrics /livez /readyz /status /events.

``start`` only binds the address. The HTTP framework, which takes as long to load as all modules of fastwire, is loaded
at the first connection. Connections have the limits of :mod:`guard`.
"""

import asyncio
import errno
import logging
import os
import socket
import stat
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from fastwire.errors import FastwireError

from ..config import HttpAddress
from ..runtime.health import READY, Health
from ..runtime.logs import get_logger, redact, to_json
from ..runtime.metrics import CONTENT_TYPE
from ..runtime.pages import release_library_pages
from .guard import Guard, is_ours, most_connections
from .page import page, page_headers

if TYPE_CHECKING:
    from aiohttp import web

SHUTDOWN_S = 1.0
# Of /events: the time between two, the longest wait for a client to take one, and the most clients at a time.
EVENT_S = 1.0
STALLED_S = 10.0
MOST_STREAMS = 16

log = get_logger("http")


class StatusProvider(Protocol):
    """The source of the pages' content. Its methods run on the event loop and must not block."""

    def health(self) -> Health:
        """Return the health of the process, which is that of its pipeline that is worst off."""

    def status(self) -> dict[str, Any]:
        """Return the content of ``/status`` as plain values. The server hides the values of keys that name secrets."""


class AddressError(FastwireError):
    """The server cannot bind its address; the text says why and what to do."""


class HttpServer:
    """An HTTP server on one TCP address or unix socket; ``metrics`` returns the body of ``/metrics``."""

    def __init__(self, address: HttpAddress, provider: StatusProvider, metrics: Callable[[], bytes]) -> None:
        self._address = address
        self._provider = provider
        self._metrics = metrics
        self._listening: asyncio.Server | None = None
        self._protocols: web.Server | None = None
        self._guard = Guard(most_connections())
        self._ending = asyncio.Event()
        self._streams = 0

    async def start(self) -> None:
        """Bind the address and begin to serve. Raises AddressError if the address is taken or unusable."""
        address, loop = self._address, asyncio.get_running_loop()
        try:
            if address.path:
                _require_dead_socket(address.path)
                self._listening = await loop.create_unix_server(self._protocol, address.path)
            else:
                self._listening = await loop.create_server(
                    self._protocol, address.host, address.port, reuse_address=True
                )
        except OSError as exc:
            raise AddressError(_explain(address, exc)) from None

    @property
    def address(self) -> HttpAddress:
        """The address that the server listens on, with the port that the system chose for port 0."""
        if self._listening is None or self._address.path or not self._listening.sockets:
            return self._address
        host, port = self._listening.sockets[0].getsockname()[:2]
        return HttpAddress(host, port)

    async def stop(self) -> None:
        """Stop the server and delete the file of a unix socket."""
        listening, self._listening = self._listening, None
        if listening is None:
            return
        listening.close()
        self._ending.set()
        if self._protocols is not None:
            await self._protocols.shutdown(SHUTDOWN_S)
        await listening.wait_closed()
        if self._address.path:
            try:
                os.unlink(self._address.path)
            except FileNotFoundError:
                pass

    def _protocol(self) -> asyncio.Protocol:
        """Return the protocol of a new connection."""
        if self._protocols is None:
            self._protocols = self._load()
        return self._guard.protocol(self._protocols())

    def _load(self) -> "web.Server":
        from aiohttp import web

        provider = self._provider

        def metrics() -> web.Response:
            return web.Response(body=self._metrics(), headers={"Content-Type": CONTENT_TYPE})

        def verdict(good: bool, text: str) -> web.Response:
            return web.Response(status=200 if good else 503, text=f"{text}\n")

        def live() -> web.Response:
            stuck = provider.health() is Health.STUCK
            return verdict(not stuck, "not making progress" if stuck else "ok")

        def ready(request: web.BaseRequest) -> web.Response:
            health = provider.health()
            good = (Health.HEALTHY,) if "strict" in request.query else READY
            return verdict(health in good, "ok" if health is Health.HEALTHY else health)

        def status() -> web.Response:
            body = to_json(redact(provider.status()), indent=True) + b"\n"
            return web.Response(body=body, content_type="application/json")

        def html() -> web.Response:
            return web.Response(body=page(), content_type="text/html", charset="utf-8", headers=page_headers())

        async def stream(request: web.BaseRequest) -> web.StreamResponse:
            """Send the status every second until the client or the server ends (server-sent events)."""
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
            await response.prepare(request)
            while not self._ending.is_set() and request.method == "GET":
                event = b"data: " + to_json(redact(provider.status())) + b"\n\n"
                async with asyncio.timeout(STALLED_S):
                    await response.write(event)
                try:
                    async with asyncio.timeout(EVENT_S):
                        await self._ending.wait()
                except TimeoutError:
                    pass  # the next event is due
            return response

        async def limited(request: web.BaseRequest) -> web.StreamResponse:
            if self._streams >= MOST_STREAMS:
                raise web.HTTPServiceUnavailable(text="too many clients of /events\n")
            self._streams += 1
            try:
                return await stream(request)
            except TimeoutError:
                assert request.transport is not None
                request.transport.abort()
                raise
            finally:
                self._streams -= 1

        pages: dict[str, Callable[[web.BaseRequest], web.Response]] = {
            "/": lambda _: html(),
            "/metrics": lambda _: metrics(),
            "/livez": lambda _: live(),
            "/readyz": ready,
            "/status": lambda _: status(),
        }

        async def guarded(request: web.BaseRequest) -> web.StreamResponse:
            transport = request.transport
            self._guard.begins(transport)
            try:
                return await answer(request)
            finally:
                self._guard.ends(transport)

        async def answer(request: web.BaseRequest) -> web.StreamResponse:
            if not is_ours(self._address, request.headers.get("Host")):
                raise web.HTTPMisdirectedRequest(text="this address is for requests to this machine only\n")
            show = pages.get(request.path)
            if show is None and request.path != "/events":
                raise web.HTTPNotFound
            if request.method not in ("GET", "HEAD"):
                raise web.HTTPMethodNotAllowed(request.method, ("GET", "HEAD"))
            try:
                return await limited(request) if show is None else show(request)
            except (web.HTTPException, ConnectionError):
                raise
            except Exception:
                log.exception("a page failed because of an internal error", page=request.path)
                raise web.HTTPInternalServerError from None

        release_library_pages()
        # Invalid requests get an error response and no log line: the framework would log a traceback per port scan.
        strangers = logging.getLogger("fastwire.http.strangers")
        strangers.setLevel(logging.CRITICAL)
        return web.Server(guarded, access_log=None, logger=strangers)


def _require_dead_socket(path: str) -> None:
    """Raise OSError for a path that is in use: the event loop would replace any socket file, not only a dead one."""
    try:
        if not stat.S_ISSOCK(os.stat(path).st_mode):
            raise OSError(errno.EEXIST, "exists and is not a socket")
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            return
    raise OSError(errno.EADDRINUSE, "is served by another process")


def _explain(address: HttpAddress, exc: OSError) -> str:
    if exc.errno == errno.EADDRINUSE:
        return (
            f'daemon.http = "{address}" is taken by another process: choose another address, or "" for no HTTP server'
        )
    reason = exc.strerror or str(exc)
    return f'daemon.http = "{address}" cannot be served: {reason}'
