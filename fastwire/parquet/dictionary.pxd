from libc.stdint cimport int32_t, int64_t, uint8_t

from fastwire.parquet.buffer cimport Bytes
from fastwire.parquet.ends cimport Ends
from fastwire.parquet.nested cimport Part, Picked
from fastwire.parquet.schema cimport Node
from fastwire.parquet.values cimport Words


cdef class Dictionary:
    """The distinct values of a column chunk, and their numbers: in runs, or where ``each`` is set one by one."""

    cdef Words words
    cdef int64_t taken           # values
    cdef bint each
    cdef Bytes runs
    cdef Bytes index             # places of picked values
    cdef Bytes numbers           # of the words of a batch; of all values
    cdef Bytes one               # an encoded value

    cdef bint add(self, Node node, Part part, int64_t first, int64_t end) except -1
    cdef bint worth(self, int times) noexcept
    cdef int put_words(self, Bytes* page, Ends ends) except -1
    cdef int put_numbers(self, Bytes* page) except -1
    cdef bint add_indexes(self, Node node, const Picked* picked) except -1
    cdef bint add_values(self, Node node, const Picked* picked) except -1
    cdef int add_texts(self, const int32_t* offsets, const uint8_t* data, const Picked* picked) noexcept nogil
    cdef int32_t number(self, Node node, const Picked* one) except -1
    cdef int add_run(self, int64_t count, int32_t word) noexcept nogil
    cdef bint full(self) noexcept nogil
