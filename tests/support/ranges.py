"""Ranges of numbered records of any system: what a task reads, and what the driver asks. Records count from 0."""

from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import replace
from importlib import import_module
from typing import Any

import pyarrow as pa
import pytest

from fastwire.position import Position, parse_position
from fastwire_daemon.spark.source.connections import Connections
from fastwire_daemon.spark.source.options import Options, parse_options
from fastwire_daemon.spark.source.prefetch import prefetched
from fastwire_daemon.spark.source.rangereader import ReadingRules
from fastwire_daemon.spark.source.ranges import DataLossError, QueryPartition, Range
from fastwire_daemon.spark.source.system import System
from tests.support.spark_scene import ROWS, Scene, serve

T = QueryPartition("t", 0)
ALL = [b"%d:%d" % (number, row) for number in range(50) for row in range(ROWS)]


class Ranges:
    """Reads ranges of one system. ``few`` is a fetch size that makes many answers of a range."""

    def __init__(self, scene: type[Scene], few: str) -> None:
        self.few = few
        self._scene = scene
        self._parts: System = import_module(f"fastwire_daemon.spark.source.{scene.system}.system").SYSTEM

    def serving(self, count: int = 0, **settings: Any) -> AbstractContextManager[Scene]:
        """Serve ``count`` entries in topic ``t``."""
        return serve(self._scene(**settings), count)

    def options(self, url: str, **given: str) -> Options:
        basic = {"servers": url, "subscribe": "t", "pollTimeoutMs": "20000", "offsetPollIntervalMs": "0"}
        if "subscribePattern" in given:
            del basic["subscribe"]
        return parse_options(basic | given, streaming=True)

    def client(self, url: str, *, request_timeout_s: float = 30.0, **given: Any) -> Connections[Any]:
        one: Connections[Any] = Connections(self._parts.cluster(self.options(url, **given)))
        cluster = one.cluster.source.cluster
        cluster._settings = replace(cluster._settings, request_timeout_s=request_timeout_s)
        return one

    @contextmanager
    def asking(self, url: str, **given: Any) -> Iterator[Any]:
        """Return the driver's access to the brokers."""
        with closing(self._parts.broker(self.client(url, **given), self.options(url, **given))) as one:
            yield one

    def place(self, number: int) -> Position:
        """The position before a record."""
        return parse_position(self._scene.system, str(number + self._scene.first))

    def part(self, start: int, end: int) -> Range:
        return Range(system=self._scene.system, partition=T, start=self.place(start), end=self.place(end))

    def reading(
        self, one: Connections[Any], wanted: Range, *, patience_s: float = 20.0, fail: bool = True
    ) -> Generator[pa.RecordBatch, None, None]:
        """The batches of a range as a task takes them; the brokers are read ahead by as little as can be."""
        rules = ReadingRules(patience_s=patience_s, fail_on_data_loss=fail, name="test")
        return prefetched(one, self._parts.reader(one.cluster, wanted, rules).read, 1)

    def values(self, one: Connections[Any], wanted: Range, **rules: Any) -> list[bytes]:
        found = []
        for each in self.reading(one, wanted, **rules):
            each.validate(full=True)
            found += each.column("value").to_pylist()
        return found

    def numbers(self, one: Connections[Any], wanted: Range) -> list[int]:
        """The numbers of the records that come."""
        return [number for each in self.reading(one, wanted) for number in self.numbers_in(each)]

    def numbers_in(self, batch: pa.RecordBatch) -> list[int]:
        return [offset - self._scene.first for offset in batch.column("offset").to_pylist()]

    def lossy(self, url: str, wanted: Range, why: str) -> list[bytes]:
        """Reading fails for this reason; and if losses may be, what is left."""
        with closing(self.client(url)) as one:
            with pytest.raises(DataLossError, match=rf"^t partition 0 from [0-9@]+ to [0-9@]+: {why}"):
                self.values(one, wanted)
            return self.values(one, wanted, fail=False)
