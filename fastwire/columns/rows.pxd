"""Records that are written, as Arrow columns. See ``rows.pyx``."""

from libc.stdint cimport int32_t, int64_t, uint8_t


cdef struct Blobs:               # a column of bytes or text; ``offsets`` and ``wide`` are NULL without the column
    const uint8_t* validity
    const int32_t* offsets
    const int64_t* wide          # the same with 64 bits
    const uint8_t* data
    int64_t shift                # index of the first cell


cdef struct Numbers:             # a column of int32 or int64; both pointers are NULL without the column
    const uint8_t* validity
    const int32_t* narrow
    const int64_t* wide
    int64_t shift


cdef struct Headers:             # lists of pairs; ``offsets`` is NULL without the column
    const uint8_t* validity
    const int32_t* offsets
    const uint8_t* pair_validity
    int64_t shift
    int64_t pair_shift
    Blobs names
    Blobs values


cdef class Rows:
    cdef object _alive           # the capsules that own the memory
    cdef readonly int64_t count
    cdef readonly int64_t origin  # number of the first row; -1: they are not numbered
    cdef bint text_keys
    cdef bint key_is_text
    cdef Blobs value
    cdef Blobs key
    cdef Blobs ordering_key
    cdef Headers headers
    cdef Numbers partition
    cdef Numbers event_time
    cdef public int64_t changed_times
    cdef int fill(self, const void* schema_, const void* array_) except -1


cdef inline bint is_valid(const uint8_t* validity, int64_t at) noexcept nogil:
    return validity is NULL or validity[at >> 3] >> (at & 7) & 1


cdef inline const uint8_t* blob(const Blobs* c, int64_t row, int64_t* size) noexcept nogil:
    """Return a cell; NULL and size 0 for null, or without the column."""
    cdef int64_t at = row + c.shift
    size[0] = 0
    if c.offsets is not NULL:
        if is_valid(c.validity, at):
            size[0] = c.offsets[at + 1] - c.offsets[at]
            return c.data + c.offsets[at]
    elif c.wide is not NULL and is_valid(c.validity, at):
        size[0] = c.wide[at + 1] - c.wide[at]
        return c.data + c.wide[at]
    return NULL


cdef inline bint number(const Numbers* c, int64_t row, int64_t* found) noexcept nogil:
    """Read a cell; returns False for null, or without the column."""
    cdef int64_t at = row + c.shift
    if c.narrow is NULL and c.wide is NULL or not is_valid(c.validity, at):
        return False
    found[0] = c.narrow[at] if c.narrow is not NULL else c.wide[at]
    return True


cdef inline int64_t headers_of(const Headers* c, int64_t row, int64_t* first) noexcept nogil:
    """Return the number of headers of a row, and the index of the first one for ``names`` and ``values``."""
    cdef int64_t at = row + c.shift
    first[0] = 0
    if c.offsets is NULL or not is_valid(c.validity, at):
        return 0
    first[0] = c.offsets[at] + c.pair_shift
    return c.offsets[at + 1] - c.offsets[at]


cdef inline int64_t millis(int64_t micros) noexcept nogil:
    """Return a time in whole milliseconds, rounded down."""
    cdef int64_t found = micros // 1000      # rounded down, or in C towards zero
    return found - 1 if found * 1000 > micros else found


cdef bint has_text_key(Rows rows, int64_t row) noexcept nogil
cdef object bytes_at(const Blobs* column, int64_t row)
