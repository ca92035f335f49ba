"""Topics that come, grow and go, for sources of any system: a broker in memory, and a source of it."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest

from fastwire.coverage import Coverage
from fastwire.kafka.protocol.metadata import topic_id_text
from fastwire.position import Log, Position, Span
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.position import PULSAR_EARLIEST
from fastwire_daemon.devbroker.kafka import KafkaDevBroker
from fastwire_daemon.devbroker.pulsar import PulsarDevBroker
from fastwire_daemon.devbroker.tank import TankDevBroker
from tests.support.kafka import source_scene as kafka_scene
from tests.support.kafka.source_pipe import batches
from tests.support.pulsar import source_scene
from tests.support.source_pipe import AnyPipe, entries
from tests.support.tank import source_pipe as tank_scene
from tests.support.tank.bundles import bundles

WATCHED = pb.FeatureFlags(supports_topic_watchers=True, supports_get_partitioned_metadata_without_auto_creation=True)
POLLED = pb.FeatureFlags()
POLL_S = 0.1


class Ground(ABC):
    """A broker with the topic ``t``. Entries and batches are numbered, and of ten rows.

    ``outsiders`` are topics of the broker itself. ``same_log``: a topic that is made again goes on in its log.
    """

    outsiders: tuple[str, ...]
    same_log: bool
    broker: Any

    def __init__(self) -> None:
        self._partitions: dict[str, int] = {}

    @asynccontextmanager
    async def serving(self, partitions: int = 0) -> AsyncIterator[Any]:
        """The broker; in the end nobody may have broken a rule."""
        async with self._serving(partitions) as self.broker:
            self._partitions = {"t": partitions}
            yield self.broker

    @abstractmethod
    def _serving(self, partitions: int) -> AbstractAsyncContextManager[Any]: ...

    @asynccontextmanager
    async def reading(self, **more: Any) -> AsyncIterator[AnyPipe]:
        """A source whose pipeline commits what is taken from it; what is new is found in no time."""
        async with self._reading(**more) as pipe:
            pipe.eager = True
            yield pipe

    @abstractmethod
    def _reading(self, **more: Any) -> AbstractAsyncContextManager[AnyPipe]: ...

    def create(self, topic: str, partitions: int = 0) -> None:
        """Make a topic; 0 partitions are none where that can be, else one."""
        self._partitions[topic] = partitions
        self.broker.create_topic(topic, partitions)

    def grow(self, topic: str, partitions: int) -> None:
        self._partitions[topic] = partitions
        self.broker.grow_topic(topic, partitions)

    def delete(self, topic: str) -> None:
        self.broker.delete_topic(topic)

    @abstractmethod
    def add(self, topic: str, first: int, count: int = 1, partition: int = 0) -> None:
        """Store entries ``first`` and so on."""

    @abstractmethod
    def known(self, *partitions: tuple[str, int]) -> Coverage:
        """A Coverage that knows these partitions, of which nothing has landed."""

    @abstractmethod
    def behind(self, topic: str) -> int:
        """Return how much of the first partition of a topic is not confirmed."""


class PulsarGround(Ground):
    """With a broker that tells, or one that has to be asked."""

    outsiders = ("__change_events", "x__transaction_pending_ack")
    same_log = True
    broker: PulsarDevBroker

    def __init__(self, poll_s: float, **options: Any) -> None:
        super().__init__()
        self._poll_s = poll_s
        self._options = options

    def _serving(self, partitions: int) -> AbstractAsyncContextManager[Any]:
        return source_scene.serving(partitions=partitions, **self._options)

    def _reading(self, **more: Any) -> AbstractAsyncContextManager[AnyPipe]:
        return source_scene.reading(self.broker, partition_poll_s=self._poll_s, **more)

    def _name(self, topic: str, partition: int) -> str:
        return f"{topic}-partition-{partition}" if self._partitions[topic] else topic

    def add(self, topic: str, first: int, count: int = 1, partition: int = 0) -> None:
        self.broker.append(self._name(topic, partition), entries(first, count))

    def known(self, *partitions: tuple[str, int]) -> Coverage:
        coverage = Coverage()
        for topic, number in partitions:
            index = number if self._partitions.get(topic) else -1
            log = Log("pulsar", "c", f"persistent://public/default/{topic}", str(index), "0")
            coverage.add(Span(log, PULSAR_EARLIEST, PULSAR_EARLIEST, 0))
        return coverage

    def behind(self, topic: str) -> int:
        return self.broker.backlog(self._name(topic, 0), "s")


class KafkaGround(Ground):
    """With a member of a group, of one kind or the other, or one who reads alone."""

    outsiders = ("__consumer_offsets", "__transaction_state")
    same_log = False
    broker: KafkaDevBroker

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self._settings = settings

    def _serving(self, partitions: int) -> AbstractAsyncContextManager[Any]:
        return kafka_scene.serving(max(partitions, 1), nodes=2)

    def _reading(self, **more: Any) -> AbstractAsyncContextManager[AnyPipe]:
        return kafka_scene.reading(self.broker, **self._settings, **more)

    def add(self, topic: str, first: int, count: int = 1, partition: int = 0) -> None:
        self.broker.append(topic, batches(first, count), partition)

    def known(self, *partitions: tuple[str, int]) -> Coverage:
        coverage, begin = Coverage(), Position(0, -1)
        for topic, number in partitions:
            made = self.broker.topics.get(topic)
            log = Log("kafka", "c", topic, str(number), topic_id_text(made.topic_id) if made else "gone")
            coverage.add(Span(log, begin, begin, 0))
        return coverage

    def behind(self, topic: str) -> int:
        return self.broker.ends(topic)[0] - self.broker.offsets("g").get((topic, 0), 0)


class TankGround(Ground):
    """With a broker that has two nodes. A topic that is made again is a broken log, so none is."""

    outsiders = ()
    same_log = True
    broker: TankDevBroker

    def _serving(self, partitions: int) -> AbstractAsyncContextManager[Any]:
        return tank_scene.serving(max(partitions, 1), nodes=2)

    def _reading(self, **more: Any) -> AbstractAsyncContextManager[AnyPipe]:
        return tank_scene.reading(self.broker, **more)

    def add(self, topic: str, first: int, count: int = 1, partition: int = 0) -> None:
        self.broker.append(topic, bundles(first, count), partition)

    def known(self, *partitions: tuple[str, int]) -> Coverage:
        coverage, begin = Coverage(), Position(1, 0)
        for topic, number in partitions:
            coverage.add(Span(Log("tank", "c", topic, str(number), "0"), begin, begin, 0))
        return coverage

    def behind(self, topic: str) -> int:
        return 0


# A broker that tells, one that says it would and does not, one that has never heard of it; groups of every kind.
_GROUNDS = [
    pytest.param(PulsarGround(60.0, feature_flags=WATCHED), id="pulsar-watched"),
    pytest.param(PulsarGround(POLL_S, feature_flags=WATCHED, watchable=False), id="pulsar-refused"),
    pytest.param(PulsarGround(POLL_S, feature_flags=POLLED), id="pulsar-polled"),
    pytest.param(KafkaGround(protocol="none"), id="kafka-alone"),
    pytest.param(KafkaGround(protocol="classic"), id="kafka-classic"),
    pytest.param(KafkaGround(protocol="classic", assignor="range"), id="kafka-eager"),
    pytest.param(KafkaGround(protocol="consumer"), id="kafka-consumer"),
]
GROUNDS = pytest.mark.parametrize("ground", _GROUNDS)
# Those and a system whose topics have no life of their own.
ALL_GROUNDS = pytest.mark.parametrize("ground", [*_GROUNDS, pytest.param(TankGround(), id="tank")])


def logs(pipe: AnyPipe) -> set[tuple[str, int]]:
    """Topic and partition of every log; the whole of a topic without partitions is 0."""
    return {(log.topic.rpartition("/")[2], max(int(log.partition), 0)) for log in pipe.source.logs}


def stages(pipe: AnyPipe, *names: str) -> set[str]:
    """Return the states of the partitions of these topics, in the words of the status page."""
    return {one.stage.value for one in pipe.source.partitions if one.log.topic.rpartition("/")[2] in names}


def values(pipe: AnyPipe) -> set[tuple[str, int]]:
    """Topic and entry of everything that came."""
    return {(topic.rpartition("/")[2], int(value.partition(b":")[0])) for topic, _, value in pipe.values}
