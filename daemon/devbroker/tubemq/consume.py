"""Requests of consumers to the Broker (spec: tubemq 11)."""

from google.protobuf.message import Message

from fastwire.errors import ProtocolError
from fastwire.tubemq import tubemq_pb2 as pb
from fastwire.tubemq.format.error import Code
from fastwire.tubemq.format.text import read_partition
from fastwire.tubemq.protocol.request import REGISTER, UNREGISTER
from fastwire.tubemq.reading.flow import DataLimit, minute_of_day

from ...runtime.clock import now_ms
from ..base import RefusedError
from .cluster import Cluster
from .connection import TubeMQConnection, answer
from .groups import Owner, Progress, Window
from .logins import check_identity
from .topics import Topic

NOT_FOUND_MS = 150  # minLimitTime of a 404 that is not at the end


def register(connection: TubeMQConnection, request: Message) -> Message:
    """Handle method 15, which registers a partition or ends its registration."""
    assert isinstance(request, pb.RegisterRequestC2B)
    broker = connection.broker
    check_identity(request.clientId, request.groupName)
    _check_token(broker, request.authInfo)
    if request.opType == REGISTER:
        return _register(broker, request)
    if request.opType == UNREGISTER:
        return _unregister(broker, request)
    raise RefusedError(Code.BAD_REQUEST, f"operation {request.opType}")


def _check_token(broker: Cluster, info: pb.AuthorizedInfo) -> None:
    if not broker.admits(info):
        raise RefusedError(Code.CERTIFICATE_FAILURE, "the visit token is another one")


def _topic(broker: Cluster, name: str) -> Topic:
    topic = broker.topics.get(name)
    if topic is None or not topic.open:
        raise RefusedError(Code.FORBIDDEN, f"topic {name} is closed or does not exist")
    return topic


def _register(broker: Cluster, request: pb.RegisterRequestC2B) -> Message:
    topic = _topic(broker, request.topicName)
    store = topic.store(request.partitionId)
    if store is None:
        raise RefusedError(
            Code.INTERNAL_SERVER_ERROR,
            f"Register broker failure!, exception is Wrong partition value {request.partitionId}",
        )
    key = request.groupName, request.topicName, request.partitionId
    progress = broker.progress.get(key)
    if progress is None:
        progress = broker.progress[key] = Progress(store)
    owner = progress.owner
    if owner is not None and owner.client != request.clientId:
        if _late(broker, owner):
            progress.owner = None  # the next try works
        raise RefusedError(Code.PARTITION_OCCUPIED, f"partition {request.partitionId} belongs to {owner.client}")
    offset = request.currOffset if request.HasField("currOffset") else None
    at = progress.begin(request.readStatus, offset)
    window = Window(broker.options.limit_window_s)
    progress.owner = Owner(request.clientId, broker.loop.time(), frozenset(request.filterCondStr), window)
    return pb.RegisterResponseB2C(currOffset=at, maxOffset=progress.store.end)


def _late(broker: Cluster, owner: Owner) -> bool:
    return broker.loop.time() - owner.seen_s > broker.options.consumer_timeout_s


def _owned(broker: Cluster, group: str, client: str, topic: str, number: int) -> tuple[Progress, Owner]:
    """Return the progress in a partition that ``client`` has registered."""
    progress = broker.progress.get((group, topic, number))
    if progress is None or progress.owner is None or _late(broker, progress.owner):
        raise RefusedError(Code.HB_NO_NODE, f"partition {number} of {topic} is not registered by {client}")
    if progress.owner.client != client:
        raise RefusedError(Code.DUPLICATE_PARTITION, f"partition {number} belongs to {progress.owner.client}")
    progress.owner.seen_s = broker.loop.time()
    return progress, progress.owner


def _unregister(broker: Cluster, request: pb.RegisterRequestC2B) -> Message:
    progress, _ = _owned(broker, request.groupName, request.clientId, request.topicName, request.partitionId)
    if request.readStatus == 0:
        progress.commit(True)
    progress.owner = None
    return pb.RegisterResponseB2C(currOffset=-1)


def heartbeat(connection: TubeMQConnection, request: Message) -> Message:
    """Handle method 16."""
    assert isinstance(request, pb.HeartBeatRequestC2B)
    broker = connection.broker
    _check_token(broker, request.authInfo)
    failures = []
    for text in request.partitionInfo:
        try:
            partition = read_partition(text, tls=broker.tls is not None)
            if partition.broker != broker.broker:
                raise RefusedError(Code.HB_NO_NODE, text)
            _owned(broker, request.groupName, request.clientId, partition.topic, partition.number)
        except ProtocolError:
            if broker.options.strict:
                raise
        except RefusedError as exc:
            failures.append(f"{int(exc.code)}:{text}")
    return pb.HeartBeatResponseB2C(
        hasPartFailure=bool(failures),
        failureInfo=failures,
        requireAuth=False,
    )


def get(connection: TubeMQConnection, request: Message) -> Message:
    """Handle method 17."""
    assert isinstance(request, pb.GetMessageRequestC2B)
    broker = connection.broker
    options = broker.options
    progress, owner = _owned(broker, request.groupName, request.clientId, request.topicName, request.partitionId)
    _topic(broker, request.topicName)
    over = _used_up(broker, owner)
    if over is not None and not request.escFlowCtrl:
        broker.limited += 1
        missed = answer(pb.GetMessageResponseB2C, Code.SERVER_CONSUME_SPEED_LIMIT, "the rule of flow control")
        assert isinstance(missed, pb.GetMessageResponseB2C)
        missed.minLimitTime = over.wait_ms
        return missed
    limit = options.first_transfer_bytes if owner.fresh and options.from_file else options.transfer_bytes
    owner.fresh = False
    batch = progress.read(
        request.partitionId, limit, manual=request.manualCommitOffset, confirm=request.lastPackConsumed
    )
    owner.lag = 0 if batch is None else batch.lag
    if batch is None:
        raise RefusedError(Code.NOT_FOUND, "The request offset reached maxOffset!")
    if not batch.messages and not options.from_file:
        missed = answer(pb.GetMessageResponseB2C, Code.NOT_FOUND, "Can't found Message by index!")
        assert isinstance(missed, pb.GetMessageResponseB2C)
        missed.minLimitTime = NOT_FOUND_MS
        return missed
    owner.window.add(sum(each.size for each in batch.messages), broker.loop.time())
    return pb.GetMessageResponseB2C(
        messages=[
            pb.TransferedMessage(messageId=each.id, checkSum=each.checksum, payLoadData=each.payload, flag=each.flag)
            for each in batch.messages
        ],
        currOffset=batch.offset,
        minLimitTime=0,
        escFlowCtrl=False,
        currDataDlt=batch.lag,
        requireSlow=False,
        maxOffset=progress.store.end,
    )


def _used_up(broker: Cluster, owner: Owner) -> DataLimit | None:
    """Return the limit of the cluster's rule whose bytes are used up. Its lag counts bytes, not MiB, as the Java's."""
    limit = broker.limits.limit(owner.lag << 20, minute_of_day(now_ms() / 1000))
    if limit is None or owner.window.add(0, broker.loop.time()) < limit.bytes_a_window:
        return None
    return limit


def commit(connection: TubeMQConnection, request: Message) -> Message:
    """Handle method 18."""
    assert isinstance(request, pb.CommitOffsetRequestC2B)
    try:
        progress, _ = _owned(
            connection.broker, request.groupName, request.clientId, request.topicName, request.partitionId
        )
    except RefusedError as exc:
        raise RefusedError(Code.UNAUTHORIZED, str(exc)) from None
    at = progress.commit(request.lastPackConsumed if request.HasField("lastPackConsumed") else True)
    return pb.CommitOffsetResponseB2C(currOffset=at, maxOffset=progress.store.end)
