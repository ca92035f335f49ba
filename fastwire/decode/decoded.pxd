"""The edges of every walker: the column of bytes that it reads, and the columns that it returns."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from fastwire.decode.nested cimport Output
from fastwire.wire.pool cimport Pool

cdef enum:
    MOST_OUTPUT = 8 << 20        # growth of the columns after which a call ends

cdef struct Records:             # a column of bytes
    const uint8_t* validity
    const int32_t* offsets
    const uint8_t* data
    int64_t shift                # index of the first record in the buffers
    int64_t count
    int64_t next                 # the record to read


cdef class Decoded:
    cdef object _schema
    cdef object _array
    cdef readonly list bad
    cdef readonly int64_t rows
    cdef readonly int64_t upto
    cdef readonly int64_t nbytes
    cdef readonly object unknown


cdef object records_of(Records* records, values, int64_t first)
cdef int set_columns(Output* out, tuple program, Pool pool, list texts) except -1
cdef object schema_of(Output* out)
cdef int64_t output_of(Output* out) noexcept
cdef int take_columns(Decoded decoded, Output* out) except -1


cdef inline bint is_null(const Records* records, int64_t row) noexcept nogil:
    cdef int64_t bit = row + records.shift
    return records.validity is not NULL and not records.validity[bit >> 3] >> (bit & 7) & 1
