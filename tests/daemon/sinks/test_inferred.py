"""Decoders whose columns are inferred from the values."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fastwire.decode.evolution import Column
from fastwire.position import Log
from fastwire_daemon.config.decode import parse_decode
from fastwire_daemon.runtime.errors import LogRefusedError
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


def test_objects_without_a_value_are_rows_before_there_are_columns() -> None:
    made = decoder()
    batches, bad = landed(made, {}, {"a": None}, [])
    assert (sum(each.num_rows for each in batches), len(bad)) == (2, 1)
    batches, _ = landed(made, {}, {"a": 1})
    assert rows(batches) == [{}, {"a": 1}]


def test_decoded_keys_stand_beside_inferred_columns(tmp_path: Path) -> None:
    schema = tmp_path / "key.avsc"
    schema.write_text(json.dumps({"type": "record", "name": "K", "fields": [{"name": "k", "type": "long"}]}))
    made = decoder(columns=["*", "_key"], keys={"format": "json", "schema": str(schema)})
    keys = [b'{"k": 1}', b'{"k": 2}', b'{"j": 3}']
    batches, bad = landed(made, {"id": 1}, {"id": 2, "_key": 5}, {"id": 3}, keys=keys)
    made.adopt(made.types)
    later, none = landed(made, {"id": 4, "new": 1}, keys=keys[:1])
    assert rows(batches) + rows(later) == [{"_key": {"k": 1}, "id": 1}, {"_key": {"k": 1}, "id": 4, "new": 1}]
    assert none == [] and bad == [
        "NewColumns at byte 10 of the value, in _key",
        "MissingField at byte 7 of the key 0x7b226a223a20337d, in _key.k",
    ]


def test_a_new_field_stops_its_log_if_columns_are_strict() -> None:
    made = decoder(evolve="strict")
    made.adopt([IDS])
    assert rows(landed(made, {"id": 1}, {}, {"id": None, "n": [None]})[0]) == [{"id": 1}, {}, {}]
    with pytest.raises(LogRefusedError, match="NewColumns at byte 10 of the value, in n"):
        landed(made, {"id": 1}, {"id": 2, "n": 1})


def test_fields_of_structs_have_names_that_tables_can_have() -> None:
    made = decoder(for_table=True)
    made.adopt([IDS])
    batches, bad = landed(made, {"id": 1, "s": {"a b": 1}}, {"id": 2, "l": [{"c;": 1}]}, {"id": 3, "s": {"fine": 1}})
    assert rows(batches) == [{"id": 3, "s": {"fine": 1}}]
    assert bad == ["NewColumns at byte 16 of the value, in s.a b", "NewColumns at byte 10 of the value, in l"]


def test_names_with_dots_are_not_the_places_of_other_columns_of_a_table() -> None:
    made = decoder(for_table=True)
    made.adopt([IDS, Column("who", "+s", True, (Column("name", "u", True),))])
    values = [{"who.name": "x"}, {"a.b": 1}, {"l": [1]}, {"l.element": 2}, {"a": {"c": 1, "b": 2}}]
    batches, bad = landed(made, *values)
    assert rows(batches) == [{"a.b": 1}, {"l": [1]}]
    assert bad == [
        "NewColumns at byte 1 of the value, in who.name",
        "NewColumns at byte 1 of the value, in l.element",
        "NewColumns at byte 15 of the value, in a.b",
    ]
