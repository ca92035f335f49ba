"""Keys as a column of their type, of records and of other types, with and without the ids of a registry."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fastwire.decode.avro import compile_avro_field
from fastwire.decode.jsonschema import compile_json
from fastwire_daemon.encoders.jsonl import JsonlEncoder
from fastwire_daemon.net.schemaregistry import RegistrySchema, UnknownSchemaError
from fastwire_daemon.sinks.keydecoder import KeyDecoder
from tests.daemon.sinks.test_sinks import files
from tests.daemon.sinks.test_valuedecoder import REGISTERED, Changes, Opened, decoder, letters, opened, rows
from tests.support.avro import encode
from tests.support.schema_registry import framed

__all__ = ["opened"]

PLACE: dict[str, Any] = {"type": "record", "name": "Place", "fields": [
    {"name": "country", "type": "string"}, {"name": "zone", "type": ["null", "int"]},
]}  # fmt: skip


def keys_of(schema: Any, form: Any = "avro", *, framed: bool = False) -> KeyDecoder:
    text = json.dumps(schema)
    return KeyDecoder(
        compile_json(text) if form == "json" else compile_avro_field("_key", text), form=form, framed=framed
    )


def never(id: int) -> RegistrySchema:
    raise AssertionError(id)


def test_keys_of_any_type() -> None:
    column, bad = keys_of("long").decode(pa.array([b"\x02", None, b"\x80", b"\x04"]), never)
    assert (column.type, column.to_pylist()) == (pa.int64(), [1, None, 2])
    assert [(each.row, each.reason, each.path) for each in bad] == [(2, "Truncated", "_key")]


@pytest.mark.parametrize("form", ["avro", "json"])
def test_keys_that_are_records(form: str) -> None:
    good = {"country": "DE", "zone": 7}
    data = encode(PLACE, good) if form == "avro" else json.dumps(good).encode()
    decoding = keys_of(PLACE, form)
    column, bad = decoding.decode(pa.array([data, None, data[:-1], b"", data]), never)
    column.validate(full=True)
    assert column.type == decoding.field.type
    assert column.to_pylist() == [good, None, good]
    assert [each.row for each in bad] == [2, 3]
    assert all(each.path.startswith("_key") for each in bad)
    assert decoding.decode(pa.array([], pa.binary()), never)[0].type == column.type


def test_keys_with_the_ids_of_a_registry() -> None:
    known = {1: RegistrySchema("AVRO", '"int"'), 2: RegistrySchema("AVRO", '"string"'), 3: RegistrySchema("JSON", "{}")}
    asked = []

    def find(id: int) -> RegistrySchema:
        asked.append(id)
        if id not in known:
            raise UnknownSchemaError("not found")
        return known[id]

    decoding = keys_of("long", framed=True)
    data = pa.array([framed(1, b"\x02"), framed(2, b"\x02a"), framed(3, b""), framed(4, b""), b"x", framed(1, b"\x04")])
    column, bad = decoding.decode(data, find)
    assert (column.type, column.to_pylist()) == (pa.int64(), [1, 2])
    assert [each.reason.partition(" (")[0] for each in bad] == [
        "IncompatibleSchema 2", "IncompatibleSchema 3", "UnknownSchema 4", "NoSchemaId",
    ]  # fmt: skip
    known[4] = known[1]
    assert len(decoding.decode(data, find)[1]) == 4
    assert asked == [1, 2, 3, 4]
    decoding.trim()
    assert decoding.decode(pa.array([framed(4, b"\x06")]), find)[0].to_pylist() == [3]


def test_bad_keys_are_dead_letters_of_their_rows(opened: Opened, tmp_path: Path) -> None:
    one = encode(REGISTERED, {"id": 1, "country": "DE"})
    # The keys of the feed are the digits 0 (24), 1 (-25) and so on.
    schema = {"type": "enum", "name": "E", "symbols": [f"S{i}" for i in range(25)]}
    sink = opened(decoder(("*", "_key", "_deleted"), REGISTERED, keys=keys_of(schema)))
    sink.write(Changes().chunk_of([one, one, one[:-1], None, None]))
    sink.commit()
    assert rows(tmp_path / "data") == [{"id": 1, "country": "DE", "_key": "S24", "_deleted": False}]
    assert [letter["reason"] for letter in letters(tmp_path / "data")] == [
        "UnknownSymbol at byte 0 of the key 0x31, in _key",
        "Truncated at byte 1 of the value, in country",
        "UnknownSymbol at byte 0 of the key 0x33, in _key",
        "UnknownSymbol at byte 0 of the key 0x34, in _key",
    ]
    assert sink.decoded == (1, 4, 0, 0)


def test_bytes_of_decoded_keys_are_base64_in_lines_of_json(opened: Opened, tmp_path: Path) -> None:
    schema = {"type": "fixed", "name": "F", "size": 1}
    sink = opened(decoder(("id", "_key"), REGISTERED, keys=keys_of(schema)), JsonlEncoder, extension="jsonl")
    sink.write(Changes().chunk_of([encode(REGISTERED, {"id": 1, "country": "DE"})]))
    sink.commit()
    (file,) = files(tmp_path / "data")
    assert json.loads(file.read_text()) == {"id": 1, "_key": "MA=="}


def test_the_column_has_the_type_of_the_keys(opened: Opened, tmp_path: Path) -> None:
    made = decoder(("*", "_key"), REGISTERED, keys=keys_of("int"))
    assert made.texts == {"id": "int32 not null", "country": "string not null", "_key": "int32"}
    sink = opened(made)
    feed, one = Changes(), encode(REGISTERED, {"id": 1, "country": "DE"})
    for _ in range(2):
        sink.write(feed.chunk_of([one, one]))
        sink.commit()
    assert [row["_key"] for row in rows(tmp_path / "data")] == [24, -25] * 2
