"""The HTTP server: what operators and orchestrators get to see."""

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from fastwire_daemon.config import HttpAddress
from fastwire_daemon.runtime.health import Health
from fastwire_daemon.runtime.metrics import DaemonMetrics
from fastwire_daemon.service import http
from fastwire_daemon.service.http import AddressError, HttpServer
from tests.support.loops import BOTH

LOCAL = HttpAddress("127.0.0.1", 0)


class Provider:
    def __init__(self) -> None:
        self.now = Health.HEALTHY
        self.answer: dict[str, Any] = {"state": "running"}

    def health(self) -> Health:
        return self.now

    def status(self) -> dict[str, Any]:
        return self.answer


@asynccontextmanager
async def serving(provider: Provider, address: HttpAddress = LOCAL) -> AsyncIterator[HttpServer]:
    server = HttpServer(address, provider, DaemonMetrics("1.2.3").render)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


async def get(server: HttpServer, path: str) -> tuple[int, str, str]:
    address = server.address
    connector = aiohttp.UnixConnector(address.path) if address.path else aiohttp.TCPConnector()
    host = "localhost" if address.path else str(address)
    async with aiohttp.ClientSession(connector=connector) as session, session.get(f"http://{host}{path}") as response:
        return response.status, response.headers["Content-Type"], await response.text()


@BOTH
async def test_the_four_answers() -> None:
    provider = Provider()
    async with serving(provider) as server:
        assert server.address.port != 0
        assert await get(server, "/livez") == (200, "text/plain; charset=utf-8", "ok\n")
        assert await get(server, "/readyz") == (200, "text/plain; charset=utf-8", "ok\n")
        code, kind, text = await get(server, "/metrics")
        assert code == 200
        assert kind.startswith("text/plain; version=")
        assert 'fastwire_daemon_build_info{version="1.2.3"} 1.0' in text
        code, kind, text = await get(server, "/status")
        assert (code, kind) == (200, "application/json")
        assert json.loads(text) == {"state": "running"}
        assert (await get(server, "/other"))[0] == 404


@asynccontextmanager
async def streaming(server: HttpServer) -> AsyncIterator[aiohttp.ClientResponse]:
    async with aiohttp.ClientSession() as session, session.get(f"http://{server.address}/events") as response:
        yield response


async def next_event(response: aiohttp.ClientResponse) -> Any:
    line = await response.content.readline()
    assert line.startswith(b"data: ") and await response.content.readline() == b"\n"
    return json.loads(line.removeprefix(b"data: "))


@BOTH
async def test_the_status_as_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "EVENT_S", 0.01)
    provider = Provider()
    provider.answer = {"auth": {"token": "hunter2"}, "line": "a\nb"}
    async with serving(provider) as server, streaming(server) as response:
        assert response.headers["Content-Type"] == "text/event-stream"
        assert await next_event(response) == {"auth": {"token": "***"}, "line": "a\nb"}
        provider.answer = {"state": "stopped"}
        while await next_event(response) != {"state": "stopped"}:
            pass


@BOTH
async def test_the_end_of_the_server_ends_events_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "EVENT_S", 3600.0)
    monkeypatch.setattr(http, "SHUTDOWN_S", 3600.0)
    async with asyncio.timeout(60), serving(Provider()) as server, streaming(server) as response:
        await next_event(response)
        await server.stop()
        assert await response.read() == b""


@BOTH
async def test_clients_of_events_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "MOST_STREAMS", 1)
    monkeypatch.setattr(http, "EVENT_S", 0.01)
    async with serving(Provider()) as server:
        async with streaming(server) as response:
            await next_event(response)
            async with streaming(server) as other:
                assert other.status == 503
        async with asyncio.timeout(60):
            while (await get_code(server)) == 503:
                await asyncio.sleep(0.01)


async def get_code(server: HttpServer) -> int:
    async with streaming(server) as response:
        return response.status


@BOTH
async def test_trouble_is_503() -> None:
    provider = Provider()
    async with serving(provider) as server:
        provider.now = Health.NOT_READY
        assert (await get(server, "/readyz"))[::2] == (503, "not ready\n")
        assert (await get(server, "/livez"))[0] == 200
        provider.now = Health.STUCK
        assert (await get(server, "/livez"))[::2] == (503, "not making progress\n")
        assert (await get(server, "/readyz"))[::2] == (503, "stuck\n")


@BOTH
async def test_a_degraded_daemon_is_ready_unless_the_probe_is_strict() -> None:
    provider = Provider()
    async with serving(provider) as server:
        assert (await get(server, "/readyz?strict"))[::2] == (200, "ok\n")
        provider.now = Health.DEGRADED
        assert (await get(server, "/readyz"))[::2] == (200, "degraded\n")
        assert (await get(server, "/readyz?strict"))[::2] == (503, "degraded\n")
        assert (await get(server, "/livez"))[::2] == (200, "ok\n")


@BOTH
async def test_status_hides_secrets_and_takes_any_value() -> None:
    provider = Provider()
    provider.answer = {"auth": {"token": "hunter2"}, "path": Path("/data"), 1: {"rows": 2}}  # type: ignore[dict-item]
    async with serving(provider) as server:
        text = (await get(server, "/status"))[2]
        assert json.loads(text) == {"auth": {"token": "***"}, "path": "/data", "1": {"rows": 2}}


@BOTH
async def test_a_unix_socket(tmp_path: Path) -> None:
    path = tmp_path / "http.sock"
    async with serving(Provider(), HttpAddress(path=str(path))) as server:
        assert (await get(server, "/livez"))[0] == 200
    assert not path.exists()
    # Left behind by a process that was killed.
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    async with serving(Provider(), HttpAddress(path=str(path))) as server:
        assert (await get(server, "/livez"))[0] == 200
        with pytest.raises(AddressError) as caught:
            async with serving(Provider(), HttpAddress(path=str(path))):
                pass
        assert str(caught.value) == (
            f'daemon.http = "unix:{path}" is taken by another process: choose another address, or "" for no HTTP server'
        )
        assert (await get(server, "/livez"))[0] == 200


@BOTH
async def test_a_file_is_not_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "precious"
    file.write_text("x")
    with pytest.raises(
        AddressError, match=f'^daemon.http = "unix:{file}" cannot be served: exists and is not a socket$'
    ):
        async with serving(Provider(), HttpAddress(path=str(file))):
            pass
    assert file.read_text() == "x"


@BOTH
async def test_a_taken_port() -> None:
    async with serving(Provider()) as server:
        with pytest.raises(AddressError) as caught:
            async with serving(Provider(), server.address):
                pass
        assert str(caught.value) == (
            f'daemon.http = "127.0.0.1:{server.address.port}" is taken by another process: '
            'choose another address, or "" for no HTTP server'
        )


@BOTH
async def test_an_address_that_is_not_ours(tmp_path: Path) -> None:
    with pytest.raises(AddressError, match=r'^daemon.http = "192.0.2.1:8650" cannot be served: '):
        async with serving(Provider(), HttpAddress("192.0.2.1", 8650)):
            pass
    with pytest.raises(AddressError, match=r'^daemon.http = "unix:.*/no/http.sock" cannot be served: No such file'):
        async with serving(Provider(), HttpAddress(path=str(tmp_path / "no" / "http.sock"))):
            pass


async def said(server: HttpServer, text: str) -> str:
    """Everything that the server says to ``text``, until it closes the connection."""
    reader, writer = await asyncio.open_connection(server.address.host, server.address.port)
    writer.write(text.encode())
    try:
        return (await reader.read()).decode()
    finally:
        writer.close()


@BOTH
async def test_requests_follow_each_other_on_a_connection() -> None:
    async with serving(Provider()) as server:
        text = await said(
            server,
            "HEAD /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
            "GET /readyz?x=1 HTTP/1.1\r\nHost: localhost\r\n\r\n"
            "GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        )
        first, second, third = text.split("HTTP/1.1 200 OK\r\n")[1:]
        assert "Content-Length: 3\r\n" in first
        assert first.endswith("\r\n\r\n"), "a HEAD gets no body"
        assert second.endswith("\r\n\r\nok\n")
        assert third.endswith("\r\n\r\nok\n")
        assert (await said(server, "GET /livez HTTP/1.0\r\n\r\n")).endswith("\r\n\r\nok\n")


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("\x16\x03\x01\r\n\r\n", 400),
        ("GET /livez HTTP/1.1\r\nHost: localhost\r\nno field\r\n\r\n", 400),
        ("GET /other HTTP/1.0\r\n\r\n", 404),
        ("POST /livez HTTP/1.0\r\nContent-Length: 0\r\n\r\n", 405),
    ],
)
@BOTH
async def test_what_is_no_request_of_ours_is_refused(caplog: pytest.LogCaptureFixture, text: str, status: int) -> None:
    async with serving(Provider()) as server:
        assert (await said(server, text)).partition(" ")[2].startswith(f"{status} ")
        assert (await get(server, "/livez"))[0] == 200
    assert caplog.text == ""


@BOTH
async def test_a_page_that_fails_is_500_and_the_next_one_is_answered(caplog: pytest.LogCaptureFixture) -> None:
    provider = Provider()
    provider.status = None  # type: ignore[method-assign, assignment]
    async with serving(provider) as server:
        assert (await get(server, "/status"))[0] == 500
        assert (await get(server, "/livez"))[0] == 200
    assert caplog.text.count("a page failed because of an internal error") == 1


def test_the_framework_comes_with_the_first_connection() -> None:
    text = """
import asyncio, sys
from fastwire_daemon.config import HttpAddress
from fastwire_daemon.service import http
from fastwire_daemon.service.http import HttpServer

async def main():
    server = HttpServer(HttpAddress("127.0.0.1", 0), None, lambda: b"x 1")
    await server.start()
    loaded = ["aiohttp" in sys.modules]
    reader, writer = await asyncio.open_connection(server.address.host, server.address.port)
    writer.write(b"GET /metrics HTTP/1.0\\r\\n\\r\\n")
    assert (await reader.read()).endswith(b"x 1")
    writer.close()
    await server.stop()
    print(*loaded, "aiohttp" in sys.modules)

asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]


@BOTH
async def test_stopping_twice_and_before_the_start() -> None:
    server = HttpServer(LOCAL, Provider(), DaemonMetrics("1").render)
    await server.stop()
    assert server.address == LOCAL
    await server.start()
    await server.stop()
    await server.stop()


@BOTH
async def test_no_file_descriptor_is_left() -> None:
    async with serving(Provider()) as server:
        await get(server, "/livez")
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(3):
            with pytest.raises(AddressError):
                async with serving(Provider(), server.address):
                    pass
        assert len(os.listdir("/proc/self/fd")) <= before
