"""Spark's calls of the readers of ``format("fastwire")``, without Spark: a batch, and a query from a checkpoint."""

import json
import pickle
from collections.abc import Iterator
from typing import Any

import pytest

from fastwire_daemon.spark.source import systems
from fastwire_daemon.spark.source.datasource import StreamReader

PLACE = ("partition", "ledger", "offset", "batchIndex")  # as far as the system has it


@pytest.fixture
def kept() -> Iterator[None]:
    """The connections that a process keeps for its next task end with the test."""
    yield
    for client in systems._kept.values():
        client.close()
    systems._kept.clear()


def options(url: str, topic: str, **more: str) -> dict[str, str]:
    basic = {"servers": url, "subscribe": topic, "offsetPollIntervalMs": "0", "pollTimeoutMs": "60000"}
    return basic | more


def values(reader: Any, partitions: list[Any]) -> list[int]:
    """The numbers in all the ranges, read by a copy of the reader; no place of the log may come twice."""
    copy = pickle.loads(pickle.dumps(reader))
    batches = [batch for each in partitions for batch in copy.read(each)]
    places: list[tuple[int, ...]] = []
    for batch in batches:
        batch.validate(full=True)
        names = [name for name in PLACE if name in batch.schema.names]
        places += zip(*(batch.column(name).to_pylist() for name in names), strict=True)
    assert len(set(places)) == len(places)
    return [int(value) for batch in batches for value in batch.column("value").to_pylist()]


class Stream:
    """A query without Spark, from its start to where it is."""

    def __init__(self, **given: str) -> None:
        self.given = given
        self.reader = StreamReader(given)
        self.at = self._text(self.reader.initialOffset())

    def go(self) -> list[int]:
        """Batches until there is nothing new."""
        found: list[int] = []
        while True:
            end = self._text(self.reader.latestOffset(self.at, self.reader.getDefaultReadLimit()))
            if end == self.at:
                return found
            found += values(self.reader, self.reader.partitions(self.at, end))
            self.at = end

    def restart(self) -> None:
        """Drop everything but the checkpoint."""
        self.reader.stop()
        self.reader = StreamReader(self.given)

    @staticmethod
    def _text(offset: Any) -> Any:
        return json.loads(json.dumps(offset))
