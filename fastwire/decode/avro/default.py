"""Defaults of Avro's fields, from the JSON of a schema to the binary encoding that a walker reads."""

import struct
from typing import Any

from ..program import Node


def encoded_default(node: Node, value: Any) -> bytes | None:
    """Return the default ``value`` of a field whose type is ``node``; None if it is not a value of this type."""
    try:
        return _optional(node, value)
    except (TypeError, ValueError, KeyError, OverflowError, AttributeError, struct.error):
        return None


def _optional(node: Node, value: Any) -> bytes:
    step = node.step
    if step.null_branch >= 0:
        if value is None:
            return _long(step.null_branch)
        return _long(1 - step.null_branch) + _value(node, value)
    return (b"\0" if step.lone else b"") + _value(node, value)


def _value(node: Node, value: Any) -> bytes:
    step = node.step
    match step.operation:
        case "null":
            _expect(value is None)
            return b""
        case "bool":
            _expect(isinstance(value, bool))
            return b"\1" if value else b"\0"
        case "int":
            _expect(isinstance(value, int) and step.low <= value <= step.high)
            return _long(value)
        case "float" | "double":
            return struct.pack("<f" if step.operation == "float" else "<d", value)
        case "text":
            return _sized(value.encode())
        case "bytes" | "decimal":
            return _sized(value.encode("latin-1"))
        case "fixed" | "fixed decimal":
            data = bytes(value, "latin-1")
            _expect(len(data) == step.size)
            return data
        case "empty":
            _expect(value == {})
            return b""
        case "enum":
            return _long(step.symbols.index(value.encode()))
        case "array":
            return _items(node, value)
        case "union":
            return _branch(node, value)
    return b"".join(_field(child, value) for child in node.children)


def _field(child: Node, record: Any) -> bytes:
    if child.step.name in record:
        return _optional(child, record[child.step.name])
    if child.step.default is None:
        raise KeyError(child.step.name)
    return child.step.default


def _items(node: Node, value: Any) -> bytes:
    (item,) = node.children
    if node.step.arrow == "+m":
        key, content = item.children
        items = [_value(key, name) + _optional(content, each) for name, each in value.items()]
    else:
        _expect(isinstance(value, list))
        items = [_optional(item, each) for each in value]
    return (_long(len(items)) + b"".join(items) if items else b"") + b"\0"


def _branch(node: Node, value: Any) -> bytes:
    """Return the value of the first branch that has it (Avro 1.12; before, it had to be the first branch of all)."""
    for number, place in enumerate(node.step.branches):
        if place < 0:
            if value is None:
                return _long(number)
            continue
        data = encoded_default(node.children[place], value)
        if data is not None:
            return _long(number) + data
    raise ValueError("the value is of no branch")


def _expect(sure: bool) -> None:
    if not sure:
        raise ValueError("the value is of another type")


def _sized(data: bytes) -> bytes:
    return _long(len(data)) + data


def _long(value: int) -> bytes:
    """Return the varint of ``value`` in zigzag form."""
    raw = (value << 1) ^ (value >> 63)
    out = bytearray()
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)
