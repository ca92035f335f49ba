"""What tests of the Spark source share: a broker with numbered entries, options, a range's values."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from fastwire.position import PULSAR_EARLIEST, Position
from fastwire.pulsar.topic import parse_service_url
from fastwire_daemon.devbroker.pulsar import PulsarDevBroker
from fastwire_daemon.pulsar.settings import ClientSettings
from fastwire_daemon.spark.options import Options, parse_options
from fastwire_daemon.spark.pulsar.client import Client
from fastwire_daemon.spark.pulsar.driver import PulsarBroker
from fastwire_daemon.spark.pulsar.reading import PulsarRangeReader
from fastwire_daemon.spark.ranges import Partition, Range
from fastwire_daemon.spark.reading import RangeReader, ReadingRules
from fastwire_daemon.spark.rows import Rows
from tests.spark_scene import ROWS, PulsarScene, numbers, serve
from tests.waiting import eventually

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
    "reader",
    "serving",
]

TOPIC = "persistent://public/default/t"
T = Partition(TOPIC, -1)
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


def client(url: str, **settings: Any) -> Client:
    return Client(ClientSettings(url=parse_service_url(url), columns=Rows.built("pulsar", ALL), **settings))


def part(end: Position, start: Position = PULSAR_EARLIEST, **flags: Any) -> Range:
    flags = {"start_exists": start != PULSAR_EARLIEST} | flags
    return Range(system="pulsar", partition=T, start=start, end=end, **flags)


def reader(one: Client, wanted: Range, *, patience_s: float = 20.0, fail: bool = True, window: int = 50) -> RangeReader:
    rules = ReadingRules(window=window, patience_s=patience_s, fail_on_data_loss=fail, name="test")
    return PulsarRangeReader(one, wanted, rules, lambda: False)


def read(one: Client, wanted: Range, **rules: Any) -> list[pa.RecordBatch]:
    return list(reader(one, wanted, **rules).batches())


def options(url: str, **given: str) -> Options:
    basic = {"servers": url, "subscribe": "t", "pollTimeoutMs": "20000"}
    return parse_options(basic | given, streaming=True)


@contextmanager
def asking(url: str, **given: str) -> Iterator[PulsarBroker]:
    """What the driver asks brokers with."""
    one = PulsarBroker(client(url), options(url, **({"offsetPollIntervalMs": "0"} | given)))
    try:
        yield one
    finally:
        one.close()
