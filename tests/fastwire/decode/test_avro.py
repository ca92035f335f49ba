"""Programs of Avro schemas: names, limits, and what is refused with its place."""

import json
from typing import Any

import pytest

from fastwire.decode.avro.schema import compile_avro, compile_avro_field
from fastwire.decode.program import MOST_COLUMNS, MOST_DEPTH, SchemaError


def record(kind: Any, **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": "Top", "fields": [{"name": "f", "type": kind}], **more}


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("long", "the schema is not a record"),
        (["null", record("int")], "the schema is not a record"),
        (7, "7 is not a type"),
        (record("strin"), 'f: "strin" is not a type'),
        (record(None), "f: null is not a type"),
        (record(["null", "Top"]), 'f: "Top" contains itself'),
        (record({"type": "array", "items": "Top"}), r'f\[\]: "Top" contains itself'),
        (record({"type": "array", "items": "null"}), r"f\[\]: items of no bytes"),
        (record({"type": "array"}), r"f\[\]: the type has no items"),
        (record({"type": "map"}), r"f\{\}: the type has no values"),
        (record({"type": "fixed", "name": "F", "size": 0}), 'f: the size of "F"'),
        (record({"type": "fixed", "name": "F", "size": 1 << 40}), 'f: the size of "F"'),
        (record({"type": "enum", "name": "E", "symbols": []}), 'f: the enum "E" has no symbols'),
        (record({"type": "enum", "name": "E", "symbols": ["\ud800"]}), "f: a symbol"),
        (record({"type": "enum", "symbols": ["A"]}), "f: null is not a name"),
        (record({"type": "record", "name": "Top", "fields": []}), 'f: "Top" is defined twice'),
        (record({"type": "record", "name": "R"}), 'f: the record "R" has no list of fields'),
        ({"type": "record", "name": "R", "fields": []}, "the record at the top has no fields"),
        (record([]), "f: a union has no type but null"),
        (record(["null"]), "f: a union has no type but null"),
        (record(["null", "int", "null"]), "f: a union has two nulls"),
        (record(["null", ["int"]]), "f: a union stands inside a union"),
        (record(["null", {"type": ["int"]}]), "f: a union stands inside a union"),
        (record({"type": "bytes", "logicalType": "decimal", "precision": 39}), "f: a decimal of 39 digits"),
        ({"type": "record", "name": "1", "fields": []}, '"1" is not a name'),
        ({"type": "record", "name": "R", "fields": [{"name": "a b", "type": "int"}]}, "no valid name"),
        ({"type": "record", "name": "R", "fields": [{"name": "a"}]}, "a: the field has no type"),
        (
            {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}] * 2},
            'a: "R" has two fields of this name',
        ),
    ],
)
def test_a_schema_that_has_no_columns_is_refused_with_its_place(schema: Any, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        compile_avro(json.dumps(schema))


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, '{"type": "record", "name": "R", "fields": [' + "9" * 5000])
def test_a_schema_that_is_not_json_is_refused(text: str) -> None:
    with pytest.raises(SchemaError, match="not JSON"):
        compile_avro(text)


def test_a_name_is_looked_up_in_its_namespace_and_then_in_none() -> None:
    schema = record(
        {"type": "record", "name": "other.In", "fields": [
            {"name": "a", "type": {"type": "enum", "name": "E", "symbols": ["A"]}},
            {"name": "b", "type": "E"},
            {"name": "c", "type": "shop.Money"},
        ]},
        namespace="shop",
    )  # fmt: skip
    money = {"type": "fixed", "name": "Money", "size": 3}
    schema["fields"] = [{"name": "m", "type": money}, *schema["fields"], {"name": "again", "type": "other.In"}]
    steps = {step.path: step for step in compile_avro(json.dumps(schema))}
    assert steps["again.b"].symbols == (b"A",)
    assert steps["f.c"].size == steps["again.c"].size == 3


def test_a_schema_that_grows_by_its_names_is_refused() -> None:
    # Each level has two fields of the level below: forty lines of JSON for 2^40 columns.
    kind: Any = "int"
    for level in range(25):
        inner = {"type": "record", "name": f"R{level}", "fields": [
            {"name": "a", "type": kind}, {"name": "b", "type": kind if isinstance(kind, str) else kind["name"]},
        ]}  # fmt: skip
        kind = inner
    with pytest.raises(SchemaError, match=f"more than {MOST_COLUMNS} columns"):
        compile_avro(json.dumps(kind))


def test_a_record_has_as_many_columns_as_are_allowed() -> None:
    fields = [{"name": f"f{number}", "type": "int"} for number in range(MOST_COLUMNS)]
    assert len(compile_avro(json.dumps({"type": "record", "name": "R", "fields": fields}))) == MOST_COLUMNS + 1
    fields.append({"name": "more", "type": "int"})
    with pytest.raises(SchemaError, match=f"more than {MOST_COLUMNS} columns"):
        compile_avro(json.dumps({"type": "record", "name": "R", "fields": fields}))


@pytest.mark.parametrize("wrap", [lambda kind: {"type": "array", "items": kind}, lambda kind: {"type": kind}])
def test_a_schema_that_nests_too_deeply_is_refused(wrap: Any) -> None:
    kind: Any = {"type": "int"}
    for _ in range(MOST_DEPTH + 1):
        kind = wrap(kind)
    with pytest.raises(SchemaError, match=f"deeper than {MOST_DEPTH} levels"):
        compile_avro(json.dumps(record(kind)))


@pytest.mark.parametrize(
    "kind",
    [
        {"type": "long", "logicalType": "date"},
        {"type": "long", "logicalType": ["x"]},
        {"type": "bytes", "logicalType": "decimal"},
        {"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 3},
        {"type": "fixed", "name": "F", "size": 2, "logicalType": "decimal", "precision": 5},
        {"type": "fixed", "name": "F", "size": 2, "logicalType": "decimal", "precision": 10**9},
    ],
)
def test_a_logical_type_that_does_not_fit_is_ignored(kind: Any) -> None:
    (_, step) = compile_avro(json.dumps(record(kind)))
    plain = {key: value for key, value in kind.items() if key != "logicalType"}
    assert step == compile_avro(json.dumps(record(plain)))[1]


def test_a_value_of_any_type_is_a_record_of_one_field() -> None:
    (top, key) = compile_avro_field("key", '"long"')
    assert (top.children, key.name, key.arrow, key.nullable) == (1, "key", "l", False)
    record = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "Id"}]}
    reference = {"type": "fixed", "name": "Id", "size": 4}
    program = compile_avro_field("key", json.dumps(record), [json.dumps(reference)])
    assert [step.path for step in program] == ["", "key", "key.id"]
    for text, said in (("long", "the schema is not JSON"), ('"lon"', 'key: "lon" is not a type')):
        with pytest.raises(SchemaError, match=said):
            compile_avro_field("key", text)
