"""Requests of producers: Produce and InitProducerId, checked as by a real broker (spec: kafka 14)."""

from fastwire.errors import CorruptEntryError
from fastwire.kafka.format.error import Code
from fastwire.kafka.format.message import Body
from fastwire.kafka.producing.payload import split_batches

from ...runtime.clock import now_ms
from ..base import RefusedError
from .connection import KafkaConnection
from .requests import Request
from .transactions import check_batch, identify

INVALID_REQUIRED_ACKS = 21
INVALID_RECORD = 87


def produce(connection: KafkaConnection, request: Request) -> Body | None:
    """Handle Produce; with acks 0 there is no response."""
    broker = connection.broker
    answers = []
    hinted = set()
    for topic in request.body["topic_data"]:
        partitions = []
        for one in topic["partition_data"]:
            answer: Body = {"index": one["index"], "error_code": 0, "base_offset": -1}
            try:
                if request.body["acks"] not in (-1, 0, 1):
                    raise RefusedError(INVALID_REQUIRED_ACKS)
                answer["base_offset"] = _store(connection, request, topic["name"], one["index"], one["records"] or b"")
                answer["log_start_offset"] = broker.partition(topic["name"], one["index"]).start
            except RefusedError as exc:
                answer["error_code"] = exc.code
                answer["error_message"] = str(exc)
                if exc.code == Code.NOT_LEADER_OR_FOLLOWER and broker.options.leader_hints:
                    partition = broker.partition(topic["name"], one["index"])
                    answer["current_leader"] = {"leader_id": partition.leader, "leader_epoch": partition.epoch}
                    hinted.add(partition.leader)
            partitions.append(answer)
        answers.append({"name": topic["name"], "partition_responses": partitions})
    if request.body["acks"] == 0:
        connection.done()
        return None
    return {"responses": answers, "node_endpoints": [one for one in broker.nodes() if one["node_id"] in hinted]}


def _store(connection: KafkaConnection, request: Request, topic: str, number: int, records: bytes) -> int:
    broker = connection.broker
    found = broker.find(topic)
    if found is None or not 0 <= number < len(found.partitions):
        raise RefusedError(Code.UNKNOWN_TOPIC_OR_PARTITION)
    partition = found.partitions[number]
    if partition.leader != connection.node:
        raise RefusedError(Code.NOT_LEADER_OR_FOLLOWER)
    fault = broker.batch_refusals.take()
    if fault is not None and not fault.stored:
        raise RefusedError(fault.code)
    if len(records) > int(found.configs.get("max.message.bytes") or broker.options.max_message_bytes):
        raise RefusedError(Code.MESSAGE_TOO_LARGE)
    try:
        heads = list(split_batches(records))
    except CorruptEntryError as exc:
        raise RefusedError(Code.CORRUPT_MESSAGE, exc.detail) from None
    if len(heads) != 1 or heads[0].control or heads[0].count != heads[0].last_offset_delta + 1:
        raise RefusedError(INVALID_RECORD, "one batch without holes per partition")
    if heads[0].producer_id >= broker.next_producer_id:
        raise RefusedError(Code.UNKNOWN_PRODUCER_ID)
    if heads[0].transactional:
        name = request.body["transactional_id"]
        check_batch(connection, request.version, name, heads[0], (topic, number))
    offset = partition.produce(heads[0], records, now_ms())
    broker.held.wake()
    if fault is not None:
        raise RefusedError(fault.code)
    return offset


def init_producer_id(connection: KafkaConnection, request: Request) -> Body | None:
    """Handle InitProducerId of an idempotent producer, with a transactional id or without."""
    broker = connection.broker
    if (name := request.body["transactional_id"]) is not None:
        return identify(connection, name)
    producer_id, epoch = request.body.get("producer_id", -1), request.body.get("producer_epoch", -1)
    if 0 <= producer_id < broker.next_producer_id:
        return {"error_code": 0, "producer_id": producer_id, "producer_epoch": epoch + 1}
    producer_id = broker.next_producer_id
    broker.next_producer_id += 1
    return {"error_code": 0, "producer_id": producer_id, "producer_epoch": 0}
