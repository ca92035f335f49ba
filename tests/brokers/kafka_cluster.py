"""Three real Kafka nodes in one KRaft quorum: leaders move, brokers die, and clusters lose what they had."""

import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import KafkaException

from tests.brokers.kafka import SETTINGS, KafkaBroker, new_cluster_id
from tests.brokers.ports import free_ports
from tests.brokers.process import START_LIMIT

NODES = (1, 2, 3)
PATIENCE_S = 90.0


class KafkaNode(KafkaBroker):
    """A broker that is a controller as well; the quorum lives as long as two of three do."""

    heap = ("-Xms64m", "-Xmx256m")

    def __init__(self, folder: Path, node: int, controllers: list[int], cluster_id: str) -> None:
        voters = ",".join(f"{one}@127.0.0.1:{port}" for one, port in zip(NODES, controllers, strict=True))
        replicated = {key: "3" for key in SETTINGS if key.endswith("topic.replication.factor")}
        super().__init__(
            folder,
            settings={
                "node.id": str(node),
                "controller.quorum.voters": voters,
                **replicated,
                "transaction.state.log.replication.factor": "3",
                # A broker that is gone is noticed within three seconds, and a new leader elected in one.
                "broker.heartbeat.interval.ms": "500",
                "initial.broker.registration.timeout.ms": str(int(START_LIMIT * 1000)),
                "broker.session.timeout.ms": "3000",
                "controller.quorum.election.timeout.ms": "500",
                "controller.quorum.fetch.timeout.ms": "1500",
                "replica.lag.time.max.ms": "3000",
                # Leaders go back where they belong, and so move twice each time.
                "leader.imbalance.check.interval.seconds": "5",
                "leader.imbalance.per.broker.percentage": "0",
                "offsets.topic.num.partitions": "3",
                "transaction.state.log.num.partitions": "1",
            },
        )
        self.node = node
        self._controller_port = controllers[node - 1]
        self._cluster_id = cluster_id


class KafkaCluster:
    """Nodes 1 to 3. Ask through ``any``, a node that is alive."""

    def __init__(self, folder: Path) -> None:
        controllers, cluster_id = free_ports(len(NODES)), new_cluster_id()
        self.nodes = {node: KafkaNode(folder / f"node-{node}", node, controllers, cluster_id) for node in NODES}

    @property
    def servers(self) -> str:
        """As other clients take it."""
        return ",".join(node.servers for node in self.nodes.values())

    @property
    def url(self) -> str:
        """As fastwire takes it."""
        return f"kafka://{self.servers}"

    @property
    def any(self) -> KafkaNode:
        """A node that is alive."""
        return next(node for node in self.nodes.values() if node.process is not None)

    def start(self) -> None:
        """Start all nodes, and wait until each knows all."""
        for node in self.nodes.values():
            node.launch()
        for node in self.nodes.values():
            node.wait()
        eventually(lambda: len(self.any.admin.list_topics(timeout=5).brokers) == len(NODES), "three brokers")

    def kill(self, node: int) -> None:
        """End a node as a power switch would."""
        self.nodes[node].stop(at_once=True)

    def revive(self, node: int) -> None:
        """Start a node that was killed."""
        self.nodes[node].start()

    def stop(self) -> None:
        """End all nodes; their data go, their logs stay."""
        for node in self.nodes.values():
            node.stop(at_once=True)
            node.remove_data()

    def leaders(self, topic: str) -> list[int]:
        """Return the leader of each partition, -1 for none."""
        found = self.any.admin.list_topics(topic, timeout=5).topics[topic].partitions
        return [found[number].leader for number in sorted(found)]

    def in_sync(self, topic: str) -> list[set[int]]:
        """Return the in-sync replicas of each partition."""
        found = self.any.admin.list_topics(topic, timeout=5).topics[topic].partitions
        return [set(found[number].isrs) for number in sorted(found)]


def eventually(true: Callable[[], bool], what: str) -> None:
    """Wait until ``true``, which may find no broker for a while."""
    deadline = time.monotonic() + PATIENCE_S
    last: object = None
    while True:
        try:
            if true():
                return
        except KafkaException as exc:
            last = exc
        if time.monotonic() > deadline:
            raise AssertionError(f"never happened: {what} ({last})")
        time.sleep(0.1)
