"""Values whose schemas brokers keep: each record has the version of its own."""

import json
from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto

from fastwire.decode.avro.schema import compile_avro, compile_avro_field
from fastwire.decode.json.growth import NO_COLUMNS
from fastwire.decode.json.schema import compile_json
from fastwire.decode.program import Step
from fastwire.decode.protobuf.descriptors import message_of
from fastwire.decode.protobuf.schema import compile_protobuf
from fastwire.position import Log
from fastwire_daemon.config.decode import chosen_columns
from fastwire_daemon.dataset.columnnames import NameRule
from fastwire_daemon.net.schemaregistry import RegistryAwayError, RegistrySchema, UnknownSchemaError
from fastwire_daemon.runtime.errors import DatasetMismatchError, LogRefusedError
from fastwire_daemon.sinks.keydecoder import KeyDecoder
from fastwire_daemon.sinks.recordrows import DecodedRows
from fastwire_daemon.sinks.recordschemas import BrokerSchemas
from fastwire_daemon.sinks.schemaversions import SchemaVersions
from fastwire_daemon.sinks.valuedecoder import ValueDecoder
from tests.support.avro import encode
from tests.support.protobuf import FileProto, described, field

LOG = Log("pulsar", "c", "persistent://public/default/t", "0")
FIRST, SECOND, THIRD = (bytes(7) + bytes([i]) for i in range(3))
COLUMNS: dict[str, Any] = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}
WIDER: dict[str, Any] = {**COLUMNS, "fields": [*COLUMNS["fields"], {"name": "note", "type": ["null", "string"]}]}
OTHER: dict[str, Any] = {**COLUMNS, "fields": [{"name": "id", "type": "string"}]}


class Schemas:
    """The schemas of a broker, which may be away for some questions."""

    def __init__(self, form: str) -> None:
        self.known = {
            ("t", FIRST): RegistrySchema(form.upper(), json.dumps(COLUMNS)),
            ("t", SECOND): RegistrySchema(form.upper(), json.dumps(WIDER)),
            ("u", FIRST): RegistrySchema(form.upper(), json.dumps(OTHER)),
            ("u", SECOND): RegistrySchema("STRING", ""),
        }
        self.asked: list[tuple[str, bytes]] = []
        self.away = 0

    def schema(self, topic: str, version: bytes) -> RegistrySchema:
        self.asked.append((topic, version))
        if self.away:
            self.away -= 1
            raise RegistryAwayError("no broker answers")
        if (topic, version) not in self.known:
            raise UnknownSchemaError("the broker does not know it")
        return self.known[topic, version]

    def newest(self, topic: str) -> bytes:
        return max(version for name, version in self.known if name == topic)


Row = tuple[str, bytes | None, bytes | None]


def batch_of(rows: Sequence[Row]) -> pa.RecordBatch:
    topics, versions, values = zip(*rows, strict=True)
    return pa.record_batch(
        {
            "value": pa.array(values, pa.binary()),
            "topic": pa.array(topics).dictionary_encode(),
            "schemaVersion": pa.array(versions, pa.binary()),
            "ledger": pa.array([1] * len(rows), pa.int64()),
            "offset": pa.array(range(len(rows)), pa.int64()),
            "batchIndex": pa.array([-1] * len(rows), pa.int32()),
        }
    )


class Decoding:
    """A decoder with the schemas of a broker, and what it has decoded."""

    def __init__(self, form: Any, program: Any = None, schemas: Schemas | None = None, **more: Any) -> None:
        self.schemas, self.pauses = schemas or Schemas(form), list[str]()
        program = program or compile_avro(json.dumps(COLUMNS))
        columns = chosen_columns(("*",), program, "pulsar")
        self.decoder = ValueDecoder(
            program, columns, "pulsar", form=form, open_ended=True, schemas=BrokerSchemas(self.schemas), **more
        )
        self.form = form

    def value(self, schema: Any, value: dict[str, Any]) -> bytes:
        return encode(schema, value) if self.form == "avro" else json.dumps(value).encode()

    def decoded(self, rows: Sequence[Row]) -> Iterator[DecodedRows]:
        yield from self.decoder.decode(
            batch_of(rows), [(LOG, 0, len(rows))], lambda why, seconds: self.pauses.append(why)
        )

    def rows(self, rows: Sequence[Row]) -> tuple[list[dict[str, Any]], list[str]]:
        found = [*self.decoded(rows)]
        return [row for each in found for row in each.batch.to_pylist()], [
            letter.reason for each in found for letter in each.dead_letters
        ]


@pytest.fixture(params=["avro", "json"])
def decoding(request: pytest.FixtureRequest) -> Decoding:
    return Decoding(request.param)


@pytest.mark.parametrize("form", ["avro", "json"])
@pytest.mark.parametrize("evolve", ["add", "strict"])
def test_columns_of_no_file_are_those_of_the_newest_version_and_of_the_dataset(form: str, evolve: Any) -> None:
    decoding = Decoding(form, program=NO_COLUMNS, evolve=evolve, registered=True)
    decoding.decoder.begin("t")
    assert [str(column) for column in decoding.decoder.types] == ["id int64", "note string"]
    found, letters = decoding.rows([("t", FIRST, decoding.value(COLUMNS, {"id": 1}))])
    assert (found, letters) == ([{"id": 1, "note": None}], [])
    decoding.decoder.adopt(decoding.decoder.types[:1])  # the dataset of a writer that was first
    wide = ("t", SECOND, decoding.value(WIDER, {"id": 2, "note": "x"}))
    if evolve == "add":
        assert decoding.rows([wide]) == ([{"id": 2, "note": "x"}], [])
    else:
        with pytest.raises(LogRefusedError, match="NewColumns"):
            decoding.rows([wide])
    decoding.schemas.away = 1
    with pytest.raises(RegistryAwayError):
        Decoding(form, program=NO_COLUMNS, schemas=decoding.schemas, registered=True).decoder.begin("t")
    with pytest.raises(DatasetMismatchError, match="newest schema of u cannot have columns: it is a schema of STRING"):
        decoding.decoder.begin("u")


@pytest.mark.parametrize("evolve", ["add", "strict"])
def test_the_symbols_of_an_enum_count_after_the_next_start_as_before(evolve: Any) -> None:
    """The dataset has a column of texts."""
    schemas = Schemas("json")
    kind = {"type": "enum", "name": "E", "symbols": ["A"]}
    text = json.dumps({**COLUMNS, "fields": [{"name": "e", "type": kind}]})
    schemas.known = {("t", FIRST): RegistrySchema("JSON", text)}
    values: list[Row] = [("t", FIRST, b'{"e": "A"}'), ("t", FIRST, b'{"e": "B"}')]
    first, second = (
        Decoding("json", program=NO_COLUMNS, schemas=schemas, evolve=evolve, registered=True) for _ in range(2)
    )
    first.decoder.begin("t")
    second.decoder.adopt(first.decoder.types)
    for each in (first, second):
        assert each.rows(values) == ([{"e": "A"}], ["UnknownSymbol at byte 6 of the value, in e"])
        each.decoder.adopt(first.decoder.types)  # as behind each commit
        assert each.rows(values) == ([{"e": "A"}], ["UnknownSymbol at byte 6 of the value, in e"])


def test_versions_of_topics_have_numbers() -> None:
    versions = SchemaVersions()
    rows: list[Row] = [("t", FIRST, b""), ("u", FIRST, b""), ("t", FIRST, b""), ("t", None, b""), ("u", b"", b"")]
    numbers, different = versions.of(batch_of(rows).slice(1))
    assert (numbers.tolist(), set(different)) == ([0, 1, 2, 3], {0, 1, 2, 3})
    assert versions.of(batch_of(rows))[0].tolist() == [1, 0, 1, 2, 3]
    assert [versions.key(i) for i in range(4)] == [("u", FIRST), ("t", FIRST), ("t", None), ("u", None)]
    assert versions.of(batch_of([("t", b"abc", b"")]))[0].tolist() == [4]
    assert [versions.name(i) for i in (1, 2, 4)] == ["0 of t", "of t", "0x616263 of t"]


def test_records_are_read_by_their_versions(decoding: Decoding) -> None:
    narrow, wide = (decoding.value(schema, {"id": 7, "note": "n"}) for schema in (COLUMNS, WIDER))
    rows: list[Row] = [("t", FIRST if i % 3 else SECOND, narrow if i % 3 else wide) for i in range(40)]
    found, reasons = decoding.rows(rows)
    assert reasons == []
    if decoding.form == "avro":
        assert found[:2] == [{"id": 7, "note": "n"}, {"id": 7, "note": None}]
    assert [row["id"] for row in found] == [7] * 40
    assert sorted(decoding.schemas.asked) == [("t", FIRST), ("t", SECOND)]
    decoding.rows(rows)
    assert len(decoding.schemas.asked) == 2


def test_records_without_a_schema_that_fits_are_dead_letters(decoding: Decoding) -> None:
    value = decoding.value(COLUMNS, {"id": 7})
    rows: list[Row] = [
        ("t", FIRST, value), ("u", FIRST, value), ("u", SECOND, value), ("t", None, value), ("t", THIRD, value),
        ("t", FIRST, value),
    ]  # fmt: skip
    found, reasons = decoding.rows(rows)
    assert found == [{"id": 7}] * 2
    assert [reason.partition(" (")[0] for reason in reasons] == [
        "IncompatibleSchema 0 of u", "IncompatibleSchema 1 of u", "UnknownSchema of t", "UnknownSchema 2 of t",
    ]  # fmt: skip
    assert "it is a schema of STRING, not of" in reasons[1]
    assert "its producer has sent it without a schema) at byte 0" in reasons[2]
    decoding.schemas.known["t", THIRD] = decoding.schemas.known["t", SECOND]
    assert len(decoding.rows(rows)[1]) == 4
    decoding.decoder.trim()
    found, reasons = decoding.rows([("t", THIRD, decoding.value(WIDER, {"id": 8, "note": "x"})), *rows])
    assert found[0] == {"id": 8, "note": "x"}
    assert len(reasons) == 4 if decoding.form == "avro" else 3


def test_brokers_that_are_away_are_asked_again(decoding: Decoding, monkeypatch: pytest.MonkeyPatch) -> None:
    decoding.schemas.away = 2
    found, reasons = decoding.rows([("t", FIRST, decoding.value(COLUMNS, {"id": 7}))])
    assert (found, reasons) == ([{"id": 7}], [])
    assert decoding.pauses == ["the schema registry is away: no broker answers"] * 2


@pytest.mark.parametrize("form", ["avro", "json"])
def test_new_columns_can_be_refused(form: str) -> None:
    decoding = Decoding(form, evolve="dead_letter")
    value = decoding.value(WIDER, {"id": 7, "note": "n"})
    found, reasons = decoding.rows([("t", SECOND, value), ("t", FIRST, decoding.value(COLUMNS, {"id": 1}))])
    assert found == [{"id": 1}]
    assert [reason.partition(" (")[0] for reason in reasons] == ["NewColumns 1 of t"]


@pytest.mark.parametrize("form", ["avro", "json"])
@pytest.mark.parametrize("name", ["DT", "ID"])
def test_a_later_field_that_readers_would_hide_makes_its_records_dead_letters(form: str, name: str) -> None:
    decoding = Decoding(form, names=NameRule(("dt",), folded=True))
    schema = {**COLUMNS, "fields": [*COLUMNS["fields"], {"name": name, "type": ["null", "string"]}]}
    decoding.schemas.known["t", SECOND] = RegistrySchema(form.upper(), json.dumps(schema))
    hidden, sound = decoding.value(schema, {"id": 7, name: "x"}), decoding.value(COLUMNS, {"id": 1})
    found, reasons = decoding.rows([("t", FIRST, sound), ("t", SECOND, hidden), ("t", FIRST, sound)])
    assert found == [{"id": 1}] * 2
    (reason,) = reasons
    assert reason.startswith("IncompatibleSchema 1 of t") and f'"{name}"' in reason


def test_new_symbols_of_an_enum_are_text() -> None:
    decoding = Decoding("json")
    for version, symbols in ((FIRST, ["A"]), (SECOND, ["B"])):
        kind = {"type": "enum", "name": "E", "symbols": symbols}
        schema = {**COLUMNS, "fields": [*COLUMNS["fields"], {"name": "e", "type": kind}]}
        decoding.schemas.known["t", version] = RegistrySchema("JSON", json.dumps(schema))
    found, reasons = decoding.rows([("t", FIRST, b'{"id":1,"e":"A"}'), ("t", SECOND, b'{"id":1,"e":"B"}')])
    assert ([row["e"] for row in found], reasons) == (["A", "B"], [])


def test_messages_of_protobuf() -> None:
    fields = [field("id", 1, "int64"), field("note", 2, "string")]
    one, both = (DescriptorProto(name="A", field=each) for each in (fields[:1], fields))
    of_one = described(FileProto(name="a.proto", package="t", syntax="proto3", message_type=[one]))
    two = FileProto(name="a.proto", package="t", syntax="proto3", message_type=[both, DescriptorProto(name="B")])
    older, newer = (b64encode(each).decode() for each in (of_one, described(two)))
    program = compile_protobuf(message_of(of_one, "t.A"))
    schemas = Schemas("protobuf")
    schemas.known = {
        ("t", FIRST): RegistrySchema("PROTOBUF", older, message="t.A"),
        ("t", SECOND): RegistrySchema("PROTOBUF", newer, message="t.A"),
        ("t", THIRD): RegistrySchema("PROTOBUF", newer, message="t.B"),
        ("u", FIRST): RegistrySchema("PROTOBUF", "AAAA", message="t.A"),
    }
    decoder = ValueDecoder(program, ("id",), "pulsar", form="protobuf", open_ended=True, schemas=BrokerSchemas(schemas))
    note = b"\x08\x08\x12\1n"
    rows: list[Row] = [("t", FIRST, b"\x08\7"), ("t", SECOND, note), ("t", THIRD, note), ("u", FIRST, note)]
    found = [*decoder.decode(batch_of([*rows, *rows]), [(LOG, 0, 8)], lambda why, seconds: None)]
    landed = [{"note": None, **row} for each in found for row in each.batch.to_pylist()]
    assert [(row["id"], row["note"]) for row in landed if row["id"] == 8] == [(8, "n")] * 2
    assert [row["id"] for row in landed] == [7, 8] * 2
    reasons = [letter.reason for each in found for letter in each.dead_letters]
    assert len(reasons) == 4
    assert "its values are messages of t.B, not of t.A" in reasons[0]
    assert "not a descriptor set" in reasons[1]


def pair(key: bytes | None, value: bytes | None) -> bytes:
    parts = (
        (-1 if each is None else len(each)).to_bytes(4, "big", signed=True) + (each or b"") for each in (key, value)
    )
    return b"".join(parts)


@pytest.mark.parametrize("form", ["avro", "json"])
def test_values_behind_their_keys(form: Any) -> None:
    decoding = Decoding(form)
    decoding.schemas.known["t", SECOND] = replace(decoding.schemas.known["t", FIRST], paired=True)
    program = compile_avro(json.dumps(COLUMNS))
    columns = chosen_columns(("*", "_key", "_deleted"), program, "pulsar")
    decoding.decoder = ValueDecoder(program, columns, "pulsar", form=form, schemas=BrokerSchemas(decoding.schemas))
    value = decoding.value(COLUMNS, {"id": 7})
    rows: list[Row] = [
        ("t", FIRST, value), ("t", SECOND, pair(b"k", value)), ("t", SECOND, pair(None, value)), ("t", SECOND, value),
        ("t", SECOND, pair(b"gone", None)), ("t", SECOND, None), ("t", SECOND, pair(b"bad", b"\xff")),
        ("u", THIRD, b""),
    ]  # fmt: skip
    batch = batch_of(rows).append_column("key", pa.array([b"outer"] * len(rows), pa.binary()))
    for _ in range(2):
        found = [*decoding.decoder.decode(batch, [(LOG, 0, len(rows))], lambda why, seconds: None)]
        assert [(row["id"], row["_key"], row["_deleted"]) for each in found for row in each.batch.to_pylist()] == [
            (7, b"outer", False), (7, b"k", False), (7, None, False), (None, b"gone", True), (None, b"outer", True),
        ]  # fmt: skip
        dead_letters = [letter for each in found for letter in each.dead_letters]
        assert [letter.payload for letter in dead_letters] == [value, pair(b"bad", b"\xff"), b""]
        assert dead_letters[0].reason == "InvalidKeyValue at byte 0 of the value"
        assert "UnknownSchema" in dead_letters[2].reason
        assert decoding.decoder.nbytes >= sum(each.nbytes for each in found) - len(batch) * 100
    assert decoding.schemas.asked.count(("u", THIRD)) == 1


class Pairs:
    """A decoder of values behind their keys, whose schemas brokers keep."""

    def __init__(self, schema: Any, form: Any = "avro", evolve: Any = "add") -> None:
        self.broker, self.form = Schemas("avro"), form
        schemas = BrokerSchemas(self.broker)
        keys = KeyDecoder(self._program(schema), form=form, schemas=schemas, evolve=evolve)
        program = compile_avro(json.dumps(COLUMNS))
        self.decoder = ValueDecoder(program, ("id", "_key"), "pulsar", schemas=schemas, keys=keys, evolve=evolve)

    def _program(self, schema: Any) -> Sequence[Step]:
        text = json.dumps(schema)
        return compile_json(text) if self.form == "json" else compile_avro_field("_key", text)

    def version(self, version: bytes, schema: Any, *, kind: str = "", paired: bool = True) -> None:
        key = RegistrySchema(kind or self.form.upper(), json.dumps(schema))
        self.broker.known["t", version] = replace(self.broker.known["t", FIRST], paired=paired, key=key)

    def key(self, schema: Any, key: Any) -> bytes:
        return encode(schema, key) if self.form == "avro" else json.dumps(key).encode()

    def keys(self, rows: Sequence[tuple[bytes, bytes]]) -> tuple[list[Any], list[str]]:
        """Return the keys that land of (version, encoded key), and the reasons of the others."""
        value = encode(COLUMNS, {"id": 7})
        batch = batch_of([("t", version, pair(key, value)) for version, key in rows])
        batch = batch.append_column("key", pa.array([b"outer"] * len(rows), pa.binary()))
        found = [*self.decoder.decode(batch, [(LOG, 0, len(rows))], lambda why, seconds: None)]
        for each in found:
            each.batch.validate(full=True)
        return [row["_key"] for each in found for row in each.batch.to_pylist()], [
            letter.reason for each in found for letter in each.dead_letters
        ]


def test_a_bad_key_of_a_pair_is_shown() -> None:
    pairs = Pairs("long")
    pairs.version(FIRST, "long")
    assert pairs.keys([(FIRST, encode("long", 9)), (FIRST, b"\x80")]) == (
        [9], ["Truncated at byte 0 of the key 0x80, in _key"],
    )  # fmt: skip


OLDER: dict[str, Any] = {"type": "record", "name": "K", "fields": [{"name": "k", "type": "int"}]}
NEWER: dict[str, Any] = {"type": "record", "name": "K", "fields": [
    {"name": "zone", "type": "string"}, {"name": "k", "type": "long"},
]}  # fmt: skip


@pytest.mark.parametrize("form", ["avro", "json"])
def test_keys_of_pairs_add_the_columns_of_newer_schemas(form: str) -> None:
    pairs = Pairs(OLDER, form)
    pairs.version(FIRST, OLDER)
    pairs.version(SECOND, NEWER)
    (before,) = pairs.decoder.types[1:]
    missing = " not null" if form == "avro" else ""  # the fields of an object take the nulls of whole keys
    assert str(before) == f"_key struct<k int32{missing}>"
    older, newer = pairs.key(OLDER, {"k": 1}), pairs.key(NEWER, {"zone": "z", "k": 1 << 40})
    keys, reasons = pairs.keys([(FIRST, older), (SECOND, newer), (FIRST, older)])
    assert ([{"zone": None, **key} for key in keys], reasons) == (
        [{"k": 1, "zone": None}, {"k": 1 << 40, "zone": "z"}, {"k": 1, "zone": None}], [],
    )  # fmt: skip
    assert str(pairs.decoder.types[1]) == f"_key struct<k int64{missing}, zone string>"


@pytest.mark.parametrize("form", ["avro", "json"])
def test_new_columns_of_keys_can_be_refused(form: str) -> None:
    pairs = Pairs(OLDER, form, "dead_letter")
    pairs.version(FIRST, OLDER)
    pairs.version(SECOND, NEWER)
    older, newer = pairs.key(OLDER, {"k": 1}), pairs.key(NEWER, {"zone": "z", "k": 2})
    keys, reasons = pairs.keys([(SECOND, newer), (FIRST, older)])
    assert keys == [{"k": 1}]
    shown = f"of the key 0x{newer.hex()}, in _key"
    new = f"_key struct<k int64{' not null' if form == 'avro' else ''}, zone string>"
    assert reasons == [f"NewColumns 1 of t ({new}) at byte 0 {shown}"]
    strict = Pairs(OLDER, form, "strict")
    strict.version(SECOND, NEWER)
    with pytest.raises(LogRefusedError, match="NewColumns 1 of t"):
        strict.keys([(SECOND, newer)])


def test_keys_are_read_by_the_schema_of_their_version() -> None:
    pairs = Pairs("long")
    pairs.version(FIRST, "int", kind="STRING")
    pairs.version(SECOND, "int")
    pairs.version(THIRD, {"type": "enum", "name": "E", "symbols": ["A"]})
    keys, reasons = pairs.keys([(FIRST, b"\2"), (SECOND, b"\4"), (THIRD, b"\0")])
    assert keys == [2]
    assert "IncompatibleSchema 0 of t (it is a schema of STRING, not of AVRO)" in reasons[0]
    assert "IncompatibleSchema 2 of t" in reasons[1]


def test_keys_beside_a_schema_of_values_alone_have_that_of_the_file() -> None:
    pairs = Pairs("long")
    value = encode(COLUMNS, {"id": 7})
    batch = batch_of([("t", FIRST, value)] * 2).append_column("key", pa.array([encode("long", 9), None], pa.binary()))
    found = pairs.decoder.decode(batch, [(LOG, 0, 2)], lambda why, seconds: None)
    assert [key for each in found for key in each.batch.column("_key").to_pylist()] == [9, None]


def test_numbers_fit_the_records() -> None:
    decoder = Decoding("avro").decoder._values
    with pytest.raises(ValueError, match="1 numbers of schemas for 2 records"):
        decoder.decode(pa.array([b"", b""]), 0, memoryview(b"\0" * 4).cast("i"))
