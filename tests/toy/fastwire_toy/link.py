"""A connection to the broker: requests with numbers, and the chunks of fetched records."""

import asyncio
import json
import struct
from collections.abc import Callable
from typing import Any

from fastwire.columns.chunk import Chunk
from fastwire.columns.logs import LogTable
from fastwire.errors import FastwireError, ProtocolError
from fastwire.grammar import BrokerUrl
from fastwire.wire.pool import Pool

from .grammar import ToyUrl
from .scan import Place, Scanner, Stop

__all__ = ["ConnectionLost", "Link", "RequestRefused", "connect"]


class ConnectionLost(FastwireError):  # noqa: N818 - what happened to the connection
    """The connection has ended, or was refused."""


class RequestRefused(FastwireError):  # noqa: N818 - the broker's answer
    """The broker has answered with an error."""


class Link(asyncio.BufferedProtocol):
    """One connection. ``on_chunk`` gets each chunk before the fetch that ends it is answered."""

    def __init__(
        self,
        table: LogTable,
        pool: Pool,
        on_chunk: Callable[[Chunk], object],
        *,
        columns: frozenset[str] | None = None,
    ) -> None:
        self.ended = asyncio.get_running_loop().create_future()
        self._scanner = Scanner(table, pool, columns=columns)
        self._on_chunk = on_chunk
        self._transport: asyncio.Transport | None = None
        self._requests = 0
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}

    async def ask(self, what: str, *, place: Place | None = None, **body: Any) -> dict[str, Any]:
        """Return the answer to a request; {} for the records of a fetch, which go to ``place``.

        Raises RequestRefused, and ConnectionLost.
        """
        if self.ended.done():
            raise ConnectionLost("the connection has ended")
        assert self._transport is not None
        self._requests += 1
        answer = self._waiting[self._requests] = asyncio.get_running_loop().create_future()
        if place is not None:
            self._scanner.expect(self._requests, place)
        data = json.dumps({"do": what, **body}).encode()
        self._transport.write(struct.pack(">IBI", len(data) + 5, 0, self._requests) + data)
        found: dict[str, Any] = await answer
        if "error" in found:
            raise RequestRefused(found["error"])
        return found

    async def close(self) -> None:
        """Close the connection."""
        if self._transport is not None:
            self._transport.close()
            await self.ended

    # --- called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._scanner.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        try:
            self._scanner.received(nbytes)
            while (stop := self._scanner.scan()) != Stop.NEED_BYTES:
                self._handle(stop)
        except ProtocolError:
            self._scanner.drop_chunk()
            assert self._transport is not None
            self._transport.abort()

    def _handle(self, stop: int) -> None:
        self._give()
        if stop == Stop.OUTPUT_CAP:
            self._scanner.resume()
        elif stop == Stop.ANSWER:
            request, text = self._scanner.take_answer()
            waiting = self._waiting.pop(request)
            if not waiting.done():
                waiting.set_result(json.loads(text) if text else {})

    def _give(self) -> None:
        chunk = self._scanner.take_chunk()
        if chunk is not None:
            self._on_chunk(chunk)

    def connection_lost(self, exc: Exception | None) -> None:
        self._scanner.drop_chunk()
        if not self.ended.done():
            self.ended.set_result(None)
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(ConnectionLost("the connection was lost"))
                answer.exception()  # whoever waited for it may be gone
        self._waiting.clear()


async def connect(
    url: BrokerUrl,
    table: LogTable,
    pool: Pool,
    on_chunk: Callable[[Chunk], object] = Chunk.release,
    *,
    columns: frozenset[str] | None = None,
) -> Link:
    """Connect to the broker. Raises ConnectionLost."""
    assert isinstance(url, ToyUrl)
    loop = asyncio.get_running_loop()
    try:
        _, link = await loop.create_connection(lambda: Link(table, pool, on_chunk, columns=columns), url.host, url.port)
    except OSError as exc:
        raise ConnectionLost(f"cannot connect to {url.hosts}: {exc.strerror}") from None
    return link
