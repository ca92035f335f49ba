"""Avro schemas and values by hypothesis, their bytes by fastavro, and the same values as Arrow returns them."""

import io
from collections.abc import Mapping
from itertools import count
from typing import Any

import fastavro
from hypothesis import strategies as st

Schema = Any

_PRIMITIVES: Mapping[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "int": st.integers(-(1 << 31), (1 << 31) - 1),
    "long": st.integers(-(1 << 63), (1 << 63) - 1),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "bytes": st.binary(max_size=90),
    "string": st.text(max_size=40),
}


def encode(schema: Schema, value: Any) -> bytes:
    """Return ``value`` in the binary encoding of Avro, as fastavro writes it."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, value)
    return out.getvalue()


def arrow_value(schema: Schema, value: Any) -> Any:
    """Return a value of ``pairs`` as pyarrow returns it from a decoded column."""
    if isinstance(schema, list):
        if len(schema) == 1 or (len(schema) == 2 and "null" in schema):
            return None if value is None else arrow_value(next(each for each in schema if each != "null"), value[1])
        if value is None:
            return None
        own = [each for each in schema if each != "null"]
        return {_name(each): arrow_value(each, value[1]) if _name(each) == value[0] else None for each in own}
    match schema:
        case {"type": "record", "fields": fields}:
            return {each["name"]: arrow_value(each["type"], value[each["name"]]) for each in fields}
        case {"type": "array", "items": items}:
            return [arrow_value(items, each) for each in value]
        case {"type": "map", "values": values}:
            return [(key, arrow_value(values, each)) for key, each in value.items()]
    return value


def _name(schema: Schema) -> str:
    """Return the name by which fastavro selects a branch of a union."""
    return schema if isinstance(schema, str) else str(schema.get("name", schema["type"]))


def _type(draw: st.DrawFn, names: Any, depth: int, *, union: bool = True) -> tuple[Schema, st.SearchStrategy[Any]]:
    kinds = [*_PRIMITIVES, "enum", "fixed"]
    if depth:
        kinds += ["record", "array", "map"]
    if union:
        kinds += ["optional", "lone"] + (["union"] if depth else [])
    kind = draw(st.sampled_from(kinds))
    if kind in _PRIMITIVES:
        return kind, _PRIMITIVES[kind]
    if kind == "enum":
        symbols = draw(st.lists(st.sampled_from("ABCDEFGH"), min_size=1, max_size=5, unique=True))
        return {"type": "enum", "name": f"E{next(names)}", "symbols": symbols}, st.sampled_from(symbols)
    if kind == "fixed":
        size = draw(st.integers(1, 40))
        return {"type": "fixed", "name": f"F{next(names)}", "size": size}, st.binary(min_size=size, max_size=size)
    if kind == "record":
        return _record(draw, names, depth - 1)
    if kind == "array":
        schema, values = _type(draw, names, depth - 1)
        return {"type": "array", "items": schema}, st.lists(values, max_size=4)
    if kind == "map":
        schema, values = _type(draw, names, depth - 1)
        return {"type": "map", "values": schema}, st.dictionaries(st.text(max_size=5), values, max_size=4)
    if kind in ("optional", "lone"):
        schema, values = _type(draw, names, depth, union=False)
        tagged = values.map(lambda value: (_name(schema), value))
        if kind == "lone":
            return [schema], tagged
        both = [schema, "null"] if draw(st.booleans()) else ["null", schema]
        return both, st.none() | tagged
    first, second = draw(st.lists(st.sampled_from([*_PRIMITIVES]), min_size=2, max_size=2, unique=True))
    own, of_own = _record(draw, names, depth - 1)
    schemas: list[Schema] = draw(st.permutations([first, second, own]))
    values = st.one_of(
        _PRIMITIVES[first].map(lambda value: (first, value)),
        _PRIMITIVES[second].map(lambda value: (second, value)),
        of_own.map(lambda value: (own["name"], value)),
    )
    if draw(st.booleans()):
        return [*schemas, "null"], st.none() | values
    return schemas, values


def _record(draw: st.DrawFn, names: Any, depth: int) -> tuple[dict[str, Any], st.SearchStrategy[Any]]:
    fields, values = [], {}
    for number in range(draw(st.integers(1, 4))):
        schema, values[f"f{number}"] = _type(draw, names, depth)
        fields.append({"name": f"f{number}", "type": schema})
    return {"type": "record", "name": f"R{next(names)}", "fields": fields}, st.fixed_dictionaries(values)


@st.composite
def pairs(draw: st.DrawFn) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Draw the schema of a record, and some records; values of unions are pairs of branch and value."""
    schema, values = _record(draw, count(), 3)
    return schema, draw(st.lists(values, min_size=1, max_size=6))
