"""Control batches of Kafka, which coordinators write and the product only reads."""

from struct import pack

from fastwire.kafka.producing.payload import Record, encode_block_batch, encode_records

_TRANSACTIONAL = 0x10
_CONTROL = 0x20


def encode_marker(
    *, commit: bool, producer_id: int, producer_epoch: int, timestamp: int, base_offset: int = 0, leader_epoch: int = -1
) -> bytes:
    """Return the control batch that ends a transaction (spec: kafka 6.1)."""
    record = Record(key=pack(">hh", 0, int(commit)), value=pack(">hi", 0, 0), timestamp=timestamp)
    return encode_block_batch(
        encode_records([record], timestamp),
        1,
        base_timestamp=timestamp,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        attributes=_TRANSACTIONAL | _CONTROL,
    )
