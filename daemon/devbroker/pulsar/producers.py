"""Requests of producers: PRODUCER, SEND, CLOSE_PRODUCER (spec: pulsar 11, 24)."""

from fastwire.errors import CorruptEntryError
from fastwire.pulsar import pulsar_pb2 as pb
from fastwire.pulsar.format.payload import split_payload
from fastwire.reason import Reason

from ..base import RefusedError
from .connection import PulsarConnection
from .topics import ConnectedProducer, StoredTopic

NOWHERE = (1 << 64) - 1  # ledger and entry in the receipt of a repeated entry


def open_producer(connection: PulsarConnection, request: pb.CommandProducer, body: bytes) -> None:
    """Handle PRODUCER."""
    if request.producer_id in connection.producers:
        return connection.violation(f"PRODUCER with id {request.producer_id}, which is open: close it first")
    topic = connection.broker.topic_for(request.topic)
    if topic.log.terminated:
        raise RefusedError(pb.TopicTerminatedError, f"Topic {topic.name} is terminated")
    version = connection.broker.register_schema(topic.name, request.schema) if request.HasField("schema") else b""
    name = request.producer_name or connection.broker.next_producer_name()
    producer = ConnectedProducer(connection, topic, request, name)

    def answer(ready: bool = True) -> None:
        success = pb.CommandProducerSuccess(
            request_id=request.request_id,
            producer_name=name,
            last_sequence_id=topic.sequences.get(name, -1),
            schema_version=version,
            producer_ready=ready,
        )
        if producer.topic_epoch is not None:
            success.topic_epoch = producer.topic_epoch
        connection.send(pb.BaseCommand.PRODUCER_SUCCESS, producer_success=success)

    producer.welcome = answer
    topic.producers.join(producer)
    connection.producers[request.producer_id] = producer
    connection.closed_producers.discard(request.producer_id)
    answer(not topic.producers.waits(producer))
    return None


def send(connection: PulsarConnection, request: pb.CommandSend, body: bytes) -> None:
    """Handle SEND: store the entry as it came and confirm it."""
    producer = connection.producers.get(request.producer_id)
    if producer is None:
        if request.producer_id not in connection.closed_producers:
            connection.violation(f"SEND of producer {request.producer_id}, which is not open")
        return
    topic = producer.topic
    if topic.producers.waits(producer):
        return connection.violation(f"SEND of producer {request.producer_id}, which waits for exclusive access")
    try:
        metadata, payload = split_payload(body)
    except CorruptEntryError as exc:
        error = pb.ChecksumError if exc.reason is Reason.CHECKSUM else pb.UnknownError
        return _refuse(connection, request, error, str(exc))
    limit = connection.broker.options.max_message_size
    if limit and len(payload) > limit:
        return _refuse(connection, request, pb.UnknownError, f"payload of {len(payload)} bytes, the limit is {limit}")
    if topic.log.terminated:
        return _refuse(connection, request, pb.TopicTerminatedError, f"Topic {topic.name} is terminated")
    messages = metadata.num_messages_in_batch  # 1 where it is absent
    if messages < 1:
        return _refuse(connection, request, pb.UnknownError, f"a batch of {messages} messages")
    if wrong := _disagreement(request, metadata, topic):
        return connection.violation(f"SEND {request.sequence_id} of {producer.name!r}: {wrong}")
    policy = topic.options.topic_max_message_size
    if policy and len(body) > policy and not request.is_chunk:  # a real broker looks before it knows a repeated entry
        return _refuse(connection, request, pb.NotAllowedError, "Exceed maximum message size")
    place = _store(producer, request, metadata, body)
    receipt = pb.CommandSendReceipt(
        producer_id=request.producer_id,
        sequence_id=request.sequence_id,
        message_id=pb.MessageIdData(ledgerId=place[0], entryId=place[1], partition=topic.log.partition),
        highest_sequence_id=request.highest_sequence_id,
    )
    connection.send(pb.BaseCommand.SEND_RECEIPT, send_receipt=receipt)


def _disagreement(request: pb.CommandSend, metadata: pb.MessageMetadata, topic: StoredTopic) -> str:
    """Return how the command contradicts its entry, which a real broker does not check; "" if it does not."""
    if request.sequence_id != metadata.sequence_id:
        return f"its metadata has number {metadata.sequence_id}"
    if request.num_messages != metadata.num_messages_in_batch:
        return f"{request.num_messages} messages, its metadata has {metadata.num_messages_in_batch}"
    if request.is_chunk != (metadata.num_chunks_from_msg > 0):
        return f"is_chunk is {request.is_chunk}, its metadata has {metadata.num_chunks_from_msg} chunks"
    if not request.is_chunk:
        return ""
    last = topic.chunks.get(metadata.uuid, -1)
    topic.chunks[metadata.uuid] = max(metadata.chunk_id, last)
    if metadata.chunk_id > last + 1 or metadata.chunk_id >= metadata.num_chunks_from_msg:
        return f"chunk {metadata.chunk_id} of {metadata.num_chunks_from_msg} behind chunk {last}"
    return ""


def _store(
    producer: ConnectedProducer, request: pb.CommandSend, metadata: pb.MessageMetadata, body: bytes
) -> tuple[int, int]:
    topic = producer.topic
    highest = max(request.sequence_id, request.highest_sequence_id)
    if topic.options.deduplication:
        if request.sequence_id <= topic.sequences.get(producer.name, -1):  # the first record decides about all
            return NOWHERE, NOWHERE
        # The number of a record in chunks is taken when all of it is there.
        if not request.is_chunk or metadata.chunk_id == metadata.num_chunks_from_msg - 1:
            topic.sequences[producer.name] = highest
    return topic.append(body, metadata.num_messages_in_batch, metadata.publish_time)


def close_producer(connection: PulsarConnection, request: pb.CommandCloseProducer, body: bytes) -> None:
    """Handle CLOSE_PRODUCER."""
    producer = connection.producers.pop(request.producer_id, None)
    if producer is not None:
        producer.topic.producers.leave(producer)
    elif request.producer_id not in connection.closed_producers:
        raise RefusedError(pb.UnknownError, f"Producer {request.producer_id} is not open")
    connection.send_success(request.request_id)


def _refuse(connection: PulsarConnection, request: pb.CommandSend, error: pb.ServerError, message: str) -> None:
    refusal = pb.CommandSendError(
        producer_id=request.producer_id, sequence_id=request.sequence_id, error=error, message=message
    )
    connection.send(pb.BaseCommand.SEND_ERROR, send_error=refusal)
