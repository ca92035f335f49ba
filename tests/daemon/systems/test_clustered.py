"""At Level.FINISH one connection is read: that with most bytes of an incomplete frame, until it gives a chunk."""

import asyncio
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from fastwire_daemon.net.transport import Pause
from fastwire_daemon.runtime.budget import Level
from fastwire_daemon.systems.reading import clustered
from fastwire_daemon.systems.reading.clustered import ClusteredSource
from tests.support.source_pipe import until


@dataclass(eq=False)
class Transport:
    paused: int = 0
    bytes_read: int = 0
    held_since: float | None = None

    def pause(self, why: int) -> None:
        self.paused |= why

    def go_on(self, why: int) -> None:
        self.paused &= ~why

    def take_full_ns(self) -> int:
        return 0


@dataclass(eq=False)
class Link:
    buffered: int
    shrunk: int = 0
    ready: bool = True
    transport: Transport = field(default_factory=Transport)

    @property
    def connection(self) -> Any:
        return SimpleNamespace(scanner=SimpleNamespace(buffered=self.buffered, shrink=self.shrink))

    def shrink(self) -> None:
        self.shrunk += 1

    def tick(self, now: float, chunk_age_s: float) -> None: ...


class Source(ClusteredSource[Any, Any, Any]):
    holding = True

    def __init__(self, links: list[Link]) -> None:
        super().__init__(SimpleNamespace(on_chunk=lambda chunk: True), None)
        self.cluster = SimpleNamespace(links=dict(enumerate(links)))

    async def _resolve(self, assignment: object, coverage: object) -> None: ...
    async def _say_goodbye(self) -> None: ...
    def _ask_on(self) -> None: ...
    def _left(self, link: Link) -> None: ...
    def _look(self, now: float) -> None: ...

    def is_for_good(self, error: object) -> bool:
        return False


def read(links: list[Link]) -> list[int]:
    """The numbers of the connections that are read."""
    return [number for number, link in enumerate(links) if not link.transport.paused & Pause.MEMORY]


async def test_the_one_with_most_of_a_frame_is_read_until_it_gives_a_chunk() -> None:
    links = [Link(10), Link(30), Link(20), Link(0), Link(90, ready=False)]
    source = Source(links)
    source.on_budget(Level.STOP)
    assert read(links[:4]) == []
    source.on_budget(Level.FINISH)
    assert read(links[:4]) == [1]
    links[2].buffered = 40  # what has come before the pause
    source.on_budget(Level.FINISH)
    assert read(links[:4]) == [1]
    links[1].buffered = 0
    source.on_chunk(SimpleNamespace())  # type: ignore[arg-type]
    assert read(links[:4]) == [2]
    await asyncio.sleep(0)
    assert [link.shrunk for link in links] == [1, 2, 1, 1, 0]
    links[2].ready = False
    source.on_budget(Level.FINISH)
    assert 0 in read(links[:4])
    source.on_budget(Level.HOLD)
    assert read([links[0], links[1], links[3]]) == [0, 1, 2]


async def test_a_silent_one_loses_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clustered, "SILENT_S", 0.01)
    links = [Link(10), Link(30), Link(20)]
    source = Source(links)
    source.on_budget(Level.FINISH)
    source._tick()
    turns = list[int]()

    def turn() -> bool:
        (now,) = read(links)
        if turns[-1:] != [now]:
            turns.append(now)
        return len(turns) == 5

    await until(turn, "five turns")
    assert turns == [1, 2, 0, 1, 2]  # all of them are silent, and each comes again
    assert source._timer is not None
    source._timer.cancel()


async def test_as_long_as_bytes_come_it_keeps_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clustered, "SILENT_S", 0.0)
    links = [Link(10), Link(30)]
    source = Source(links)
    source.on_budget(Level.FINISH)
    for _ in range(3):
        links[1].transport.bytes_read += 1
        await asyncio.sleep(0)
        source.on_budget(Level.FINISH)
        assert read(links) == [1]
    source.on_budget(Level.FINISH)
    assert read(links) == [0]
