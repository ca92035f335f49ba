"""The columns of Pulsar as Arrow types, in their order: written out, so that nobody changes one without noticing."""

import pyarrow as pa

HEADERS = pa.list_(
    pa.field("item", pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())]), False)
)
TYPES = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.dictionary(pa.int32(), pa.string()),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestampType": pa.int32(),
    "headers": HEADERS,
    "ledger": pa.int64(),
    "batchIndex": pa.int32(),
    "eventTime": pa.timestamp("us", "UTC"),
    "producer": pa.dictionary(pa.int32(), pa.string()),
    "sequenceId": pa.int64(),
    "orderingKey": pa.binary(),
    "schemaVersion": pa.binary(),
    "redeliveryCount": pa.int32(),
}
