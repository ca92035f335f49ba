"""Scenes for the Pulsar source: an embedded broker, a source that reads from it, and who else reads."""

from contextlib import AbstractAsyncContextManager
from typing import Any

from fastwire.coverage import Coverage
from fastwire.position import Log, Position, Span
from fastwire.pulsar.position import PULSAR_EARLIEST
from fastwire_daemon.devbroker.pulsar import PulsarDevBroker, PulsarOptions
from tests.support import source_pipe
from tests.support.source_pipe import Pipe, playing

TYPES = ["exclusive", "failover", "shared", "key_shared"]
ORDERED = ["exclusive", "failover"]
FULL = "persistent://public/default/t"


def serving(
    broker: PulsarDevBroker | None = None, partitions: int = 0, **options: Any
) -> AbstractAsyncContextManager[PulsarDevBroker]:
    """See ``source_pipe.serving``."""
    return source_pipe.serving(broker or PulsarDevBroker(PulsarOptions(**options)), partitions)


def reading(
    broker: PulsarDevBroker, *topics: str, started: bool = True, **more: Any
) -> AbstractAsyncContextManager[Pipe]:
    return playing(Pipe(broker, *topics, **more), started=started)


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
