"""The HTTP server for operators and orchestrators: /metrics /livez /readyz /status."""

import errno
import os
import socket
import stat
from collections.abc import Callable
from typing import Any, Protocol

from aiohttp import web

from fastwire.errors import FastwireError

from .config import HttpAddress
from .logs import redact, to_json
from .metrics import CONTENT_TYPE

__all__ = ["AddressError", "HttpServer", "StatusProvider"]


class StatusProvider(Protocol):
    """What the server asks; called on the event loop, so the answers must be at hand."""

    def live(self) -> bool:
        """Whether the process works; False asks whoever watches us for a restart."""

    def ready(self) -> bool:
        """Whether every pipeline has reached its broker and its sink."""

    def status(self) -> dict[str, Any]:
        """Everything an operator may want to know, as JSON knows it. Keys that name secrets are hidden."""


class AddressError(FastwireError):
    """The server cannot have its address; the text says why and what to do."""


class HttpServer:
    """Serves one address until it is stopped."""

    def __init__(self, address: HttpAddress, provider: StatusProvider, metrics: Callable[[], bytes]) -> None:
        self._address = address
        self._provider = provider
        self._metrics = metrics
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Begin to answer. Raises AddressError if the address is taken or cannot be had."""
        app = web.Application()
        app.router.add_get("/metrics", self._get_metrics)
        app.router.add_get("/livez", self._get_livez)
        app.router.add_get("/readyz", self._get_readyz)
        app.router.add_get("/status", self._get_status)
        runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=1.0)
        await runner.setup()
        try:
            site: web.BaseSite
            if self._address.path:
                _require_dead_socket(self._address.path)
                site = web.UnixSite(runner, self._address.path)
            else:
                site = web.TCPSite(runner, self._address.host, self._address.port, reuse_address=True)
            await site.start()
        except OSError as exc:
            await runner.cleanup()
            raise AddressError(_explain(self._address, exc)) from None
        except BaseException:
            await runner.cleanup()
            raise
        self._runner = runner

    @property
    def address(self) -> HttpAddress:
        """Where it really listens: with the port that port 0 became."""
        if self._runner is None or self._address.path or not self._runner.addresses:
            return self._address
        host, port = self._runner.addresses[0][:2]
        return HttpAddress(host, port)

    async def stop(self) -> None:
        """Stop answering; the file of a unix socket goes too."""
        runner, self._runner = self._runner, None
        if runner is None:
            return
        await runner.cleanup()
        if self._address.path:
            try:
                os.unlink(self._address.path)
            except FileNotFoundError:
                pass

    async def _get_metrics(self, request: web.Request) -> web.Response:
        return web.Response(body=self._metrics(), headers={"Content-Type": CONTENT_TYPE})

    async def _get_livez(self, request: web.Request) -> web.Response:
        return _verdict(self._provider.live(), "not making progress")

    async def _get_readyz(self, request: web.Request) -> web.Response:
        return _verdict(self._provider.ready(), "not ready")

    async def _get_status(self, request: web.Request) -> web.Response:
        body = to_json(redact(self._provider.status()), indent=True) + b"\n"
        return web.Response(body=body, content_type="application/json")


def _verdict(good: bool, otherwise: str) -> web.Response:
    return web.Response(status=200 if good else 503, text="ok\n" if good else f"{otherwise}\n")


def _require_dead_socket(path: str) -> None:
    """Refuse a path that is in use: the event loop would remove any socket file, not only that of a dead process."""
    try:
        if not stat.S_ISSOCK(os.stat(path).st_mode):
            raise OSError(errno.EEXIST, "exists and is no socket")
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
