"""Cluster metadata: nodes, topics, partition leaders and their epochs (spec: kafka 5.1, 9.3)."""

import base64
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from fastwire.errors import FastwireError
from fastwire.grammar import NamePattern
from fastwire.kafka.format.error import BrokerError, Code
from fastwire.kafka.format.message import Body

NO_ID = bytes(16)
FORGET_S = 3600.0  # a topic that is missing for so long is forgotten


def topic_id_text(topic_id: bytes) -> str:
    """Return a topic id in the text form of Kafka's tools."""
    return base64.urlsafe_b64encode(topic_id).decode().rstrip("=")


@dataclass(frozen=True, slots=True)
class Node:
    """A broker."""

    node_id: int
    host: str
    port: int
    rack: str | None = None

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Leader:
    """The leader of a partition; node and epoch are -1 if there is none, or if it is unknown."""

    node_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic according to its last Metadata response; ``error`` is an error code, 0 without."""

    name: str
    topic_id: bytes = NO_ID
    error: int = 0
    internal: bool = False
    leaders: dict[int, Leader] = field(default_factory=dict)
    replicas: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """Replica node ids of each partition."""


class Metadata:
    """The metadata of a cluster, merged from responses of brokers that may differ in age."""

    def __init__(self) -> None:
        self.cluster_id = ""
        self.controller = -1  # a node id; that of any broker with KRaft
        self.nodes: dict[int, Node] = {}
        self.topics: dict[str, Topic] = {}
        self._missing_since: dict[str, float] = {}

    @staticmethod
    def request(topics: Iterable[str] | None, *, create: bool = False) -> Body:
        """Return the body of a Metadata request; None requests all topics. ``create`` allows auto-creation."""
        asked = None if topics is None else [{"name": topic} for topic in topics]
        return {"topics": asked, "allow_auto_topic_creation": create}

    def update(self, body: Body, now: float = 0.0, *, everything: bool = False) -> None:
        """Merge a response. A leader with an older epoch than the known one is ignored, unless the topic is new.

        ``everything``: the request was for all topics.
        """
        self.cluster_id = body.get("cluster_id") or self.cluster_id
        self.controller = body.get("controller_id", -1)
        nodes = (Node(one["node_id"], one["host"], one["port"], one.get("rack")) for one in body["brokers"])
        self.nodes = {node.node_id: node for node in nodes}
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
            replicas = {one["partition_index"]: tuple(one["replica_nodes"]) for one in answer["partitions"]}
            internal = answer.get("is_internal", False)
            self.topics[name] = Topic(name, topic_id, answer["error_code"], internal, leaders, replicas)
        if everything:
            for name in self.topics.keys() - {answer["name"] for answer in body["topics"]}:
                self.topics[name] = replace(self.topics[name], error=Code.UNKNOWN_TOPIC_OR_PARTITION)
        for name, topic in tuple(self.topics.items()):
            if topic.error != Code.UNKNOWN_TOPIC_OR_PARTITION:
                self._missing_since.pop(name, None)
            elif now - self._missing_since.setdefault(name, now) > FORGET_S:
                del self.topics[name], self._missing_since[name]

    def matching(self, pattern: NamePattern) -> list[str]:
        """Return the names of matching topics, including missing ones; internal topics never match."""
        return sorted(name for name, topic in self.topics.items() if not topic.internal and pattern.matches(name))

    def missing_s(self, topic: str, now: float) -> float:
        """Return the seconds for which no broker has known a topic; 0.0 for a known one.

        A starting broker may lack topics, and a new topic is not known to all brokers at once: one such response proves
        nothing.
        """
        if topic not in self.topics:
            return float("inf")
        since = self._missing_since.get(topic)
        return 0.0 if since is None else now - since

    def leader(self, topic: str, partition: int) -> Leader:
        """Return the leader of a partition. Raises BrokerError if there is none, or if it is unknown."""
        known = self.topics.get(topic)
        if known is None or known.error:
            raise BrokerError(known.error if known is not None else Code.UNKNOWN_TOPIC_OR_PARTITION, topic)
        leader = known.leaders.get(partition)
        if leader is None or leader.node_id < 0:
            raise BrokerError(Code.LEADER_NOT_AVAILABLE, f"{topic} partition {partition}", "no broker leads it now")
        return leader

    def node(self, node_id: int) -> Node:
        """Return the node with this id. Raises FastwireError for an unknown node."""
        if node_id not in self.nodes:
            raise FastwireError(f"no address is known of node {node_id}")
        return self.nodes[node_id]

    def leading(self, topic: str, partition: int) -> Node:
        """Return the node that leads a partition. Raises as ``leader`` and ``node``."""
        return self.node(self.leader(topic, partition).node_id)

    def racks(self, topics: Iterable[str]) -> dict[tuple[str, int], frozenset[str]]:
        """Return the racks of each partition's replicas; empty if the nodes have no racks."""
        racks = {node.node_id: node.rack for node in self.nodes.values() if node.rack}
        if not racks:
            return {}
        return {
            (name, partition): frozenset(racks[node] for node in nodes if node in racks)
            for name in topics
            if name in self.topics
            for partition, nodes in self.topics[name].replicas.items()
        }

    def lead(self, topic: str, partition: int, leader: Leader, nodes: Iterable[Node] = ()) -> bool:
        """Record a leader that a Fetch response named; return False if it was known."""
        known = self.topics.get(topic)
        if known is None or partition not in known.leaders or known.leaders[partition].epoch >= leader.epoch:
            return False
        self.nodes |= {node.node_id: node for node in nodes}
        self.topics[topic] = replace(known, leaders=known.leaders | {partition: leader})
        return leader.node_id in self.nodes
