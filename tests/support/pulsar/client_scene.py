"""Scenes for the client that people use: an embedded broker, a client of it, and what came out."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pyarrow as pa

from fastwire_daemon.devbroker.pulsar import PulsarDevBroker, PulsarOptions
from fastwire_daemon.pulsar import Client, Consumer, Delivery, connect


@asynccontextmanager
async def playing(
    partitions: int = 0, *, broker: PulsarDevBroker | None = None, **options: Any
) -> AsyncIterator[tuple[PulsarDevBroker, Client]]:
    """A broker with the topic ``t`` and a client of it; in the end nobody may have broken a rule."""
    broker = broker or PulsarDevBroker(PulsarOptions(**options))
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
