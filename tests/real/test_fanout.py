"""A dataset for each topic from real brokers: a topic comes while the daemon runs, which is killed and begun again."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Producer

from fastwire.pulsar import pulsar_pb2 as pb
from tests.brokers.kafka import KafkaBroker
from tests.brokers.pulsar import PulsarBroker
from tests.real.daemon import Daemon
from tests.real.raw import RawProducer, batch_payload
from tests.support.fanout_scene import FanOutScene

pytestmark = pytest.mark.broker

TOPICS = 20


class KafkaTopics:
    """Topics of a real Kafka, which the official client fills."""

    def __init__(self, broker: KafkaBroker) -> None:
        self.url = broker.url
        self.create_topic = broker.create_topic
        self.delete_topic = broker.delete_topic
        self._producer = Producer({"bootstrap.servers": broker.servers, "log_level": 0, "linger.ms": 5})

    def produce(self, name: str, values: Sequence[bytes], partition: int = 0) -> None:
        for value in values:
            self._producer.produce(name, value, partition=partition)
        assert self._producer.flush(30) == 0


class PulsarTopics:
    """Topics of a real Pulsar, which are filled by the bare protocol, a batch each time."""

    def __init__(self, broker: PulsarBroker) -> None:
        self.url = broker.service_url
        self._admin = broker.admin

    def create_topic(self, name: str, partitions: int) -> None:
        self._admin.create_topic(f"persistent://public/default/{name}", partitions)

    def delete_topic(self, name: str) -> None:
        self._admin.delete_topic(f"persistent://public/default/{name}", 2)

    def produce(self, name: str, values: Sequence[bytes], partition: int = 0) -> None:
        with RawProducer(self.url, f"persistent://public/default/{name}") as producer:
            metadata = pb.MessageMetadata(sequence_id=1, publish_time=1, num_messages_in_batch=len(values))
            producer.send(metadata, batch_payload([(pb.SingleMessageMetadata(), value) for value in values]))


@pytest.mark.parametrize("system", ["kafka", "pulsar"])
def test_twenty_topics_have_a_dataset_each(
    system: str, request: pytest.FixtureRequest, fresh_name: Callable[[str], str], tmp_path: Path
) -> None:
    broker = request.getfixturevalue(f"plain_{system}")
    topics = KafkaTopics(broker) if system == "kafka" else PulsarTopics(broker)
    scene = FanOutScene(system, topics, tmp_path / "lake")
    stem = fresh_name("fan")
    names = [f"{stem}-{number}" for number in range(TOPICS + 2)]
    pattern = f"{stem}-.*" if system == "kafka" else f"public/default/{stem}-.*"
    own = {"metadata_max_age": "500ms", "group_protocol": "classic", "group_instance_id": "one"}
    source = {"topics_pattern": pattern, "subscription": stem, **(own if system == "kafka" else {})}
    config = tmp_path / "fanout.toml"
    config.write_text(f'[daemon]\nhttp = ""\n{scene.text(sink={"roll": {"idle": "200ms"}}, **source)}')

    def feed() -> None:
        for topic in scene.produced:
            scene.produce(topic, 20)
            scene.produce(topic, 10, partition=1)

    scene.create(*names[:TOPICS])
    feed()
    with Daemon("run", str(config), log=tmp_path / "first.log") as daemon:
        daemon.wait_until(scene.whole, "all topics landed", pause_s=0.5)
        scene.create(names[TOPICS])
        feed()
        daemon.wait_until(lambda: scene.whole(names[TOPICS]), "the new topic landed", pause_s=0.2)
        feed()
        daemon.process.kill()
        daemon.wait()
    scene.create(names[-1])
    feed()
    with Daemon("run", str(config), log=tmp_path / "second.log") as daemon:
        daemon.wait_until(scene.whole, "all topics landed again", pause_s=0.5)
        daemon.end()
    scene.assert_whole()
