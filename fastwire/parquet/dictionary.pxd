from libc.stdint cimport int32_t, int64_t, uint8_t

from fastwire.parquet.buffer cimport Bytes
from fastwire.parquet.ends cimport Ends
from fastwire.parquet.nested cimport Part, Picked
from fastwire.parquet.schema cimport Node
from fastwire.parquet.values cimport Words


cdef class Dictionary:
    """The distinct values of a column chunk, and the runs of their numbers."""

    cdef Words words
    cdef Bytes runs
    cdef Bytes index             # places of picked values
    cdef Bytes numbers           # of the words of a batch; later of all values
    cdef Bytes one               # an encoded value

    cdef bint add(self, Node node, Part part) except -1
    cdef bint worth(self, int64_t values) noexcept
    cdef int put_words(self, Bytes* page, Ends ends) except -1
    cdef int put_numbers(self, Bytes* page, int64_t values) except -1
    cdef bint add_indexes(self, Node node, const Picked* picked) except -1
    cdef bint add_values(self, Node node, const Picked* picked) except -1
    cdef int32_t number(self, Node node, const Picked* one) except -1
    cdef int add_run(self, int64_t count, int32_t word) noexcept nogil
    cdef bint full(self) noexcept nogil
