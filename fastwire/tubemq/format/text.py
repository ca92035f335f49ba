"""Text forms of brokers, partitions and subscriptions inside of messages (spec: tubemq 7)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fastwire.errors import ProtocolError

BROKER_PORT = 8123
BROKER_TLS_PORT = 8124
MOST_PARTITIONS = 50_000
"""Partitions that a Master may name to one client, which keeps each of them."""

_STORE = 10_000  # partition ids of store n begin at n times this
_MOST_STORES = 1000
_MOST_PARTITIONS = 100


@dataclass(frozen=True, slots=True, order=True)
class Broker:
    """A broker by id, and its address."""

    id: int
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.id}:{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, order=True)
class BrokerPartition:
    """One partition of a topic on one broker."""

    broker: Broker
    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.broker}#{self.topic}:{self.number}"

    @property
    def key(self) -> str:
        """The partition without the address of its broker, ``brokerId:topic:partitionId``."""
        return f"{self.broker.id}:{self.topic}:{self.number}"

    @property
    def name(self) -> str:
        """The partition inside of its topic, ``brokerId:partitionId``."""
        return f"{self.broker.id}:{self.number}"

    def subscription(self, client_id: str, group: str) -> str:
        """Return the text of a subscription of this partition."""
        return f"{client_id}@{group}#{self}"


@dataclass(frozen=True, slots=True)
class TopicMeta:
    """The partitions of a topic on one broker: ``stores`` stores of ``partitions`` each."""

    topic: str
    broker_id: int
    stores: int
    partitions: int
    open: bool

    def numbers(self) -> list[int]:
        """Return the ids of all partitions (spec: tubemq 1)."""
        return [store * _STORE + number for store in range(self.stores) for number in range(self.partitions)]


def _wrong(what: str, text: str) -> ProtocolError:
    return ProtocolError(what, detail=f"{text[:200]!r} has another form")


def _number(text: str, what: str, whole: str, most: int = (1 << 31) - 1) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 10 or int(text) > most:
        raise _wrong(what, whole)
    return int(text)


def read_broker(text: str, *, tls: bool = False) -> Broker:
    """Read ``brokerId:host:port``; a blank port is the default port. Raises ProtocolError."""
    number, _, rest = text.partition(":")
    host, colon, port = rest.rpartition(":")
    if not colon or not host:
        raise _wrong("broker", text)
    default = BROKER_TLS_PORT if tls else BROKER_PORT
    return Broker(
        _number(number, "broker", text), host, _number(port, "broker", text, 65535) if port.strip() else default
    )


def read_partition(text: str, *, tls: bool = False) -> BrokerPartition:
    """Read ``brokerId:host:port#topic:partitionId``. Raises ProtocolError."""
    broker, mark, rest = text.partition("#")
    topic, colon, number = rest.rpartition(":")
    if not mark or not colon or not topic:
        raise _wrong("partition", text)
    return BrokerPartition(read_broker(broker, tls=tls), topic, _number(number, "partition", text))


def read_subscription(text: str, *, tls: bool = False) -> BrokerPartition:
    """Read the partition of ``consumerId@group#brokerId:host:port#topic:partitionId``. Raises ProtocolError."""
    _, mark, partition = text.partition("#")
    if not mark:
        raise _wrong("subscription", text)
    return read_partition(partition, tls=tls)


def read_failure(text: str, *, tls: bool = False) -> tuple[int, BrokerPartition]:
    """Read ``errCode:`` and a partition, an entry of ``failureInfo``. Raises ProtocolError."""
    code, _, partition = text.partition(":")
    return _number(code, "failure", text), read_partition(partition, tls=tls)


def _topic_metas(text: str, what: str, parts: int) -> list[tuple[str, list[int]]]:
    topic, mark, rest = text.partition("#")
    if not topic or not mark:
        raise _wrong(what, text)
    found = []
    for item in filter(None, rest.split(",")):
        numbers = [_number(part, what, text) for part in item.split(":")]
        if len(numbers) != parts:
            raise _wrong(what, text)
        found.append((topic, numbers))
    return found


def _bounded(meta: TopicMeta, what: str, text: str) -> TopicMeta:
    if meta.stores > _MOST_STORES or meta.partitions > _MOST_PARTITIONS:
        raise _wrong(what, text)
    return meta


def check_total(metas: Iterable[TopicMeta]) -> None:
    """Raise ProtocolError if there are more partitions in ``metas`` than a client can keep."""
    total = sum(meta.stores * meta.partitions for meta in metas)
    if total > MOST_PARTITIONS:
        raise ProtocolError(
            "topic metadata", detail=f"the Master names {total:,} partitions, at most {MOST_PARTITIONS:,} fit"
        )


def read_topic_meta(text: str) -> list[TopicMeta]:
    """Read ``topic#brokerId:stores:partitions:status,…``, the form of consumers. Raises ProtocolError."""
    what = "topic metadata"
    return [
        _bounded(TopicMeta(topic, broker, stores, partitions, status == 1), what, text)
        for topic, (broker, stores, partitions, status) in _topic_metas(text, what, 4)
    ]


def read_producer_topic(text: str) -> tuple[list[TopicMeta], int | None]:
    """Read ``topic#brokerId:partitions:stores,…#maxMsgSize``, the form of producers.

    Returns the partitions and the largest message in bytes, None where the default of the cluster holds. Raises
    ProtocolError.
    """
    what = "topic of a producer"
    topic, _, rest = text.partition("#")
    places, _, most = rest.partition("#")
    metas = [
        _bounded(TopicMeta(name, broker, stores, partitions, True), what, text)
        for name, (broker, partitions, stores) in _topic_metas(f"{topic}#{places}", what, 3)
    ]
    return metas, _number(most, what, text) if most.strip() else None


def write_conditions(filters: Mapping[str, Iterable[str]]) -> list[str]:
    """Return ``topicCondition``: the topics with filters, each with its sorted values (spec: tubemq 13)."""
    return [f"{topic}#{','.join(values)}" for topic in sorted(filters) if (values := sorted(set(filters[topic])))]


def group_by_topic(partitions: Sequence[BrokerPartition]) -> list[str]:
    """Return ``partSubInfo``: ``topic#brokerId:partitionId,…`` for each topic."""
    topics: dict[str, list[str]] = {}
    for partition in partitions:
        topics.setdefault(partition.topic, []).append(partition.name)
    return [f"{topic}#{','.join(names)}" for topic, names in topics.items()]
