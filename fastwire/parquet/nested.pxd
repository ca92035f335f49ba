from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t

from fastwire.columns.arrow cimport ArrowArray
from fastwire.parquet.buffer cimport Bytes
from fastwire.parquet.schema cimport Node
from fastwire.parquet.values cimport Picked


cdef class Part:
    """The entries of one leaf in one batch.

    An entry is a value or the place where one is missing. ``index`` has the place of each value in the array, negative
    where there is none. It is NULL where entries and rows are the same: for a field of the record, where ``bits`` from
    ``bit`` on say which are values, NULL: all or, with ``nulls`` = ``count``, none; and for a leaf of a field that has
    no value in any row, each of which then ends at ``level``.
    """

    cdef Node node
    cdef ArrowArray* array       # of the values, or of the indexes of a dictionary
    cdef int64_t count
    cdef int64_t nulls           # entries without a value
    cdef int64_t first           # place of the first value, where ``index`` is NULL
    cdef const uint8_t* bits
    cdef int64_t bit
    cdef uint8_t level           # definition level of each entry, where ``definitions`` is NULL
    cdef const uint8_t* definitions                # NULL as ``index``
    cdef const uint8_t* repetitions                # NULL without a list above
    cdef const int32_t* index
    cdef object owner            # of these three


cdef list parts_of(Node node, ArrowArray* batch, int64_t number)
cdef int pick(Part part, int64_t first, int64_t end, Bytes* scratch, Picked* picked) except -1


cdef inline int64_t word_at(int width, bint signed, const uint8_t* indexes, int64_t at) noexcept nogil:
    """Return an index of a dictionary."""
    if width == 4:
        return (<const int32_t*>indexes)[at] if signed else <int64_t>(<const uint32_t*>indexes)[at]
    if width == 1:
        return (<const int8_t*>indexes)[at] if signed else indexes[at]
    if width == 2:
        return (<const int16_t*>indexes)[at] if signed else (<const uint16_t*>indexes)[at]
    return (<const int64_t*>indexes)[at]
