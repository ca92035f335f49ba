"""Objects of JSON by hypothesis with the Avro schema of their shape, and the values that Arrow returns for them."""

import base64
import ctypes
import json
import random
import re
from collections.abc import Mapping
from decimal import Decimal
from itertools import count
from typing import Any

import orjson
from hypothesis import strategies as st

_SCALARS: Mapping[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "int": st.integers(-(1 << 31), (1 << 31) - 1),
    "long": st.integers(-(1 << 63), (1 << 63) - 1),
    "float": st.floats(width=32, allow_nan=False, allow_infinity=False),
    "double": st.floats(allow_nan=False, allow_infinity=False),
    "string": st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
    "bytes": st.binary(max_size=20).map(lambda value: base64.b64encode(value).decode()),
}


@st.composite
def documents(draw: st.DrawFn) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Draw the schema of a record, and some objects of that shape, as ``json.loads`` returns them."""
    schema, values = _record(draw, count(), 3)
    return schema, draw(st.lists(values, min_size=1, max_size=5))


def _type(draw: st.DrawFn, names: Any, depth: int) -> tuple[Any, st.SearchStrategy[Any]]:
    kind = draw(st.sampled_from([*_SCALARS, "enum", "optional", *(("record", "array", "map") if depth else ())]))
    if kind in _SCALARS:
        return kind, _SCALARS[kind]
    if kind == "enum":
        symbols = ["A", "Bb", "a_symbol_of_many_letters", "C"]
        return {"type": "enum", "name": f"E{next(names)}", "symbols": symbols}, st.sampled_from(symbols)
    if kind == "record":
        return _record(draw, names, depth - 1)
    if kind == "optional":
        schema, values = draw(st.sampled_from([*_SCALARS.items()])) if not depth else _record(draw, names, depth - 1)
        return ["null", schema], st.none() | values
    schema, values = _type(draw, names, depth - 1)
    if kind == "array":
        return {"type": "array", "items": schema}, st.lists(values, max_size=4)
    return {"type": "map", "values": schema}, st.dictionaries(_SCALARS["string"], values, max_size=4)


def _record(draw: st.DrawFn, names: Any, depth: int) -> tuple[dict[str, Any], st.SearchStrategy[Any]]:
    fields, values = [], {}
    for name in ["id", "a_name_beyond_eight_letters", "f3", "eight_le"][: draw(st.integers(1, 4))]:
        schema, values[name] = _type(draw, names, depth)
        fields.append({"name": name, "type": schema})
    return {"type": "record", "name": f"R{next(names)}", "fields": fields}, st.fixed_dictionaries(values)


def expected(schema: Any, text: bytes) -> Any:
    """Return the record of a text as pyarrow returns it from the decoded columns of ``schema``."""
    return _arrow_value(schema, json.loads(text, parse_float=Decimal))


def is_json(text: bytes) -> bool:
    """Return True if orjson takes ``text``, after numbers beyond a double, which JSON has, are made smaller."""
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError as exc:
        smaller = re.sub(rb"(?<=\d)[eE]\+?\d{3,}", b"e1", text)
        return "infinity" in str(exc) and smaller != text and is_json(smaller)
    return True


def _arrow_value(schema: Any, value: Any) -> Any:
    if isinstance(schema, list):
        return None if value is None else _arrow_value(schema[1], value)
    match schema:
        case {"type": "record", "fields": fields}:
            return {each["name"]: _arrow_value(each["type"], value.get(each["name"])) for each in fields}
        case {"type": "array", "items": items}:
            return [_arrow_value(items, each) for each in value]
        case {"type": "map", "values": values}:
            return [(key, _arrow_value(values, each)) for key, each in value.items()]
        case "bytes":
            return base64.b64decode(value, validate=True)
        case "int" | "long":
            return int(Decimal(value))
        case "float":
            return ctypes.c_float(float(value)).value
        case "double":
            return float(value)
    return value


def written(value: Any, chance: random.Random) -> bytes:
    """Return ``value`` as JSON in one of many spellings: order of keys, unknown keys, white space, escapes, quotes."""
    space = chance.choice(["", "", " ", "\r\n\t "])
    ascii_only = chance.random() < 0.5

    def text(value: str) -> str:
        plain = json.dumps(value, ensure_ascii=ascii_only)
        escaped = "\\" not in plain and chance.random() < 0.3
        return plain.replace("a", "\\u0061").replace("/", "\\/") if escaped else plain

    def spelled(value: Any) -> str:
        match value:
            case dict():
                items = [*value.items()]
                items = [(key, each) for key, each in items if each is not None or chance.random() < 0.5]
                chance.shuffle(items)
                parts = [f"{text(key)}{space}:{space}{spelled(each)}" for key, each in items]
                return "{" + space + f"{space},{space}".join(parts) + space + "}"
            case list():
                return "[" + space + f"{space},{space}".join(map(spelled, value)) + space + "]"
            case str():
                return text(value)
            case bool() | None:
                return json.dumps(value)
        number = repr(value)
        if isinstance(value, int) and chance.random() < 0.2:
            number += chance.choice([".0", "e0", "E+00", ".00e-0"])
        return f'"{number}"' if chance.random() < 0.2 else number

    return f"{space}{spelled(value)}{space}".encode()
