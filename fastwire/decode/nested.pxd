"""Growable columns of nested types over pooled memory, into which the walkers of all formats write values.

Each column has memory of its own, which its exported Arrow array shares. Offsets and values are complete up to
``length`` at any time, so that a partly written record is removed by the length of its first column alone.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from fastwire.columns.arrow cimport ArrowArray, ArrowSchema
from fastwire.wire.pool cimport fw_memory, fw_pool
from fastwire.wire.varint cimport FW_STEP, fw_copy_steps

cdef enum Shape:
    SHAPE_NULL
    SHAPE_BOOL
    SHAPE_INT32
    SHAPE_INT64
    SHAPE_FLOAT
    SHAPE_DOUBLE
    SHAPE_DECIMAL
    SHAPE_TEXT
    SHAPE_BYTES
    SHAPE_FIXED
    SHAPE_STRUCT
    SHAPE_LIST

cdef enum:                       # blocks of a column's memory
    PART_VALIDITY = 0
    PART_ROWS = 1                # numbers, bits, or offsets
    PART_DATA = 2                # of text and bytes

cdef struct Nested:
    Shape shape
    bint nullable
    bint required                # nullable for rows of null records only
    int64_t width                # bytes of a row in PART_ROWS; 0: bits, or none
    int64_t length               # complete rows
    int64_t capacity
    uint8_t* validity            # NULL: not nullable, or no row yet
    uint8_t* rows
    uint8_t* data
    int64_t size                 # bytes of data in use
    int64_t room                 # bytes of data allocated
    fw_memory* memory
    const char* name
    const char* arrow
    int first                    # of its children
    int children

cdef struct Output:              # the columns of one program, level by level; the first is the record
    fw_pool* pool
    Nested* columns
    int count
    int64_t bytes                # allocated
    int64_t regrown              # the part of it by which columns have grown since their first blocks
    int64_t grown                # by the current record
    int64_t most                 # that one record may add
    bint keeps_nulls             # a null record is a row of nulls
    bint over                    # the record needs more than that; else a failure means that the system has no memory

# These functions return 0, or -1 without memory: in the system, or (``over``) for the record.
cdef int nested_open(Output* o) noexcept nogil
cdef int nested_grow(Output* o, Nested* c) noexcept nogil
cdef int nested_data(Output* o, Nested* c, int64_t extra) noexcept nogil
cdef int nested_null(Output* o, int which) noexcept nogil
cdef void nested_cut(Output* o, int which, int64_t length) noexcept nogil
cdef void nested_drop(Output* o) noexcept nogil
cdef ArrowSchema* nested_schema(const Output* o, int which) except NULL
cdef ArrowArray* nested_array(Output* o, int which) except NULL


cdef inline void put_bit(uint8_t* bits, int64_t i, bint value) noexcept nogil:
    cdef uint8_t mask = <uint8_t>(1 << (i & 7))
    if value:
        bits[i >> 3] |= mask
    else:
        bits[i >> 3] &= <uint8_t>~mask


cdef inline int nested_row(Output* o, Nested* c) noexcept nogil:
    """Make room for one more row, which is not null unless the caller says so afterwards."""
    if c.length == c.capacity and nested_grow(o, c):
        return -1
    if c.nullable and c.validity is not NULL:
        put_bit(c.validity, c.length, True)
    return 0


cdef inline void put_int(Nested* c, int64_t number) noexcept nogil:
    """Set the next row of a column of numbers; the caller counts it."""
    if c.shape == SHAPE_INT64:
        (<int64_t*>c.rows)[c.length] = number
    elif c.shape == SHAPE_INT32:
        (<int32_t*>c.rows)[c.length] = <int32_t>number
    elif c.shape == SHAPE_DOUBLE:
        (<double*>c.rows)[c.length] = <double>number
    else:
        (<float*>c.rows)[c.length] = <float>number


cdef inline void put_float(Nested* c, const uint8_t* data) noexcept nogil:
    """Set the next row to the float at ``data``, in the machine's byte order."""
    cdef float number
    memcpy(&number, data, 4)
    if c.shape == SHAPE_DOUBLE:
        (<double*>c.rows)[c.length] = number
    else:
        (<float*>c.rows)[c.length] = number


cdef inline int nested_cell(
    Output* o, Nested* c, const uint8_t* data, int64_t size, const uint8_t* edge
) noexcept nogil:
    """Append a row of text or bytes, a copy of ``data``, which is readable up to ``edge``."""
    if nested_row(o, c):
        return -1
    if c.room - c.size < size and nested_data(o, c, size):
        return -1
    if edge - data >= size + FW_STEP and c.room - c.size >= size + FW_STEP and size <= 64:
        fw_copy_steps(c.data + c.size, data, size)
    elif size:
        memcpy(c.data + c.size, data, <size_t>size)
    c.size += size
    c.length += 1
    (<int32_t*>c.rows)[c.length] = <int32_t>c.size
    return 0
