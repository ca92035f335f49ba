"""Columns for the fields of JSON values that have no schema."""

import json
from typing import Any

import pyarrow as pa
import pytest

from fastwire.decode.evolution import columns_of
from fastwire.decode.json.growth import NO_COLUMNS, crowded, growth
from fastwire.decode.json.walk import JsonDecoder
from fastwire.decode.program import SchemaError
from fastwire.wire.pool import Pool


def encoded(*values: Any) -> list[bytes]:
    return [json.dumps(value).encode() for value in values]


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"a": 1, "b-c": "x", "d": [{"e": 1.5}, {"f": [[True]]}], "g": {"h": {"i": None, "j": 0}}},
        {"n": None, "e": [], "o": {}, "l": [None, [], {"x": None}], '\\"': {"k\\": []}},
    ],
)
def test_a_closed_decoder_reads_what_the_columns_were_made_for(value: Any) -> None:
    found = growth(NO_COLUMNS, encoded(value))
    assert not found.refused
    made = JsonDecoder(found.program, Pool(1 << 24), closed=True).decode(pa.array(encoded(value), pa.binary()))
    assert not made.bad and made.rows == 1


@pytest.mark.parametrize(
    ("text", "offset"),
    [
        ('{"a": 1, "b": 0}', 9), ('{"b": {"c": [null, {"d": false}]}}', 1), ('{"b": ["x"]}', 1), ('{"b": -1}', 1),
        ('{"s": {"t": "x", "u": [""]}}', 17), ('{"b": {"n": "\\""}}', 1), ('{"b": [ "k" ]}', 1),
    ],
)  # fmt: skip
def test_a_field_without_a_column_makes_the_record_bad(text: str, offset: int) -> None:
    program = growth(NO_COLUMNS, encoded({"a": 1, "s": {"t": "x"}})).program
    values = pa.array([text.encode(), b'{"a": 2}'], pa.binary())
    made = JsonDecoder(program, Pool(1 << 24), closed=True).decode(values)
    assert [(each.row, each.reason, each.offset) for each in made.bad] == [(0, "NewColumns", offset)]
    assert made.rows == 1
    assert not JsonDecoder(program, Pool(1 << 24)).decode(values).bad


def test_columns_keep_their_types_and_get_what_they_lack() -> None:
    first = growth(NO_COLUMNS, encoded({"a": 1, "s": {"t": "x"}, "l": [{"x": 1}]}))
    second = growth(first.program, encoded({"a": 0.5, "s": {"t": 1, "u": True}, "l": [{"y": 1}], "z": 1}))
    assert [str(each) for each in columns_of(second.program)] == [
        "a int64", "s struct<t string, u bool>", "l list<item struct<x int64, y int64>>", "z int64",
    ]  # fmt: skip
    assert [str(each) for each in second.added] == ["s struct<u bool>", "l list<item struct<y int64>>", "z int64"]


def test_columns_get_wider_types_at_their_paths_and_new_ones_unite_the_types_of_scalars() -> None:
    first = growth(NO_COLUMNS, encoded({"a": 1, "s": {"t": 1}, "l": [{"x": True}], "s.t": "x"})).program
    values = encoded({"m": 1}, {"m": "x"}, {"m": {"y": 1}}, {"o": {"y": 1}}, {"o": {"y": 2}}, {"o": 5})
    found = growth(first, values, unites=True, wider={"a": "g", "s.t": "u", "l.item.x": "u", "s": "u"})
    assert [str(each) for each in columns_of(found.program)] == [
        "a double", "s struct<t string>", "l list<item struct<x string>>", "s.t string", "m string",
        "o struct<y int64>",
    ]  # fmt: skip
    assert [each.name for each in found.added] == ["a", "s", "l", "m", "o"]


def test_a_refused_column_does_not_keep_back_the_others() -> None:
    found = growth(NO_COLUMNS, encoded({"a": 1, "b": 2, "c": 3}), lambda union: "no" if union[-1].name == "b" else "")
    assert [each.name for each in columns_of(found.program)] == ["a", "c"] and found.refused == ("b int64: no",)


def test_of_a_struct_only_what_is_refused_is_left_out() -> None:
    found = growth(
        NO_COLUMNS,
        encoded({"s": {"a": 1, "no": 2, "l": [{"no": True, "b": 1}]}}),
        lambda union: "no" if any(step.name == "no" for step in union) else "",
    )
    assert [str(each) for each in columns_of(found.program)] == ["s struct<a int64, l list<item struct<b int64>>>"]
    assert found.refused == ("s struct<no int64>: no", "s struct<l list<item struct<no bool>>>: no")


def test_too_many_fields_are_an_error_at_first_and_later_no_columns() -> None:
    many = [{"stock": {f"id{i}": i}} for i in range(600)]
    with pytest.raises(SchemaError, match="512 columns, 511 of them in stock"):
        growth(NO_COLUMNS, encoded(*many))
    program = growth(NO_COLUMNS, encoded({"a": 1})).program
    found = growth(program, encoded(*many))
    assert len(found.program) <= 512 and "stock" in found.refused[0]
    assert len(growth(program, encoded(*many), maps=["stock"]).added) == 1


def test_a_value_with_too_many_fields_takes_no_columns_from_the_others() -> None:
    crowd = {f"id{i}": i for i in range(600)}
    for program in (growth(NO_COLUMNS, encoded({"a": 1})).program, NO_COLUMNS):
        found = growth(program, encoded({"new": 1}, crowd, {"late": 1}, crowd))
        assert [each.name for each in found.added] == ["new", "late"]
        assert len(found.refused) == 1 and "more than 512 columns" in found.refused[0]
    assert crowded(encoded({"a": 1, "by": crowd})[0]) == "by" and crowded(encoded({"a": crowd["id1"]})[0]) == ""
    assert crowded(encoded({"a": 1, "by": crowd})[0], maps=["by"]) == ""


def closed(*values: bytes, of: dict[str, Any]) -> tuple[list[Any], list[str]]:
    """Return the rows of a closed decoder with the columns for ``of``, and why others are bad."""
    program = growth(NO_COLUMNS, encoded(of)).program
    made = JsonDecoder(program, Pool(1 << 24), closed=True).decode(pa.array(values, pa.binary()))
    return pa.record_batch(made).to_pylist(), [str(each) for each in made.bad]


def test_texts_are_not_taken_for_numbers() -> None:
    values = [b'{"i": "12"}', b'{"i": "1e2"}', b'{"d": "1.10"}', b'{"d": "NaN"}', b'{"b": "1"}']
    rows, bad = closed(*values, of={"i": 1, "d": 0.5, "b": 1 << 70})
    assert rows == []
    assert bad == [f"WrongType at byte 6 of the value, in {name}" for name in "iiddb"]


def test_whole_numbers_that_a_double_would_change_are_bad() -> None:
    exact = ["9007199254740992", "-9007199254740994", "9223372036854775808", "0.1", "1e20", "-0"]
    other = ["9007199254740993", "-9007199254740993", "9223372036854775807", "18446744073709551617", "1" + "0" * 40]
    rows, bad = closed(*(f'{{"d": {each}}}'.encode() for each in [*exact, *other]), of={"d": 0.5})
    assert [row["d"] for row in rows] == [float(each) for each in exact]
    assert bad == ["Inexact at byte 6 of the value, in d"] * len(other)


@pytest.mark.parametrize("name", ["a\\", 'a"', 'long"er than eight'])
def test_names_that_json_writes_with_escapes(name: str) -> None:
    malformed = b'{"' + name.encode() + b'": 5}'
    rows, bad = closed(*encoded({name: 1}, {f'{name}"b': None}, {name: 2, f'{name}"': []}), malformed, of={name: 1})
    assert [row[name] for row in rows] == [1, None, 2] and len(bad) == 1
