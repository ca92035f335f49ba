"""The embedded broker in a thread of the test, and its judgement at the end."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fastwire_daemon.devbroker.kafka import KafkaDevBroker, KafkaOptions
from fastwire_daemon.devbroker.pulsar import PulsarDevBroker, PulsarOptions
from fastwire_daemon.devbroker.server import running
from fastwire_daemon.devbroker.tank import TankDevBroker, TankOptions
from fastwire_daemon.devbroker.tubemq import TubeMQDevBroker, TubeMQOptions
from tests.crash.preload import library
from tests.crash.scene import Scene
from tests.crash.system import KAFKA_KINDS, KafkaSystem, PulsarSystem, System, TankSystem, TubeMQSystem
from tests.real.daemon import Job
from tests.support.nursery import Nursery, shared

TOPIC = "persistent://public/default/numbers"
PLAIN_TOPIC = "numbers"
SESSION_S = 1.5


@pytest.fixture
def dev_broker() -> Iterator[PulsarDevBroker]:
    """A fresh embedded broker; the test fails if a client broke the protocol."""
    with running(PulsarDevBroker(PulsarOptions(ledger_entries=40, read_ahead=20))) as broker:
        yield broker
        assert broker.violations == []


@pytest.fixture(scope="session")
def nursery() -> Nursery:
    """The process that forks daemons."""
    return shared()


@pytest.fixture(scope="session")
def tampered_nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    """The process that forks daemons that obey ``tests.crash.preload``."""
    with Nursery(library(tmp_path_factory.mktemp("preload"))) as process:
        yield process


@pytest.fixture
def dev_kafka() -> Iterator[KafkaDevBroker]:
    """The same for Kafka; sessions end soon, because whoever was killed is waited for so long."""
    with running(KafkaDevBroker(KafkaOptions(segment_batches=20, consumer_session_s=SESSION_S))) as broker:
        yield broker
        assert broker.violations == []


@pytest.fixture
def dev_tank() -> Iterator[TankDevBroker]:
    """The same for TANK."""
    with running(TankDevBroker(TankOptions(segment_bytes=100_000))) as broker:
        yield broker
        assert broker.violations == []


@pytest.fixture
def dev_tubemq() -> Iterator[TubeMQDevBroker]:
    """The same for TubeMQ; registrations end soon, because whoever was killed is waited for so long."""
    with running(TubeMQDevBroker(TubeMQOptions(consumer_timeout_s=SESSION_S))) as broker:
        yield broker
        assert broker.violations == []


@pytest.fixture
def dev_scene(request: pytest.FixtureRequest, tmp_path: Path, nursery: Nursery) -> Callable[..., Scene]:
    """Makes scenes on the embedded broker of the system that has this kind of subscription."""

    def make(*, partitions: int = 2, kind: str = "failover", **options: Any) -> Scene:
        system: System
        if kind in KAFKA_KINDS:
            kafka: KafkaDevBroker = request.getfixturevalue("dev_kafka")
            kafka.create_topic(PLAIN_TOPIC, partitions)
            system, topic = KafkaSystem(kafka.url, kafka.ends, kafka.offsets), PLAIN_TOPIC
        elif kind == "tank":
            tank: TankDevBroker = request.getfixturevalue("dev_tank")
            tank.create_topic(PLAIN_TOPIC, partitions)
            system, topic = TankSystem(tank), PLAIN_TOPIC
        elif kind == "tubemq":
            tubemq: TubeMQDevBroker = request.getfixturevalue("dev_tubemq")
            tubemq.create_topic(PLAIN_TOPIC, partitions)
            system, topic = TubeMQSystem(tubemq), PLAIN_TOPIC
        else:
            pulsar: PulsarDevBroker = request.getfixturevalue("dev_broker")
            pulsar.create_topic(TOPIC, partitions)
            system, topic = PulsarSystem(pulsar.url, backlog=lambda job, _: backlog(pulsar, job, scene)), TOPIC
        scene = Scene(system, topic, tmp_path, partitions=partitions, kind=kind, nursery=nursery, **options)
        return scene

    return make


def backlog(broker: PulsarDevBroker, job: Job, scene: Scene) -> int:
    try:
        return broker.backlog(TOPIC, job.subscription)
    except KeyError:
        return scene.feed.count  # nobody has subscribed yet


@pytest.fixture
def real_scene(
    request: pytest.FixtureRequest, fresh_name: Callable[[str], str], tmp_path: Path, nursery: Nursery
) -> Callable[..., Scene]:
    """Makes scenes on a real broker of the system that has this kind of subscription."""

    def make(*, partitions: int = 2, kind: str = "failover", **options: Any) -> Scene:
        broker = request.getfixturevalue("plain_kafka" if kind in KAFKA_KINDS else "plain_pulsar")
        return Scene.on(
            broker, fresh_name("crash"), tmp_path, partitions=partitions, kind=kind, nursery=nursery, **options
        )

    return make
