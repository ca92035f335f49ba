"""One embedded broker of any system for tests of the Spark source: numbered entries in topics, and what befalls them.

Entry ``n`` has ``ROWS`` rows with the values ``n:0``, ``n:1`` …, all of second ``n``. Topic ``t`` has one partition.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from fastwire.position import Position, format_position
from fastwire.pulsar.position import PULSAR_EARLIEST
from fastwire_daemon.devbroker.kafka import KafkaDevBroker, KafkaOptions
from fastwire_daemon.devbroker.pulsar import PulsarDevBroker, PulsarOptions
from fastwire_daemon.devbroker.server import running
from fastwire_daemon.devbroker.tank import TankDevBroker, TankOptions
from fastwire_daemon.spark.source.ranges import QueryPartition
from tests.support.kafka.source_pipe import batches
from tests.support.source_pipe import entries
from tests.support.tank.bundles import bundle

ROWS = 10  # of an entry


class Scene(ABC):
    """The broker of one system. A system without groups has no ``group_option``.

    ``index`` is that of the partition of a topic that was not partitioned, ``beginning`` that of any partition. With
    ``times`` a query may begin at a time.
    """

    system: str
    index: int
    beginning: Position
    first = 0  # the column ``offset`` of the first row
    group_option: str
    times = True
    broker: Any

    @property
    def url(self) -> str:
        url: str = self.broker.url
        return url

    @property
    def topic(self) -> str:
        """The full name of ``t``."""
        return self.name("t")

    @property
    def t(self) -> QueryPartition:
        """The partition of ``t``."""
        return QueryPartition(self.topic, self.index)

    def group(self, name: str) -> dict[str, str]:
        """The option that gives the brokers' memory of a query its name; none if the brokers have no memory."""
        return {self.group_option: name} if self.group_option else {}

    def text(self, position: Position) -> str:
        return format_position(self.system, position)

    @abstractmethod
    def name(self, topic: str) -> str:
        """The full name of a topic."""

    def create(self, topic: str, partitions: int = 0) -> None:
        self.broker.create_topic(topic, partitions)

    def grow(self, topic: str, partitions: int) -> None:
        self.broker.grow_topic(topic, partitions)

    def delete(self, topic: str) -> None:
        self.broker.delete_topic(topic)

    @abstractmethod
    def append(self, first: int, count: int, topic: str = "t", partition: int = -1) -> None:
        """Store entries ``first`` and ``count - 1`` more."""

    @abstractmethod
    def at(self, index: int) -> Position:
        """The position behind an entry of ``t``, by its place among all that were ever stored."""

    @abstractmethod
    def trim(self, index: int) -> None:
        """Let retention take what stands in ``t`` before that entry."""

    def unread(self, group: str) -> int:
        """Rows of ``t`` that the group has not confirmed."""
        raise NotImplementedError  # a system without groups

    @abstractmethod
    def left(self) -> bool:
        """Return whether no reader has left anything of its own at the broker."""


class PulsarScene(Scene):
    system = "pulsar"
    index = -1
    beginning = PULSAR_EARLIEST
    group_option = "subscription"

    def __init__(self, broker: PulsarDevBroker | None = None, **settings: Any) -> None:
        self.broker: PulsarDevBroker = broker or PulsarDevBroker(PulsarOptions(**({"ledger_entries": 20} | settings)))

    def name(self, topic: str) -> str:
        return f"persistent://public/default/{topic}"

    def append(self, first: int, count: int, topic: str = "t", partition: int = -1) -> None:
        name = topic if partition < 0 else f"{topic}-partition-{partition}"
        self.broker.append(name, entries(first, count, ROWS))

    def at(self, index: int) -> Position:
        return Position(*self.broker.positions("t")[index][:2])

    def trim(self, index: int) -> None:
        self.broker.trim("t", *self.at(index))

    def unread(self, group: str) -> int:
        return self.broker.backlog("t", group)

    def left(self) -> bool:
        return self.broker.subscriptions("t") == []


class KafkaScene(Scene):
    system = "kafka"
    index = 0
    beginning = Position(0, -1)
    group_option = "groupId"

    def __init__(self, broker: KafkaDevBroker | None = None, **settings: Any) -> None:
        self.broker: KafkaDevBroker = broker or KafkaDevBroker(KafkaOptions(**settings))

    def name(self, topic: str) -> str:
        return topic

    def append(self, first: int, count: int, topic: str = "t", partition: int = -1) -> None:
        self.broker.append(topic, batches(first, count, ROWS), max(partition, 0))

    def at(self, index: int) -> Position:
        return Position((index + 1) * ROWS, 0)

    def trim(self, index: int) -> None:
        self.broker.trim("t", index * ROWS)

    def unread(self, group: str) -> int:
        return self.broker.ends("t")[0] - self.broker.offsets(group).get(("t", 0), 0)

    def left(self) -> bool:
        return self.broker.call(lambda: not self.broker.groups)


class TankScene(Scene):
    """Entries are bundles. A segment ends before each entry whose number is a multiple of ``SEGMENT``."""

    SEGMENT = 10
    system = "tank"
    index = 0
    beginning = Position(1, 0)
    first = 1
    group_option = ""
    times = False

    def __init__(self, broker: TankDevBroker | None = None, **settings: Any) -> None:
        self.broker: TankDevBroker = broker or TankDevBroker(TankOptions(**settings))

    def name(self, topic: str) -> str:
        return topic

    def append(self, first: int, count: int, topic: str = "t", partition: int = -1) -> None:
        for number in range(first, first + count):
            if number % self.SEGMENT == 0:
                self.broker.roll(topic, max(partition, 0))
            self.broker.append(topic, [bundle(number, ROWS)], max(partition, 0))

    def at(self, index: int) -> Position:
        return Position((index + 1) * ROWS + 1, 0)

    def trim(self, index: int) -> None:
        assert index % self.SEGMENT == 0
        self.broker.trim("t", index * ROWS + 1)

    def left(self) -> bool:
        return True  # the protocol has nothing that could be left


SCENES: dict[str, type[Scene]] = {"pulsar": PulsarScene, "kafka": KafkaScene, "tank": TankScene}
Serve = Callable[..., Any]


@contextmanager
def serve(scene: Scene, count: int = 0) -> Iterator[Scene]:
    """``scene`` in a thread, its topic ``t`` with ``count`` entries; nobody may have broken a rule in the end."""
    with running(scene.broker):
        scene.create("t")
        scene.append(0, count)
        yield scene
    assert scene.broker.violations == [], scene.broker.violations


def numbers(batches: Iterable[pa.RecordBatch]) -> list[int]:
    """The entries that rows are of, in order, each of them whole."""
    return numbers_of(value for batch in batches for value in batch.column("value").to_pylist())


def numbers_of(values: Iterable[bytes]) -> list[int]:
    """The same of values."""
    found = [tuple(map(int, value.rstrip(b".").split(b":"))) for value in values]
    whole = [number for number, _ in found[::ROWS]]
    assert found == [(number, row) for number in whole for row in range(ROWS)]
    return whole
