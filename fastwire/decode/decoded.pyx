"""The decoder that those of all formats share: records of a column of bytes become rows of columns, or are bad."""

cimport cython
from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free

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
    nested_drop,
    nested_open,
    nested_schema,
)
from fastwire.wire.pool cimport COLUMNS_SHARE, OUTPUT_SHARE, Pool, fw_pool_limit

from fastwire.decode.program import BadRecord
from fastwire.reason import Reason as Reasons

__all__ = ["Decoded", "RecordDecoder"]

cdef dict _NAMES = {
    TRUNCATED: Reasons.TRUNCATED.value,
    TRAILING: Reasons.TRAILING.value,
    NO_VALUE: Reasons.NO_VALUE.value,
    TOO_LARGE: Reasons.TOO_LARGE.value,
    RANGE: Reasons.RANGE.value,
    UTF8: Reasons.UTF8.value,
    SYMBOL: Reasons.SYMBOL.value,
    DECIMAL: Reasons.DECIMAL.value,
    VARINT: Reasons.VARINT.value,
    LENGTH: Reasons.LENGTH.value,
    DEEP: Reasons.DEEP.value,
    NO_HEADER: Reasons.NO_SCHEMA_ID.value,
    NULL_VALUE: Reasons.UNEXPECTED_NULL.value,
    BOOLEAN: Reasons.BOOLEAN.value,
    BRANCH: Reasons.BRANCH.value,
    BLOCK: Reasons.BLOCK.value,
    SYNTAX: Reasons.JSON.value,
    ESCAPE: Reasons.ESCAPE.value,
    TYPE: Reasons.TYPE.value,
    MISSING: Reasons.MISSING.value,
    DUPLICATE: Reasons.DUPLICATE.value,
    INEXACT: Reasons.INEXACT.value,
    BASE64: Reasons.BASE64.value,
    TIME: Reasons.TIME.value,
    TAG: Reasons.TAG.value,
    OTHER: Reasons.OTHER_MESSAGE.value,
    REPLACED: Reasons.ONEOF.value,
    STRANGE: Reasons.NEW_COLUMNS.value,
}

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
        c.required = step.required
        c.name = name
        c.arrow = arrow
        c.first = step.first
        c.children = step.children
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


cdef tuple names_of(reasons):
    """Return the stable names of reasons."""
    return tuple([_NAMES[reason] for reason in reasons])


cdef class RecordDecoder:
    """Decodes columns of records into memory of a pool; the base of the decoders of all formats.

    A record that does not match its schema is removed from the columns and reported; the records after it are decoded.
    One record may let the columns grow by a fourth of the pool's limit. A call ends early once they have grown by a
    16th, or by 8 MiB. Not for two threads at once.
    """

    cdef int open(self, Output* out, Record* record, void* context, Run run, program, Pool pool) except -1:
        """Set the parts of the format's walker, which the caller owns, and allocate the columns of ``program``."""
        self.out, self.record, self.context, self.run = out, record, context, run
        self.pool = pool
        self.texts = []
        return set_columns(out, tuple(program), pool, self.texts)

    def __dealloc__(self):
        if self.out is not NULL:
            nested_drop(self.out)
            free(self.out.columns)

    def keep_nulls(self):
        """From now on a null record is a row of nulls. Raises ValueError if a column takes no nulls."""
        cdef Nested* top = &self.out.columns[0]
        cdef int i
        for i in range(top.first, top.first + top.children):
            if not self.out.columns[i].nullable:
                raise ValueError(f"the column {self.out.columns[i].name.decode()} takes no nulls")
        self.out.keeps_nulls = True

    cdef tuple steps(self):
        """Return the program by which the current record is read."""
        raise NotImplementedError

    cdef str reason(self, Reason fault):
        """Return the stable name of a reason."""
        return _NAMES[fault]

    cdef object unknown_id(self):
        """Return the id of the schema of the current record, which the decoder does not know."""

    def __arrow_c_schema__(self):
        """Return an ``arrow_schema`` capsule of the columns."""
        return schema_capsule(nested_schema(self.out, 0))

    def decode(self, values, int64_t first=0, const int32_t[::1] ids=None):
        """Decode the records of a binary Arrow array (of the PyCapsule interface) from index ``first`` on.

        ``ids`` has the number of each record's schema, for decoders of several schemas. At least one record is looked
        at, if there is one whose schema is known. Raises ValueError for an array of another type, an index beyond its
        end, or another number of ``ids``; MemoryError.
        """
        cdef Output* out = self.out
        cdef Records records
        cdef int64_t limit = fw_pool_limit(out.pool)
        cdef int64_t most = min(limit // OUTPUT_SHARE, <int64_t>MOST_OUTPUT)
        cdef Reason fault
        cdef Decoded decoded = Decoded.__new__(Decoded)
        held = records_of(&records, values, first)
        self.record.numbered = ids is not None
        records.ids = NULL
        if ids is not None and ids.shape[0] != records.count:
            raise ValueError(f"{ids.shape[0]} numbers of schemas for {records.count} records")
        if ids is not None and records.count:
            records.ids = &ids[0]
        decoded.bad = []
        out.most = limit // COLUMNS_SHARE
        if nested_open(out):
            raise MemoryError()
        try:
            while records.next < records.count:
                with nogil:
                    fault = self.run(self.context, &records, most)
                if fault == SOUND:
                    break
                if fault == NO_MEMORY:
                    raise MemoryError()
                if fault == UNKNOWN:
                    decoded.unknown = self.unknown_id()
                    break
                path = self.steps()[self.record.at].path if self.record.at >= 0 else ""
                place = self.record.pos - self.record.start
                decoded.bad.append(BadRecord(records.next, self.reason(fault), path, place))
                records.next += 1
            decoded.upto = records.next
            decoded.rows = out.columns[0].length
            decoded.nbytes = out.bytes
            decoded._array = array_capsule(nested_array(out, 0))
            decoded._schema = self.__arrow_c_schema__()
        finally:
            nested_drop(out)
            del held
        return decoded
