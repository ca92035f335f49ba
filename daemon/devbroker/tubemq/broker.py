"""The embedded TubeMQ: the tables of requests over a cluster, and a listener each for Master and Broker."""

from collections.abc import Callable, Sequence
from functools import partial

from google.protobuf.message import Message

from fastwire.tubemq import tubemq_pb2 as pb
from fastwire.tubemq.format.frame import Method, Service

from . import consume, members, producers
from .cluster import Cluster
from .connection import Handler, TubeMQConnection

HANDLERS: dict[Method, tuple[Handler, type[Message]]] = {
    Method.PRODUCER_REGISTER: (producers.register, pb.RegisterResponseM2P),
    Method.PRODUCER_HEARTBEAT: (producers.heartbeat, pb.HeartResponseM2P),
    Method.PRODUCER_CLOSE: (producers.close, pb.CloseResponseM2P),
    Method.CONSUMER_REGISTER: (members.register, pb.RegisterResponseM2C),
    Method.CONSUMER_HEARTBEAT: (members.heartbeat, pb.HeartResponseM2C),
    Method.CONSUMER_CLOSE: (members.close, pb.CloseResponseM2C),
    Method.SEND: (producers.send, pb.SendMessageResponseB2P),
    Method.BROKER_REGISTER: (consume.register, pb.RegisterResponseB2C),
    Method.BROKER_HEARTBEAT: (consume.heartbeat, pb.HeartBeatResponseB2C),
    Method.GET: (consume.get, pb.GetMessageResponseB2C),
    Method.COMMIT: (consume.commit, pb.CommitOffsetResponseB2C),
    Method.CLIENT_REGISTER: (members.register_node, pb.RegisterResponseM2CV2),
    Method.CLIENT_HEARTBEAT: (members.node_heartbeat, pb.HeartResponseM2CV2),
    Method.CLIENT_METADATA: (members.metadata, pb.GetPartMetaResponseM2C),
}
"""The handler of each request, and the type of its answer."""

MASTER = frozenset({Service.MASTER})
BROKER = frozenset({Service.READ, Service.WRITE})


class TubeMQDevBroker(Cluster):
    """Serves a ``Cluster``: the Master at the first port, the Broker at the second."""

    def listeners(self) -> Sequence[Callable[[], TubeMQConnection]]:
        """See ``Server.listeners``."""
        return [partial(self._connect, services) for services in (MASTER, BROKER)]

    def _connect(self, services: frozenset[Service]) -> TubeMQConnection:
        return TubeMQConnection(self, services, HANDLERS)
