"""Records in topics of brokers in memory, of any system."""

from fastwire_daemon.devbroker.kafka import KafkaDevBroker
from fastwire_daemon.devbroker.pulsar import PulsarDevBroker
from fastwire_daemon.systems.load import Load
from tests.support.kafka.load import batches
from tests.support.pulsar.load import fill

AnyBroker = PulsarDevBroker | KafkaDevBroker


def add_orders(broker: AnyBroker, topic: str, records: int, partitions: int) -> None:
    """Make a topic with so many numbered records, all of one moment."""
    broker.create_topic(topic, partitions)
    load = Load(records=records, partitions=partitions, batch=5)
    if isinstance(broker, PulsarDevBroker):
        fill(broker.append, topic, load, _now_ms)
        return
    for partition, batch, _ in batches(load, _now_ms):
        broker.append(topic, [batch], partition)


def shown_name(broker: AnyBroker, name: str) -> str:
    """A topic or pattern as people are shown it."""
    return f"persistent://public/default/{name}" if isinstance(broker, PulsarDevBroker) else name


def _now_ms() -> int:
    return 1_700_000_000_000
