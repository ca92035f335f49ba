"""Plays Spark: calls the readers of the source as Spark does, on copies, through text, and after a crash once more."""

import json
import pickle
from typing import Any

from pyspark.sql.datasource import CaseInsensitiveDict

from fastwire_daemon.spark.source.datasource import StreamReader
from tests.support.spark_scene import Scene, numbers_of


def given(scene: Scene, **more: str) -> Any:
    basic = {"servers": scene.url, "subscribe": "t", "offsetPollIntervalMs": "0", "pollTimeoutMs": "20000"}
    return CaseInsensitiveDict(basic | more)


def stream(scene: Scene, **more: str) -> StreamReader:
    return StreamReader(given(scene, **more))


def values(reader: Any, partitions: list[Any]) -> list[bytes]:
    """Return the rows that tasks read, on copies that were pickled before any offset was known."""
    copy = pickle.loads(pickle.dumps(reader))
    batches = [batch for each in partitions for batch in copy.read(pickle.loads(pickle.dumps(each)))]
    return [value for batch in batches for value in batch.column("value").to_pylist()]


def rows(reader: Any, partitions: list[Any]) -> list[int]:
    """The entries that they are of, each of them whole."""
    return numbers_of(values(reader, partitions))


def through_text(offset: Any) -> Any:
    """As Spark keeps it."""
    return json.loads(json.dumps(offset))


class Query:
    """Plays Spark: one query with its checkpoint."""

    def __init__(self, scene: Scene, **more: str) -> None:
        self.scene = scene
        self.more = more
        self.ends: list[Any] = []  # the offset log
        self.committed = 0  # batches in the commit log
        self.values: list[list[bytes]] = []  # of each batch that was read
        self.start()

    def start(self) -> None:
        """Begin anew from the checkpoint, as 4.2 and later do."""
        self.reader = stream(self.scene, **self.more)
        if not self.ends:
            self.initial = through_text(self.reader.initialOffset())
        elif self.committed < len(self.ends):
            if self.committed == 0:
                self.initial = through_text(self.reader.initialOffset())
            self.run()

    @property
    def at(self) -> Any:
        return self.ends[-1] if self.ends else self.initial

    def plan(self, limit: Any = None) -> bool:
        """Plan a batch; whether there is one."""
        start = through_text(self.at)
        end = through_text(self.reader.latestOffset(start, limit or self.reader.getDefaultReadLimit()))
        if json.dumps(end) == json.dumps(self.at):
            return False
        self.ends.append(end)
        return True

    def plan_first(self) -> None:
        """Plan the first batch as Spark does, whether there is anything to read or not."""
        assert not self.ends
        if not self.plan():
            self.ends.append(self.initial)

    def run(self) -> None:
        """Read the batch that is planned, and commit it."""
        before = self.ends[-2] if len(self.ends) > 1 else self.initial
        if not self.ends[:-1] and self.reader._initial is not None:
            before = through_text(self.reader.initialOffset())
        partitions = self.reader.partitions(through_text(before), through_text(self.ends[-1]))
        self.values.append(values(self.reader, partitions))
        self.committed = len(self.ends)

    def go(self) -> list[int]:
        """All that there is, in batches."""
        before = len(self.values)
        while self.plan():
            self.run()
        return numbers_of(value for batch in self.values[before:] for value in batch)

    @property
    def read(self) -> list[list[int]]:
        """The entries of each batch, if none was cut."""
        return [numbers_of(batch) for batch in self.values]

    def stop(self) -> None:
        self.reader.stop()
