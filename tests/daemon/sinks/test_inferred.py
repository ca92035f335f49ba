"""Decoders whose columns are inferred from the values."""

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from fastwire.decode.evolution import Column
from fastwire.position import Log
from fastwire_daemon.config.decode import parse_decode
from fastwire_daemon.sinks.registry import decoder_of
from fastwire_daemon.sinks.valuedecoder import ValueDecoder

IDS = Column("id", "l", True)


def decoder(**more: Any) -> ValueDecoder:
    options = {name: more.pop(name) for name in ("for_table",) if name in more}
    return decoder_of(parse_decode({"format": "json", "schema": "infer"} | more), "kafka", **options)


def landed(
    made: ValueDecoder, *values: Any, keys: Sequence[bytes | None] | None = None
) -> tuple[list[pa.RecordBatch], list[str]]:
    """Return the rows of ``values``, and the reasons of the dead letters."""
    encoded = [None if value is None else json.dumps(value).encode() for value in values]
    batch = pa.record_batch(
        {
            "value": pa.array(encoded, pa.binary()),
            "key": pa.array(keys or [None] * len(values), pa.binary()),
            "offset": pa.array(range(len(values)), pa.int64()),
            "timestamp": pa.array([0] * len(values), pa.timestamp("us", "UTC")),
        }
    )
    runs = [(Log("kafka", "c", "t", "0"), 0, len(values))]
    parts = [*made.decode(batch, runs, lambda why, seconds: None)]
    return [part.batch for part in parts], [each.reason for part in parts for each in part.dead_letters]


def rows(batches: list[pa.RecordBatch]) -> list[dict[str, Any]]:
    return [
        {name: cell for name, cell in row.items() if cell is not None} for each in batches for row in each.to_pylist()
    ]


def test_values_may_lack_each_column_of_the_dataset_also_where_null_values_are_rows() -> None:
    made = decoder(columns=["*", "_deleted"])
    made.adopt([IDS, Column("price", "l", True)])
    batches, bad = landed(made, {"id": 1, "price": 2}, None, {"id": 2}, {"id": None, "new": True})
    assert bad == []
    assert rows(batches) == [
        {"_deleted": False, "id": 1, "price": 2}, {"_deleted": True}, {"_deleted": False, "id": 2},
        {"_deleted": False, "new": True},
    ]  # fmt: skip
