"""Values of a registry, and the columns that newer schemas and changed schema files add to a dataset."""

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fastwire.coverage import Coverage
from fastwire_daemon.config.decode import RegistryConfig
from fastwire_daemon.dataset.proof.verify import verify
from fastwire_daemon.dataset.writer import DatasetWriter
from fastwire_daemon.net.schemaregistry import SchemaRegistry
from fastwire_daemon.runtime.errors import DatasetMismatchError, LogRefusedError, SinkFailedError, Superseded
from fastwire_daemon.sinks.recordschemas import RegisteredSchemas
from fastwire_daemon.sinks.valuedecoder import ValueDecoder
from tests.support.avro import encode
from tests.support.decoded_dataset import (
    REGISTERED,
    WIDER,
    GivenFeed,
    Opened,
    as_one,
    dead_letters,
    decoder,
    files,
    of_registry,
    orders,
    rows,
    tables,
    wider,
)
from tests.support.schema_registry import SchemaRegistryServer, framed
from tests.support.waiting import eventually


def test_values_of_a_registry_are_read_into_the_columns(
    opened: Opened, registry: SchemaRegistryServer, tmp_path: Path
) -> None:
    registry.register(8, {**REGISTERED, "fields": REGISTERED["fields"][:1]})
    registry.register(9, {**REGISTERED, "fields": [{"name": "id", "type": "string"}]})
    registry.register(10, REGISTERED, schemaType="JSON")
    sink, feed = opened(of_registry(registry)), GivenFeed()
    values = orders(20)
    values[3] = framed(8, b"\x06")
    values[4:7] = [framed(id, b"\2a") for id in (9, 10, 11)]
    values[7] = b"no id"
    sink.write(feed.chunk_of(values))
    sink.commit()
    assert rows(tmp_path / "data") == [
        {"country": None if i == 3 else "DE", "id": i, "tag": "none"} for i in range(20) if not 4 <= i < 8
    ]
    reasons = [letter["reason"].split(" (")[0] for letter in dead_letters(tmp_path / "data")]
    assert reasons == [
        "IncompatibleSchema 9", "IncompatibleSchema 10", "UnknownSchema 11", "NoSchemaId at byte 0 of the value",
    ]  # fmt: skip
    registry.register(11, REGISTERED)
    sink.write(feed.chunk_of(orders(2, 11)))
    sink.commit()
    assert len(rows(tmp_path / "data")) == 18
    assert sorted(registry.paths) == sorted([*(f"/schemas/ids/{id}" for id in range(7, 12)), "/schemas/ids/11"])


def test_a_registry_that_is_away_holds_back_the_values_and_says_so(
    opened: Opened, registry: SchemaRegistryServer, tmp_path: Path
) -> None:
    registry.away = True
    sink = opened(of_registry(registry))
    writing = threading.Thread(target=sink.write, args=[GivenFeed().chunk_of(orders(5))])
    writing.start()
    eventually(lambda: len(registry.paths) > 2, "a second attempt")
    eventually(lambda: "the schema registry is away: " in (sink.waiting or ""), "a reason for the wait")
    registry.away = False
    writing.join()
    assert sink.waiting is None
    sink.commit()
    assert len(rows(tmp_path / "data")) == 5
    assert dead_letters(tmp_path / "data") == []


def test_the_wait_for_a_registry_ends_with_the_sink(opened: Opened, registry: SchemaRegistryServer) -> None:
    registry.away = True
    sink, failed = opened(of_registry(registry)), []

    def write() -> None:
        try:
            sink.write(GivenFeed().chunk_of(orders(5)))
        except SinkFailedError as exc:
            failed.append(str(exc))

    writing = threading.Thread(target=write)
    writing.start()
    eventually(lambda: sink.waiting, "a wait")
    sink.interrupt()
    writing.join()
    assert "the sink was stopped while it waited: the schema registry is away" in failed[0]


@pytest.mark.parametrize("partition_by", ["none", "day"])
def test_columns_of_a_newer_schema_are_added(
    opened: Opened, registry: SchemaRegistryServer, tmp_path: Path, partition_by: str
) -> None:
    registry.register(8, WIDER)
    extra = () if partition_by == "none" else ("_timestamp",)
    sink = opened(of_registry(registry, REGISTERED, extra=extra), partition_by=partition_by)
    older = orders(10)
    sink.write(GivenFeed().chunk_of([*older[:5], *wider(3), *older[5:]]))
    coverage = sink.commit()
    expected = [{"id": i, "country": "DE", "note": None} for i in range(10)]
    expected[5:5] = [{"id": (1 << 40) + i, "country": "FR", "note": "n"} for i in range(3)]
    assert as_one(tmp_path / "data") == expected
    assert sorted(table.schema.names for table in tables(tmp_path / "data")) == [
        ["id", "country"], ["id", "country", "note"],
    ]  # fmt: skip
    assert [str(column) for column in sink.types] == ["id int64 not null", "country string not null", "note string"]
    assert sink.decoded == (13, 0, 1, 0)
    assert verify(tmp_path / "data", deep=True).problems == []
    # A daemon that knows the older schema only has the new columns from the dataset, and asks for nothing else.
    other = opened(of_registry(registry, REGISTERED, extra=extra), partition_by=partition_by)
    other.write(GivenFeed(start=coverage).chunk_of(orders(1)))
    other.commit()
    assert tables(tmp_path / "data")[-1].schema.names == ["id", "country", "note"]
    assert [path for path in registry.paths if path.endswith("8")] == ["/schemas/ids/8"]


@pytest.mark.parametrize("evolve", ["strict", "dead_letter"])
def test_columns_of_a_newer_schema_are_refused(
    opened: Opened, registry: SchemaRegistryServer, tmp_path: Path, evolve: str
) -> None:
    registry.register(8, WIDER)
    sink, feed = opened(of_registry(registry, REGISTERED, evolve=evolve)), GivenFeed()
    chunk = feed.chunk_of([*orders(2), *wider(1)])
    if evolve == "strict":
        with pytest.raises(LogRefusedError, match=r"NewColumns 8 \(id int64 not null, note string\)"):
            sink.write(chunk)
        return
    sink.write(chunk)
    sink.commit()
    assert len(rows(tmp_path / "data")) == 2
    (letter,) = dead_letters(tmp_path / "data")
    assert letter["reason"].startswith("NewColumns 8 (id int64 not null, note string)")


@pytest.mark.parametrize("by", ["a column", "a folder"])
def test_a_field_of_a_newer_schema_takes_no_column_of_the_records(
    opened: Opened, registry: SchemaRegistryServer, tmp_path: Path, by: str
) -> None:
    """Its values would land in place of offsets or times, and the next start would refuse the dataset."""
    own = "_offset" if by == "a column" else "_timestamp"
    hides = {**REGISTERED, "fields": [*REGISTERED["fields"], {"name": own, "type": "string"}]}
    registry.register(8, hides)

    def made() -> ValueDecoder:
        config = RegistryConfig.model_validate({"url": registry.url})
        wanted, extra = (("*", own), ()) if by == "a column" else (("*",), (own,))
        return decoder(wanted, REGISTERED, schemas=RegisteredSchemas(SchemaRegistry(config)), extra=extra)

    fixed = {"partition_by": "none" if by == "a column" else "day"}
    sink = opened(made(), **fixed)
    values = [*orders(2), framed(8, encode(hides, {"id": 9, "country": "FR", own: "x"}))]
    sink.write(GivenFeed().chunk_of(values))
    coverage = sink.commit()
    (table,) = tables(tmp_path / "data")
    assert (table.num_rows, pa.types.is_string(table.field(-1).type)) == (2, by == "a folder")
    (letter,) = dead_letters(tmp_path / "data")
    assert letter["reason"].startswith(f"IncompatibleSchema 8 ({own}: this is a column of the records)")
    again = opened(made(), **fixed)
    again.write(GivenFeed(start=coverage).chunk_of(orders(1)))
    again.commit()
    assert len(as_one(tmp_path / "data")) == 3


def test_new_symbols_of_an_enum_are_text_of_its_column(
    opened: Opened, registry: SchemaRegistryServer, tmp_path: Path
) -> None:
    def enum(*symbols: str) -> Any:
        kind = {"type": "enum", "name": "E", "symbols": symbols}
        return {**REGISTERED, "fields": [{"name": "e", "type": kind}]}

    registry.register(7, enum("A"))
    registry.register(8, enum("B", "A"))
    sink = opened(of_registry(registry, enum("A")))
    sink.write(GivenFeed().chunk_of([framed(7, b"\0"), framed(8, b"\0"), framed(8, b"\2"), framed(7, b"\0")]))
    sink.commit()
    assert [row["e"] for row in rows(tmp_path / "data")] == ["A", "B", "A", "A"]
    assert len(files(tmp_path / "data")) == 1


def test_a_required_field_that_has_gone_is_a_dead_letter(
    opened: Opened, registry: SchemaRegistryServer, tmp_path: Path
) -> None:
    renamed = {**REGISTERED, "fields": [REGISTERED["fields"][0], {"name": "land", "type": "string"}]}
    registry.register(8, renamed)
    sink = opened(of_registry(registry, REGISTERED))
    sink.write(GivenFeed().chunk_of([*orders(2), framed(8, encode(renamed, {"id": 1, "land": "FR"}))]))
    sink.commit()
    (letter,) = dead_letters(tmp_path / "data")
    assert letter["reason"].startswith("IncompatibleSchema 8 (country: the column takes no nulls and has no default")
    assert [str(column) for column in sink.types] == ["id int32 not null", "country string not null"]


def test_a_changed_schema_file_adds_columns_at_the_next_start(opened: Opened, tmp_path: Path) -> None:
    def one(schema: Any, value: dict[str, Any], start: Coverage | None = None, **more: Any) -> Coverage:
        sink = opened(decoder(("*",), schema, **more))
        sink.write(GivenFeed(start=start).chunk_of([encode(schema, value)]))
        return sink.commit()

    coverage = one(REGISTERED, {"id": 1, "country": "DE"})
    coverage = one(WIDER, {"id": 2, "country": "FR", "note": "n"}, coverage)
    one(REGISTERED, {"id": 3, "country": "ES"}, coverage)  # an older daemon goes on beside it
    assert as_one(tmp_path / "data") == [
        {"id": 1, "country": "DE", "note": None},
        {"id": 2, "country": "FR", "note": "n"},
        {"id": 3, "country": "ES", "note": None},
    ]
    for evolve in ("strict", "dead_letter"):
        with pytest.raises(DatasetMismatchError, match="differ in these columns: country, id, note"):
            opened(decoder(("*",), {**REGISTERED, "fields": REGISTERED["fields"][:1]}, evolve=evolve))


def test_two_writers_with_other_columns_commit_in_turn(opened: Opened, tmp_path: Path) -> None:
    first = opened(decoder(("*",), REGISTERED), shared=True)
    first.create_dataset()
    second = opened(decoder(("*",), WIDER), shared=True)
    third = opened(decoder(("*",), {**REGISTERED, "fields": [
        {"name": "id", "type": "int"}, {"name": "country", "type": "string"}, {"name": "note", "type": ["null", "int"]},
    ]}), shared=True)  # fmt: skip
    feed = GivenFeed()
    first.write(feed.chunk_of([encode(REGISTERED, {"id": 1, "country": "DE"})]))
    second.write(feed.chunk_of([encode(WIDER, {"id": 2, "country": "FR", "note": "n"})]))
    third.write(feed.chunk_of([b"\x06\x04ES\x02\x0a"]))
    second.commit()
    first.commit()
    assert [str(column) for column in first.types] == [
        "id int64 not null", "country string not null", "note string",
    ]  # fmt: skip
    with pytest.raises(Superseded, match="note: the column has string, and the schema has int32"):
        third.commit()
    with pytest.raises(DatasetMismatchError, match="note: the column has int32, and the schema has string"):
        third.open()
    assert len(as_one(tmp_path / "data")) == 2
    assert verify(tmp_path / "data", deep=True).problems == []


def test_the_columns_of_a_dataset_are_in_its_checkpoints(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DatasetWriter, "checkpoint_every", 2)
    coverage = None
    for schema, value in ((REGISTERED, {}), (WIDER, {"note": "n"}), (REGISTERED, {}), (REGISTERED, {})):
        sink = opened(decoder(("*",), schema))
        sink.write(GivenFeed(start=coverage).chunk_of([encode(schema, {"id": 1, "country": "DE", **value})]))
        coverage = sink.commit()
        sink.close()
    assert len([*(tmp_path / "data/_fastwire/checkpoint").iterdir()]) >= 1
    assert verify(tmp_path / "data").problems == []
    assert [column.name for column in opened(decoder(("*",), REGISTERED)).types] == ["id", "country", "note"]
