"""The edges of every walker: the column of bytes that it reads, and the columns that it returns."""

cimport cython
from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc

from fastwire.columns.arrow cimport ArrowArray, ArrowSchema, array_capsule, schema_capsule
from fastwire.decode.nested cimport (
    SHAPE_BOOL,
    SHAPE_BYTES,
    SHAPE_DECIMAL,
    SHAPE_DOUBLE,
    SHAPE_FIXED,
    SHAPE_FLOAT,
    SHAPE_INT32,
    SHAPE_INT64,
    SHAPE_LIST,
    SHAPE_NULL,
    SHAPE_STRUCT,
    SHAPE_TEXT,
    Nested,
    Output,
    Shape,
    nested_array,
    nested_schema,
)
from fastwire.wire.pool cimport COLUMNS_SHARE, OUTPUT_SHARE, Pool, fw_pool_limit

__all__ = ["Decoded"]

# By name: the layout in memory, and the bytes of a row.
cdef dict SHAPES = {
    "null": (SHAPE_NULL, 0),
    "bool": (SHAPE_BOOL, 0),
    "int32": (SHAPE_INT32, 4),
    "int64": (SHAPE_INT64, 8),
    "float": (SHAPE_FLOAT, 4),
    "double": (SHAPE_DOUBLE, 8),
    "decimal": (SHAPE_DECIMAL, 16),
    "text": (SHAPE_TEXT, 4),
    "bytes": (SHAPE_BYTES, 4),
    "fixed": (SHAPE_FIXED, 0),   # as many as its size
    "struct": (SHAPE_STRUCT, 0),
    "list": (SHAPE_LIST, 4),
}

# Arrow types that the schemas of programs name. An exported schema may outlive its program, so they stay.
cdef dict _ARROW_TYPES = {}


cdef object records_of(Records* records, values, int64_t first):
    """Set ``records`` to a binary Arrow array (of the PyCapsule interface), and return what keeps its memory alive.

    Raises ValueError for an array of another type, or an index beyond its end.
    """
    schema_capsule_, array_capsule_ = values.__arrow_c_array__()
    cdef ArrowSchema* schema = <ArrowSchema*>PyCapsule_GetPointer(schema_capsule_, "arrow_schema")
    cdef ArrowArray* array = <ArrowArray*>PyCapsule_GetPointer(array_capsule_, "arrow_array")
    if schema.format[0] not in b"zu" or schema.format[1] != 0:
        raise ValueError("the values are not a column of bytes with 32-bit offsets")
    if not 0 <= first <= array.length:
        raise ValueError(f"record {first} of {array.length}")
    records.validity = <const uint8_t*>array.buffers[0]
    records.offsets = <const int32_t*>array.buffers[1]
    records.data = <const uint8_t*>array.buffers[2]
    records.shift = array.offset
    records.count = array.length
    records.next = first
    return schema_capsule_, array_capsule_


cdef int set_columns(Output* out, tuple program, Pool pool, list texts) except -1:
    """Allocate the columns of a program, zeroed and described; ``texts`` keeps their names alive."""
    cdef Nested* c
    cdef bytes name, arrow
    cdef int number
    out.columns = <Nested*>calloc(len(program), sizeof(Nested))
    if out.columns is NULL:
        raise MemoryError()
    out.pool = pool.pool
    out.count = len(program)
    for number, step in enumerate(program):
        c = &out.columns[number]
        name = step.name.encode()
        arrow = step.arrow.encode()
        arrow = _ARROW_TYPES.setdefault(arrow, arrow)
        texts.append(name)
        shape, width = SHAPES[step.shape]
        c.shape = <Shape><int>shape
        c.width = step.size if c.shape == SHAPE_FIXED else width
        c.nullable = step.nullable
        c.name = name
        c.arrow = arrow
        c.first = step.first
        c.children = step.children
    return 0


cdef object schema_of(Output* out):
    """Return an ``arrow_schema`` capsule of the columns."""
    return schema_capsule(nested_schema(out, 0))


cdef int64_t output_of(Output* out) noexcept:
    """Set the limit of one record, and return the growth of the columns after which a call ends."""
    out.most = fw_pool_limit(out.pool) // COLUMNS_SHARE
    return min(fw_pool_limit(out.pool) // OUTPUT_SHARE, <int64_t>MOST_OUTPUT)


cdef int take_columns(Decoded decoded, Output* out) except -1:
    """Export the columns with the rows so far into ``decoded``."""
    decoded.rows = out.columns[0].length
    decoded.nbytes = out.bytes
    decoded._array = array_capsule(nested_array(out, 0))
    decoded._schema = schema_of(out)
    return 0


@cython.final
cdef class Decoded:
    """Decoded records as a struct array by the Arrow C data interface, one row for each sound record.

    ``rows`` is their number, ``bad`` lists the others as BadRecord, in order. ``upto`` is the index of the first record
    that was not looked at. ``nbytes`` is the pooled memory of the columns. ``unknown`` is the id of the schema of the
    record ``upto``, if the decoder does not know it yet.
    """

    def __arrow_c_array__(self, requested_schema=None):
        """Return the pair of capsules of the Arrow PyCapsule interface, once; ``requested_schema`` is ignored.

        Raises ValueError at the second call: the first consumer owns the memory.
        """
        if self._array is None:
            raise ValueError("the records were exported before")
        array, self._array = self._array, None
        return self._schema, array
