"""Thrift's compact protocol, as far as the metadata of Parquet needs it: values are encoded inside out.

A struct is a list of fields in ascending order, each ``(id, type, encoded value)``.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize

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


cdef bytes varint(unsigned long long value):
    """Encode a number as ULEB128."""
    cdef char out[10]
    cdef int size = 0
    while value >= 128:
        out[size] = <char>(value & 127 | 128)
        size += 1
        value >>= 7
    out[size] = <char>value
    return PyBytes_FromStringAndSize(out, size + 1)


def integer(long long value) -> bytes:
    """Encode a value of type I16, I32 or I64."""
    return varint((<unsigned long long>value << 1) ^ <unsigned long long>(value >> 63))


def binary(bytes value not None) -> bytes:
    """Encode a value of type BINARY."""
    return varint(len(value)) + value


cdef bytes _byte(int value):
    cdef char out = <char>value
    return PyBytes_FromStringAndSize(&out, 1)


def struct(*fields) -> bytes:
    """Encode a struct; booleans are their type (TRUE or FALSE) with an empty value."""
    cdef int number, kind, last = 0
    cdef bytes value
    cdef list parts = []
    for number, kind, value in fields:
        if 0 < number - last < 16:
            parts.append(_byte((number - last) << 4 | kind))
        else:
            parts += [_byte(kind), integer(number)]
        parts.append(value)
        last = number
    parts.append(_EMPTY)
    return b"".join(parts)


def many(int kind, values) -> bytes:
    """Encode a list of encoded values of one type."""
    count = len(values)
    head = bytes((count << 4 | kind,)) if count < 15 else bytes((0xF0 | kind,)) + varint(count)
    return head + b"".join(values)
