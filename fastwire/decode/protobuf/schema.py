"""Protobuf messages as programs: the Arrow column of each field.

| Protobuf | Arrow |
|---|---|
| bool, float, double, string, bytes | bool, float, double, utf8, binary |
| int32, sint32, sfixed32; int64, sint64, sfixed64 | int32; int64 |
| uint32, fixed32 | int64 |
| uint64, fixed64 | decimal128(20, 0): Spark, Iceberg and Delta Lake have no unsigned numbers |
| enum | utf8, the name of the value; the number in digits if it has no name |
| message, group | struct, nullable |
| repeated, map | list, map |
| google.protobuf.Timestamp | timestamp in microseconds and UTC; smaller parts are cut off |
| google.protobuf.BoolValue and the other wrappers | the value, nullable |
| a message inside itself, one without fields, google.protobuf.Struct, Value, ListValue | binary, the encoded message |

All other messages, such as google.protobuf.Duration and Any, are structs. A field without presence is not nullable, and
an absent one has its default (zero, false, "", the first value of an enum). A field with presence is nullable: a field
of a message type, a member of a oneof, an ``optional`` one. One with a ``default`` of its own is not nullable, and
absent it has this default; a ``required`` one has to be there. Extensions are unknown fields.
"""

import struct
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor

from ..program import MOST_COLUMNS, MOST_DEPTH, Node, SchemaError, Step, flatten

_TYPES: Mapping[int, str] = {
    getattr(FieldDescriptor, f"TYPE_{name.upper()}"): name
    for name in (
        "double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string", "group", "message",
        "bytes", "uint32", "enum", "sfixed32", "sfixed64", "sint32", "sint64",
    )
}  # fmt: skip
_INT: Mapping[str, Any] = {"shape": "int32", "operation": "int", "arrow": "i"}
_LONG: Mapping[str, Any] = {"shape": "int64", "operation": "int", "arrow": "l"}
_UNSIGNED: Mapping[str, Any] = {"shape": "decimal", "operation": "decimal", "arrow": "d:20,0", "digits": 20}
_TEXT: Mapping[str, Any] = {"shape": "text", "operation": "text", "arrow": "u"}
_BYTES: Mapping[str, Any] = {"shape": "bytes", "operation": "bytes", "arrow": "z"}
_COLUMNS: Mapping[str, Mapping[str, Any]] = {
    "bool": {"shape": "bool", "operation": "bool", "arrow": "b"},
    "float": {"shape": "float", "operation": "float", "arrow": "f"},
    "double": {"shape": "double", "operation": "double", "arrow": "g"},
    "int32": _INT, "sint32": _INT, "sfixed32": _INT,
    "int64": _LONG, "sint64": _LONG, "sfixed64": _LONG, "uint32": _LONG, "fixed32": _LONG,
    "uint64": _UNSIGNED, "fixed64": _UNSIGNED,
    "string": _TEXT, "bytes": _BYTES,
}  # fmt: skip
_FIXED = {"fixed32": "<I", "sfixed32": "<i", "fixed64": "<Q", "sfixed64": "<q", "float": "<f", "double": "<d"}
_RECORD: Mapping[str, Any] = {"shape": "struct", "operation": "record", "arrow": "+s"}
_TIMESTAMP: Mapping[str, Any] = {"wire": "timestamp", "shape": "int64", "operation": "int", "arrow": "tsu:UTC"}
_ENCODED: Mapping[str, Any] = {"wire": "encoded", **_BYTES}
_WRAPPERS = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_TIME = "google.protobuf.Timestamp"
_RECURSIVE = frozenset(f"google.protobuf.{name}" for name in ("Struct", "Value", "ListValue"))


def compile_protobuf(message: Descriptor) -> tuple[Step, ...]:
    """Return the program of a message type; its first step is the message, whose fields are the columns.

    The name of this step is the full name of the message.

    Raises SchemaError for a message without fields, or with deeper or more columns than a program may have.
    """
    if not message.fields:
        raise SchemaError("", f"{message.full_name} has no fields: there are no columns")
    compiler = _Compiler()
    return flatten(compiler.message(message, message.full_name, "", 0))


class _Compiler:
    """The messages around a field, and the columns counted so far."""

    def __init__(self) -> None:
        self._open: list[str] = []
        self._columns = -1  # the message at the top is none

    def message(self, message: Descriptor, name: str, path: str, depth: int) -> Node:
        self._count(path, depth)
        self._open.append(message.full_name)
        oneofs = [oneof.full_name for oneof in message.oneofs]
        children = []
        for field in message.fields:
            node = self._field(field, f"{path}.{field.name}" if path else field.name, depth + 1)
            oneof = field.containing_oneof
            number = -1 if oneof is None else oneofs.index(oneof.full_name)
            node.step = replace(node.step, number=field.number, oneof=number)
            children.append(node)
        self._open.pop()
        return Node(Step(name=name, path=path, wire="message", **_RECORD), children)

    def _count(self, path: str, depth: int) -> None:
        self._columns += 1
        if self._columns > MOST_COLUMNS:
            raise SchemaError(path, f"the message has more than {MOST_COLUMNS} columns over all levels")
        if depth > MOST_DEPTH:
            raise SchemaError(path, f"the message nests deeper than {MOST_DEPTH} levels")

    def _field(self, field: FieldDescriptor, path: str, depth: int) -> Node:
        """Return the column of a field."""
        if not field.is_repeated:
            return self._singular(field, path, depth)
        self._count(path, depth)
        entry = field.message_type
        if entry is not None and entry.GetOptions().map_entry:
            self._count(path, depth + 1)
            halves = [
                self._value(entry.fields_by_name[half], half, f"{path}{{}}", depth + 2) for half in ("key", "value")
            ]
            for number, half in enumerate(halves, 1):
                half.step = replace(half.step, number=number)
            item = Node(Step(name="entries", path=path, wire="entry", **_RECORD), halves)
            return _list(field.name, path, item, "+m")
        return _list(field.name, path, self._value(field, "item", f"{path}[]", depth + 1), "+l")

    def _singular(self, field: FieldDescriptor, path: str, depth: int) -> Node:
        node = self._value(field, field.name, path, depth)
        if field.is_required:
            default = None
        elif field.has_default_value and field.containing_oneof is None:
            default = _encoded(node.step, field.default_value)
        elif field.has_presence:
            default = None
            node.step = replace(node.step, nullable=True)
        else:
            default = node.step.default
        node.step = replace(node.step, default=default)
        return node

    def _value(self, field: FieldDescriptor, name: str, path: str, depth: int) -> Node:
        """Return the column of one value of a field, which is not nullable, and has the default of its type."""
        if field.message_type is not None:
            node = self._message_value(field.message_type, name, path, depth)
            grouped = field.type == FieldDescriptor.TYPE_GROUP
            node.step = replace(node.step, grouped=grouped, default=b"\0")
            return node
        self._count(path, depth)
        if field.enum_type is not None:
            step = _enum(field.enum_type, name, path)
            return Node(replace(step, default=_varint(field.enum_type.values[0].number)))
        wire = _TYPES[field.type]
        return Node(Step(name=name, path=path, wire=wire, default=_zero(wire), **_COLUMNS[wire]))

    def _message_value(self, message: Descriptor, name: str, path: str, depth: int) -> Node:
        scalar = message.full_name in _WRAPPERS or message.full_name == _TIME
        cut = not message.fields or message.full_name in _RECURSIVE or message.full_name in self._open
        if not scalar and not cut:
            return self.message(message, name, path, depth)
        self._count(path, depth)
        if message.full_name in _WRAPPERS:
            wire = _TYPES[message.fields_by_name["value"].type]
            return Node(Step(name=name, path=path, wire=wire, wrapped=True, **_COLUMNS[wire]))
        return Node(Step(name=name, path=path, **(_TIMESTAMP if scalar else _ENCODED)))


def _enum(enum: EnumDescriptor, name: str, path: str) -> Step:
    names: dict[int, str] = {}
    for value in enum.values:  # of several names of a number the first one
        names.setdefault(value.number, value.name)
    numbers = tuple(sorted(names))
    return Step(
        name=name, path=path, wire="enum", closed=enum.is_closed, numbers=numbers,
        symbols=tuple(names[number].encode() for number in numbers), **_TEXT,
    )  # fmt: skip


def _list(name: str, path: str, item: Node, arrow: str) -> Node:
    return Node(
        Step(name=name, path=path, shape="list", operation="array", arrow=arrow, wire="list", default=b""), [item]
    )


def _zero(wire: str) -> bytes:
    return struct.pack(_FIXED[wire], 0) if wire in _FIXED else b"\0"


def _encoded(step: Step, value: Any) -> bytes:
    """Return a default as it is encoded behind the tag of its field."""
    if step.wire in _FIXED:
        return struct.pack(_FIXED[step.wire], value)
    if step.wire in ("string", "bytes"):
        data = value.encode() if isinstance(value, str) else bytes(value)
        return _varint(len(data)) + data
    if step.wire in ("sint32", "sint64"):
        return _varint((value << 1) ^ (value >> 63))
    return _varint(value)


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    return bytes(_sevens(value))


def _sevens(value: int) -> Iterator[int]:
    while value > 0x7F:
        yield value & 0x7F | 0x80
        value >>= 7
    yield value
