"""Requests of producers (Pulsar 24)."""

from fastwire.errors import CorruptEntryError
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.payload import split_payload

from .connection import PulsarConnection
from .subscription import RefusedError
from .topic import Producer

__all__ = ["close_producer", "open_producer", "send"]


def open_producer(connection: PulsarConnection, request: pb.CommandProducer, body: bytes) -> None:
    """Handle PRODUCER."""
    if request.producer_id in connection.producers:
        return connection.violation(f"PRODUCER with id {request.producer_id}, which is open: close it first")
    topic = connection.broker.topic_for(request.topic)
    if topic.terminated:
        raise RefusedError(pb.TopicTerminatedError, f"Topic {topic.name} is terminated")
    name = request.producer_name or connection.broker.next_producer_name()
    if any(other.name == name for other in topic.producers):
        raise RefusedError(pb.ProducerBusy, f"Producer with name {name!r} is already connected to topic")
    exclusive = request.producer_access_mode == pb.Exclusive
    if request.producer_access_mode not in (pb.Shared, pb.Exclusive):
        raise RefusedError(pb.NotAllowedError, "the dev broker knows Shared and Exclusive producers only")
    if any(other.exclusive for other in topic.producers) or (exclusive and topic.producers):
        raise RefusedError(
            pb.ProducerFenced if exclusive else pb.ProducerBusy, "Topic has an existing exclusive producer"
        )
    producer = Producer(connection, topic, request.producer_id, name)
    producer.exclusive = exclusive
    topic.producers.append(producer)
    connection.producers[request.producer_id] = producer
    connection.closed_producers.discard(request.producer_id)
    success = pb.CommandProducerSuccess(
        request_id=request.request_id, producer_name=name, last_sequence_id=-1, schema_version=b"", producer_ready=True
    )
    connection.send(pb.BaseCommand.PRODUCER_SUCCESS, producer_success=success)
    return None


def send(connection: PulsarConnection, request: pb.CommandSend, body: bytes) -> None:
    """Handle SEND: store the entry as it came and confirm it."""
    producer = connection.producers.get(request.producer_id)
    if producer is None:
        if request.producer_id not in connection.closed_producers:
            connection.violation(f"SEND of producer {request.producer_id}, which is not open")
        return
    topic = producer.topic
    try:
        metadata, payload = split_payload(body)
    except CorruptEntryError as exc:
        error = pb.ChecksumError if exc.reason == "ChecksumMismatch" else pb.UnknownError
        return _refuse(connection, request, error, str(exc))
    limit = connection.broker.options.max_message_size
    if limit and len(payload) > limit:
        return _refuse(connection, request, pb.UnknownError, f"payload of {len(payload)} bytes, the limit is {limit}")
    if topic.terminated:
        return _refuse(connection, request, pb.TopicTerminatedError, f"Topic {topic.name} is terminated")
    messages = metadata.num_messages_in_batch  # 1 where it is absent
    if messages < 1:
        return _refuse(connection, request, pb.UnknownError, f"a batch of {messages} messages")
    ledger, entry = topic.ledgers.position(topic.append(body, messages, metadata.publish_time))
    receipt = pb.CommandSendReceipt(
        producer_id=request.producer_id,
        sequence_id=request.sequence_id,
        message_id=pb.MessageIdData(ledgerId=ledger, entryId=entry, partition=topic.partition),
        highest_sequence_id=request.highest_sequence_id,
    )
    connection.send(pb.BaseCommand.SEND_RECEIPT, send_receipt=receipt)


def close_producer(connection: PulsarConnection, request: pb.CommandCloseProducer, body: bytes) -> None:
    """Handle CLOSE_PRODUCER."""
    producer = connection.producers.pop(request.producer_id, None)
    if producer is not None:
        producer.topic.producers.remove(producer)
    elif request.producer_id not in connection.closed_producers:
        raise RefusedError(pb.UnknownError, f"Producer {request.producer_id} is not open")
    connection.send_success(request.request_id)


def _refuse(connection: PulsarConnection, request: pb.CommandSend, error: pb.ServerError, message: str) -> None:
    refusal = pb.CommandSendError(
        producer_id=request.producer_id, sequence_id=request.sequence_id, error=error, message=message
    )
    connection.send(pb.BaseCommand.SEND_ERROR, send_error=refusal)
