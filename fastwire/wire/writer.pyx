"""Varints as bytes, for code outside of the hot loops."""

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.long cimport PyLong_AsUnsignedLongLongMask
from libc.stdint cimport uint8_t, uint64_t

__all__ = ["encode_varint", "encode_zigzag"]


cdef bytes varint_bytes(uint64_t value):
    cdef uint8_t text[MOST_BYTES_A_VARINT]
    cdef uint8_t* end = put_varint(text, value)
    return PyBytes_FromStringAndSize(<char*>text, end - text)


def encode_varint(value):
    """Return an unsigned number of at most 64 bits as a varint; negative ones count as two's complement."""
    return varint_bytes(PyLong_AsUnsignedLongLongMask(value))


def encode_zigzag(value):
    """Return a signed number of at most 64 bits as a varint in zigzag form."""
    cdef uint64_t number = PyLong_AsUnsignedLongLongMask(value)
    return varint_bytes(number << 1 ^ (0 - (number >> 63)))
