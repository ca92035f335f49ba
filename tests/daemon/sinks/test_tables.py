"""The sink of a Delta table: the types of decoded values in it, columns that newer schemas add, and what is refused."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from fastwire.decode.avro.schema import compile_avro
from fastwire.decode.evolution import columns_of
from fastwire_daemon.dataset.level import level_keys
from fastwire_daemon.dataset.proof.verify import verify
from fastwire_daemon.runtime.errors import DatasetMismatchError
from tests.support.avro import encode
from tests.support.decoded_dataset import (
    REGISTERED,
    WIDER,
    Changes,
    GivenFeed,
    Opened,
    dead_letters,
    decoder,
    of_registry,
    orders,
    wider,
)
from tests.support.schema_registry import SchemaRegistryServer, framed
from tests.support.tables import rows_by_duckdb

ALL: dict[str, Any] = {"type": "record", "name": "All", "fields": [
    {"name": "i", "type": "int"}, {"name": "l", "type": ["null", "long"]}, {"name": "f", "type": "float"},
    {"name": "g", "type": "double"}, {"name": "b", "type": "boolean"}, {"name": "s", "type": "string"},
    {"name": "z", "type": "bytes"}, {"name": "fixed", "type": {"type": "fixed", "name": "Two", "size": 2}},
    {"name": "word", "type": {"type": "enum", "name": "Word", "symbols": ["A", "B"]}},
    {"name": "day", "type": {"type": "int", "logicalType": "date"}},
    {"name": "ms", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "us", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
    {"name": "tags", "type": {"type": "array", "items": "string"}},
    {"name": "counts", "type": {"type": "map", "values": "int"}},
    {"name": "place", "type": {"type": "record", "name": "Place", "fields": [{"name": "city", "type": "string"}]}},
]}  # fmt: skip
VALUE: dict[str, Any] = {
    "i": 1, "l": None, "f": 0.5, "g": 0.25, "b": True, "s": "x", "z": b"\0", "fixed": b"ab", "word": "B",
    "day": date(2026, 1, 2), "ms": datetime(2026, 1, 2, 3, 4, 5, 6000, UTC),
    "us": datetime(2026, 1, 2, 3, 4, 5, 6, UTC), "price": Decimal("1.25"), "tags": ["a", "b"], "counts": {"n": 1},
    "place": {"city": "Bonn"},
}  # fmt: skip


@pytest.fixture(name="opened")
def opened_tables(opened: Opened) -> Opened:
    """Makes opened sinks of a table, all for one place."""
    return partial(opened, table="delta")


def test_values_of_all_types_are_in_the_table(opened: Opened, tmp_path: Path) -> None:
    sink = opened(decoder(("*", "_offset", "_timestamp", "_headers"), ALL, for_table=True))
    sink.write(GivenFeed().chunk_of([encode(ALL, VALUE)] * 3))
    sink.commit()
    assert sink.unpublished == ""
    (row, *others) = DeltaTable(tmp_path / "data").to_pyarrow_table(columns=list(VALUE)).to_pylist()
    assert row | {"counts": dict(row["counts"])} == VALUE and len(others) == 2
    timeless = {name: value for name, value in VALUE.items() if name not in ("ms", "us")}
    found = rows_by_duckdb(tmp_path / "data", ", ".join(f'"{name}"' for name in timeless))[0]
    assert dict(zip(timeless, found, strict=True)) == timeless
    times = rows_by_duckdb(tmp_path / "data", "epoch_us(ms), epoch_us(us)")[0]
    assert times == tuple(int(VALUE[name].timestamp() * 1_000_000) for name in ("ms", "us"))
    assert verify(tmp_path / "data", deep=True).problems == []


def test_columns_of_values_are_partitions_with_their_types(opened: Opened, tmp_path: Path) -> None:
    levels = ("i", "s", "day", "b")
    types = {column.name: column for column in columns_of(compile_avro(json.dumps(ALL)))}
    made = decoder(("*",), ALL, for_table=True, extra=("us", *levels), levels=levels)
    sink = opened(
        made, levels=levels, level_types=tuple(types[name] for name in levels), partition_by="hour(us)", split="topic"
    )
    values = [VALUE, VALUE | {"i": 2, "s": "a/b ö%", "b": False}, VALUE | {"s": ""}]
    sink.write(GivenFeed().chunk_of([encode(ALL, value) for value in values]))
    sink.commit()
    assert sink.unpublished == ""
    table = DeltaTable(tmp_path / "data")
    assert table.metadata().partition_columns == [*level_keys("topic", "hour"), *levels]
    wanted = sorted(((value["i"], value["s"] or None, value["day"], value["b"]) for value in values), key=str)
    rows = table.to_pyarrow_table(columns=list(levels)).to_pylist()
    assert sorted((tuple(row.values()) for row in rows), key=str) == wanted
    found = rows_by_duckdb(tmp_path / "data", ", ".join(levels))
    assert sorted(found, key=str) == wanted
    assert {row[:2] for row in rows_by_duckdb(tmp_path / "data", "dt, hh")} == {(date(2026, 1, 2), 3)}


def test_columns_of_a_newer_schema_are_added_to_the_table(
    opened: Opened, registry: SchemaRegistryServer, tmp_path: Path
) -> None:
    added = {**WIDER, "fields": [REGISTERED["fields"][0], *WIDER["fields"][1:]]}
    registry.register(8, added)
    sink = opened(of_registry(registry, REGISTERED, for_table=True))
    newer = [framed(8, encode(added, {"id": i, "country": "FR", "note": "n"})) for i in range(2)]
    sink.write(GivenFeed().chunk_of([*orders(2), *newer]))
    sink.commit()
    assert sink.unpublished == ""
    rows = DeltaTable(tmp_path / "data").to_pyarrow_table().select(["id", "country", "note"]).to_pylist()
    assert sorted(tuple(row.values()) for row in rows if row["note"]) == [(0, "FR", "n"), (1, "FR", "n")]
    assert sorted(tuple(row.values()) for row in rows if not row["note"]) == [(0, "DE", None), (1, "DE", None)]


def test_a_schema_that_makes_a_column_wider_is_refused(
    opened: Opened, registry: SchemaRegistryServer, tmp_path: Path
) -> None:
    registry.register(8, WIDER)
    sink = opened(of_registry(registry, REGISTERED, for_table=True))
    sink.write(GivenFeed().chunk_of([*orders(2), *wider(1)]))
    sink.commit()
    assert DeltaTable(tmp_path / "data").to_pyarrow_table().num_rows == 2
    (letter,) = dead_letters(tmp_path / "data")
    assert "a table cannot change the type of its column id from integer to long" in letter["reason"]
    with pytest.raises(DatasetMismatchError, match="cannot change the type of its column id from integer to long"):
        opened(of_registry(registry, WIDER, for_table=True))


def test_a_table_shows_which_values_were_null(opened: Opened, tmp_path: Path) -> None:
    sink = opened(decoder(("*", "_deleted"), REGISTERED, for_table=True))
    sink.write(Changes().chunk_of([encode(REGISTERED, {"id": 1, "country": "DE"}), None]))
    sink.commit()
    assert sink.unpublished == ""
    rows = DeltaTable(tmp_path / "data").to_pyarrow_table().select(["id", "_deleted"]).to_pylist()
    assert rows == [{"id": 1, "_deleted": False}, {"id": None, "_deleted": True}]
