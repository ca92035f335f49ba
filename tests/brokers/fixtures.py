"""Session brokers for tests: started when the first test asks, stopped when the run ends.

Loaded with ``pytest_plugins = ["tests.brokers.fixtures"]`` in the top-level conftest.
"""

import uuid
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

from tests.brokers.apicurio import Apicurio
from tests.brokers.guarded_tubemq import GuardedTubeMQ
from tests.brokers.kafka import GuardedKafka, KafkaBroker
from tests.brokers.kafka_cluster import KafkaCluster
from tests.brokers.kafka_zookeeper import OldKafka
from tests.brokers.maven import BrokerUnavailableError
from tests.brokers.process import ServerProcess
from tests.brokers.pulsar import PulsarBroker
from tests.brokers.tubemq import TubeMQBroker

__all__ = [
    "alive",
    "apicurio",
    "fresh_name",
    "guarded_kafka",
    "guarded_pulsar",
    "guarded_tubemq",
    "kafka_cluster",
    "old_kafka",
    "plain_kafka",
    "plain_pulsar",
    "plain_tubemq",
    "running",
]

B = TypeVar("B", bound=ServerProcess)


def running(broker: B) -> Iterator[B]:
    """For fixtures: ``broker`` from its start to its end; where it cannot run, whoever asks for it is skipped."""
    try:
        broker.start()
    except BrokerUnavailableError as reason:
        pytest.skip(str(reason))
    try:
        yield broker
    finally:
        broker.stop(at_once=True)
        broker.remove_data()


@pytest.fixture(scope="module")
def apicurio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Apicurio]:
    """A schema registry without schemas: for one module alone."""
    yield from running(Apicurio(tmp_path_factory.mktemp("apicurio")))


@pytest.fixture(scope="session")
def _plain_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PulsarBroker]:
    yield from running(PulsarBroker(tmp_path_factory.mktemp("pulsar")))


@pytest.fixture(scope="session")
def _guarded_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PulsarBroker]:
    yield from running(PulsarBroker(tmp_path_factory.mktemp("pulsar-guarded"), guarded=True))


@pytest.fixture(scope="session")
def _kafka_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    yield from running(KafkaBroker(tmp_path_factory.mktemp("kafka")))


@pytest.fixture(scope="session")
def _guarded_kafka_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedKafka]:
    yield from running(GuardedKafka(tmp_path_factory.mktemp("kafka-guarded")))


@pytest.fixture(scope="session")
def _tubemq_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TubeMQBroker]:
    yield from running(TubeMQBroker(tmp_path_factory.mktemp("tubemq")))


@pytest.fixture(scope="module")
def old_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OldKafka]:
    """A Kafka broker that stores old message formats: for one module alone, and so not for the whole session."""
    yield from running(OldKafka(tmp_path_factory.mktemp("kafka-old")))


@pytest.fixture(scope="module")
def guarded_tubemq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedTubeMQ]:
    """A TubeMQ with certificates, signed requests and two Masters: for one module alone, being four processes."""
    yield from running(GuardedTubeMQ(tmp_path_factory.mktemp("tubemq-guarded")))


@pytest.fixture(scope="module")
def kafka_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """Three Kafka nodes: for one module alone, because they take what two cores can give."""
    cluster = KafkaCluster(tmp_path_factory.mktemp("kafka-cluster"))
    try:
        try:
            cluster.start()
        except BrokerUnavailableError as reason:
            pytest.skip(str(reason))
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture
def guarded_kafka(_guarded_kafka_session: GuardedKafka) -> GuardedKafka:
    """The Kafka broker with a listener for every way to be let in."""
    return alive(_guarded_kafka_session)


@pytest.fixture
def plain_kafka(_kafka_session: KafkaBroker) -> KafkaBroker:
    """The Kafka broker; alive, whatever the test before did to it."""
    return alive(_kafka_session)


@pytest.fixture
def plain_tubemq(_tubemq_session: TubeMQBroker) -> TubeMQBroker:
    """The TubeMQ Master and Broker; alive, whatever the test before did to them."""
    return alive(_tubemq_session)


@pytest.fixture
def plain_pulsar(_plain_session: PulsarBroker) -> PulsarBroker:
    """The broker without authentication; alive, whatever the test before did to it."""
    return alive(_plain_session)


@pytest.fixture
def guarded_pulsar(_guarded_session: PulsarBroker) -> PulsarBroker:
    """The broker with TLS, tokens, 200 unacknowledged messages at most, 100 entries a ledger and 5 s keep-alive."""
    return alive(_guarded_session)


def alive(broker: B) -> B:
    """For fixtures: ``broker``, started again without its data if a test has left it dead.

    One that was killed while it started has locks in its metadata that its successor would revalidate without end.
    """
    if broker.process is None or broker.process.poll() is not None:
        broker.stop()
        broker.remove_data()
        broker.start()
    return broker


@pytest.fixture
def fresh_name() -> Callable[[str], str]:
    """A function that makes a topic's name which no other test uses."""
    return lambda stem: f"{stem}-{uuid.uuid4().hex[:10]}"
