"""The embedded TANK broker: the table of requests over a cluster, and a listener for each node."""

from collections.abc import Callable, Sequence
from functools import partial

from fastwire.tank.format.message import MessageType

from . import consume, metadata, producers
from .cluster import Cluster
from .connection import Handler, TankConnection

HANDLERS: dict[int, Handler] = {
    MessageType.PRODUCE: producers.produce,
    MessageType.CONSUME: consume.consume,
    MessageType.PRODUCE_SEQUENCE: producers.produce_sequence,
    MessageType.DISCOVER_PARTITIONS: metadata.partitions,
    MessageType.CREATE_TOPIC: metadata.create_topic,
    MessageType.DISCOVER_TOPICS: metadata.topics,
    MessageType.DISCOVER_TOPOLOGY: metadata.topology,
}
"""The handler of each request, by message type."""


class TankDevBroker(Cluster):
    """Serves a ``Cluster``."""

    def listeners(self) -> Sequence[Callable[[], TankConnection]]:
        """See ``Server.listeners``."""
        return [partial(self._connect, node) for node in range(self.options.nodes)]

    def _connect(self, node: int) -> TankConnection:
        return TankConnection(self, node, HANDLERS)
