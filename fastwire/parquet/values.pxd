from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from fastwire.columns.arrow cimport ArrowArray
from fastwire.parquet.buffer cimport Bytes
from fastwire.parquet.schema cimport Node


cdef struct Picked:              # the values of some entries: ``count`` from ``first`` on, or those of ``index``
    ArrowArray* array
    int64_t first
    int64_t count
    const int64_t* index


cdef struct Entry:               # of a dictionary: the bytes of a value, without the size before them
    int64_t at
    int64_t size

cdef struct Words:               # distinct values by their bytes, in the order in which they come
    Bytes text                   # as PLAIN
    int prefix                   # bytes of the size before each value: 4 or 0
    Entry* entries
    int32_t count
    int32_t capacity
    int32_t* table
    int32_t slots


cdef inline int64_t place(const Picked* picked, int64_t i) noexcept nogil:
    """Return the place of a picked value in its array."""
    return picked.first + i if picked.index is NULL else picked.index[i]


cdef int put_values(Bytes* b, Node node, const Picked* values) except -1
cdef int64_t size_of(Node node, ArrowArray* array, int64_t at) noexcept nogil
cdef int32_t word_of(Words* w, const uint8_t* value, int64_t size) noexcept nogil
cdef int words_of(
    Words* w, const int32_t* offsets, const uint8_t* data, const Picked* picked, int32_t* numbers
) noexcept nogil
cdef void words_drop(Words* w) noexcept nogil
