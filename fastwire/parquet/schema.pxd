from libc.stdint cimport int64_t

from fastwire.columns.arrow cimport ArrowSchema


cdef enum Physical:              # types of parquet.thrift
    BOOLEAN = 0
    INT32 = 1
    INT64 = 2
    FLOAT = 4
    DOUBLE = 5
    BYTE_ARRAY = 6
    FIXED = 7

cdef enum Read:                  # how a value lies in Arrow's buffers, and becomes Parquet's
    READ_NOTHING                 # a column of nulls
    READ_BITS
    READ_PLAIN                   # the same bytes, of ``width``
    READ_NARROW                  # 8 or 16 bits become 32
    READ_SCALED                  # an integer of ``width`` times, or divided by, ``factor``
    READ_REVERSED                # decimals: little-endian becomes big-endian of ``length``
    READ_BINARY                  # offsets of 32 bits
    READ_LARGE                   # offsets of 64 bits

cdef enum Order:                 # of values, for the least and the greatest
    ORDER_NONE
    ORDER_SIGNED
    ORDER_UNSIGNED
    ORDER_FLOAT
    ORDER_BYTES
    ORDER_DECIMAL
    ORDER_BOOL

cdef enum Shape:
    SHAPE_LEAF
    SHAPE_STRUCT
    SHAPE_LIST                   # and map
    SHAPE_LARGE_LIST
    SHAPE_FIXED_LIST


cdef class Node:
    """A field of the Arrow schema with what it is in Parquet."""

    cdef readonly str name
    cdef readonly bytes format
    cdef readonly bint nullable
    cdef readonly tuple path
    cdef readonly list children
    cdef Shape shape
    cdef int64_t items           # of a fixed list
    cdef readonly int definition  # level of a value that is there
    cdef readonly int repetition
    cdef int above               # definition level of the parent
    # of leaves
    cdef Physical physical
    cdef Read read
    cdef Order order
    cdef bint signed
    cdef bint text
    cdef int width               # bytes of a value in Arrow
    cdef int length              # bytes of a FIXED value
    cdef int64_t factor          # above 0: times; below 0: divided by
    cdef int index               # bytes of an index, if the array is a dictionary, else 0
    cdef bint index_signed
    # of the footer
    cdef list elements           # the encoded schema elements of this field, those below included


cdef list fields_of(ArrowSchema* schema)
cdef bint same_shape(Node node, ArrowSchema* schema)
