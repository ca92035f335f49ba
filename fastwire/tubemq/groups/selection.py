"""Client-balanced consumption: metadata of the Master, and the partitions of one client (spec: tubemq 10)."""

from collections.abc import Iterable

from fastwire.tubemq import tubemq_pb2 as pb
from fastwire.tubemq.format.credentials import UNDEFINED
from fastwire.tubemq.format.text import (
    Broker,
    BrokerPartition,
    TopicMeta,
    check_total,
    group_by_topic,
    read_broker,
    read_topic_meta,
)


def _java_hash(text: str) -> int:
    """Return the string hash of Java as an unsigned number."""
    value = 0
    data = text.encode("utf-16-be")
    for at in range(0, len(data), 2):
        value = (value * 31 + (data[at] << 8 | data[at + 1])) & 0xFFFFFFFF
    return value


def share(partitions: Iterable[BrokerPartition], source_count: int, node_id: int) -> list[BrokerPartition]:
    """Return the partitions of client ``node_id`` of ``source_count``, by the rule of the stock example.

    Raises ValueError for a node that is not below the count.
    """
    if not 0 <= node_id < source_count:
        raise ValueError(f"node_id {node_id} is not within 0 and {source_count - 1}")
    return [each for each in partitions if _java_hash(each.key) % source_count == node_id]


class Metadata:
    """Brokers and topics as the Master last listed them; a list comes only when its id differs from the one sent."""

    def __init__(self, *, tls: bool = False) -> None:
        self.broker_id = UNDEFINED
        self.topic_id = UNDEFINED
        self.assigned_ms = UNDEFINED
        """Time of the last list of topics, in ms since 1970."""
        self._tls = tls
        self._brokers: dict[int, Broker] = {}
        self._topics: list[TopicMeta] = []

    def update(
        self, body: pb.RegisterResponseM2CV2 | pb.GetPartMetaResponseM2C | pb.HeartResponseM2CV2, now_ms: int
    ) -> None:
        """Take over the lists of a successful response. Raises ProtocolError, and nothing is changed then."""
        brokers = [read_broker(text, tls=self._tls) for text in body.brokerConfigList]
        topics: list[TopicMeta] = []
        if not isinstance(body, pb.RegisterResponseM2CV2):
            topics = [meta for text in body.topicMetaInfoList for meta in read_topic_meta(text)]
            check_total(topics)
        if body.HasField("brokerConfigId"):
            if brokers:
                self._brokers = {broker.id: broker for broker in brokers}
            self.broker_id = body.brokerConfigId
        if not isinstance(body, pb.RegisterResponseM2CV2) and body.HasField("topicMetaInfoId"):
            if topics:
                self._topics = topics
                self.assigned_ms = now_ms
            self.topic_id = body.topicMetaInfoId

    def partitions(self) -> list[BrokerPartition]:
        """Return all partitions that may be registered, in order."""
        return sorted(
            BrokerPartition(self._brokers[meta.broker_id], meta.topic, number)
            for meta in self._topics
            if meta.open and meta.broker_id in self._brokers
            for number in meta.numbers()
        )

    def report(self, held: Iterable[BrokerPartition] | None = None) -> pb.ClientSubRepInfo:
        """Return ``subRepInfo`` of a heartbeat; ``held`` are all partitions held, None if they did not change."""
        info = pb.ClientSubRepInfo(
            brokerConfigId=self.broker_id, topicMetaInfoId=self.topic_id, reportSubInfo=held is not None
        )
        if self.assigned_ms != UNDEFINED:
            info.lstAssignedTime = self.assigned_ms
        if held is not None:
            info.partSubInfo.extend(group_by_topic(list(held)))
        return info
