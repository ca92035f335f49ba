"""Thrift's compact protocol, as far as the metadata of Parquet needs it: values are encoded inside out.

A struct is a list of fields in ascending order, each ``(id, type, encoded value)``.
"""

from collections.abc import Sequence

__all__ = [
    "BINARY",
    "FALSE",
    "I8",
    "I16",
    "I32",
    "I64",
    "LIST",
    "STRUCT",
    "TRUE",
    "binary",
    "integer",
    "many",
    "struct",
]

TRUE, FALSE, I8, I16, I32, I64, BINARY, LIST, STRUCT = 1, 2, 3, 4, 5, 6, 8, 9, 12

_EMPTY = b"\0"  # a struct without fields


def varint(value: int) -> bytes:
    """Encode a number of at least 0 as ULEB128."""
    if value < 128:
        return bytes((value,))
    out = bytearray()
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def integer(value: int) -> bytes:
    """Encode a value of type I16, I32 or I64."""
    return varint((value << 1) ^ (value >> 63))


def binary(value: bytes) -> bytes:
    """Encode a value of type BINARY."""
    return varint(len(value)) + value


def struct(*fields: tuple[int, int, bytes]) -> bytes:
    """Encode a struct; booleans are their type (TRUE or FALSE) with an empty value."""
    if not fields:
        return _EMPTY
    out = bytearray()
    last = 0
    for number, kind, value in fields:
        if 0 < number - last < 16:
            out.append((number - last) << 4 | kind)
        else:
            out.append(kind)
            out += integer(number)
        out += value
        last = number
    out.append(0)
    return bytes(out)


def many(kind: int, values: Sequence[bytes]) -> bytes:
    """Encode a list of encoded values of one type."""
    head = bytes((len(values) << 4 | kind,)) if len(values) < 15 else bytes((0xF0 | kind,)) + varint(len(values))
    return head + b"".join(values)
