"""Requests of consumers, and the rules they must keep: subscribing, permits, acks (Pulsar 7, 13, 15, 16, 18, 22)."""

from fastwire.errors import CorruptEntryError
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.payload import split_payload

from .connection import NO_REQUEST, PulsarConnection
from .consumer import Consumer
from .cursor import Cursor
from .frame import ack_bits
from .subscription import RefusedError
from .topic import Topic, index_of

__all__ = [
    "ack",
    "close_consumer",
    "consumer_stats",
    "flow",
    "get_last_message_id",
    "redeliver",
    "seek",
    "subscribe",
    "unsubscribe",
]

Command = pb.BaseCommand
Type = pb.CommandSubscribe
KEY_SHARED_SINCE = 14
RECEIPTS_SINCE = 17


def subscribe(connection: PulsarConnection, request: pb.CommandSubscribe, body: bytes) -> None:
    """Handle SUBSCRIBE. SUCCESS goes out a moment later, so that a FLOW which did not wait for it is seen."""
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
    consumer = Consumer(
        connection,
        subscription,
        request.consumer_id,
        request.consumer_name or f"unnamed-{request.consumer_id}",
        priority=request.priority_level,
        epoch=request.consumer_epoch if request.HasField("consumer_epoch") and not subscription.shared else None,
        hash_ranges=[(one.start, one.end) for one in request.keySharedMeta.hashRanges],
    )
    try:
        subscription.join(consumer, request.subType)
    except RefusedError:
        if made:
            del topic.subscriptions[request.subscription]
        raise
    connection.consumers[request.consumer_id] = consumer
    connection.closed_consumers.discard(request.consumer_id)
    broker.loop.call_later(broker.options.subscribe_delay_s, _subscribed, consumer, request.request_id)
    return None


def _subscribed(consumer: Consumer, request_id: int) -> None:
    connection = consumer.connection
    if connection.closing:
        return
    if connection.consumers.get(consumer.consumer_id) is not consumer:
        return connection.send_error(request_id, pb.ServiceNotReady, "The topic was closed meanwhile")
    connection.send_success(request_id)
    consumer.ready = True
    consumer.subscription.schedule()
    return None


def flow(connection: PulsarConnection, request: pb.CommandFlow, body: bytes) -> None:
    """Handle FLOW; the first one of a consumer sets the window that it may never exceed."""
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
    """Handle ACK; with a request id it is answered."""
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
        if request.HasField("validation_error"):
            connection.broker.validation_errors += len(request.message_id)
        for message in request.message_id:
            broken = subscription.ack_to(message) if cumulative else subscription.ack(message)
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
    """Handle SEEK: the cursor moves, consumers are closed, then comes SUCCESS."""
    consumer = _needed(connection, request.consumer_id, "SEEK")
    if consumer is None:
        return
    topic = consumer.subscription.topic
    if request.HasField("message_id"):
        left = ack_bits(request.message_id.ack_set) or None
        consumer.subscription.seek(index_of(topic, request.message_id), left)
    elif request.HasField("message_publish_time"):
        consumer.subscription.seek(topic.find_time(request.message_publish_time))
    else:
        return connection.violation("SEEK without a place")
    connection.send_success(request.request_id)


def get_last_message_id(connection: PulsarConnection, request: pb.CommandGetLastMessageId, body: bytes) -> None:
    """Handle GET_LAST_MESSAGE_ID: the last entry with the last index in it, and how far everything is acknowledged."""
    consumer = _needed(connection, request.consumer_id, "GET_LAST_MESSAGE_ID")
    if consumer is None:
        return
    subscription = consumer.subscription
    topic = subscription.topic
    last = _position(topic, topic.log.end)
    last.partition = topic.partition
    if not topic.log.end:  # nothing was ever stored: that is not even a place in a ledger
        last.ledgerId, last.batch_index = NO_REQUEST, -1
    elif topic.log.end > topic.log.start and (batch_index := _last_batch_index(topic)) >= 0:
        last.batch_index = batch_index
    answer = pb.CommandGetLastMessageIdResponse(request_id=request.request_id, last_message_id=last)
    if connection.broker.options.tell_mark_delete:
        answer.consumer_mark_delete_position.CopyFrom(_position(topic, subscription.cursor.mark))
    connection.send(Command.GET_LAST_MESSAGE_ID_RESPONSE, getLastMessageIdResponse=answer)


def consumer_stats(connection: PulsarConnection, request: pb.CommandConsumerStats, body: bytes) -> None:
    """Handle CONSUMER_STATS; rates are 0, the counts are true. The backlog is in entries, as on a real broker."""
    consumer = _needed(connection, request.consumer_id, "CONSUMER_STATS")
    if consumer is None:
        return
    subscription = consumer.subscription
    answer = pb.CommandConsumerStatsResponse(
        request_id=request.request_id,
        consumerName=consumer.name,
        availablePermits=max(consumer.permits, 0),
        unackedMessages=consumer.unacked if subscription.shared else unacked(subscription.cursor),
        blockedConsumerOnUnackedMsgs=consumer.blocked,
        address=connection.peer,
        type=Type.SubType.Name(subscription.kind),
        msgBacklog=subscription.cursor.entries(),
    )
    connection.send(Command.CONSUMER_STATS_RESPONSE, consumerStatsResponse=answer)


def unsubscribe(connection: PulsarConnection, request: pb.CommandUnsubscribe, body: bytes) -> None:
    """Handle UNSUBSCRIBE: the subscription and its progress are gone."""
    consumer = _needed(connection, request.consumer_id, "UNSUBSCRIBE")
    if consumer is None:
        return
    subscription = consumer.subscription
    if len(subscription.consumers) > 1 and not request.force:
        raise RefusedError(pb.MetadataError, "Unconnected or shared consumer attempting to unsubscribe")
    connection.consumers.pop(request.consumer_id)
    connection.closed_consumers.add(request.consumer_id)  # what is on the way for it is no broken rule
    subscription.leave(consumer)
    subscription.disconnect()
    subscription.topic.subscriptions.pop(subscription.name, None)
    connection.send_success(request.request_id)


def close_consumer(connection: PulsarConnection, request: pb.CommandCloseConsumer, body: bytes) -> None:
    """Handle CLOSE_CONSUMER; what is not open counts as closed."""
    consumer = connection.consumers.pop(request.consumer_id, None)
    if consumer is not None:
        consumer.subscription.leave(consumer)
    connection.closed_consumers.discard(request.consumer_id)
    connection.send_success(request.request_id)


def unacked(cursor: Cursor) -> int:
    """Count the messages that were delivered and are not acknowledged."""
    waiting = 0
    for start, end in cursor.delivered:
        waiting += sum(cursor.remaining(index) for index in range(max(start, cursor.mark), end))
    return waiting


def _consumer(connection: PulsarConnection, consumer_id: int, name: str) -> Consumer | None:
    """Return an open consumer; one that was never there is a broken rule, one that we closed is not."""
    consumer = connection.consumers.get(consumer_id)
    if consumer is None and consumer_id not in connection.closed_consumers:
        connection.violation(f"{name} for consumer {consumer_id}, which is not open")
    return consumer


def _needed(connection: PulsarConnection, consumer_id: int, name: str) -> Consumer | None:
    """Return an open consumer for a request; one that we closed meanwhile is answered with an error."""
    consumer = _consumer(connection, consumer_id, name)
    if consumer is None and not connection.closing:
        raise RefusedError(pb.ConsumerNotFound, f"Consumer {consumer_id} was closed")
    return consumer


def _position(topic: Topic, index: int) -> pb.MessageIdData:
    ledger, entry = topic.ledgers.before(index)
    return pb.MessageIdData(ledgerId=ledger, entryId=entry & NO_REQUEST)


def _last_batch_index(topic: Topic) -> int:
    try:
        metadata, _ = split_payload(topic.log[topic.log.end - 1].body)
    except CorruptEntryError:
        return -1
    return metadata.num_messages_in_batch - 1 if metadata.HasField("num_messages_in_batch") else -1
