"""The partitions of rows. See ``routes.pyx``."""

from libc.stdint cimport int32_t, int64_t

from fastwire.columns.rows cimport Rows

cdef enum:
    LOOSE = -1                   # the hash of a row without a key


cdef class Routes:
    cdef readonly Rows rows
    cdef readonly int64_t now_ms
    cdef int64_t lowest
    cdef int64_t highest
    cdef int64_t next
    cdef int64_t* weights
    cdef int32_t* hashes         # of keys, without a sign
    cdef int32_t* order          # the rows of a step by partition
    cdef int32_t* targets        # the partition of each row of a step
    cdef int measure(self, int64_t row) except -1
    cdef list _shares(self, int64_t partitions, int64_t first, int64_t* ends, int64_t* sums)
    cdef bint is_loose(self, int64_t row) noexcept nogil
    cdef int64_t requested_of(self, int64_t row) noexcept nogil


cdef int64_t weight_of_headers(Rows rows, int64_t row) except -1
