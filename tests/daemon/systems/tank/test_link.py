"""One connection: messages, the end of an answer and the end of the connection reach the owner of the link."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from fastwire.columns.chunk import Chunk
from fastwire.position import Log, Position
from fastwire.tank.format.message import DiscoverTopics
from fastwire.tank.names import parse_tank_url
from fastwire.tank.producing.bundle import Message, encode_bundle
from fastwire.tank.protocol.fetch import FetchLimits, Target
from fastwire.tank.reading.response import Fetched
from fastwire.tank.reading.scan import CorruptBundle
from fastwire.tank.reading.slot import SlotTable
from fastwire.wire.pool import Pool
from fastwire_daemon.devbroker.server import running
from fastwire_daemon.devbroker.tank import TankDevBroker
from fastwire_daemon.net.endpoint import LinkLost
from fastwire_daemon.systems.tank.link import Link
from fastwire_daemon.systems.tank.settings import ClientSettings

PATIENCE_S = 60.0


class Owner:
    """Notes what a link reports, in order."""

    def __init__(self) -> None:
        self.seen: list[object] = []
        self.news = asyncio.Event()

    def _note(self, *event: object) -> None:
        self.seen.append(event)
        self.news.set()

    def on_chunk(self, chunk: Chunk) -> None:
        self._note("chunk", chunk.rows)

    def on_fetched(self, link: Link, fetched: Fetched) -> None:
        self._note("fetched", fetched.answered)

    def on_corrupt(self, bundle: CorruptBundle) -> None:
        self._note("corrupt", bundle.position)

    def on_connected(self, link: Link) -> None:
        self._note("connected")

    def on_lost(self, link: Link, reason: Exception | None) -> None:
        self._note("lost", reason)

    async def until(self, count: int) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while len(self.seen) < count:
                self.news.clear()
                await self.news.wait()


@pytest.fixture
def broker() -> Iterator[TankDevBroker]:
    with running(TankDevBroker()) as broker:
        broker.create_topic("t")
        yield broker
    assert broker.violations == []


@asynccontextmanager
async def opened(broker: TankDevBroker) -> AsyncIterator[tuple[Link, Owner, SlotTable]]:
    owner, slots = Owner(), SlotTable()
    slots.attach(slots.add(Log("tank", "c", "t", "0")), Position(1, 0), 1)
    url = parse_tank_url(broker.url)
    link = Link(
        url.addresses[0], ClientSettings(url=url, on_corrupt="stop"), slots, Pool(1 << 26), owner, limits=FetchLimits()
    )
    link.fetcher.add(Target(0, "t", 0, 1))
    await link.open()
    try:
        yield link, owner, slots
    finally:
        link.close()
        await link.lost


async def test_messages_come_before_the_end_of_their_answer(broker: TankDevBroker) -> None:
    for _ in range(40):
        broker.produce("t", [b"x"] * 1000)
    async with opened(broker) as (link, owner, slots):
        link.pump()
        await owner.until(4)
        assert owner.seen == [("connected",), ("chunk", 16_000), ("chunk", 16_000), ("fetched", (0,))]
        assert slots.position(0) == Position(40_001, 0)
        link.hand_on()
        assert owner.seen[-1] == ("chunk", 8_000)


async def test_a_bundle_that_cannot_be_decoded(broker: TankDevBroker) -> None:
    broker.append("t", [b"\x06" + encode_bundle([Message(value=b"x")])[1:]])
    async with opened(broker) as (link, owner, _):
        link.pump()
        await owner.until(3)
        assert owner.seen[1] == ("corrupt", Position(1, 0))


async def test_a_cut_connection(broker: TankDevBroker) -> None:
    broker.produce("t", [b"x"])
    async with opened(broker) as (link, owner, _):
        link.pump()
        broker.drop_connections()
        await link.lost
        assert owner.seen[-1][0] == "lost"  # type: ignore[index]
        with pytest.raises(LinkLost, match="is closed"):
            await link.ask(DiscoverTopics())


async def test_a_connection_that_is_closed_here(broker: TankDevBroker) -> None:
    async with opened(broker) as (link, owner, _):
        link.close()
        await link.lost
        assert owner.seen[1:] == [("lost", None)]
