"""Requests of producers, with and without sequences of their own (spec: tank 7)."""

from fastwire.errors import ProtocolError
from fastwire.tank.format.error import ProduceCode
from fastwire.tank.format.message import MessageType
from fastwire.tank.protocol.produce import PartitionBundle, ProduceAnswer, ProduceRequest, ProduceResult

from ..base import RefusedError
from .connection import TankConnection

__all__ = ["produce", "produce_sequence"]


def produce(connection: TankConnection, payload: bytes) -> None:
    """Handle message type 1."""
    _produce(connection, *ProduceRequest.decode(payload))


def produce_sequence(connection: TankConnection, payload: bytes) -> None:
    """Handle message type 5, which is answered as type 1."""
    _produce(connection, *ProduceRequest.decode(payload, with_base=True))


def _produce(connection: TankConnection, request_id: int, request: ProduceRequest) -> None:
    broker = connection.broker
    results = []
    for topic, bundles in request.topics:
        if len({one.partition for one in bundles}) != len(bundles):
            raise ProtocolError("produce request", detail=f"names a partition of {topic} twice")
        if topic not in broker.topics:
            results.append(ProduceResult(topic, None, ProduceCode.UNKNOWN_TOPIC))
        elif broker.options.read_only:
            results.append(ProduceResult(topic, None, ProduceCode.READ_ONLY))
        else:
            results += (_store(connection, topic, one) for one in bundles)
    connection.answer(MessageType.PRODUCE, ProduceAnswer(tuple(results)).encode(request_id))
    broker.held.wake()


def _store(connection: TankConnection, topic: str, one: PartitionBundle) -> ProduceResult:
    broker = connection.broker
    log = broker.partition(topic, one.partition)
    if log is None:
        return ProduceResult(topic, one.partition, ProduceCode.UNKNOWN_PARTITION)
    if log.leader != connection.node:
        if log.leader < 0:
            return ProduceResult(topic, one.partition, ProduceCode.NO_LEADER)
        return ProduceResult(topic, one.partition, ProduceCode.REDIRECT, broker.address(log.leader))
    refusal = broker.bundle_refusals.take()
    if refusal is not None and not refusal.stored:
        return ProduceResult(topic, one.partition, refusal.code)
    try:
        log.append(one.bundle, one.base)
    except RefusedError as exc:
        return ProduceResult(topic, one.partition, exc.code)
    return ProduceResult(topic, one.partition, ProduceCode.STORED if refusal is None else refusal.code)
