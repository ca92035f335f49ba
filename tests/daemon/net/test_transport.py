"""Sockets under a state machine, on asyncio's loop and on uvloop's."""

import asyncio
import gc
import socket
import ssl
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from fastwire.errors import ProtocolError
from fastwire_daemon.config import TlsConfig
from fastwire_daemon.net.endpoint import UnreachableError
from fastwire_daemon.net.tls import client_context
from fastwire_daemon.net.transport import (
    REST_S,
    SMALL_READ,
    WINDOW_READS,
    Pause,
    Transport,
    open_transport,
)
from tests.brokers.certs import Certificates, make_certificates
from tests.support.loops import BOTH


class Echoing:
    """A machine that keeps what it gets, says what it is told to, and breaks on a zero byte."""

    def __init__(self) -> None:
        self.buffer = bytearray(1 << 16)
        self.more = False
        self.awaiting = False
        self.data = b""
        self.turns = 0  # further turns that the next receive asks for
        self.out: list[bytes] = []
        self.calls: list[str] = []

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self.buffer)

    def receive(self, nbytes: int, now: float) -> Sequence[object]:
        data = bytes(self.buffer[:nbytes])
        self.data += data
        if b"\0" in data:
            raise ProtocolError("zero")
        self.more = self.turns > 0
        self.turns -= self.more
        return [data] if data else ["turn"]

    def take_outbound(self) -> list[bytes]:
        out, self.out = self.out, []
        return out

    def tick(self, now: float) -> Sequence[object]:
        return ["tick"]

    def suspend(self, now: float) -> None:
        self.calls.append("suspend")
        self.out.append(b"ping")

    def resume(self, now: float) -> None:
        self.calls.append("resume")

    def close(self) -> None:
        self.calls.append("close")


class Peer(asyncio.Protocol):
    """The other end."""

    def __init__(self, peers: "asyncio.Queue[Peer]") -> None:
        self.data = b""
        self.arrived = asyncio.Event()
        self.lost = asyncio.Event()
        self.peers = peers
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.peers.put_nowait(self)

    def data_received(self, data: bytes) -> None:
        self.data += data
        self.arrived.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set()


class Pair:
    """Both ends of one connection."""

    def __init__(self) -> None:
        self.machine = Echoing()
        self.events: list[object] = []
        self.lost: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        self.reads = 0
        self.arrived = asyncio.Event()
        self.transport = Transport(
            self.machine, on_events=self.on_events, on_lost=self.lost.set_result, after_read=self.after_read
        )

    def on_events(self, events: Sequence[object]) -> None:
        self.events += events
        self.arrived.set()

    def after_read(self) -> None:
        self.reads += 1

    async def open(
        self, tls: ssl.SSLContext | None = None, client: ssl.SSLContext | None = None, server_name: str = ""
    ) -> "Pair":
        loop = asyncio.get_running_loop()
        peers: asyncio.Queue[Peer] = asyncio.Queue()

        self.server = await loop.create_server(lambda: Peer(peers), "127.0.0.1", 0, ssl=tls)
        port = self.server.sockets[0].getsockname()[1]
        await open_transport(self.transport, "127.0.0.1", port, tls=client, server_name=server_name)
        self.peer = await peers.get()
        return self

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self.arrived.clear()
            await self.arrived.wait()

    async def close(self) -> None:
        self.transport.close()
        await self.lost
        self.server.close()
        await self.peer.lost.wait()


@BOTH
async def test_bytes_go_both_ways() -> None:
    pair = await Pair().open()
    pair.machine.out = [b"he", b"llo"]
    pair.transport.flush()
    await pair.peer.arrived.wait()
    assert pair.peer.data == b"hello"
    pair.peer.transport.write(b"x" * 100_000)
    await pair.until(lambda: len(pair.machine.data) == 100_000)
    assert pair.transport.bytes_read == 100_000
    pair.transport.tick()
    assert pair.events[-1] == "tick"
    sock = cast(asyncio.Transport, pair.transport._transport).get_extra_info("socket")
    assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    await pair.close()
    assert pair.lost.result() is None
    assert pair.machine.calls == ["close"]
    assert not pair.transport.open
    pair.transport.tick()
    pair.transport.abort(ProtocolError("late"))


@BOTH
async def test_what_the_machine_says_first_is_written_at_once() -> None:
    pair = Pair()
    pair.machine.out = [b"first"]
    await pair.open()
    await pair.peer.arrived.wait()
    assert pair.peer.data == b"first"
    await pair.close()


@BOTH
async def test_broken_protocol_closes_the_socket_and_says_why() -> None:
    pair = await Pair().open()
    pair.peer.transport.write(b"a\0")
    error = await pair.lost
    assert isinstance(error, ProtocolError)
    await pair.peer.lost.wait()
    pair.server.close()


@BOTH
async def test_the_peer_may_close() -> None:
    pair = await Pair().open()
    pair.peer.transport.write(b"bye")
    pair.peer.transport.close()
    assert await pair.lost is None
    assert pair.machine.data == b"bye"
    pair.server.close()


@BOTH
async def test_nothing_is_read_while_any_reason_to_pause_is_left() -> None:
    pair = await Pair().open()
    transport = pair.transport
    assert transport.take_full_ns() == 0
    transport.pause(Pause.MEMORY)
    transport.pause(Pause.QUEUE)
    assert pair.machine.calls == ["suspend"]
    assert transport.take_full_ns() > 0  # so far
    await pair.peer.arrived.wait()
    assert pair.peer.data == b"ping"  # what suspension has to say goes out at once
    pair.peer.transport.write(b"x")
    transport.go_on(Pause.MEMORY)
    for _ in range(20):
        await asyncio.sleep(0)
    assert pair.machine.data == b""
    transport.go_on(Pause.QUEUE)
    assert pair.machine.calls == ["suspend", "resume"]
    assert transport.take_full_ns() > 0  # the rest of it
    assert transport.take_full_ns() == 0
    await pair.until(lambda: pair.machine.data == b"x")
    await pair.close()


@BOTH
async def test_more_turns_before_more_bytes() -> None:
    pair = await Pair().open()
    pair.machine.turns = 3
    pair.peer.transport.write(b"a")
    await pair.until(lambda: len(pair.events) == 4)
    assert pair.events == [b"a", "turn", "turn", "turn"]
    assert pair.transport.paused == Pause.NONE
    pair.peer.transport.write(b"b")
    await pair.until(lambda: pair.machine.data == b"ab")
    await pair.close()


@BOTH
async def test_more_turns_wait_for_room() -> None:
    pair = await Pair().open()
    pair.machine.turns = 2
    full = pair.on_events

    def on_events(events: Sequence[object]) -> None:
        full(events)
        if len(pair.events) == 1:
            pair.transport.pause(Pause.QUEUE)

    pair.transport._on_events = on_events
    pair.peer.transport.write(b"a")
    await pair.until(lambda: len(pair.events) == 1)
    for _ in range(20):
        await asyncio.sleep(0)
    assert pair.events == [b"a"]
    pair.transport.go_on(Pause.QUEUE)
    await pair.until(lambda: len(pair.events) == 3)
    assert pair.transport.paused == Pause.NONE
    await pair.close()


@BOTH
async def test_a_pause_before_the_connection_holds() -> None:
    pair = Pair()
    pair.transport.pause(Pause.MEMORY)
    await pair.open()
    pair.peer.transport.write(b"x")
    for _ in range(20):
        await asyncio.sleep(0)
    assert pair.machine.data == b""
    pair.transport.go_on(Pause.MEMORY)
    await pair.until(lambda: pair.machine.data == b"x")
    await pair.close()


class Clock:
    """A loop that only knows the time and what it was asked to do later."""

    def __init__(self) -> None:
        self.now = 100.0
        self.later: list[tuple[float, Callable[[], None]]] = []

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, callback: Callable[[], None]) -> object:
        entry = (self.now + delay, callback)
        self.later.append(entry)
        clock = self

        class Handle:
            def cancel(self) -> None:
                if entry in clock.later:
                    clock.later.remove(entry)

        return Handle()

    def advance(self, seconds: float) -> None:
        self.now += seconds
        for entry in [entry for entry in self.later if entry[0] <= self.now]:
            self.later.remove(entry)
            entry[1]()


class Reading:
    """A socket that is read or not."""

    def __init__(self) -> None:
        self.reading = True
        self.pauses = 0

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        self.reading = False
        self.pauses += 1

    def resume_reading(self) -> None:
        self.reading = True

    def writelines(self, parts: list[bytes]) -> None:
        pass


@pytest.fixture
async def moderated() -> Any:
    """A transport on a clock of ours: ``read(size, gap)`` is one read ``gap`` seconds after the last."""
    machine = Echoing()
    transport = Transport(machine, on_events=lambda events: None, on_lost=lambda reason: None)
    clock, wire = Clock(), Reading()
    transport._loop = clock  # type: ignore[assignment]
    transport._time = clock.time
    transport.connection_made(wire)  # type: ignore[arg-type]

    def read(size: int, gap: float) -> None:
        clock.advance(gap)
        machine.buffer[:1] = b"x"
        if len(machine.buffer) < size:
            machine.buffer = bytearray(b"x" * size)
        machine.buffer[:size] = b"x" * size
        transport.buffer_updated(size)

    return machine, transport, clock, wire, read


def test_small_reads_in_close_order_rest(moderated: Any) -> None:
    _, transport, clock, wire, read = moderated
    for _ in range(WINDOW_READS - 1):
        read(100, 0.001)
    assert wire.reading
    read(100, 0.001)
    assert transport.paused == Pause.REST
    assert not wire.reading
    clock.advance(REST_S)
    assert wire.reading
    read(100, 0.0)  # what gathered meanwhile is still small: rest again
    assert not wire.reading
    assert wire.pauses == 2


def test_large_reads_do_not_rest(moderated: Any) -> None:
    _, _, _, wire, read = moderated
    for _ in range(50):
        read(SMALL_READ, 0.0001)
    read(SMALL_READ * WINDOW_READS, 0.0001)
    for _ in range(3):
        for _ in range(WINDOW_READS - 1):
            read(100, 0.0001)  # the mean is that of the last sixteen
        read(SMALL_READ * WINDOW_READS, 0.0001)
    assert wire.pauses == 0
    assert wire.reading


def test_reads_far_apart_do_not_rest(moderated: Any) -> None:
    _, _, _, wire, read = moderated
    for _ in range(100):
        read(100, 0.006)
    assert wire.pauses == 0


def test_reading_never_rests_while_an_answer_is_awaited(moderated: Any) -> None:
    machine, transport, _, wire, read = moderated
    machine.awaiting = True
    for _ in range(100):
        read(100, 0.001)
    assert wire.pauses == 0
    machine.awaiting = False
    read(100, 0.001)
    assert not wire.reading
    machine.awaiting = True
    machine.out = [b"a question"]
    transport.flush()
    assert wire.reading
    assert transport.paused == Pause.NONE


def test_a_rest_does_not_end_another_pause(moderated: Any) -> None:
    _, transport, clock, wire, read = moderated
    for _ in range(WINDOW_READS):
        read(100, 0.001)
    transport.pause(Pause.MEMORY)
    clock.advance(REST_S)
    assert not wire.reading
    transport.go_on(Pause.MEMORY)
    assert wire.reading


# --- TLS


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certs"))


def serving(certs: Certificates, ask_for_certificate: bool = False) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certs.cert, certs.key)
    if ask_for_certificate:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(certs.ca)
    return context


def context(**paths: Path) -> ssl.SSLContext:
    return client_context(TlsConfig.model_validate({name: str(path) for name, path in paths.items()}))


@BOTH
async def test_tls(certs: Certificates) -> None:
    client = context(ca=certs.ca, cert=certs.cert, key=certs.key)
    assert client.check_hostname
    assert client.minimum_version is ssl.TLSVersion.TLSv1_2
    pair = await Pair().open(serving(certs, ask_for_certificate=True), client)
    pair.peer.transport.write(b"x" * 300_000)
    await pair.until(lambda: len(pair.machine.data) == 300_000)
    await pair.close()


@pytest.mark.parametrize("name", ["other authority", "other name"])
@BOTH
async def test_tls_verifies_by_default(certs: Certificates, name: str) -> None:
    other = name == "other authority"
    client = context(ca=certs.other_ca if other else certs.ca)
    pair = Pair()
    with pytest.raises(UnreachableError, match=r"the certificate of 127\.0\.0\.1:\d+ is not accepted"):
        await pair.open(serving(certs), client, "" if other else "broker.example")
    pair.server.close()


@BOTH
async def test_tls_without_verification(certs: Certificates) -> None:
    pair = await Pair().open(serving(certs), client_context(TlsConfig(verify=False)), "anybody")
    await pair.close()


@BOTH
async def test_tls_to_somebody_who_speaks_none() -> None:
    pair = Pair()
    loop = asyncio.get_running_loop()

    class Plain(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            cast(asyncio.Transport, transport).write(b"I speak no TLS\r\n")

    server = await loop.create_server(Plain, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(UnreachableError, match=r"no TLS connection to 127\.0\.0\.1"):
        await open_transport(pair.transport, "127.0.0.1", port, tls=client_context(TlsConfig(verify=False)))
    server.close()


# --- nobody there


@BOTH
async def test_nobody_listens() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with pytest.raises(UnreachableError, match=f"cannot connect to 127.0.0.1:{port}: Connection refused"):
            await open_transport(Pair().transport, "127.0.0.1", port)


@BOTH
async def test_an_unknown_name() -> None:
    with pytest.raises(UnreachableError, match=r"cannot connect to no-such-host\.invalid:1"):
        await open_transport(Pair().transport, "no-such-host.invalid", 1)


@BOTH
async def test_a_connection_that_takes_too_long(certs: Certificates) -> None:
    # A listener that answers the handshake of TCP and then nothing.
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(UnreachableError, match=r"within 0\.05 s"):
            await open_transport(
                Pair().transport,
                "127.0.0.1",
                port,
                tls=context(ca=certs.ca),
                timeout_s=0.05,
            )


@BOTH
async def test_a_lost_transport_lets_its_machine_go() -> None:
    """The receive buffer is a MiB of the budget: it must not wait for the collector."""
    pair = await Pair().open()
    machine = weakref.ref(pair.machine)
    transport = weakref.ref(pair.transport)
    pair.peer.transport.write(b"a\0")
    await pair.lost
    await pair.peer.lost.wait()
    pair.server.close()
    await asyncio.sleep(0)
    gc.disable()
    try:
        del pair.machine, pair.transport
        for _ in range(3):
            await asyncio.sleep(0)
        assert transport() is None
        assert machine() is None
    finally:
        gc.enable()
