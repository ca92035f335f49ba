from libc.stdint cimport int16_t, int64_t, uint8_t

from fastwire.columns.arrow cimport ArrowArray
from fastwire.parquet.schema cimport Node


cdef class Part:
    """The entries of one leaf in one batch.

    An entry is a value or the place where one is missing. ``index`` has the place of each value in the array, negative
    where there is none. It is NULL where entries and rows are the same (a field of the record that is no part of
    another): there ``bits`` from ``bit`` on say which are values, NULL: all or, with ``nulls`` = ``count``, none.
    """

    cdef Node node
    cdef ArrowArray* array       # of the values, or of the indexes of a dictionary
    cdef int64_t count
    cdef int64_t nulls           # entries without a value
    cdef int64_t first           # place of the first value, where ``index`` is NULL
    cdef const uint8_t* bits
    cdef int64_t bit
    cdef int16_t* definitions    # NULL as ``index``
    cdef int16_t* repetitions    # NULL without a list above
    cdef int64_t* index


cdef int parts_of(list fields, ArrowArray* batch, list into) except -1
