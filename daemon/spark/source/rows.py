"""The schema of rows in Spark, landed or from brokers, and the Arrow batches with it.

From 4.2 on Spark compares the schema of the first batch with the declared one: plain strings, UTC microseconds, nothing
marked as non-null, columns in order.
"""

from collections.abc import Iterable

import pyarrow as pa

from fastwire.systems import row_of

from .dialects import Dialect

# Names and types as in Spark's own Kafka source, where it has them.
_TYPES: dict[str, tuple[str, pa.DataType]] = {
    "key": ("binary", pa.binary()),
    "value": ("binary", pa.binary()),
    "topic": ("string", pa.string()),
    "partition": ("int", pa.int32()),
    "offset": ("bigint", pa.int64()),
    "timestamp": ("timestamp", pa.timestamp("us", "UTC")),
    "timestampType": ("int", pa.int32()),
    "headers": (
        "array<struct<key:string,value:binary>>",
        pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ),
    "ledger": ("bigint", pa.int64()),
    "batchIndex": ("int", pa.int32()),
    "eventTime": ("timestamp", pa.timestamp("us", "UTC")),
    "producer": ("string", pa.string()),
    "sequenceId": ("bigint", pa.int64()),
    "orderingKey": ("binary", pa.binary()),
    "schemaVersion": ("binary", pa.binary()),
    "redeliveryCount": ("int", pa.int32()),
}
_DEFAULT = frozenset(
    ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "ledger", "batchIndex")
)
# Where a row comes from: with those of them that its system has it can be found again.
PLACE = ("topic", "partition", "ledger", "offset", "batchIndex", "timestamp")


def default_columns(system: str) -> frozenset[str]:
    """Return the columns of a query whose options choose none."""
    return _DEFAULT & frozenset(row_of(system).names)


def ddl(columns: Iterable[str]) -> str:
    """Return the schema as Spark DDL."""
    return ", ".join(f"{name} {_TYPES[name][0]}" for name in columns)


def arrow_schema(columns: Iterable[str]) -> pa.Schema:
    """Return the schema of the Arrow batches that Spark takes and gives."""
    return pa.schema([pa.field(name, _TYPES[name][1]) for name in columns])


def is_row(columns: Iterable[str]) -> bool:
    """Return True if all ``columns`` are columns of records."""
    return _TYPES.keys() >= set(columns)


class Rows:
    """Converts the batches of a connection to those that Spark expects, for the rows of one topic."""

    def __init__(self, columns: tuple[str, ...], topic: str, most_rows: int, most_bytes: int) -> None:
        self.schema = arrow_schema(columns)
        self._topic = topic
        self._most_rows = most_rows
        self._most_bytes = most_bytes
        self._topics = pa.array([], pa.string())

    @staticmethod
    def built(dialect: Dialect, columns: Iterable[str]) -> frozenset[str]:
        """Return the columns that a connection has to build for ``columns``."""
        return (frozenset(columns) & frozenset(row_of(dialect.grammar.name).names) | dialect.in_range) - {"topic"}

    def batches(self, batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
        """Yield ``batch`` in pieces within the limits of rows and bytes; the memory is shared."""
        arrays = [self._array(batch, field) for field in self.schema]
        made = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        rows: int = made.num_rows
        step = min(self._most_rows, max(1, rows * self._most_bytes // max(made.nbytes, 1)))
        return (made,) if rows <= step else [made.slice(at, step) for at in range(0, rows, step)]

    def _array(self, batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
        if field.name == "topic":
            if len(self._topics) < batch.num_rows:
                self._topics = pa.repeat(pa.scalar(self._topic), batch.num_rows)
            return self._topics[: batch.num_rows]
        array = batch.column(field.name)
        if field.name == "producer":
            return array.dictionary_decode()
        if field.name == "headers":
            # The same buffers under a type whose keys may be null.
            return array.cast(field.type)
        return array
