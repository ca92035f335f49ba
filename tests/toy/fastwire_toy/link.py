"""A connection to the broker: requests one after the other, and the chunks of fetched records."""

import asyncio
import json
import struct
from collections.abc import Callable
from typing import Any, cast

from fastwire.address import HostsUrl
from fastwire.columns.chunk import Chunk
from fastwire.columns.logs import LogTable
from fastwire.columns.scan import Stop
from fastwire.errors import FastwireError, ProtocolError
from fastwire.grammar import BrokerUrl
from fastwire.wire.pool import Pool

from .scan import Scanner, Slot

MEMORY = 1 << 20  # bytes, of connections that fetch no records


class ConnectionLost(FastwireError):  # noqa: N818 - what happened to the connection
    """The connection has ended, or was refused."""


class RequestRefused(FastwireError):  # noqa: N818 - the broker's answer
    """The broker has answered with an error."""


class Link(asyncio.BufferedProtocol):
    """One connection, for one request at a time."""

    def __init__(self, scanner: Scanner, on_chunk: Callable[[Chunk], object]) -> None:
        self._scanner = scanner
        self._on_chunk = on_chunk
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def ask(self, what: str, topic: str, **keys: Any) -> dict[str, Any]:
        """Return the answer to a request about a topic. Raises RequestRefused, and ConnectionLost."""
        text = await self._request({"do": what, "topic": topic, **keys})
        answer: dict[str, Any] = json.loads(text)
        if "error" in answer:
            raise RequestRefused(f"topic {topic}: {answer['error']}")
        return answer

    async def fetch(self, slot: Slot, topic: str) -> None:
        """Wait for records at ``slot``, which moves on when they have gone to ``on_chunk``. Raises as above."""
        self._scanner.slot = slot
        await self.ask("fetch", topic, partition=slot.partition, offset=slot.offset)

    def close(self) -> None:
        """Close the connection; nothing more is received."""
        assert self._transport is not None
        self._transport.abort()

    async def _request(self, body: dict[str, Any]) -> bytes:
        assert self._transport is not None
        if self._transport.is_closing():
            raise ConnectionLost("the connection has ended")
        self._answer = asyncio.get_running_loop().create_future()
        data = json.dumps(body).encode()
        self._transport.write(struct.pack(">IB", len(data) + 1, 0) + data)
        return await self._answer

    # --- called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass of it

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._scanner.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        try:
            self._scanner.received(nbytes)
            while self._scanner.scan() == Stop.FOUND:
                chunk = self._scanner.take_chunk()
                if chunk is not None:
                    self._on_chunk(chunk)
                if not self._answer.done():
                    self._answer.set_result(self._scanner.take_found() or b"{}")
        except ProtocolError:
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._scanner.drop_chunk()
        if not self._answer.done():
            self._answer.set_exception(ConnectionLost("the connection was lost"))
            self._answer.exception()  # the caller may be gone


async def connect(
    url: BrokerUrl,
    table: LogTable | None = None,
    pool: Pool | None = None,
    on_chunk: Callable[[Chunk], object] = Chunk.release,
    *,
    columns: frozenset[str] | None = None,
) -> Link:
    """Connect to the broker, for requests and for the records of the logs of ``table``. Raises ConnectionLost."""
    assert isinstance(url, HostsUrl)
    ((host, port),) = url.addresses
    scanner = Scanner(table or LogTable(), pool or Pool(MEMORY), columns=columns)
    loop = asyncio.get_running_loop()
    try:
        _, link = await loop.create_connection(lambda: Link(scanner, on_chunk), host, port)
    except OSError as exc:
        raise ConnectionLost(f"cannot connect to {url.hosts}: {exc.strerror}") from exc
    return link
