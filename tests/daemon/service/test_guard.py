"""Strangers at the HTTP server: idle, slow and greedy connections, and pages of other sites."""

import asyncio
import resource
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from fastwire_daemon.config import HttpAddress
from fastwire_daemon.config.values.address import host_of
from fastwire_daemon.service import guard
from fastwire_daemon.service.guard import is_ours, most_connections
from fastwire_daemon.service.http import HttpServer
from tests.daemon.service.test_http import LOCAL, Provider, get, said, serving
from tests.support.loops import BOTH

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]
REQUEST = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"


@asynccontextmanager
async def strangers(server: HttpServer, count: int, data: bytes = b"") -> AsyncIterator[list[Connection]]:
    """Connections that send ``data`` and stay open."""
    made: list[Connection] = []
    try:
        for _ in range(count):
            reader, writer = await asyncio.open_connection(server.address.host, server.address.port)
            writer.write(data)
            made.append((reader, writer))
        yield made
    finally:
        for _, writer in made:
            writer.close()


async def ended(connection: Connection) -> None:
    """Wait until the server has closed a connection."""
    try:
        while await connection[0].read(1 << 16):
            pass
    except ConnectionError:
        pass


@BOTH
async def test_probes_are_answered_however_many_connections_are_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "MOST_CONNECTIONS", 8)
    async with serving(Provider()) as server, strangers(server, 30) as idle:
        for _ in range(3):
            assert (await get(server, "/livez"))[0] == 200
        assert len(server._guard._open) <= 8
        await ended(idle[0])  # the first ones have made room
        async with strangers(server, 1, REQUEST) as (asked,):
            assert await asked[0].readuntil(b"ok\n")


@BOTH
async def test_streams_are_not_what_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "MOST_CONNECTIONS", 4)
    request = REQUEST.replace(b"/livez", b"/events")
    async with serving(Provider()) as server, strangers(server, 2, request) as streams:
        for reader, _ in streams:
            await reader.readuntil(b"data: ")
        async with strangers(server, 10):
            assert (await get(server, "/livez"))[0] == 200
            for reader, _ in streams:
                await reader.readuntil(b"data: ")


@pytest.mark.parametrize("data", [b"", b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX: ", REQUEST[:-1]])
@BOTH
async def test_a_first_request_has_a_deadline(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "REQUEST_S", 0.05)
    async with serving(Provider()) as server, strangers(server, 1, data) as (one,):
        await ended(one)
        assert not server._guard._open


@pytest.mark.parametrize("data", [REQUEST, REQUEST + REQUEST[:-1]])
@BOTH
async def test_a_next_request_has_a_deadline(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "IDLE_S", 0.05)
    async with serving(Provider()) as server, strangers(server, 1, data) as (one,):
        await ended(one)


@BOTH
async def test_a_client_that_takes_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "IDLE_S", 0.05)
    provider = Provider()
    provider.answer = {"state": "x" * (8 << 20)}
    async with serving(provider) as server:
        with socket.create_connection((server.address.host, server.address.port)) as plain:
            plain.sendall(REQUEST.replace(b"/livez", b"/status"))
            async with asyncio.timeout(30):
                while not server._guard._open:
                    await asyncio.sleep(0.01)
                while server._guard._open:
                    await asyncio.sleep(0.01)


@BOTH
async def test_requests_beyond_the_answers_are_not_kept() -> None:
    """A client that sends request after request and takes no answer."""
    provider = Provider()
    provider.answer = {"state": "x" * (8 << 20)}

    async def send(writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(REQUEST.replace(b"/livez", b"/status") * 100)
            await writer.drain()

    async with serving(provider) as server, strangers(server, 1) as (one,):
        one[0]._transport.pause_reading()  # type: ignore[attr-defined]
        with pytest.raises(ConnectionError):
            await send(one[1])
        assert (await get(server, "/livez"))[0] == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST:8650", 200),
        ("127.0.0.1:1", 200),
        ("[::1]:8650", 200),
        ("evil.example.com", 421),
        ("evil.example.com:8650", 421),
        ("127.0.0.1.evil.example.com", 421),
        ("192.0.2.1", 421),
        ("", 421),
    ],
)
@pytest.mark.parametrize("page", ["/status", "/livez", "/events", "/"])
async def test_a_site_that_names_this_machine_reads_nothing(host: str, status: int, page: str) -> None:
    async with serving(Provider()) as server:
        answer = await said(server, f"HEAD {page} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")
        assert answer.split(" ")[1] == str(status)


def test_other_addresses_have_any_name() -> None:
    for address in (HttpAddress("0.0.0.0", 1), HttpAddress("192.0.2.7", 1), HttpAddress(path="/run/s")):
        assert is_ours(address, "daemon.example.com")
    assert is_ours(LOCAL, None)  # a client without the field is no browser
    assert not is_ours(HttpAddress("localhost", 1), "daemon.example.com")
    assert [host_of(text) for text in ("a:1", "a", "[::1]:1", "[::1]")] == ["a", "a", "::1", "::1"]


def test_connections_take_an_eighth_of_the_open_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 4096))
    assert most_connections() == 32
    monkeypatch.setattr(resource, "getrlimit", lambda _: (16, 4096))
    assert most_connections() == 4
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY, 4096))
    assert most_connections() == guard.MOST_CONNECTIONS
