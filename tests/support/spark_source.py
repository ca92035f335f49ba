"""Scenes of the Spark source: a broker with numbered entries, options, a range's values."""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from fastwire.position import Position
from fastwire.pulsar.names.topic import parse_service_url
from fastwire.pulsar.position import PULSAR_EARLIEST
from fastwire_daemon.devbroker.pulsar import PulsarDevBroker
from fastwire_daemon.spark.source.connections import Connections
from fastwire_daemon.spark.source.options import Options, parse_options
from fastwire_daemon.spark.source.prefetch import prefetched
from fastwire_daemon.spark.source.pulsar.cluster import RangeCluster
from fastwire_daemon.spark.source.pulsar.dialect import DIALECT
from fastwire_daemon.spark.source.pulsar.driver import PulsarBroker
from fastwire_daemon.spark.source.pulsar.rangereader import PulsarRangeReader
from fastwire_daemon.spark.source.rangereader import ReadingRules
from fastwire_daemon.spark.source.ranges import QueryPartition, Range
from fastwire_daemon.spark.source.rows import Rows
from fastwire_daemon.systems.pulsar.settings import ClientSettings
from tests.support.spark_scene import ROWS, PulsarScene, numbers, serve
from tests.support.waiting import eventually

__all__ = [
    "ROWS",
    "T",
    "asking",
    "at",
    "client",
    "eventually",
    "numbers",
    "options",
    "part",
    "read",
    "reading",
    "serving",
]

TOPIC = "persistent://public/default/t"
T = QueryPartition(TOPIC, -1)
ALL = frozenset({"key", "value", "partition", "timestamp"})


@contextmanager
def serving(count: int = 0, broker: PulsarDevBroker | None = None, **settings: Any) -> Iterator[PulsarDevBroker]:
    """Pulsar's broker in a thread whose topic ``t`` holds ``count`` entries."""
    scene = PulsarScene(broker, **settings)
    with serve(scene, count):
        yield scene.broker


def at(broker: PulsarDevBroker, index: int, topic: str = "t") -> Position:
    """The position of an entry by its place among all that were ever stored."""
    return Position(*broker.positions(topic)[index][:2])


def client(url: str, *, window: int = 50, **given: Any) -> Connections[RangeCluster]:
    settings = ClientSettings(url=parse_service_url(url), columns=Rows.built(DIALECT, ALL), **given)
    return Connections(lambda: RangeCluster(settings, window))


def part(end: Position, start: Position = PULSAR_EARLIEST, **flags: Any) -> Range:
    flags = {"start_exists": start != PULSAR_EARLIEST} | flags
    return Range(system="pulsar", partition=T, start=start, end=end, **flags)


def reading(
    one: Connections[RangeCluster], wanted: Range, *, patience_s: float = 20.0, fail: bool = True
) -> Generator[pa.RecordBatch, None, None]:
    """The batches of a range as a task takes them; the brokers are read ahead by as little as can be."""
    rules = ReadingRules(patience_s=patience_s, fail_on_data_loss=fail, name="test")
    return prefetched(one, PulsarRangeReader(one.cluster, wanted, rules).read, 1)


def read(one: Connections[RangeCluster], wanted: Range, **rules: Any) -> list[pa.RecordBatch]:
    return list(reading(one, wanted, **rules))


def options(url: str, **given: str) -> Options:
    basic = {"servers": url, "subscribe": "t", "pollTimeoutMs": "20000"}
    return parse_options(basic | given, streaming=True)


@contextmanager
def asking(url: str, **given: str) -> Iterator[PulsarBroker]:
    """Return the driver's access to the brokers."""
    one = PulsarBroker(client(url), options(url, **({"offsetPollIntervalMs": "0"} | given)))
    try:
        yield one
    finally:
        one.close()
