"""Requests about transactional ids, as far as a producer is fenced by them: no records of transactions are stored."""

from struct import pack

from fastwire.kafka.format.error import Code
from fastwire.kafka.format.message import Body
from fastwire.kafka.producing.payload import ABORTED, encode_block_batch, encode_values

from ...runtime.clock import now_ms
from ..base import RefusedError
from .connection import KafkaConnection
from .requests import Request
from .topics import TransactionalId

__all__ = ["add_partitions", "identify"]

INVALID_PRODUCER_ID_MAPPING = 49


def identify(connection: KafkaConnection, name: str) -> Body:
    """Answer InitProducerId of a transactional id: with the next epoch, after the abort of its open transaction."""
    broker = connection.broker
    if connection.node != broker.coordinator:
        return {"error_code": Code.NOT_COORDINATOR}
    known = broker.transactional_ids.get(name)
    if known is None:
        known = broker.transactional_ids[name] = TransactionalId(broker.next_producer_id)
        broker.next_producer_id += 1
    else:
        known.epoch += 1
        _abort(connection, known)
    return {"error_code": 0, "producer_id": known.producer_id, "producer_epoch": known.epoch}


def add_partitions(connection: KafkaConnection, request: Request) -> Body | None:
    """Handle AddPartitionsToTxn."""
    asked = request.body["topics"]
    code = 0
    try:
        known = _known(connection, request)
        known.places.update((topic["name"], number) for topic in asked for number in topic["partitions"])
    except RefusedError as exc:
        code = exc.code
    return {
        "results": [
            {
                "name": topic["name"],
                "partitions": [{"partition_index": number, "error_code": code} for number in topic["partitions"]],
            }
            for topic in asked
        ]
    }


def _known(connection: KafkaConnection, request: Request) -> TransactionalId:
    broker, body = connection.broker, request.body
    if connection.node != broker.coordinator:
        raise RefusedError(Code.NOT_COORDINATOR)
    known = broker.transactional_ids.get(body["transactional_id"])
    if known is None or known.producer_id != body["producer_id"]:
        raise RefusedError(INVALID_PRODUCER_ID_MAPPING)
    if known.epoch != body["producer_epoch"]:
        raise RefusedError(Code.INVALID_PRODUCER_EPOCH)
    return known


def _abort(connection: KafkaConnection, known: TransactionalId) -> None:
    broker = connection.broker
    for topic, number in sorted(known.places):
        marker = encode_block_batch(
            encode_values([pack(">hi", 0, 0)], [pack(">hh", 0, 0)]),
            1,
            base_timestamp=now_ms(),
            producer_id=known.producer_id,
            producer_epoch=known.epoch,
            attributes=ABORTED,
        )
        broker.partition(topic, number).mark(known.producer_id, known.epoch, marker, now_ms())
        broker.held.wake()
    known.places.clear()
