from libc.stdint cimport int64_t, uint8_t

from fastwire.parquet.buffer cimport Bytes
from fastwire.parquet.schema cimport Node


cdef class Ends:
    """The least and the greatest value of a column chunk or of a page."""

    cdef Node node
    cdef bint known
    cdef int64_t low             # integers of all sorts
    cdef int64_t high
    cdef double least            # floats
    cdef double greatest
    cdef Bytes first             # texts, bytes, decimals
    cdef Bytes last

    cdef int take(self, const uint8_t* data, int64_t size, int64_t count) except -1
    cdef int join(self, Ends other) except -1
    cpdef tuple bounds(self)
    cdef list fields(self)
    cdef void integers(self, int64_t low, int64_t high) noexcept
    cdef void reals(self, const uint8_t* data, int64_t count, bint wide) noexcept
    cdef void bools(self, const uint8_t* bits, int64_t count) noexcept
    cdef int texts(self, const uint8_t* data, int64_t count) noexcept nogil
    cdef int compare(self, const uint8_t* data, int64_t size, const Bytes* other) noexcept nogil
