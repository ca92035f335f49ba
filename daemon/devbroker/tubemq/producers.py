"""Requests of producers to the Master and the Broker (spec: tubemq 19)."""

from google.protobuf.message import Message

from fastwire.tubemq import tubemq_pb2 as pb
from fastwire.tubemq.format.error import Code
from fastwire.tubemq.protocol.request import payload_checksum

from ...runtime.clock import now_ms
from ..base import RefusedError
from .cluster import BROKER_ID, Cluster
from .connection import TubeMQConnection
from .logins import check_identity, check_signature
from .topics import StoredMessage

UNCHECKED = -1  # a check sum that is not compared


def register(connection: TubeMQConnection, request: Message) -> Message:
    """Handle method 1."""
    assert isinstance(request, pb.RegisterRequestP2M)
    broker = connection.broker
    check_signature(broker, request.authInfo)
    check_identity(request.clientId)
    broker.producers[request.clientId] = broker.loop.time()
    return pb.RegisterResponseM2P(
        brokerCheckSum=broker.broker_list_id,
        brokerInfos=broker.list_brokers(request.brokerCheckSum),
        authorizedInfo=broker.master_token(),
        appdConfig=_config(broker, request.appdConfig),
    )


def _config(broker: Cluster, known: pb.ApprovedClientConfig) -> pb.ApprovedClientConfig:
    config = pb.ApprovedClientConfig(configId=broker.broker_list_id)
    if known.configId != broker.broker_list_id:
        config.maxMsgSize = broker.options.message_bytes
    return config


def heartbeat(connection: TubeMQConnection, request: Message) -> Message:
    """Handle method 2."""
    assert isinstance(request, pb.HeartRequestP2M)
    broker = connection.broker
    check_signature(broker, request.authInfo)
    if request.clientId not in broker.producers:
        raise RefusedError(Code.HB_NO_NODE, f"the producer {request.clientId} is not registered")
    broker.producers[request.clientId] = broker.loop.time()
    topics = [broker.topics[name] for name in request.topicList if name in broker.topics and broker.topics[name].open]
    return pb.HeartResponseM2P(
        brokerCheckSum=broker.broker_list_id,
        brokerInfos=broker.list_brokers(request.brokerCheckSum),
        topicInfos=[f"{each.name}#{BROKER_ID}:{each.partitions}:{len(each.stores)}#" for each in topics],
        authorizedInfo=broker.master_token(),
        appdConfig=_config(broker, request.appdConfig),
    )


def close(connection: TubeMQConnection, request: Message) -> Message:
    """Handle method 3."""
    assert isinstance(request, pb.CloseRequestP2M)
    check_signature(connection.broker, request.authInfo)
    connection.broker.producers.pop(request.clientId, None)
    return pb.CloseResponseM2P()


def send(connection: TubeMQConnection, request: Message) -> Message:
    """Handle method 13."""
    assert isinstance(request, pb.SendMessageRequestP2B)
    broker = connection.broker
    if not broker.admits(request.authInfo):
        raise RefusedError(Code.CERTIFICATE_FAILURE, "the visit token is another one")
    if not 1 <= len(request.data) <= broker.options.message_bytes + (10 << 10):
        raise RefusedError(Code.BAD_REQUEST, f"a message of {len(request.data)} bytes")
    topic = broker.topics.get(request.topicName)
    if topic is None or not topic.open or topic.store(request.partitionId) is None:
        raise RefusedError(Code.FORBIDDEN, f"no partition {request.partitionId} of topic {request.topicName}")
    checksum = payload_checksum(request.data)
    if request.checkSum not in (UNCHECKED, checksum):
        raise RefusedError(Code.FORBIDDEN, "the check sum is another one")
    kind = request.msgType if request.HasField("msgType") else None
    message = StoredMessage(request.partitionId, 0, request.data, request.flag, checksum, kind)
    offset = broker.store(topic.name, message)
    return pb.SendMessageResponseB2P(
        success=True,
        errCode=Code.SUCCESS,
        errMsg=str(message.id),
        requireAuth=False,
        messageId=message.id,
        appendTime=now_ms(),
        appendOffset=offset,
    )
