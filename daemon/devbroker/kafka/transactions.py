"""Requests about transactional ids and their transactions, by both protocols (spec: kafka 14.2)."""

from struct import pack

from fastwire.kafka.format.error import Code
from fastwire.kafka.format.message import Body
from fastwire.kafka.names import TopicPartition as Place
from fastwire.kafka.producing.payload import ABORTED, BatchHead, encode_block_batch, encode_values
from fastwire.kafka.producing.transaction import IMPLICIT_END, IMPLICIT_PRODUCE

from ...runtime.clock import now_ms
from ..base import RefusedError
from .connection import KafkaConnection
from .requests import Request
from .topics import TransactionalId

ABORT, COMMIT = 0, 1


def identify(connection: KafkaConnection, name: str) -> Body:
    """Answer InitProducerId of a transactional id: with the next epoch, after the abort of its open transaction."""
    broker = connection.broker
    if connection.node != broker.coordinator:
        return {"error_code": Code.NOT_COORDINATOR}
    if "transactional ids" in broker.forbidden:
        return {"error_code": Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}
    known = broker.transactional_ids.get(name)
    if known is None:
        known = broker.transactional_ids[name] = TransactionalId(broker.next_producer_id)
        broker.next_producer_id += 1
    else:
        known.epoch += 1
        _mark(connection, known, ABORT)
        known.ended = None
    return {"error_code": 0, "producer_id": known.producer_id, "producer_epoch": known.epoch}


def add_partitions(connection: KafkaConnection, request: Request) -> Body | None:
    """Handle AddPartitionsToTxn."""
    asked = request.body["topics"]
    code = 0
    try:
        known = _current(connection, request)
        if any(topic["name"] in connection.broker.forbidden for topic in asked):
            raise RefusedError(Code.TOPIC_AUTHORIZATION_FAILED)
        known.ended = None
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
        raise RefusedError(Code.INVALID_PRODUCER_ID_MAPPING)
    return known


def _current(connection: KafkaConnection, request: Request) -> TransactionalId:
    known = _known(connection, request)
    if known.epoch != request.body["producer_epoch"]:
        raise RefusedError(Code.INVALID_PRODUCER_EPOCH)
    return known


def end(connection: KafkaConnection, request: Request) -> Body | None:
    """Handle EndTxn. One that is sent again for the transaction that has ended has the same answer."""
    kind = COMMIT if request.body["committed"] else ABORT
    implicit = request.version >= IMPLICIT_END
    try:
        known = _known(connection, request)
        epoch = request.body["producer_epoch"]
        if known.ended != (epoch, kind):
            if known.epoch != epoch:
                raise RefusedError(Code.INVALID_PRODUCER_EPOCH)
            if not known.places:
                raise RefusedError(Code.INVALID_TXN_STATE)
            known.epoch += implicit
            _mark(connection, known, kind)
            known.ended = (epoch, kind)
    except RefusedError as exc:
        return {"error_code": exc.code}
    if not implicit:
        return {"error_code": 0}
    return {"error_code": 0, "producer_id": known.producer_id, "producer_epoch": known.epoch}


def check_batch(connection: KafkaConnection, version: int, name: str | None, head: BatchHead, place: Place) -> None:
    """Check that the batch of a transaction is part of it; by the newer protocol it becomes so. Raises RefusedError."""
    known = connection.broker.transactional_ids.get(name or "")
    if known is None or known.producer_id != head.producer_id:
        raise RefusedError(Code.INVALID_PRODUCER_ID_MAPPING)
    if known.epoch != head.producer_epoch:
        raise RefusedError(Code.INVALID_PRODUCER_EPOCH)
    if version >= IMPLICIT_PRODUCE:
        known.places.add(place)
        known.ended = None
    elif place not in known.places:
        raise RefusedError(Code.INVALID_TXN_STATE)


def _mark(connection: KafkaConnection, known: TransactionalId, kind: int) -> None:
    broker = connection.broker
    for topic, number in sorted(known.places):
        marker = encode_block_batch(
            encode_values([pack(">hi", 0, 0)], [pack(">hh", 0, kind)]),
            1,
            base_timestamp=now_ms(),
            producer_id=known.producer_id,
            producer_epoch=known.epoch,
            attributes=ABORTED,
        )
        found = broker.find(topic)
        if found is not None:
            found.partitions[number].mark(known.producer_id, known.epoch, marker, now_ms())
        broker.held.wake()
    known.places.clear()
