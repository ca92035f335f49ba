"""A Kafka cluster as one of Spark's processes reads it: the daemon's connections, for one range at a time."""

from collections import defaultdict
from collections.abc import Mapping
from itertools import count

from fastwire.kafka.format.error import BrokerError, Code
from fastwire.kafka.names import TopicPartition
from fastwire.kafka.position import POSITIONS
from fastwire.kafka.protocol.fetch import FetchLimits
from fastwire.kafka.protocol.metadata import NO_ID, Topic, topic_id_text
from fastwire.kafka.protocol.question import Offsets
from fastwire.kafka.reading.evidence import CorruptBatch
from fastwire.kafka.reading.response import Fetched
from fastwire.kafka.reading.slot import SlotTable
from fastwire.position import Log
from fastwire.wire.pool import Pool

from ....systems.kafka.cluster import Cluster
from ....systems.kafka.config import KafkaConnection
from ....systems.kafka.link import Link
from ....systems.kafka.replica import ReplicaChoice
from ....systems.kafka.settings import ClientSettings, client_fields
from ....systems.links.brokerbook import BrokerKey, Purpose
from ....systems.reading.topics import MISSING_S
from ..connections import POOL_BYTES, RangeBook
from ..offsetrangereader import UnreadableError, fetch_bytes
from ..options import Options
from ..ranges import QueryPartition
from ..rows import Rows
from .dialect import DIALECT

__all__ = ["RangeCluster", "fetch_limits", "incarnation_of", "settings_of"]

FETCH_WAIT_MS = 200


def settings_of(options: Options) -> ClientSettings:
    """Return the settings of connections for the options. Raises ConfigError for unusable files."""
    fields = client_fields(options.connection)
    fields["client_id"] = KafkaConnection.of(options.connection).client_id or options.prefix
    return ClientSettings(**fields, columns=Rows.built(DIALECT, options.columns))


def fetch_limits(options: Options) -> FetchLimits:
    """Return the limits of a Fetch, which is for one partition in a task."""
    most = fetch_bytes(options)
    return FetchLimits(
        response_bytes=most,
        partition_bytes=most,
        max_wait_ms=FETCH_WAIT_MS,
        read_committed=options.own.get("isolationLevel") != "read_uncommitted",
        rack=KafkaConnection.of(options.connection).rack or "",
    )


def incarnation_of(topic: Topic) -> str:
    """Return the topic's id as text; "" if the cluster is too old to have one."""
    return "" if topic.topic_id == NO_ID else topic_id_text(topic.topic_id)


class RangeCluster(Cluster, RangeBook[BrokerKey, Link]):
    """One connection to each broker, for questions and for the records of one range at a time.

    ``answers`` counts the answers to a Fetch that speak of a partition.
    """

    def __init__(self, settings: ClientSettings, limits: FetchLimits) -> None:
        self.slots = SlotTable()
        self.limits = limits
        self.sessions = count(1)
        self.answers = 0
        self._indexes: dict[tuple[QueryPartition, str], int] = {}
        self._replicas = defaultdict[TopicPartition, ReplicaChoice](ReplicaChoice)
        super().__init__(settings, self.slots, Pool(POOL_BYTES), self, limits)

    def log_index(self, partition: QueryPartition, incarnation: str) -> int:
        """Return the index of ``partition`` in the slot table, which it is added to if it is new."""
        known = (partition, incarnation)
        if known not in self._indexes:
            hosts = self._settings.url.hosts
            log = Log("kafka", hosts, partition.topic, str(partition.index), incarnation or "0")
            self._indexes[known] = self.slots.add(log)
        return self._indexes[known]

    async def link(self, purpose: Purpose, host: str, port: int) -> Link:
        """Return the connection to a broker: a task waits for one response at a time, so all purposes share it."""
        return await super().link("fetch", host, port)

    def topic(self, name: str) -> Topic | None:
        """The topic that ``refresh`` has found, None if there is none of that name.

        Raises BrokerError for a topic that has an error, and for a missing one until that is certain.
        """
        known = self.metadata.topics.get(name)
        if known is None or known.error == Code.UNKNOWN_TOPIC_OR_PARTITION:
            if self.metadata.missing_s(name, self.now) < MISSING_S:
                raise BrokerError(Code.LEADER_NOT_AVAILABLE, name)
            return None
        if known.error:
            raise BrokerError(known.error, name)
        return known

    async def offsets(self, wanted: Mapping[TopicPartition, int]) -> Offsets:
        """Ask as ``list_offsets`` does, for a reader of this isolation level."""
        return await self.list_offsets(wanted, read_committed=self.limits.read_committed)

    def replica(self, partition: TopicPartition) -> ReplicaChoice:
        """Return the replica that a partition is read from."""
        choice = self._replicas[partition]
        if choice.is_over(self.now):
            choice.reset()
        return choice

    # --- calls of the links

    def on_fetched(self, link: Link, fetched: Fetched) -> None:
        """Wake the reader when an answer to a Fetch is through."""
        link.fetcher.done(fetched)
        self.answers += bool(fetched.answered)
        self.tell(BrokerError(fetched.error, "Fetch") if fetched.error else None)

    def on_corrupt(self, batch: CorruptBatch) -> None:
        """End the reading: nothing behind ``batch`` can be found."""
        at = POSITIONS.format(batch.position)
        self.tell(UnreadableError(f"the log cannot be read from {at} on: {batch.reason}: {batch.detail}"))

    def on_throttled(self, link: Link, seconds: float) -> None:
        """Note for how long silence is no sign of a dead broker."""
        self.throttled_until = self.now + link.throttled_s
