"""Records of one schema in the columns of another one, and records that begin with the ids of their schemas."""

import json
import random
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fastwire.decode.avro.resolution import resolve, wider
from fastwire.decode.avro.schema import compile_avro
from fastwire.decode.avro.walk import AvroDecoder
from fastwire.decode.program import BadRecord, SchemaError
from fastwire.wire.pool import Pool
from tests.support.avro import arrow_value, encode, pairs

POOL = Pool(256 << 20)
slow = settings(deadline=None, max_examples=150, suppress_health_check=list(HealthCheck))
E = {"type": "enum", "name": "E"}


def record(*fields: Any, name: str = "Top") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [_field(*field) for field in fields]}


def _field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def with_default(name: str, kind: Any, default: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "default": default}


def of(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "Top", "fields": list(fields)}


def frame(number: int, data: bytes) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + data


def read(written: Any, columns: Any, values: Sequence[bytes]) -> tuple[pa.RecordBatch, list[BadRecord]]:
    """Decode framed ``values`` of the schema ``written`` into the columns of the schema ``columns``."""
    program = compile_avro(json.dumps(columns))
    decoder = AvroDecoder(program, POOL, framed=True)
    decoder.add(7, resolve(compile_avro(json.dumps(written)), program))
    decoded = decoder.decode(pa.array([frame(7, value) for value in values], pa.binary()))
    assert (decoded.upto, decoded.unknown) == (len(values), None)
    batch = pa.record_batch(decoded)
    batch.validate(full=True)
    assert batch.schema == pa.schema(decoder)
    return batch, decoded.bad


def one(written: Any, columns: Any, value: Any) -> Any:
    """Return the value of the only column, or the reason why the record is bad and its offset behind the header."""
    batch, bad = read(record(("f", written)), record(("f", columns)), [encode(record(("f", written)), {"f": value})])
    return (bad[0].reason, bad[0].offset - 5) if bad else batch.to_pylist()[0]["f"]


@pytest.mark.parametrize(
    ("written", "columns", "value", "seen"),
    [
        ("int", "long", -5, -5),
        ("int", "float", 3, 3.0),
        ("int", "double", -(1 << 31), -(2.0**31)),
        ("long", "double", 1 << 40, 2.0**40),
        ("long", "float", 4, 4.0),
        ("float", "double", 1.5, 1.5),
        ("string", "bytes", "ä", "ä".encode()),
        ("bytes", "string", b"abc", "abc"),
        ("bytes", "string", b"\xff", ("InvalidUtf8", 1)),
        ("int", ["null", "long"], 9, 9),
        (["null", "int"], ["long", "null"], None, None),
        (["null", "int"], ["long", "null"], 6, 6),
        (["null", "int"], "int", 6, 6),
        (["null", "int"], "int", None, ("UnexpectedNull", 1)),
        (["int"], "long", 6, 6),
        ("null", ["null", "int"], None, None),
        ({**E, "symbols": ["A", "B"]}, {**E, "symbols": ["B", "A"]}, "A", "A"),
        ({**E, "symbols": ["A", "B"]}, {**E, "symbols": ["B"]}, "A", ("UnknownSymbol", 0)),
        ({**E, "symbols": ["A", "B"]}, {**E, "symbols": ["B"], "default": "B"}, "A", "B"),
        ({**E, "symbols": ["A", "B"]}, "string", "B", "B"),
        (["int", "string"], ["string", "long"], 5, {"string": None, "long": 5}),
        (["int", "string", "null"], ["string", "long", "null"], None, None),
        (["int", "string"], ["string", "null", "boolean"], 5, ("UnknownBranch", 0)),
        ({"type": "array", "items": "int"}, {"type": "array", "items": "double"}, [1, 2], [1.0, 2.0]),
        ({"type": "map", "values": "int"}, {"type": "map", "values": ["null", "long"]}, {"k": 2}, [("k", 2)]),
        (record(("a", "int"), ("b", "string"), name="R"), record(("b", "string"), name="S"), {"a": 1, "b": "x"},
         {"b": "x"}),
    ],
)  # fmt: skip
def test_types_that_fit(written: Any, columns: Any, value: Any, seen: Any) -> None:
    assert one(written, columns, value) == seen


@pytest.mark.parametrize(
    ("written", "columns"),
    [
        ("long", "int"),
        ("double", "float"),
        ("string", "int"),
        ("string", {**E, "symbols": ["A"]}),
        ({"type": "fixed", "name": "F", "size": 3}, {"type": "fixed", "name": "F", "size": 4}),
        ({"type": "array", "items": "string"}, {"type": "map", "values": "string"}),
        ({"type": "array", "items": "string"}, {"type": "array", "items": "int"}),
        ({"type": "long", "logicalType": "timestamp-millis"}, {"type": "long", "logicalType": "timestamp-micros"}),
        (record(("a", "int"), name="R"), record(("b", "int"), name="R")),
        (["int", "string"], "int"),
    ],
)
def test_types_that_do_not_fit(written: Any, columns: Any) -> None:
    with pytest.raises(SchemaError):
        resolve(*(compile_avro(json.dumps(record(("f", each)))) for each in (written, columns)))


@pytest.mark.parametrize(
    ("kind", "default", "seen"),
    [
        ("int", -3, -3),
        ("double", 2, 2.0),
        ("string", "ü", "ü"),
        ("bytes", "\u00ff", b"\xff"),
        ("boolean", True, True),
        (["null", "string"], None, None),
        (["string", "null"], "x", "x"),
        (["null", "string"], "x", "x"),
        ({"type": "fixed", "name": "F", "size": 2}, "ab", b"ab"),
        ({**E, "symbols": ["A", "B"]}, "B", "B"),
        ({"type": "array", "items": "string"}, ["a" * 70, ""], ["a" * 70, ""]),
        ({"type": "map", "values": "long"}, {"k": 1 << 40}, [("k", 1 << 40)]),
        (["int", "string"], "x", {"int": None, "string": "x"}),
        ({"type": "record", "name": "R", "fields": [_field("a", "int"), with_default("b", "string", "dd")]},
         {"a": 4}, {"a": 4, "b": "dd"}),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}, "\u0000\u0080", 1.28),
    ],
)  # fmt: skip
def test_a_column_without_a_field_has_its_default(kind: Any, default: Any, seen: Any) -> None:
    written, columns = of(_field("id", "long")), of(with_default("new", kind, default), _field("id", "long"))
    batch, bad = read(written, columns, [encode(written, {"id": i}) for i in range(3)])
    assert not bad
    rows = batch.to_pylist()
    assert [row["id"] for row in rows] == [0, 1, 2]
    assert [float(row["new"]) if isinstance(seen, float) else row["new"] for row in rows] == [seen] * 3


def test_a_default_of_another_type_is_none() -> None:
    columns = of(_field("id", "long"), with_default("new", "int", "text"))
    with pytest.raises(SchemaError, match=r"^new: the column takes no nulls and has no default"):
        read(of(_field("id", "long")), columns, [])


def test_a_field_that_was_renamed_fills_the_column_with_its_alias() -> None:
    columns = of({"name": "customer", "type": "string", "aliases": ["client", "buyer"]}, _field("id", "int"))
    written = of(_field("id", "int"), _field("buyer", "string"))
    batch, _ = read(written, columns, [encode(written, {"id": 1, "buyer": "Ann"})])
    assert batch.to_pylist() == [{"customer": "Ann", "id": 1}]


@slow
@given(pairs(), st.integers(0, 1 << 32))
def test_dropped_and_moved_fields_leave_the_others(drawn: Any, seed: int) -> None:
    schema, records = drawn
    chance = random.Random(seed)
    kept = [field for field in schema["fields"] if chance.random() < 0.6] or schema["fields"][:1]
    chance.shuffle(kept)
    columns = {**schema, "fields": [*kept, with_default("added", ["null", "int"], None)]}
    batch, bad = read(schema, columns, [encode(schema, each) for each in records])
    assert not bad
    assert batch.to_pylist() == [
        {field["name"]: arrow_value(field["type"], each[field["name"]]) for field in kept} | {"added": None}
        for each in records
    ]


@slow
@given(pairs())
def test_truncated_records_are_bad_when_all_their_fields_are_dropped(drawn: Any) -> None:
    schema, records = drawn
    columns = of(with_default("added", "string", "here"))
    whole = encode(schema, records[0])
    values = [whole] + [each for size in range(len(whole)) for each in (whole[:size], whole)]
    batch, bad = read(schema, columns, values)
    assert [each.row for each in bad] == list(range(1, len(values), 2))
    assert {each.reason for each in bad} <= {"Truncated"}
    assert batch.to_pylist() == [{"added": "here"}] * (len(whole) + 1)


def test_records_of_several_schemas_keep_their_order() -> None:
    first, second = of(_field("id", "int")), of(_field("name", "string"), _field("id", "long"))
    columns = compile_avro(json.dumps(of(_field("id", "long"), _field("name", ["null", "string"]))))
    decoder = AvroDecoder(columns, POOL, framed=True)
    values = [frame(1, encode(first, {"id": i})) if i % 3 else frame(2, encode(second, {"id": i, "name": "n"}))
              for i in range(50)]  # fmt: skip
    values[20] = frame(1 << 30, b"x")
    array = pa.array(values, pa.binary())
    decoded = decoder.decode(array)
    assert (decoded.upto, decoded.rows, decoded.unknown) == (0, 0, 2)
    decoder.add(2, resolve(compile_avro(json.dumps(second)), columns))
    decoded = decoder.decode(array)
    assert (decoded.upto, decoded.rows, decoded.unknown) == (1, 1, 1)
    decoder.add(1, resolve(compile_avro(json.dumps(first)), columns))
    decoded = decoder.decode(array)
    assert (decoded.upto, decoded.unknown) == (20, 1 << 30)
    decoder.refuse(1 << 30, "UnknownSchema")
    decoded = decoder.decode(array)
    assert decoded.bad == [BadRecord(20, "UnknownSchema", "", 1)]
    assert pa.record_batch(decoded).to_pylist() == [
        {"id": i, "name": None if i % 3 else "n"} for i in range(50) if i != 20
    ]


@pytest.mark.parametrize("value", [b"", b"\0\0\0\0", b"\1\0\0\0\7\2"])
def test_a_value_without_an_id(value: bytes) -> None:
    program = compile_avro(json.dumps(record(("f", "int"))))
    decoder = AvroDecoder(program, POOL, framed=True)
    decoder.add(7, program)
    decoded = decoder.decode(pa.array([frame(7, b"\2"), value, frame(7, b"\2")], pa.binary()))
    assert decoded.bad == [BadRecord(1, "NoSchemaId", "", 0)]
    assert pa.record_batch(decoded).to_pylist() == [{"f": 1}] * 2


def test_names_of_references() -> None:
    address = {"type": "record", "name": "shop.Address", "fields": [_field("city", "string")]}
    order = {"type": "record", "name": "shop.Order", "fields": [_field("to", "Address")]}
    program = compile_avro(json.dumps(order), [json.dumps(address)])
    assert [step.path for step in program] == ["", "to", "to.city"]


def test_wider_numbers() -> None:
    assert wider("i", "l")
    assert wider("d:5,2", "d:9,2")
    assert not wider("d:5,2", "d:9,3")
    assert not wider("l", "i")
    assert not wider("i", "lfg")
