"""What is known of a cluster: nodes, topics, who leads which partition, in which epoch (kafka 5.1, 9.3)."""

import base64
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from fastwire.errors import FastwireError
from fastwire.kafka.error import BrokerError, Code
from fastwire.kafka.message import Body
from fastwire.kafka.names import TopicPattern

__all__ = ["NO_ID", "Leader", "Metadata", "Node", "Topic", "topic_id_text"]

NO_ID = bytes(16)
FORGET_S = 3600.0  # what is gone for so long is nobody's question any more


def topic_id_text(topic_id: bytes) -> str:
    """A topic id as Kafka's tools write it."""
    return base64.urlsafe_b64encode(topic_id).decode().rstrip("=")


@dataclass(frozen=True, slots=True)
class Node:
    """A broker."""

    node_id: int
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Leader:
    """Who leads a partition; node and epoch are -1 where nobody does or it is not known."""

    node_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as the last answer that was about it had it; ``error`` is a code, 0 without."""

    name: str
    topic_id: bytes = NO_ID
    error: int = 0
    internal: bool = False
    leaders: dict[int, Leader] = field(default_factory=dict)


class Metadata:
    """The view of a cluster, from answers that may come from brokers of different age."""

    def __init__(self) -> None:
        self.cluster_id = ""
        self.controller_id = -1
        self.nodes: dict[int, Node] = {}
        self.topics: dict[str, Topic] = {}
        self._missing_since: dict[str, float] = {}

    @staticmethod
    def request(topics: Iterable[str] | None, *, create: bool = False) -> Body:
        """The body of a Metadata request: None asks for all topics. ``create`` lets a broker make one that does so."""
        asked = None if topics is None else [{"name": topic} for topic in topics]
        return {"topics": asked, "allow_auto_topic_creation": create}

    def update(self, body: Body, now: float = 0.0, *, everything: bool = False) -> None:
        """Take an answer. A leader of an older epoch than the known one is not believed, unless the topic is new.

        ``everything``: it was asked for all topics.
        """
        self.cluster_id = body.get("cluster_id") or self.cluster_id
        self.controller_id = body.get("controller_id", -1)
        self.nodes = {one["node_id"]: Node(one["node_id"], one["host"], one["port"]) for one in body["brokers"]}
        for answer in body["topics"]:
            name = answer["name"]
            if name is None:
                continue
            known = self.topics.get(name)
            topic_id = answer.get("topic_id", NO_ID)
            if known is not None and known.topic_id != topic_id:
                known = None
            leaders = {}
            for one in answer["partitions"]:
                partition = one["partition_index"]
                leader = Leader(one["leader_id"], one.get("leader_epoch", -1))
                before = None if known is None else known.leaders.get(partition)
                leaders[partition] = before if before is not None and before.epoch > leader.epoch >= 0 else leader
            self.topics[name] = Topic(name, topic_id, answer["error_code"], answer.get("is_internal", False), leaders)
        if everything:
            for name in self.topics.keys() - {answer["name"] for answer in body["topics"]}:
                self.topics[name] = replace(self.topics[name], error=Code.UNKNOWN_TOPIC_OR_PARTITION)
        for name, topic in tuple(self.topics.items()):
            if topic.error != Code.UNKNOWN_TOPIC_OR_PARTITION:
                self._missing_since.pop(name, None)
            elif now - self._missing_since.setdefault(name, now) > FORGET_S:
                del self.topics[name], self._missing_since[name]

    def matching(self, pattern: TopicPattern) -> list[str]:
        """The topics that are meant, by name, also such as are missing; those of the brokers themselves never are."""
        return sorted(name for name, topic in self.topics.items() if not topic.internal and pattern.matches(name))

    def missing_s(self, topic: str, now: float) -> float:
        """For how long no broker has known a topic, 0.0 for one that is there.

        A broker that has just come up may not know all, nor each at once what was just made: once is no proof.
        """
        if topic not in self.topics:
            return float("inf")
        since = self._missing_since.get(topic)
        return 0.0 if since is None else now - since

    def leader(self, topic: str, partition: int) -> Leader:
        """Who leads a partition. Raises BrokerError where nobody does, or where it is not known."""
        known = self.topics.get(topic)
        if known is None or known.error:
            raise BrokerError(known.error if known is not None else Code.UNKNOWN_TOPIC_OR_PARTITION, topic)
        leader = known.leaders.get(partition)
        if leader is None or leader.node_id < 0:
            raise BrokerError(Code.LEADER_NOT_AVAILABLE, f"{topic} partition {partition}")
        return leader

    def node(self, node_id: int) -> Node:
        """Where a node is. Raises FastwireError where that is not known."""
        if node_id not in self.nodes:
            raise FastwireError(f"no address is known of node {node_id}")
        return self.nodes[node_id]

    def lead(self, topic: str, partition: int, leader: Leader, nodes: Iterable[Node] = ()) -> bool:
        """A Fetch answer has named another leader; false if that is no news."""
        known = self.topics.get(topic)
        if known is None or partition not in known.leaders or known.leaders[partition].epoch >= leader.epoch:
            return False
        self.nodes |= {node.node_id: node for node in nodes}
        self.topics[topic] = replace(known, leaders=known.leaders | {partition: leader})
        return leader.node_id in self.nodes
