"""The columns of JSON objects that are inferred from samples decode these samples."""

import json
from typing import Any

import pyarrow as pa
import pytest

from fastwire.decode.json.inference import Inference, parsed
from fastwire.decode.json.schema import compile_json
from fastwire.decode.json.walk import JsonDecoder
from fastwire.decode.program import SchemaError
from fastwire.wire.pool import Pool


def inferred(values: list[Any], **options: Any) -> Inference:
    made = Inference(**options)
    for value in values:
        made.add(parsed(json.dumps(value).encode()))
    return made


def decoded(values: list[Any], **options: Any) -> tuple[list[dict[str, Any]], int]:
    """Return the values by the schema that is inferred from them, and the number of bad ones."""
    decoder = JsonDecoder(compile_json(inferred(values, **options).schema("top")), Pool(1 << 24))
    made = decoder.decode(pa.array([json.dumps(value).encode() for value in values], pa.binary()))
    assert made.upto == len(values)
    return pa.record_batch(made).to_pylist(), len(made.bad)


@pytest.mark.parametrize(
    "values",
    [
        [{"a": 1}, {"a": -(1 << 63)}, {"a": (1 << 63) - 1}],
        [{"a": 1}, {"a": 1.5}, {"a": None}],
        [{"a": {"b": {"c": [[1], [None, 2]]}}}, {"a": {"b": {"c": None}}}],
        [{"string": {"record": {"x": True}}, "string_record": {"x": {"y": 1}}}],
        [{"a": [{"b": 1}, {"c": "x"}]}],
        [{"a": "2026-01-01T00:00:00Z"}],
    ],
)
def test_the_schema_reads_the_samples(values: list[Any]) -> None:
    rows, bad = decoded(values)
    assert not bad

    def without_nulls(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: without_nulls(each) for name, each in value.items() if each is not None}
        return [without_nulls(each) for each in value] if isinstance(value, list) else value

    assert list(map(without_nulls, rows)) == list(map(without_nulls, values))


def test_whole_numbers_beyond_64_bits_keep_their_digits() -> None:
    rows, bad = decoded([{"a": 1}, {"a": 1 << 63}, {"a": 10**37}])
    assert not bad and [int(row["a"]) for row in rows] == [1, 1 << 63, 10**37]
    (fact,) = inferred([{"a": (1 << 53) + 1}, {"a": 0.5}]).facts()
    assert fact.type == "double" and "9007199254740993" in fact.odd[0]


def test_times_are_texts_unless_they_are_asked_for_and_each_text_is_one() -> None:
    values = [{"t": "2026-01-01T00:00:00+02:00", "d": "2026-02-28", "no": "2026-01-01T00:00:00Z"}]
    values += [{"t": "2026-01-01T00:00:00.123456Z", "d": "2024-02-29", "no": "2026-02-30T00:00:00Z"}]
    assert {fact.type for fact in inferred(values).facts()} == {"text"}
    assert [fact.type for fact in inferred(values, times=True).facts()] == ["timestamp", "date", "text"]
    assert decoded(values, times=True)[1] == 0
    mixed = [{"t": "2026-01-01T00:00:00Z"}, {"t": "2026-01-01"}]
    assert [fact.type for fact in inferred(mixed, times=True).facts()] == ["text"]


def test_too_many_columns_name_the_object_whose_keys_are_values() -> None:
    values = [{"id": n, "by": {"user": {f"u{n}": {"n": n}}}} for n in range(20)]
    with pytest.raises(
        SchemaError, match=r"more than 30 columns, \d+ of them in by\.user, whose last keys are .*\"u13"
    ) as error:
        inferred(values, most=30)
    assert error.value.path == "by.user"
    made = inferred(values, most=30, maps=frozenset({"by.user"}))
    assert [fact.path for fact in made.facts()] == ["id", "by", "by.user", "by.user{}", "by.user{}.n"]
    rows, bad = decoded(values, maps=frozenset({"by.user"}))
    assert not bad and rows[3]["by"]["user"] == [("u3", {"n": 3})]


def test_what_nests_too_deep_is_left_out_and_said() -> None:
    deep: Any = 1
    for _ in range(40):
        deep = {"a": deep, "n": 1}
    for value in (deep, {"x": json.loads("[" * 40 + "]" * 40)}):
        made = inferred([value | {"id": 1}])
        compile_json(made.schema("top"))
        assert any("nest too deep" in sentence for fact in made.facts() for sentence in fact.odd)


def test_facts_of_a_field_that_is_of_several_types() -> None:
    facts = {fact.path: fact for fact in inferred([{"a": 1}, {"a": "x"}, {"a": 2}, {}, {"a": None}]).facts()}
    assert facts["a"].types == {"int": 2, "text": 1} and facts["a"].null_share == 0.4
    assert facts["a"].type == "int" and facts["a"].example == "1"
    assert "2 int, 1 text" in facts["a"].odd[0]


@pytest.mark.parametrize("value", [{"a": None}, {"a": {}}, {"a": []}, {"a": [{}]}, {"a b": 1}, {}])
def test_objects_without_a_typed_field_have_no_schema(value: Any) -> None:
    with pytest.raises(SchemaError, match="there is no column"):
        inferred([value]).schema("top")


@pytest.mark.parametrize("text", [b"NaN", b'{"a": Infinity}', b"\xff", b"[" * 100_000, b"", b"1" * 5000])
def test_what_is_not_json_raises_a_value_error(text: bytes) -> None:
    with pytest.raises(ValueError):
        parsed(text)
