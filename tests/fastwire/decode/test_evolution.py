"""Columns that grow with the schemas of the records."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from fastwire.decode.avro.resolution import resolve
from fastwire.decode.avro.schema import compile_avro
from fastwire.decode.evolution import (
    Column,
    added_types,
    columns_from_json,
    columns_of,
    columns_to_json,
    grown,
    program_of,
)
from fastwire.decode.program import SchemaError, deletable
from tests.support.avro import pairs

slow = settings(deadline=None, max_examples=100, suppress_health_check=list(HealthCheck))
E = {"type": "enum", "name": "E"}


def program(*fields: Any) -> Any:
    made = [field if isinstance(field, dict) else {"name": field[0], "type": field[1]} for field in fields]
    return compile_avro(json.dumps({"type": "record", "name": "T", "fields": made}))


def texts(steps: Any) -> list[str]:
    return [str(column) for column in columns_of(steps)]


def test_new_columns_follow_and_take_nulls() -> None:
    have = program(("id", "long"), ("name", "string"))
    new = program(("id", "long"), {"name": "tag", "type": "string", "default": "x"}, ("at", ["null", "int"]))
    union = grown(have, new)
    assert texts(union) == ["id int64 not null", "name string not null", "tag string", "at int32"]
    assert grown(union, new) == union
    resolve(have, union)
    with pytest.raises(SchemaError, match=r"^name: the column takes no nulls and has no default"):
        resolve(new, union)


@pytest.mark.parametrize(
    ("have", "new", "column"),
    [
        ("int", "long", "int64 not null"),
        ("long", "int", "int64 not null"),
        ("int", "double", "double not null"),
        ("float", "double", "double not null"),
        ("double", "long", "double not null"),
        ("int", ["null", "int"], "int32"),
        (["null", "int"], "long", "int64"),
        ("null", "int", "int32"),
        (["int", "null"], "null", "int32"),
        ({**E, "symbols": ["A"]}, {**E, "symbols": ["B"]}, "string not null"),
        ({**E, "symbols": ["A"]}, "string", "string not null"),
        ({"type": "array", "items": "int"}, {"type": "array", "items": "long"},
         "list<item int64 not null> not null"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
         {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, "d:9,2 not null"),
        (["int", "string"], ["string", "boolean"],
         "struct<int int32, string string, boolean bool> not null"),
    ],
)  # fmt: skip
def test_wider_columns(have: Any, new: Any, column: str) -> None:
    one, other = program(("f", have)), program(("f", new))
    union = grown(one, other)
    assert texts(union) == [f"f {column}"]
    for written in (one, other):
        resolve(written, union)
    assert grown(union, one) == grown(union, other) == union


def test_symbols_of_both_enums_are_read() -> None:
    union = grown(program(("f", {**E, "symbols": ["A"]})), program(("f", {**E, "symbols": ["B"]})))
    assert resolve(program(("f", {**E, "symbols": ["B", "A"]})), union)[1].symbols == (b"B", b"A")


@pytest.mark.parametrize(
    ("have", "new"),
    [
        ("long", "double"),
        ("long", "float"),
        ("int", "float"),
        ("string", "int"),
        ({"type": "array", "items": "int"}, {"type": "map", "values": "int"}),
        ("string", {"type": "array", "items": "string"}),
        ({"type": "int", "logicalType": "date"}, "int"),
    ],
)
def test_types_without_a_union(have: Any, new: Any) -> None:
    with pytest.raises(SchemaError, match=r"^f: the column has .*, and the schema has"):
        grown(program(("f", have)), program(("f", new)))


@pytest.mark.parametrize(
    ("held", "new", "union"),
    [("l", "u", "u"), ("u", "b", "u"), ("l", "g", "g"), ("g", "l", "g"), ("d:38,0", "u", "u"), ("+s", "u", ""),
     ("b", "l", ""), ("tdD", "u", ""), ("l", "f", ""), ("u", "tdD", "")],
)  # fmt: skip
def test_types_that_widen_only_where_they_may(held: str, new: str, union: str) -> None:
    inner = (Column("x", "l", True),)
    mine, others = ((Column("f", arrow, True, inner if arrow == "+s" else ()),) for arrow in (held, new))
    if union:
        assert (added_types(mine, others, widening=True) or mine)[0].arrow == union
    else:
        with pytest.raises(SchemaError, match="the column has"):
            added_types(mine, others, widening=True)
    if "u" in (held, new):
        with pytest.raises(SchemaError, match="the column has"):
            added_types(mine, others)


def test_a_renamed_field_stays_its_column() -> None:
    have = program(("client", "string"))
    new = program({"name": "customer", "type": "string", "aliases": ["client"]})
    union = grown(have, new)
    assert texts(union) == ["client string not null"]
    assert [step.column for step in resolve(new, union)] == [0, 1]


@slow
@given(pairs(), pairs())
def test_columns_of_a_dataset(one: Any, other: Any) -> None:
    have = compile_avro(json.dumps(one[0]))
    columns = columns_of(have)
    assert columns_from_json(json.loads(json.dumps(columns_to_json(columns)))) == columns
    assert columns_of(program_of(columns)) == columns
    assert grown(have, have) == have
    try:
        union = grown(have, compile_avro(json.dumps(other[0])))
    except SchemaError:
        return
    assert columns_of(grown(program_of(columns), compile_avro(json.dumps(other[0])))) == columns_of(union)


def test_a_newer_schema_lifts_the_requirement_of_a_value() -> None:
    columns = deletable(program(("f", "int"), ("g", "int")))
    assert [step.required for step in grown(columns, program(("f", "long"), ("g", ["null", "int"])))[1:]] == [
        True,
        False,
    ]
    dataset = program_of(columns_of(columns), required=True)
    assert [step.required for step in grown(columns, dataset)[1:]] == [True, True]


@pytest.mark.parametrize("value", [5, ["id"], [["id", "l"]], [["id", "l", 1]], [["id", "l", True, [], 5]]])
def test_what_is_no_column(value: Any) -> None:
    with pytest.raises(ValueError, match="is not a column"):
        columns_from_json(value)


def test_a_column_as_text() -> None:
    inner = Column("street", "u", nullable=True)
    assert str(Column("to", "+s", nullable=False, children=(inner,))) == "to struct<street string> not null"
