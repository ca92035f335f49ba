"""Unions of records in datasets: their branches keep their columns through other schemas, processes and versions."""

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import pyarrow.parquet as pq
import pytest

from fastwire.decode.avro.schema import compile_avro
from fastwire.decode.branches import numbered
from fastwire.decode.evolution import columns_of
from fastwire_daemon.config.decode import chosen_columns, named_for
from fastwire_daemon.dataset.proof.verify import verify
from fastwire_daemon.runtime.errors import DatasetMismatchError
from fastwire_daemon.sinks.valuedecoder import ValueDecoder
from tests.support.decoded_dataset import GivenFeed, Opened, dead_letters, files, of_registry
from tests.support.schema_registry import SchemaRegistryServer, framed, serving

Schema = Any


def rec(name: str, *fields: str) -> Schema:
    made = [{"name": each, "type": ["null", "string"], "default": None} for each in fields]
    return {"type": "record", "name": name, "fields": made}


def pay(*branches: Schema) -> Schema:
    return {"type": "record", "name": "Pay", "fields": [{"name": "body", "type": [*branches]}]}


def encode(schema: Schema, name: str, value: str) -> bytes:
    (field,) = next(each for each in schema["fields"][0]["type"] if each["name"] == name)["fields"][:1]
    out = io.BytesIO()
    parsed = fastavro.parse_schema(json.loads(json.dumps(schema)))
    fastavro.schemaless_writer(out, parsed, {"body": (name, {field["name"]: value})})
    return out.getvalue()


CARD, TRANSFER, CASH = rec("Card", "number"), rec("Transfer", "iban"), rec("Cash", "till")
V1, V2 = pay(CARD, TRANSFER), pay(CASH, TRANSFER, rec("Card", "number", "holder"))


@pytest.fixture
def registry() -> Iterator[SchemaRegistryServer]:
    with serving() as server:
        server.register(1, V1)
        server.register(2, V2)
        yield server


def of_file(schema: Schema, **more: Any) -> ValueDecoder:
    program = compile_avro(json.dumps(schema))
    return ValueDecoder(program, chosen_columns(("*",), program, "pulsar"), "pulsar", open_ended=True, **more)


def bodies(path: Path) -> list[tuple[str, str]]:
    """Return the column and the text of each landed branch, in order."""
    found = []
    for file in (each for each in files(path) if each.suffix == ".parquet"):
        for row in pq.read_table(file, partitioning=None).to_pylist():
            found += [(name, value) for name, each in row["body"].items() if each for value in each.values() if value]
    return sorted(found, key=lambda each: each[1])


def test_branches_of_the_schemas_of_a_registry(opened: Opened, registry: SchemaRegistryServer, tmp_path: Path) -> None:
    feed = GivenFeed()
    values = [framed(1, encode(V1, "Card", "1")), framed(2, encode(V2, "Transfer", "2"))]
    values += [framed(2, encode(V2, "Cash", "3")), framed(2, encode(V2, "Card", "4"))]
    sink = opened(of_registry(registry, V1))
    sink.write(feed.chunk_of(values))
    sink.commit()
    sink = opened(of_registry(registry, V2))  # another process, with the newer file
    sink.write(feed.chunk_of([framed(1, encode(V1, "Transfer", "5")), framed(2, encode(V2, "Card", "6"))]))
    sink.commit()
    assert bodies(tmp_path / "data") == [
        ("Card", "1"), ("Transfer", "2"), ("Cash", "3"), ("Card", "4"), ("Transfer", "5"), ("Card", "6"),
    ]  # fmt: skip
    assert [each.name for each in sink.types[0].children] == ["Card", "Transfer", "Cash"]
    assert verify(tmp_path / "data", deep=True).problems == []


def test_a_branch_that_may_not_be_added_is_a_dead_letter(
    opened: Opened, registry: SchemaRegistryServer, tmp_path: Path
) -> None:
    registry.register(3, pay(TRANSFER, CARD))
    sink = opened(of_registry(registry, V1, evolve="dead_letter"))
    values = [framed(2, encode(V2, "Card", "1")), framed(3, encode(pay(TRANSFER, CARD), "Card", "2"))]
    sink.write(GivenFeed().chunk_of(values))
    sink.commit()
    assert bodies(tmp_path / "data") == [("Card", "2")]
    (letter,) = dead_letters(tmp_path / "data")
    assert letter["reason"].startswith("NewColumns 2 (body struct<Card")


def test_a_schema_file_that_gains_a_branch(opened: Opened, tmp_path: Path) -> None:
    feed = GivenFeed()
    for schema, named in ((V1, [("Card", "1"), ("Transfer", "2")]), (V2, [("Cash", "3"), ("Transfer", "4")])):
        sink = opened(of_file(schema))
        sink.write(feed.chunk_of([encode(schema, *each) for each in named]))
        sink.commit()
    assert bodies(tmp_path / "data") == [("Card", "1"), ("Transfer", "2"), ("Cash", "3"), ("Transfer", "4")]


@pytest.mark.parametrize(
    ("evolve", "table"), [("add", ""), ("strict", ""), ("add", "delta")], ids=["add", "strict", "table"]
)
def test_a_dataset_of_an_older_version_keeps_its_names(opened: Opened, tmp_path: Path, evolve: Any, table: str) -> None:
    old = tuple(each.plain for each in columns_of(numbered(compile_avro(json.dumps(V1)))))
    feed, more = GivenFeed(), {"evolve": evolve, "for_table": bool(table)}
    opened(of_file(V1, **more), types=old, table=table).create_dataset()  # dataset.json as it was written then
    swapped = pay(TRANSFER, CARD)
    for schema, named in ((V1, [("Card", "1"), ("Transfer", "2")]), (swapped, [("Card", "3")])):
        sink = opened(of_file(schema, **more), table=table)
        sink.write(feed.chunk_of([encode(schema, *each) for each in named]))
        sink.commit()
        assert sink.unpublished == ""
    assert bodies(tmp_path / "data") == [("member0", "1"), ("member1", "2"), ("member0", "3")]
    assert [each.branch for each in sink.types[0].children] == [("Card",), ("Transfer",)]


def test_a_record_without_fields_is_a_branch(opened: Opened, registry: SchemaRegistryServer, tmp_path: Path) -> None:
    ping = {"type": "record", "name": "Ping", "fields": []}
    registry.register(4, pay(ping, CARD))
    registry.register(5, {"type": "record", "name": "Pay", "fields": []})
    schema = pay("null", CARD)
    sink = opened(
        of_registry(registry, {**schema, "fields": [{**schema["fields"][0], "type": ["null", TRANSFER, CARD]}]})
    )
    values = [framed(4, encode(pay(ping, CARD), "Card", "1")), framed(4, b"\0"), framed(5, b"")]
    sink.write(GivenFeed().chunk_of(values))
    sink.commit()
    landed = [
        row for file in files(tmp_path / "data") for row in pq.read_table(file, partitioning=None)["body"].to_pylist()
    ]
    assert [None if row is None else {name for name, each in row.items() if each is not None} for row in landed] == [
        {"Card"}, {"Ping"}, None,
    ]  # fmt: skip
    assert not dead_letters(tmp_path / "data")


def test_another_union_is_no_strict_schema(opened: Opened) -> None:
    opened(of_file(V1, evolve="strict")).create_dataset()
    with pytest.raises(DatasetMismatchError, match="differ in these columns: body"):
        opened(of_file(V2, evolve="strict"))


def test_a_query_of_an_older_version_has_the_names_of_its_time() -> None:
    program = compile_avro(json.dumps(V1))
    for text, name in (
        ("SELECT body.member0.number AS n FROM batch", "member0"),
        ("SELECT body.Card.number AS n FROM batch", "Card"),
        ("SELECT body FROM batch", "Card"),
        ("SELECT body.member7.number AS n FROM batch", "Card"),
    ):
        (body,) = columns_of(named_for(text, program, None, ("body",), "pulsar"))
        assert body.children[0].name == name
