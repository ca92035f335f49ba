"""Requests of consumers, and the rules for them: SUBSCRIBE, FLOW, ACK … (spec: pulsar 7, 13, 15, 16, 18, 22)."""

from fastwire.errors import CorruptEntryError
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.format.payload import split_payload

from ..base import RefusedError
from .connection import NO_REQUEST, PulsarConnection
from .frame import ack_bits
from .ledgers import ManagedLedger
from .subscriptions import ConnectedConsumer

Command = pb.BaseCommand
Type = pb.CommandSubscribe
KEY_SHARED_SINCE = 14
RECEIPTS_SINCE = 17


def subscribe(connection: PulsarConnection, request: pb.CommandSubscribe, body: bytes) -> None:
    """Handle SUBSCRIBE. SUCCESS is sent in a later turn of the loop, to detect a FLOW that did not wait for it."""
    broker = connection.broker
    if request.consumer_id in connection.consumers:
        text = f"SUBSCRIBE for consumer {request.consumer_id}, which is open on this connection: close it first"
        return connection.violation(text)
    if request.subType == Type.Key_Shared and connection.protocol_version < KEY_SHARED_SINCE:
        return connection.violation(f"Key_Shared, the connection has version {connection.protocol_version}")
    if not request.subscription:
        raise RefusedError(pb.NotAllowedError, "Empty subscription name")
    if broker.partitions(request.topic):
        raise RefusedError(pb.NotAllowedError, f"{request.topic} is partitioned: subscribe to its partitions")
    topic = broker.topic_for(request.topic, create=request.force_topic_creation)
    made = request.subscription not in topic.subscriptions
    subscription = topic.subscribe(request)
    consumer = ConnectedConsumer(connection, subscription, request)
    try:
        if request.HasField("schema"):
            broker.register_schema(request.topic, request.schema)
        subscription.join(consumer, request.subType)
    except RefusedError:
        if made:
            del topic.subscriptions[request.subscription]
        raise
    connection.consumers[request.consumer_id] = consumer
    connection.closed_consumers.discard(request.consumer_id)
    broker.loop.call_later(broker.options.subscribe_delay_s, _subscribed, connection, consumer, request.request_id)
    return None


def _subscribed(connection: PulsarConnection, consumer: ConnectedConsumer, request_id: int) -> None:
    if connection.closing:
        return
    if connection.consumers.get(consumer.consumer_id) is not consumer:
        return connection.send_error(request_id, pb.ServiceNotReady, "The topic was closed meanwhile")
    connection.send_success(request_id)
    consumer.ready = True
    consumer.subscription.schedule()
    return None


def flow(connection: PulsarConnection, request: pb.CommandFlow, body: bytes) -> None:
    """Handle FLOW; the first one of a consumer sets its window, which its permits must not exceed (spec: pulsar 13)."""
    consumer = _consumer(connection, request.consumer_id, "FLOW")
    if consumer is None:
        return
    if not consumer.ready:
        return connection.violation(f"FLOW for consumer {consumer.consumer_id} before its SUBSCRIBE was answered")
    if request.messagePermits == 0:
        return connection.violation(f"FLOW of 0 permits for consumer {consumer.consumer_id}")
    consumer.granted += request.messagePermits
    if not consumer.window:
        consumer.window = connection.broker.options.window or request.messagePermits
    if consumer.permits > consumer.window and connection.broker.options.enforce_window:
        text = (
            f"FLOW of {request.messagePermits} gives consumer {consumer.consumer_id} {consumer.permits} permits, "
            f"its window is {consumer.window}"
        )
        return connection.violation(text)
    consumer.subscription.schedule()


def ack(connection: PulsarConnection, request: pb.CommandAck, body: bytes) -> None:
    """Handle ACK; one with a request id gets an ACK_RESPONSE."""
    consumer = _consumer(connection, request.consumer_id, "ACK")
    answer = pb.CommandAckResponse(consumer_id=request.consumer_id, request_id=request.request_id)
    if consumer is not None:
        subscription = consumer.subscription
        cumulative = request.ack_type == pb.CommandAck.Cumulative
        if not request.message_id:
            return connection.violation("ACK without a message id")
        if request.HasField("request_id") and connection.protocol_version < RECEIPTS_SINCE:
            return connection.violation(
                f"ACK with a request id on a connection of version {connection.protocol_version}"
            )
        if cumulative and len(request.message_id) != 1:
            return connection.violation(f"cumulative ACK of {len(request.message_id)} ids")
        for message in request.message_id:
            broken = subscription.ack(message, cumulative=cumulative)
            if broken:
                return connection.violation(broken)
        subscription.schedule()
    else:
        answer.error, answer.message = pb.ConsumerNotFound, "The consumer was closed"
    if request.HasField("request_id") and not connection.closing:
        connection.send(Command.ACK_RESPONSE, ackResponse=answer)
    return None


def redeliver(connection: PulsarConnection, request: pb.CommandRedeliverUnacknowledgedMessages, body: bytes) -> None:
    """Handle REDELIVER_UNACKNOWLEDGED_MESSAGES."""
    consumer = _consumer(connection, request.consumer_id, "REDELIVER_UNACKNOWLEDGED_MESSAGES")
    if consumer is not None:
        if request.HasField("consumer_epoch") and not consumer.subscription.shared:
            consumer.epoch = request.consumer_epoch
        consumer.subscription.redeliver(consumer, request.message_ids)


def seek(connection: PulsarConnection, request: pb.CommandSeek, body: bytes) -> None:
    """Handle SEEK: move the cursor, close the consumers, then send SUCCESS (spec: pulsar 18)."""
    consumer = _needed(connection, request.consumer_id, "SEEK")
    if consumer is None:
        return
    subscription = consumer.subscription
    if request.HasField("message_id"):
        left = ack_bits(request.message_id.ack_set) or None
        subscription.seek(subscription.log.at_id(request.message_id.ledgerId, request.message_id.entryId), left)
    elif request.HasField("message_publish_time"):
        subscription.seek(subscription.log.at_time(request.message_publish_time))
    else:
        return connection.violation("SEEK without a place")
    connection.send_success(request.request_id)


def get_last_message_id(connection: PulsarConnection, request: pb.CommandGetLastMessageId, body: bytes) -> None:
    """Handle GET_LAST_MESSAGE_ID: the last entry with its last batch index, and the mark-delete position."""
    consumer = _needed(connection, request.consumer_id, "GET_LAST_MESSAGE_ID")
    if consumer is None:
        return
    subscription = consumer.subscription
    log = subscription.log
    last = _position(log, log.end)
    last.partition = log.partition
    if not log.end:  # no entry was ever stored
        last.ledgerId, last.batch_index = NO_REQUEST, -1
    elif log.end > log.start and (batch_index := _last_batch_index(log)) >= 0:
        last.batch_index = batch_index
    answer = pb.CommandGetLastMessageIdResponse(request_id=request.request_id, last_message_id=last)
    if connection.broker.options.tell_mark_delete:
        answer.consumer_mark_delete_position.CopyFrom(_position(log, subscription.cursor.mark))
    connection.send(Command.GET_LAST_MESSAGE_ID_RESPONSE, getLastMessageIdResponse=answer)


def consumer_stats(connection: PulsarConnection, request: pb.CommandConsumerStats, body: bytes) -> None:
    """Handle CONSUMER_STATS; rates are 0. The backlog is in entries, as on a real broker."""
    consumer = _needed(connection, request.consumer_id, "CONSUMER_STATS")
    if consumer is None:
        return
    subscription = consumer.subscription
    answer = pb.CommandConsumerStatsResponse(
        request_id=request.request_id,
        consumerName=consumer.name,
        availablePermits=consumer.permits & (1 << 64) - 1,  # an int in a uint64, as on a real broker
        unackedMessages=consumer.unacked if subscription.shared else subscription.unacked(),
        blockedConsumerOnUnackedMsgs=consumer.blocked,
        address=connection.peer,
        type=Type.SubType.Name(subscription.kind),
        msgBacklog=subscription.cursor.entries(),
    )
    connection.send(Command.CONSUMER_STATS_RESPONSE, consumerStatsResponse=answer)


def unsubscribe(connection: PulsarConnection, request: pb.CommandUnsubscribe, body: bytes) -> None:
    """Handle UNSUBSCRIBE: delete the subscription with its progress."""
    consumer = _needed(connection, request.consumer_id, "UNSUBSCRIBE")
    if consumer is None:
        return
    subscription = consumer.subscription
    if len(subscription.consumers) > 1 and not request.force:
        raise RefusedError(pb.MetadataError, "Unconnected or shared consumer attempting to unsubscribe")
    connection.consumers.pop(request.consumer_id)
    connection.closed_consumers.add(request.consumer_id)  # commands for it may still be on the way
    subscription.leave(consumer)
    subscription.delete()
    connection.send_success(request.request_id)


def close_consumer(connection: PulsarConnection, request: pb.CommandCloseConsumer, body: bytes) -> None:
    """Handle CLOSE_CONSUMER; an id that is not open counts as closed."""
    consumer = connection.consumers.pop(request.consumer_id, None)
    if consumer is not None:
        consumer.subscription.leave(consumer)
    connection.closed_consumers.discard(request.consumer_id)
    connection.send_success(request.request_id)


def _consumer(connection: PulsarConnection, consumer_id: int, name: str) -> ConnectedConsumer | None:
    """Return an open consumer; an id that was never open is a violation, one that the broker closed is not."""
    consumer = connection.consumers.get(consumer_id)
    if consumer is None and consumer_id not in connection.closed_consumers:
        connection.violation(f"{name} for consumer {consumer_id}, which is not open")
    return consumer


def _needed(connection: PulsarConnection, consumer_id: int, name: str) -> ConnectedConsumer | None:
    """Return an open consumer for a request. Raises RefusedError for one that the broker has closed."""
    consumer = _consumer(connection, consumer_id, name)
    if consumer is None and not connection.closing:
        raise RefusedError(pb.ConsumerNotFound, f"Consumer {consumer_id} was closed")
    return consumer


def _position(log: ManagedLedger, index: int) -> pb.MessageIdData:
    ledger, entry = log.ledgers.before(index)
    return pb.MessageIdData(ledgerId=ledger, entryId=entry & NO_REQUEST)


def _last_batch_index(log: ManagedLedger) -> int:
    try:
        metadata, _ = split_payload(log[log.end - 1].body)
    except CorruptEntryError:
        return -1
    return metadata.num_messages_in_batch - 1 if metadata.HasField("num_messages_in_batch") else -1
