"""Fields that a later schema adds within structs, lists, maps and optional records: they land in files and tables."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable, QueryBuilder

from fastwire_daemon.dataset.description import DatasetOptions
from fastwire_daemon.dataset.proof.verify import verify
from fastwire_daemon.encoders.parquet import ParquetEncoder
from fastwire_daemon.sinks.dataset import DatasetSink
from tests.support import icebergs
from tests.support.avro import encode
from tests.support.decoded_dataset import GivenFeed, dead_letters, of_registry
from tests.support.schema_registry import framed, serving
from tests.support.tables import rows_by_duckdb


def record(name: str, **fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": key, "type": kind} for key, kind in fields.items()]}


def schema(*, newer: bool) -> dict[str, Any]:
    more: dict[str, Any] = {"b": ["null", "string"]} if newer else {}
    deep = record("D", x="int", **more)
    return record(
        "O",
        id="int",
        cust=record("C", cid="int", deep=deep, **more),
        items={"type": "array", "items": record("I", pid="int", **more)},
        meta={"type": "map", "values": record("M", a="int", **more)},
        opt=["null", record("P", x="int", **more)],
    )


def value(number: int, *, newer: bool, shown: bool = False) -> dict[str, Any]:
    """A value; ``shown`` as a reader has it, with nulls for what it lacks."""
    more: dict[str, Any] = {"b": f"b{number}"} if newer else {"b": None} if shown else {}
    return {
        "id": number,
        "cust": {"cid": number, "deep": {"x": number, **more}, **more},
        "items": [{"pid": number, **more}, {"pid": number + 1, **more}],
        "meta": {"k": {"a": number, **more}},
        "opt": None if number % 2 else {"x": number, **more},
    }


NEWER = [False, True, False, True, True, False]
WANTED = [value(number, newer=newer, shown=True) for number, newer in enumerate(NEWER)]


def plain(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    def one(cell: Any) -> Any:
        if isinstance(cell, list) and cell and isinstance(cell[0], tuple):
            return {key: one(inner) for key, inner in cell}
        if isinstance(cell, dict) and set(cell) == {"key", "value"}:
            return {cell["key"]: one(cell["value"])}
        if isinstance(cell, dict):
            return {key: one(inner) for key, inner in cell.items()}
        return [one(each) for each in cell] if isinstance(cell, list) else cell

    found = [{name: one(cell) for name, cell in row.items() if name in WANTED[0]} for row in rows]
    for row in found:  # a map by a reader that has lists of pairs
        if isinstance(row["meta"], list):
            row["meta"] = {key: each for pair in row["meta"] for key, each in pair.items()}
    return sorted(found, key=lambda row: row["id"])


@pytest.mark.parametrize("table", ["", "delta", "iceberg"])
def test_fields_that_are_added_within_others_land(tmp_path: Path, table: str) -> None:
    with serving() as server:
        server.register(7, schema(newer=False))
        server.register(8, schema(newer=True))
        for again in range(2):  # the second start has the older schema as its own, too
            made = of_registry(server, schema(newer=False), for_table=bool(table))
            options = DatasetOptions(
                system="pulsar", cluster="feed", columns=made.columns, types=made.types, table=table,
                catalog=icebergs.catalog(tmp_path) if table == "iceberg" else {},
            )  # fmt: skip
            sink = DatasetSink(tmp_path, options, ParquetEncoder, decoder=made)
            coverage = sink.open()
            half = range(again * 3, again * 3 + 3)
            values = [
                framed(8 if NEWER[i] else 7, encode(schema(newer=NEWER[i]), value(i, newer=NEWER[i]))) for i in half
            ]
            sink.write(GivenFeed(coverage).chunk_of(values[:1]))
            sink.write(GivenFeed(sink.commit()).chunk_of(values[1:]))
            sink.commit()
            sink.close()
            assert sink.unpublished == ""
    assert list(tmp_path.glob("_fastwire/diverted/*")) == [] or dead_letters(tmp_path) == []
    assert verify(tmp_path, deep=True, strict=True).problems == []
    if table == "delta":
        found = DeltaTable(tmp_path)
        assert plain(found.to_pyarrow_table().to_pylist()) == WANTED
        # The engine of the library cannot read a map whose structs have grown.
        by_engine = QueryBuilder().register("t", found).execute("select id, cust, items, opt from t").read_all()
        rows = sorted(pa.table(by_engine).to_pylist(), key=lambda row: row["id"])
        assert rows == [{name: row[name] for name in ("id", "cust", "items", "opt")} for row in WANTED]
        deep = rows_by_duckdb(tmp_path, "id, cust.deep.b, items[1].b, meta['k'].b, opt.b")
    elif table == "iceberg":
        loaded = icebergs.loaded(tmp_path)
        assert plain(loaded.scan().to_arrow().to_pylist()) == WANTED
        deep = rows_by_duckdb(loaded.metadata_location, "id, cust.deep.b, items[1].b, meta['k'].b, opt.b", "iceberg")
    else:
        files = sorted(tmp_path.glob("*.parquet"))
        newest = ds.dataset(files[-1]).schema
        assert newest.field("cust").type.get_field_index("b") >= 0
        return
    b = {i: f"b{i}" if newer else None for i, newer in enumerate(NEWER)}
    assert sorted(deep) == [(i, b[i], b[i], b[i], None if i % 2 else b[i]) for i in range(len(NEWER))]
