"""Keys as a column of their type, of records and of other types, with and without the ids of a registry."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fastwire.decode.avro.schema import compile_avro_field
from fastwire.decode.json.schema import compile_json
from fastwire.decode.program import BadRecord
from fastwire_daemon.encoders.jsonl import JsonlEncoder
from fastwire_daemon.net.schemaregistry import RegistrySchema, UnknownSchemaError
from fastwire_daemon.runtime.errors import DatasetMismatchError
from fastwire_daemon.sinks.keydecoder import KeyDecoder
from fastwire_daemon.sinks.recordschemas import RegisteredSchemas
from tests.support.avro import encode
from tests.support.decoded_dataset import REGISTERED, Changes, Opened, dead_letters, decoder, files, rows
from tests.support.schema_registry import framed

PLACE: dict[str, Any] = {"type": "record", "name": "Place", "fields": [
    {"name": "country", "type": "string"}, {"name": "zone", "type": ["null", "int"]},
]}  # fmt: skip


class Registry:
    """A registry that knows some schemas by their ids."""

    def __init__(self, known: Mapping[int, RegistrySchema]) -> None:
        self.known, self.asked = dict(known), list[int]()

    def schema(self, id: int) -> RegistrySchema:
        self.asked.append(id)
        if id not in self.known:
            raise UnknownSchemaError("not found")
        return self.known[id]


def keys_of(schema: Any, form: Any = "avro", registry: Any = None, **more: Any) -> KeyDecoder:
    text = json.dumps(schema)
    program = compile_json(text) if form == "json" else compile_avro_field("_key", text)
    return KeyDecoder(program, form=form, schemas=None if registry is None else RegisteredSchemas(registry), **more)


def decoded(decoding: KeyDecoder, keys: Sequence[bytes | None]) -> tuple[pa.Array, list[BadRecord]]:
    column, bad = decoding.decoded(pa.array(keys, pa.binary()), None, lambda why, seconds: None)
    column.validate(full=True)
    assert column.type == decoding.field.type
    return column, bad


def test_keys_of_any_type() -> None:
    column, bad = decoded(keys_of("long"), [b"\x02", None, b"\x80", b"\x04"])
    assert (column.type, column.to_pylist()) == (pa.int64(), [1, None, 2])
    assert [(each.row, each.reason, each.path) for each in bad] == [(2, "Truncated", "_key")]


@pytest.mark.parametrize("form", ["avro", "json"])
def test_keys_that_are_records(form: str) -> None:
    good = {"country": "DE", "zone": 7}
    data = encode(PLACE, good) if form == "avro" else json.dumps(good).encode()
    decoding = keys_of(PLACE, form)
    column, bad = decoded(decoding, [data, None, data[:-1], b"", data])
    assert column.to_pylist() == [good, None, good]
    assert [each.row for each in bad] == [2, 3]
    assert all(each.path.startswith("_key") for each in bad)
    assert decoded(decoding, [])[0].type == column.type


def test_keys_with_the_ids_of_a_registry() -> None:
    texts = {1: '"int"', 2: '"string"'}
    registry = Registry({id: RegistrySchema("AVRO", text) for id, text in texts.items()})
    registry.known[3] = RegistrySchema("JSON", "{}")
    decoding = keys_of("long", registry=registry)
    data = [framed(1, b"\x02"), framed(2, b"\x02a"), framed(3, b""), framed(4, b""), b"x", framed(1, b"\x04")]
    column, bad = decoded(decoding, data)
    assert (column.type, column.to_pylist()) == (pa.int64(), [1, 2])
    assert [each.reason.partition(" (")[0] for each in bad] == [
        "IncompatibleSchema 2", "IncompatibleSchema 3", "UnknownSchema 4", "NoSchemaId",
    ]  # fmt: skip
    registry.known[4] = registry.known[1]
    assert len(decoded(decoding, data)[1]) == 4
    assert registry.asked == [1, 2, 3, 4]
    decoding.trim()
    assert decoded(decoding, [framed(4, b"\x06")])[0].to_pylist() == [3]


NEWER: dict[str, Any] = {**PLACE, "fields": [{"name": "city", "type": "string"}, *PLACE["fields"]]}
PLACES = {1: RegistrySchema("AVRO", json.dumps(PLACE)), 2: RegistrySchema("AVRO", json.dumps(NEWER))}


@pytest.mark.parametrize("for_table", [False, True])
def test_keys_add_the_columns_of_newer_schemas_of_a_registry(for_table: bool) -> None:
    older, newer = {"country": "DE", "zone": 7}, {"city": "Ulm", "country": "DE", "zone": 8}
    keys = [framed(1, encode(PLACE, older)), framed(2, encode(NEWER, newer)), framed(1, encode(PLACE, older))]
    decoding = keys_of(PLACE, registry=Registry(PLACES), for_table=for_table)
    column, bad = decoded(decoding, keys)
    assert (column.to_pylist(), bad) == ([{**older, "city": None}, newer, {**older, "city": None}], [])
    (grown,) = decoding.columns
    assert str(grown) == "_key struct<country string not null, zone int32, city string>"
    # Another writer of the dataset reads keys into the same columns, before it has seen the schema.
    other = decoder(("*", "_key"), REGISTERED, keys=keys_of(PLACE, registry=Registry(PLACES)))
    other.adopt((*other.types[:-1], grown))
    assert other.types[-1] == grown


@pytest.mark.parametrize("evolve", ["dead_letter", "strict"])
def test_new_columns_of_keys_can_be_refused(evolve: Any) -> None:
    decoding = keys_of(PLACE, registry=Registry(PLACES), evolve=evolve)
    key = {"country": "DE", "zone": 7}
    column, bad = decoded(decoding, [framed(2, encode(NEWER, {**key, "city": ""})), framed(1, encode(PLACE, key))])
    assert column.to_pylist() == [key]
    assert [each.reason.partition(" (")[0] for each in bad] == ["NewColumns 2"]


def test_the_types_of_keys_are_in_the_log_of_the_dataset(opened: Opened, tmp_path: Path) -> None:
    """A daemon with an older schema reads keys into the wider column of another one."""
    feed, one = Changes(), encode(REGISTERED, {"id": 1, "country": "DE"})
    for kind, wider in (("int", "int32"), ("long", "int64"), ("int", "int64")):
        made = decoder(("*", "_key"), REGISTERED, keys=keys_of(kind))
        sink = opened(made)
        sink.write(feed.chunk_of([one]))
        sink.commit()
        sink.close()
        assert str(sink.types[-1]) == f"_key {wider}"
        assert made.texts["_key"] == wider
    assert [row["_key"] for row in rows(tmp_path / "data")] == [24] * 3


def test_keys_of_a_dataset_stay_decoded_or_as_they_are(opened: Opened) -> None:
    opened(decoder(("*", "_key"), REGISTERED, keys=keys_of("int"))).create_dataset()
    with pytest.raises(DatasetMismatchError, match="_key"):
        opened(decoder(("*", "_key"), REGISTERED))
    with pytest.raises(DatasetMismatchError, match="_key"):
        opened(decoder(("*", "_key"), REGISTERED, keys=keys_of("string")))


def test_a_dataset_of_undecoded_keys_gets_no_decoded_ones(opened: Opened) -> None:
    opened(decoder(("*", "_key"), REGISTERED)).create_dataset()
    with pytest.raises(DatasetMismatchError, match="the column _key of the dataset: as in the records"):
        opened(decoder(("*", "_key"), REGISTERED, keys=keys_of("int")))


def test_bad_keys_are_dead_letters_of_their_rows(opened: Opened, tmp_path: Path) -> None:
    one = encode(REGISTERED, {"id": 1, "country": "DE"})
    # The keys of the feed are the digits 0 (24), 1 (-25) and so on.
    schema = {"type": "enum", "name": "E", "symbols": [f"S{i}" for i in range(25)]}
    sink = opened(decoder(("*", "_key", "_deleted"), REGISTERED, keys=keys_of(schema)))
    sink.write(Changes().chunk_of([one, one, one[:-1], None, None]))
    sink.commit()
    assert rows(tmp_path / "data") == [{"id": 1, "country": "DE", "_key": "S24", "_deleted": False}]
    assert [letter["reason"] for letter in dead_letters(tmp_path / "data")] == [
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


def test_keys_of_a_union_are_read_by_the_names_of_its_branches() -> None:
    first, second = ({"type": "record", "name": name, "fields": [{"name": "id", "type": "int"}]} for name in "AB")
    registry = Registry({7: RegistrySchema("AVRO", json.dumps([first, second])),
                         8: RegistrySchema("AVRO", json.dumps([second, first]))})  # fmt: skip
    decoding = keys_of([first, second], registry=registry)
    column, bad = decoded(decoding, [framed(7, b"\0\2"), framed(8, b"\0\4"), framed(8, b"\2\6")])
    assert not bad
    assert column.to_pylist() == [{"A": {"id": 1}, "B": None}, {"A": None, "B": {"id": 2}}, {"A": {"id": 3}, "B": None}]
