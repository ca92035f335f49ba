"""Scenes for the Kafka source: an embedded broker, and a source that reads from it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastwire_daemon.devbroker.kafka import KafkaDevBroker, KafkaOptions
from tests.support.kafka.source_pipe import KafkaPipe

__all__ = ["assert_once", "reading", "serving"]


@asynccontextmanager
async def serving(partitions: int = 1, **options: Any) -> AsyncIterator[KafkaDevBroker]:
    """A broker with the topic ``t``; in the end nobody may have broken a rule."""
    broker = KafkaDevBroker(KafkaOptions(**options))
    await broker.start()
    broker.create_topic("t", partitions)
    try:
        yield broker
        assert broker.violations == []
    finally:
        await broker.stop()


@asynccontextmanager
async def reading(broker: KafkaDevBroker, *topics: str, started: bool = True, **more: Any) -> AsyncIterator[KafkaPipe]:
    pipe = KafkaPipe(broker, *topics, **more)
    try:
        yield await pipe.start() if started else pipe
    finally:
        await pipe.close()


def assert_once(pipe: KafkaPipe, rows: int) -> None:
    assert pipe.once()
    assert pipe.rows == len(pipe.values) == rows
    assert pipe.letters == []
