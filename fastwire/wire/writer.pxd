"""Encoding of numbers, the counterpart of ``reader``. The caller has reserved room."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

cdef enum:
    MOST_BYTES_A_VARINT = 10


cdef inline uint8_t* put_varint(uint8_t* p, uint64_t value) noexcept nogil:
    while value >= 0x80:
        p[0] = <uint8_t>(value & 0x7F | 0x80)
        value >>= 7
        p += 1
    p[0] = <uint8_t>value
    return p + 1


cdef inline int varint_size(uint64_t value) noexcept nogil:
    cdef int n = 1
    while value >= 0x80:
        value >>= 7
        n += 1
    return n


cdef inline void put_u32be(uint8_t* p, uint32_t value) noexcept nogil:
    p[0] = <uint8_t>(value >> 24)
    p[1] = <uint8_t>(value >> 16)
    p[2] = <uint8_t>(value >> 8)
    p[3] = <uint8_t>value


cdef inline void put_u64le(uint8_t* p, uint64_t value) noexcept nogil:
    cdef int i
    for i in range(8):
        p[i] = <uint8_t>(value >> 8 * i & 0xFF)


cdef bytes varint_bytes(uint64_t value)
