"""Values that name folders, as readers get them back: of plain files, of Delta and of Iceberg tables."""

import json
import math
from collections.abc import Callable, Mapping
from datetime import date
from pathlib import Path
from typing import Any
from unittest.mock import patch

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder

from fastwire.decode.avro.schema import compile_avro
from fastwire.decode.evolution import columns_of
from fastwire_daemon.dataset import level
from fastwire_daemon.dataset.description import DatasetOptions
from fastwire_daemon.dataset.proof.verify import verify
from fastwire_daemon.dataset.storage.bucket import Bucket
from fastwire_daemon.dataset.tables import publication
from fastwire_daemon.encoders.parquet import ParquetEncoder
from fastwire_daemon.sinks.dataset import DatasetSink
from tests.support import icebergs
from tests.support.avro import encode
from tests.support.decoded_dataset import GivenFeed, dead_letters, decoder
from tests.support.partitions import NULL, VALUES, Rows, plain_readers
from tests.support.s3_server import new_bucket, s3_server
from tests.support.tables import rows_by_duckdb

SCHEMA: dict[str, Any] = {"type": "record", "name": "R", "fields": [
    {"name": "id", "type": "int"}, {"name": "city", "type": ["null", "string"]},
]}  # fmt: skip
REQUIRED = {**SCHEMA, "fields": [SCHEMA["fields"][0], {"name": "city", "type": "string"}]}
ALL: list[str | None] = [*VALUES, NULL, "", None]


def land(
    path: Path, values: list[Any], table: str = "", schema: dict[str, Any] = SCHEMA, medium: Bucket | None = None
) -> None:
    """Land rows whose ids go on where those of the dataset end."""
    types = {column.name: column for column in columns_of(compile_avro(json.dumps(schema)))}
    made = decoder(("*",), schema, for_table=bool(table), extra=("city",), levels=("city",))
    options = DatasetOptions(
        system="pulsar", cluster="feed", columns=made.columns, types=made.types, table=table, levels=("city",),
        level_types=(types["city"],) if table else (), catalog=icebergs.catalog(path) if table == "iceberg" else {},
    )  # fmt: skip
    sink = DatasetSink(path, options, ParquetEncoder, decoder=made, medium=medium)
    coverage = sink.open()
    first = sum(len(entry["id"]) for entry in map(pq.read_table, path.glob("city=*/*.parquet")))
    rows = [encode(schema, {"id": first + i, "city": value}) for i, value in enumerate(values)]
    with patch.object(publication, "_TOLD_S", math.inf):  # a busy machine takes longer to start what commits
        sink.write(GivenFeed(coverage).chunk_of(rows))
        sink.commit()
        sink.close()
    assert sink.unpublished == ""
    assert verify(path, deep=True, medium=medium).problems == []


def assert_read(name: str, rows: Rows, wanted: Mapping[int, str | None]) -> None:
    assert len(rows) == len(wanted), name
    assert {wanted[number]: city for number, city in rows if wanted[number] != city} == {}, name


def numbered(values: list[str | None]) -> dict[int, str | None]:
    return dict(enumerate(values))


def test_readers_of_folders_agree_on_every_value(tmp_path: Path) -> None:
    land(tmp_path, ALL)
    wanted = {number: value or None for number, value in numbered(ALL).items() if value != NULL}
    for name, read in plain_readers(tmp_path).items():
        assert_read(name, read(), wanted)
    (dead,) = dead_letters(tmp_path)  # readers of folders would take it for null
    assert dead["reason"] == "NoNameForAFolder at byte 0 of the value, in city"


@pytest.mark.parametrize("table", ["", "delta", "iceberg"])
def test_two_spellings_of_a_value_are_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str) -> None:
    """Older versions encoded letters beyond ASCII, too; their folders stay, and are written beside."""
    with monkeypatch.context() as older:
        older.setattr(level, "_encode", level._all_encoded)
        land(tmp_path, ["Zürich", "New York"], table)
    land(tmp_path, ["Zürich", "New York"], table)
    folders = ["city=New%20York", "city=Z%C3%BCrich", *([] if table else ["city=Zürich"])]
    assert sorted(each.name for each in tmp_path.glob("city=*")) == folders
    assert verify(tmp_path, deep=True, strict=True).problems == []
    wanted = {0: "Zürich", 1: "New York", 2: "Zürich", 3: "New York"}
    if table == "delta":
        rows = DeltaTable(tmp_path).to_pyarrow_table(columns=["id", "city"])
    elif table == "iceberg":
        rows = icebergs.loaded(tmp_path).scan(selected_fields=("id", "city")).to_arrow()
    else:
        for name, read in plain_readers(tmp_path).items():
            assert_read(name, read(), wanted)
        return
    assert dict(zip(rows["id"].to_pylist(), rows["city"].to_pylist(), strict=True)) == wanted


def test_readers_of_delta_agree_on_every_value(tmp_path: Path) -> None:
    land(tmp_path, ALL, "delta")
    wanted = {number: value or None for number, value in numbered(ALL).items()}
    table = DeltaTable(tmp_path)
    by_engine = QueryBuilder().register("t", table).execute("select id, city from t").read_all()
    readers: dict[str, Callable[[], Rows]] = {
        "delta-rs": lambda: [tuple(row.values()) for row in table.to_pyarrow_table(columns=["id", "city"]).to_pylist()],
        "datafusion": lambda: [tuple(row.values()) for row in pa.table(by_engine).to_pylist()],
        "duckdb": lambda: rows_by_duckdb(tmp_path, "id, city"),
    }
    for name, read in readers.items():
        assert_read(name, read(), wanted)
    # Polars takes the names of folders, and that one for null.
    by_polars = pl.scan_delta(str(tmp_path)).select("id", "city").collect().rows()
    assert_read("polars", by_polars, {number: None if value == NULL else value for number, value in wanted.items()})
    chosen = table.to_pyarrow_table(filters=[("city", "=", "Zürich")])
    assert chosen["id"].to_pylist() == [VALUES.index("Zürich")]


@pytest.mark.parametrize("table", ["", "delta"])
def test_stores_take_every_name(tmp_path: Path, table: str) -> None:
    with s3_server() as settings:
        bucket = new_bucket(settings, tmp_path.name)
        land(tmp_path, ALL, table, medium=bucket)
        access = dict(bucket.access)
        if table:
            rows = pl.scan_delta(bucket.url, storage_options=access).select("id", "city").collect().rows()
        else:
            hive = {"city": pl.String}
            frame = pl.scan_parquet(f"{bucket.url}/**/*.parquet", storage_options=access, hive_schema=hive)
            rows = frame.select("id", "city").collect().rows()
    wanted = {number: None if value == NULL else value or None for number, value in numbered(ALL).items()}
    assert_read("polars", rows, wanted if table else {number: wanted[number] for number, _ in rows})
    assert len(rows) == len(ALL) - (not table)


@pytest.mark.parametrize("schema", [SCHEMA, REQUIRED])
def test_readers_of_iceberg_agree_on_every_value(
    tmp_path: Path, schema: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    values = ALL if schema is SCHEMA else ALL[:-1]
    land(tmp_path, values, "iceberg", schema)
    table = icebergs.loaded(tmp_path)
    scanned = table.scan(selected_fields=("id", "city")).to_arrow().to_pylist()
    wanted = numbered(values)
    assert_read("pyiceberg", [(row["id"], row["city"]) for row in scanned], wanted)
    assert_read("duckdb", rows_by_duckdb(table.metadata_location, "id, city", "iceberg"), wanted)
    assert_read("polars", pl.scan_iceberg(table).select("id", "city").collect().rows(), wanted)
    for value in ("Zürich", "", NULL):
        found = table.scan(row_filter=f"city = '{value}'").to_arrow()
        assert found["id"].to_pylist() == [values.index(value)]


@pytest.mark.parametrize("table", ["", "delta", "iceberg"])
def test_a_day_beyond_the_calendar_is_a_dead_letter(tmp_path: Path, table: str) -> None:
    days = {"type": "int", "logicalType": "date"}
    schema = {**SCHEMA, "fields": [SCHEMA["fields"][0], {"name": "city", "type": ["null", days]}]}
    land(tmp_path, [date(9999, 12, 31), 2_932_897, date(1, 1, 1), -719_163, None], table, schema)
    reasons = [letter["reason"] for letter in dead_letters(tmp_path)]
    assert reasons == ["NoNameForAFolder at byte 0 of the value, in city"] * 2
    assert len(list(tmp_path.glob("city=*"))) == 3
