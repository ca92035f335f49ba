"""Scenes for the client that people use: an embedded broker, a client of it, and what came out."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pyarrow as pa
import uvloop

from fastwire_daemon.devbroker.pulsar import PulsarDevBroker, PulsarOptions
from fastwire_daemon.pulsar import Client, Consumer, Delivery, connect

__all__ = ["playing", "run", "take", "values"]

PATIENCE_S = 30.0


def run(
    main: Callable[[], Coroutine[Any, Any, None]],
    loop: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop,
) -> None:
    async def limited() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await main()

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(limited())


@asynccontextmanager
async def playing(partitions: int = 0, **options: Any) -> AsyncIterator[tuple[PulsarDevBroker, Client]]:
    """A broker with the topic ``t`` and a client of it; in the end nobody may have broken a rule."""
    broker = PulsarDevBroker(PulsarOptions(**options))
    await broker.start()
    broker.create_topic("t", partitions)
    try:
        async with connect(broker.url) as client:
            yield broker, client
        assert broker.violations == []
    finally:
        await broker.stop()


def values(chunk: Any) -> list[bytes]:
    return pa.record_batch(chunk).column("value").to_pylist() if chunk.rows else []


async def take(consumer: Consumer, rows: int) -> list[Delivery]:
    """Chunks until there are so many rows."""
    found = []
    while rows > 0:
        chunk = await consumer.receive()
        assert chunk is not None
        found.append(chunk)
        rows -= chunk.rows
    return found
