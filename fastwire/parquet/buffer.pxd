"""A growing buffer, usable without the interpreter lock, and the numbers that pages consist of."""

from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, realloc


cdef struct Bytes:
    uint8_t* data
    int64_t size
    int64_t capacity


cdef inline int bytes_reserve(Bytes* b, int64_t more) noexcept nogil:
    """Make room for ``more`` bytes behind the end; return -1 without memory."""
    cdef int64_t wanted = b.size + more
    cdef uint8_t* grown
    if wanted <= b.capacity:
        return 0
    wanted = max(wanted, b.capacity * 2, 4096)
    grown = <uint8_t*>realloc(b.data, <size_t>wanted)
    if grown is NULL:
        return -1
    b.data = grown
    b.capacity = wanted
    return 0


cdef inline void bytes_drop(Bytes* b) noexcept nogil:
    """Give the memory back; the buffer is empty then."""
    free(b.data)
    b.data = NULL
    b.size = b.capacity = 0


cdef inline void put_byte(Bytes* b, int value) noexcept nogil:
    """Append a byte; the caller has reserved it."""
    b.data[b.size] = <uint8_t>value
    b.size += 1


cdef inline void put_varint(Bytes* b, uint64_t value) noexcept nogil:
    """Append a number as ULEB128; the caller has reserved ten bytes."""
    while value >= 128:
        b.data[b.size] = <uint8_t>(value & 127) | 128
        b.size += 1
        value >>= 7
    b.data[b.size] = <uint8_t>value
    b.size += 1


cdef inline uint64_t zigzag(int64_t value) noexcept nogil:
    return (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)


cdef inline int bit_length(uint64_t value) noexcept nogil:
    cdef int width = 0
    while value:
        width += 1
        value >>= 1
    return width


cdef class Buffer:
    """Bytes that Python objects can read while nothing is appended."""

    cdef Bytes bytes
    cdef int views


cdef class Scratch:
    """The memory in which a column chunk is laid out and compressed, for one writer at a time."""

    cdef tuple kind              # codec and level
    cdef object compress         # with a context of its own
    cdef Buffer page
    cdef Bytes plain             # values of a page, aligned
    cdef Bytes index             # places of picked values
    cdef Bytes bits              # a bitmap of levels
    cdef Bytes levels            # levels of several parts
    cdef Bytes codes

    cdef int64_t size(self) except -1
    cdef void shrink(self) noexcept


cdef Scratch take_scratch(str codec, object level)
cdef int give_scratch(Scratch scratch) except -1
