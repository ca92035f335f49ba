"""The chunks that a connection gives its owner are in the order of their records."""

from collections.abc import Sequence
from typing import Any

from fastwire.columns.chunk import Chunk, marker_chunk
from fastwire.connection import ChunkReady
from fastwire.event import FetchDone
from fastwire_daemon.systems.links.fetchlink import OwnedLink


class Machine:
    """A connection whose next read has ``events``; the open chunk has what came last."""

    more = awaiting = False
    ready = heard = True
    open_since: float | None = 0.0

    def __init__(self, events: Sequence[object], rest: Chunk) -> None:
        self._events = events
        self._rest: Chunk | None = rest
        self.scanner: Any = None

    def get_buffer(self, size_hint: int) -> bytearray:
        return bytearray(size_hint)

    def receive(self, nbytes: int, now: float) -> Sequence[object]:
        return self._events

    def take_outbound(self) -> list[bytes]:
        return []

    def take_chunk(self) -> Chunk | None:
        chunk, self._rest = self._rest, None
        return chunk


class Link(OwnedLink[Any, Any, Any]):
    async def open(self) -> None:
        """Do nothing."""


class Owner:
    """Notes chunks, and passes the open one on at the end of each response."""

    def __init__(self) -> None:
        self.chunks: list[Chunk] = []

    def on_chunk(self, chunk: Chunk) -> None:
        self.chunks.append(chunk)

    def on_fetched(self, link: Link, fetched: object) -> None:
        link.hand_on()

    def on_corrupt(self, found: object) -> None:
        raise AssertionError("nothing is corrupt")

    def on_connected(self, link: Link) -> None:
        raise AssertionError("it is connected")

    def on_lost(self, link: Link, reason: Exception | None) -> None:
        raise AssertionError("it is not lost")


async def test_the_open_chunk_comes_behind_those_that_were_full_before() -> None:
    """A read has the ends of several responses, and full chunks between them."""
    first, second, third = (marker_chunk(()) for _ in range(3))
    owner = Owner()
    events = (ChunkReady(first), FetchDone(None), ChunkReady(second), FetchDone(None))
    link = Link(("broker", 1), Machine(events, third), owner)
    link.transport.buffer_updated(1)
    assert owner.chunks == [first, second, third]
