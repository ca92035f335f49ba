"""The embedded Kafka broker: the table of requests over a cluster, and a listener for each node."""

from collections.abc import Callable, Sequence
from functools import partial

from fastwire.kafka.protocol.connection import Key

from . import coordinator, fetch, metadata, producers, transactions
from .cluster import Cluster
from .connection import Handler, KafkaConnection

HANDLERS: dict[int, Handler] = {
    Key.API_VERSIONS: metadata.api_versions,
    Key.METADATA: metadata.metadata,
    Key.CREATE_TOPICS: metadata.create_topics,
    Key.DESCRIBE_CONFIGS: metadata.describe_configs,
    Key.DELETE_TOPICS: metadata.delete_topics,
    Key.PRODUCE: producers.produce,
    Key.INIT_PRODUCER_ID: producers.init_producer_id,
    Key.ADD_PARTITIONS_TO_TXN: transactions.add_partitions,
    Key.END_TXN: transactions.end,
    Key.FETCH: fetch.fetch,
    Key.LIST_OFFSETS: fetch.list_offsets,
    Key.OFFSET_FOR_LEADER_EPOCH: fetch.epoch_ends,
    Key.FIND_COORDINATOR: coordinator.find_coordinator,
    Key.JOIN_GROUP: coordinator.join,
    Key.SYNC_GROUP: coordinator.sync,
    Key.HEARTBEAT: coordinator.heartbeat,
    Key.LEAVE_GROUP: coordinator.leave,
    Key.OFFSET_COMMIT: coordinator.commit,
    Key.OFFSET_FETCH: coordinator.committed,
    Key.CONSUMER_GROUP_HEARTBEAT: coordinator.consumer_heartbeat,
    Key.SASL_HANDSHAKE: KafkaConnection.handshake,
    Key.SASL_AUTHENTICATE: KafkaConnection.authenticate,
}
"""The handler of each request, by API key."""


class KafkaDevBroker(Cluster):
    """Serves a ``Cluster``; ``handlers`` may be changed by a broker with other manners."""

    handlers = HANDLERS

    def listeners(self) -> Sequence[Callable[[], KafkaConnection]]:
        """See ``Server.listeners``."""
        return [partial(self._connect, node) for node in range(self.options.nodes)]

    def _connect(self, node: int) -> KafkaConnection:
        return KafkaConnection(self, node, self.handlers)
