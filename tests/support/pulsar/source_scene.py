"""Scenes for the Pulsar source: an embedded broker, a source that reads from it, and who else reads."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastwire.position import Coverage, Log, Position, Span
from fastwire.pulsar.position import PULSAR_EARLIEST
from fastwire_daemon.devbroker.pulsar import PulsarDevBroker, PulsarOptions
from tests.support.source_pipe import Pipe

__all__ = ["FULL", "ORDERED", "TYPES", "landed", "reading", "serving", "two"]

TYPES = ["exclusive", "failover", "shared", "key_shared"]
ORDERED = ["exclusive", "failover"]
FULL = "persistent://public/default/t"


@asynccontextmanager
async def serving(
    broker: PulsarDevBroker | None = None, partitions: int = 0, **options: Any
) -> AsyncIterator[PulsarDevBroker]:
    """A broker with the topic ``t``; in the end nobody may have broken a rule."""
    broker = broker or PulsarDevBroker(PulsarOptions(**options))
    await broker.start()
    broker.create_topic("t", partitions)
    try:
        yield broker
        assert broker.violations == [], broker.violations
    finally:
        await broker.stop()


@asynccontextmanager
async def reading(broker: PulsarDevBroker, *topics: str, started: bool = True, **more: Any) -> AsyncIterator[Pipe]:
    pipe = Pipe(broker, *topics, **more)
    try:
        yield await pipe.start() if started else pipe
    finally:
        await pipe.close()


def landed(*positions: Position | tuple[int, int], partition: int = -1, start: Position = PULSAR_EARLIEST) -> Coverage:
    coverage = Coverage()
    log = Log("pulsar", "c", FULL, str(partition), "0")
    coverage.add(Span(log, start, start, 0))
    for position in positions:
        coverage.add(Span(log, start, Position(*position), 1))
    return coverage


def two(broker: PulsarDevBroker, kind: str, **more: Any) -> tuple[Pipe, Pipe]:
    one = Pipe(broker, subscription_type=kind, consumer_name="a", **more)
    other = Pipe(broker, subscription_type=kind, consumer_name="b", **more)
    other.coverage = one.coverage  # one dataset
    return one, other
