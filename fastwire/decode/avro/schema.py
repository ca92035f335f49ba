"""Avro schemas as programs: the Arrow column of each field.

| Avro | Arrow |
|---|---|
| null, boolean, int, long, float, double, bytes, string | null, bool, int32, int64, float, double, binary, utf8 |
| enum, uuid of a string | utf8 |
| fixed, also as uuid or duration | fixed-size binary |
| decimal of bytes or fixed, up to 38 digits | decimal128 |
| date; time-millis, time-micros | date32; time32[ms], time64[us] |
| timestamp-millis, -micros, -nanos | timestamp of the unit in UTC; local-timestamp-…: without a time zone |
| record, array, map | struct, list, map |
| record without fields | binary without bytes: Parquet has no struct without columns |
| union of a type and null | the type, nullable |
| any other union | a nullable struct with a nullable column for each branch but null |

The column of a branch has the name of its record, enum or fixed without the namespace, or of its type ("int", "array").
Where two of a union share it, the namespace stands before it ("com_example_Card").

An unknown logical type, or one that does not fit its type, is ignored, as the Avro specification demands.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import log10
from typing import Any

from ..branches import ARRAY, MAP, Branch, member_names
from ..program import MOST_COLUMNS, MOST_DEPTH, Node, SchemaError, Shape, Step, flatten
from .default import encoded_default

_DAY_MS = 24 * 60 * 60 * 1000
_INT64 = (1 << 63) - 1
_MOST_DIGITS = 38  # of a decimal128
_MOST_FIXED = 1 << 20  # a null takes as many bytes as a value
_NAMED = ("record", "error", "enum", "fixed")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_INT = {"shape": "int32", "operation": "int", "arrow": "i", "low": -(1 << 31), "high": (1 << 31) - 1}
_LONG = {"shape": "int64", "operation": "int", "arrow": "l"}
_TEXT: Mapping[str, Any] = {"shape": "text", "operation": "text", "arrow": "u"}
_PRIMITIVES: Mapping[str, Mapping[str, Any]] = {
    "null": {"shape": "null", "operation": "null", "arrow": "n", "nullable": True},
    "boolean": {"shape": "bool", "operation": "bool", "arrow": "b"},
    "int": _INT,
    "long": _LONG,
    "float": {"shape": "float", "operation": "float", "arrow": "f"},
    "double": {"shape": "double", "operation": "double", "arrow": "g"},
    "bytes": {"shape": "bytes", "operation": "bytes", "arrow": "z"},
    "string": _TEXT,
}
# Milliseconds that have no microseconds are refused, because files hold microseconds.
_MILLIS = {"low": -(_INT64 // 1000), "high": _INT64 // 1000}
_LOGICAL: Mapping[tuple[str, str], Mapping[str, Any]] = {
    ("int", "date"): {**_INT, "arrow": "tdD"},
    ("int", "time-millis"): {**_INT, "arrow": "ttm", "low": 0, "high": _DAY_MS - 1},
    ("long", "time-micros"): {**_LONG, "arrow": "ttu", "low": 0, "high": _DAY_MS * 1000 - 1},
    ("long", "timestamp-millis"): {**_LONG, "arrow": "tsm:UTC", **_MILLIS},
    ("long", "timestamp-micros"): {**_LONG, "arrow": "tsu:UTC"},
    ("long", "timestamp-nanos"): {**_LONG, "arrow": "tsn:UTC"},
    ("long", "local-timestamp-millis"): {**_LONG, "arrow": "tsm:", **_MILLIS},
    ("long", "local-timestamp-micros"): {**_LONG, "arrow": "tsu:"},
    ("long", "local-timestamp-nanos"): {**_LONG, "arrow": "tsn:"},
}


def compile_avro(text: str, references: Sequence[str] = (), *, fieldless: bool = False) -> tuple[Step, ...]:
    """Return the program of an Avro schema in JSON; its first step is the record, whose children are the columns.

    ``references`` are schemas that define names for it, each after those that it needs itself. A record at the top may
    be ``fieldless`` where others have the columns.

    Raises SchemaError for a schema that is not valid, whose top is not a record, that is recursive (Arrow has no such
    type), or that nests deeper or has more columns than a program may have.
    """
    compiler = _Compiler()
    for reference in references:
        compiler.node(_parsed(reference), "", "", "", 0)
        compiler.columns = -1
    top = compiler.node(_parsed(text), "", "", "", 0)
    if top.step.operation != "record" or top.step.null_branch >= 0 or top.step.lone:
        raise SchemaError("", "the schema is not a record: only a record has columns")
    if not top.children and not fieldless:
        raise SchemaError("", "the record at the top has no fields, which would be the columns")
    return flatten(top)


def compile_avro_field(name: str, text: str, references: Sequence[str] = ()) -> tuple[Step, ...]:
    """Return the program of records whose only field has the schema: a value of any type is encoded as such a record.

    Raises SchemaError as ``compile_avro`` does.
    """
    record = {"type": "record", "name": "_of_one_field", "fields": [{"name": name, "type": _parsed(text)}]}
    return compile_avro(json.dumps(record), references)


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise SchemaError("", f"the schema is not JSON: {exc}") from None


class _Compiler:
    """The names that a schema has defined, and the columns counted so far."""

    def __init__(self) -> None:
        self._named: dict[str, tuple[dict[str, Any], str]] = {}
        self._open: list[str] = []
        self.columns = -1  # the record at the top is none

    def node(self, schema: Any, name: str, path: str, space: str, depth: int) -> Node:
        self.columns += 1
        if self.columns > MOST_COLUMNS:
            raise SchemaError(path, f"the schema has more than {MOST_COLUMNS} columns over all levels")
        if depth > MOST_DEPTH:
            raise SchemaError(path, f"the schema nests deeper than {MOST_DEPTH} levels")
        if isinstance(schema, list):
            return self._union(schema, name, path, space, depth)
        if isinstance(schema, str):
            return self._by_name(schema, name, path, space, depth)
        if not isinstance(schema, dict):
            raise SchemaError(path, f"{json.dumps(schema)} is not a type")
        kind = schema.get("type")
        if isinstance(kind, (dict, list)):
            return self._again(kind, name, path, space, depth)
        if kind in ("record", "error"):
            return self._record(schema, name, path, space, depth)
        if kind == "array":
            item = self._item(schema, "items", "item", f"{path}[]", space, depth)
            return _list(name, path, item, "+l")
        if kind == "map":
            value = self._item(schema, "values", "value", f"{path}{{}}", space, depth + 1)
            key = Node(Step(name="key", path=f"{path}{{}}", **_TEXT), least=1)
            entry = Step(name="entries", path=path, shape="struct", operation="record", arrow="+s")
            return _list(name, path, Node(entry, [key, value], 1 + value.least), "+m")
        if kind == "enum":
            return self._enum(schema, name, path, space)
        if kind == "fixed":
            return self._fixed(schema, name, path, space)
        if not isinstance(kind, str):
            raise SchemaError(path, "a type has no name")
        return self._by_name(kind, name, path, space, depth, schema)

    def _again(self, schema: Any, name: str, path: str, space: str, depth: int) -> Node:
        """Compile a type that stands inside {"type": …}: the same column, one level of JSON deeper."""
        self.columns -= 1
        return self.node(schema, name, path, space, depth + 1)

    def _by_name(
        self, kind: str, name: str, path: str, space: str, depth: int, schema: Mapping[str, Any] | None = None
    ) -> Node:
        if kind in _PRIMITIVES:
            schema = schema or {}
            logical = str(schema.get("logicalType"))
            if kind == "bytes" and logical == "decimal":
                decimal = _decimal(schema, path, None)
                if decimal is not None:
                    return Node(Step(name=name, path=path, operation="decimal", **decimal), least=1)
            return Node(
                Step(name=name, path=path, **_LOGICAL.get((kind, logical), _PRIMITIVES[kind])),
                least={"null": 0, "float": 4, "double": 8}.get(kind, 1),
            )
        full = self._known(kind, space)
        if full not in self._named:
            raise SchemaError(path, f'"{kind}" is not a type')
        if full in self._open:
            raise SchemaError(path, f'"{full}" contains itself: a recursive type has no columns')
        definition, its_space = self._named[full]
        self.columns -= 1
        return self.node(definition, name, path, its_space, depth)

    def _known(self, kind: str, space: str) -> str:
        """Return the full name of ``kind`` in a namespace; without one it may be of the null namespace."""
        full = _full(kind, space)
        return full if full in self._named else kind

    def _branch(self, schema: Any, space: str) -> Branch:
        """Return the identity of a branch of a union that has been compiled."""
        while isinstance(schema, dict) and isinstance(schema.get("type"), dict):
            schema = schema["type"]
        kind = schema["type"] if isinstance(schema, dict) else schema
        if kind in ("array", "map"):
            return (ARRAY if kind == "array" else MAP,)
        if kind in _PRIMITIVES:
            return (kind,)
        own = schema.get("namespace") if isinstance(schema, dict) else None
        space = own if isinstance(own, str) else space
        full = self._known(schema["name"] if kind in _NAMED else kind, space)
        definition, its_space = self._named[full]
        aliases = definition.get("aliases")
        names = [_full(str(each), its_space) for each in aliases] if isinstance(aliases, list) else []
        return tuple(dict.fromkeys((full, *names)))

    def _define(self, schema: dict[str, Any], path: str, space: str) -> tuple[str, str]:
        """Return the full name and the namespace of a named type, which is known by it from now on."""
        given = schema.get("name")
        if not isinstance(given, str) or not all(_NAME.fullmatch(part) for part in given.split(".")):
            raise SchemaError(path, f"{json.dumps(given)} is not a name of a type")
        own = schema.get("namespace")
        if "." in given:
            space = given.rpartition(".")[0]
        elif isinstance(own, str):
            space = own
        full = _full(given, space)
        if full in _PRIMITIVES or self._named.setdefault(full, (schema, space))[0] is not schema:
            raise SchemaError(path, f'"{full}" is defined twice')
        return full, space

    def _record(self, schema: dict[str, Any], name: str, path: str, space: str, depth: int) -> Node:
        full, space = self._define(schema, path, space)
        fields = schema.get("fields")
        if not isinstance(fields, list):
            raise SchemaError(path, f'the record "{full}" has no list of fields')
        if not fields and depth:
            return Node(Step(name=name, path=path, shape="bytes", operation="empty", arrow="z"))
        children: dict[str, Node] = {}
        self._open.append(full)
        for each in fields:
            label = each.get("name") if isinstance(each, dict) else None
            if not isinstance(label, str) or not _NAME.fullmatch(label):
                raise SchemaError(path, f'a field of "{full}" has no valid name: {json.dumps(label)}')
            where = f"{path}.{label}" if path else label
            if label in children:
                raise SchemaError(where, f'"{full}" has two fields of this name')
            if "type" not in each:
                raise SchemaError(where, "the field has no type")
            child = children[label] = self.node(each["type"], label, where, space, depth + 1)
            aliases = each.get("aliases")
            child.step = replace(
                child.step,
                default=encoded_default(child, each["default"]) if "default" in each else None,
                aliases=tuple(map(str, aliases)) if isinstance(aliases, list) else (),
            )
        self._open.pop()
        step = Step(name=name, path=path, shape="struct", operation="record", arrow="+s")
        return Node(step, [*children.values()], sum(child.least for child in children.values()))

    def _item(self, schema: dict[str, Any], key: str, name: str, path: str, space: str, depth: int) -> Node:
        if key not in schema:
            raise SchemaError(path, f"the type has no {key}")
        item = self.node(schema[key], name, path, space, depth + 1)
        if key == "items" and not item.least:
            # A block of a few bytes could announce any number of them.
            raise SchemaError(path, "items of no bytes are not supported: their number is not bounded by the record")
        return item

    def _enum(self, schema: dict[str, Any], name: str, path: str, space: str) -> Node:
        full, _ = self._define(schema, path, space)
        symbols = schema.get("symbols")
        if not isinstance(symbols, list) or not all(isinstance(each, str) for each in symbols) or not symbols:
            raise SchemaError(path, f'the enum "{full}" has no symbols')
        try:
            texts = tuple(each.encode() for each in symbols)
        except UnicodeEncodeError:
            raise SchemaError(path, f'a symbol of the enum "{full}" is not text') from None
        default = schema.get("default")
        step = Step(
            name=name,
            path=path,
            shape="text",
            operation="enum",
            arrow="u",
            symbols=texts,
            default_symbol=default.encode() if isinstance(default, str) and default in symbols else None,
        )
        return Node(step, least=1)

    def _fixed(self, schema: dict[str, Any], name: str, path: str, space: str) -> Node:
        full, _ = self._define(schema, path, space)
        size = schema.get("size")
        if not isinstance(size, int) or isinstance(size, bool) or not 0 < size <= _MOST_FIXED:
            raise SchemaError(path, f'the size of "{full}" is not between 1 and {_MOST_FIXED}')
        decimal = _decimal(schema, path, size) if schema.get("logicalType") == "decimal" else None
        if decimal is not None:
            return Node(Step(name=name, path=path, operation="fixed decimal", size=size, **decimal), least=size)
        step = Step(name=name, path=path, shape="fixed", operation="fixed", arrow=f"w:{size}", size=size)
        return Node(step, least=size)

    def _union(self, branches: list[Any], name: str, path: str, space: str, depth: int) -> Node:
        kinds = [_bare(branch) for branch in branches]
        if any(isinstance(kind, list) for kind in kinds):
            raise SchemaError(path, "a union stands inside a union")
        nulls = [kind == "null" for kind in kinds]
        if sum(nulls) > 1:
            raise SchemaError(path, "a union has two nulls")
        own = [branch for branch, null in zip(branches, nulls, strict=True) if not null]
        if not own:
            raise SchemaError(path, "a union has no type but null")
        if len(own) == 1:
            value = self._again(own[0], name, path, space, depth)
            null_branch = nulls.index(True) if len(branches) == 2 else -1
            value.step = replace(
                value.step,
                nullable=value.step.nullable or null_branch >= 0,
                null_branch=null_branch,
                lone=null_branch < 0,
            )
            value.least = 1 if null_branch >= 0 else 1 + value.least
            return value
        members = []
        for branch in own:
            member = self.node(branch, "", f"{path}.{_label(branch)}", space, depth + 1)
            member.step = replace(member.step, nullable=True, branch=self._branch(branch, space))
            members.append(member)
        names = member_names([member.step.branch for member in members])
        for member, column in zip(members, names, strict=True):
            member.step = replace(member.step, name=column)
        places = iter(range(len(own)))
        step = Step(
            name=name,
            path=path,
            shape="struct",
            operation="union",
            arrow="+s",
            nullable=any(nulls),
            branches=tuple(-1 if null else next(places) for null in nulls),
        )
        return Node(step, members, 1)


def _full(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"


def _label(branch: Any) -> str:
    """Return a branch for the path of a place in the schema."""
    kind = _bare(branch)
    named = isinstance(branch, dict) and kind in _NAMED
    return str(branch.get("name") if named else kind).rpartition(".")[2]


def _bare(schema: Any) -> Any:
    """Return the type inside any number of {"type": …}."""
    while isinstance(schema, dict):
        schema = schema.get("type")
    return schema


def _list(name: str, path: str, item: Node, arrow: str) -> Node:
    return Node(Step(name=name, path=path, shape="list", operation="array", arrow=arrow), [item], 1)


def _digits_of(size: int) -> int:
    """Return the largest precision of a decimal in ``size`` bytes."""
    return int((8 * size - 1) * log10(2))


def _decimal(schema: Mapping[str, Any], path: str, size: int | None) -> dict[str, Any] | None:
    """Return the column of a decimal; None if its precision and scale are not valid, and the type stays as it is."""
    digits, scale = schema.get("precision"), schema.get("scale", 0)
    if any(not isinstance(each, int) or isinstance(each, bool) for each in (digits, scale)):
        return None
    assert isinstance(digits, int)
    if not 0 <= scale <= digits or digits < 1 or (size is not None and digits > _digits_of(size)):
        return None
    if digits > _MOST_DIGITS:
        raise SchemaError(path, f"a decimal of {digits} digits is not supported: at most {_MOST_DIGITS}")
    shape: Shape = "decimal"
    return {"shape": shape, "arrow": f"d:{digits},{scale}", "digits": digits}
