"""Avro's binary encoding: from a column of bytes to columns of values, without an object a record.

A record that does not match its schema is removed from the columns and reported; the records after it are decoded.
(spec: Avro 1.12, "Binary Encoding")
"""

cimport cython
from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from fastwire.columns.arrow cimport ArrowArray, ArrowSchema, array_capsule, schema_capsule
from fastwire.columns.builder cimport is_utf8
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
    nested_cell,
    nested_cut,
    nested_drop,
    nested_null,
    nested_open,
    nested_row,
    nested_schema,
    put_bit,
)
from fastwire.wire.pool cimport COLUMNS_SHARE, OUTPUT_SHARE, Pool, fw_pool_limit
from fastwire.wire.varint cimport fw_varint

from fastwire.decode.program import BadRecord

__all__ = ["REASONS", "AvroDecoder", "Decoded"]

cdef extern from *:
    """
    /* The number of a big-endian two's complement at p, as 16 bytes in the machine's order; -1 if it has more digits
       than `most`, which is at most 38. */
    static int fw_decimal(const unsigned char *p, int64_t size, int most, void *to)
    {
        unsigned char sign = size && p[0] & 0x80 ? 0xFF : 0;
        for (; size > 16; p++, size--)
            if (*p != sign)
                return -1;
        unsigned __int128 sum = sign ? ~(unsigned __int128)0 : 0, size_of = 1;
        if (size == 16 && ((p[0] & 0x80) != (sign & 0x80)))
            return -1;
        for (int64_t i = 0; i < size; i++)
            sum = sum << 8 | p[i];
        while (most--)
            size_of *= 10;
        if ((sign ? -sum : sum) >= size_of)
            return -1;
        __builtin_memcpy(to, &sum, 16);
        return 0;
    }
    """
    int fw_decimal(const uint8_t* p, int64_t size, int most, void* to) nogil

cdef enum Reason:
    SOUND
    TRUNCATED
    VARINT
    RANGE
    BOOLEAN
    LENGTH
    BRANCH
    SYMBOL
    UTF8
    DECIMAL
    BLOCK
    TRAILING
    NO_VALUE
    TOO_LARGE
    NO_MEMORY                    # of the system, not a property of the record

cdef dict _NAMES = {
    TRUNCATED: "Truncated",      # the record ends within a value
    VARINT: "InvalidVarint",     # of more than 64 bits
    RANGE: "OutOfRange",         # a number that its type does not have
    BOOLEAN: "InvalidBoolean",   # neither 0 nor 1
    LENGTH: "InvalidLength",     # negative
    BRANCH: "UnknownBranch",     # of a union
    SYMBOL: "UnknownSymbol",     # of an enum
    UTF8: "InvalidUtf8",
    DECIMAL: "DecimalTooLarge",  # more digits than the schema allows
    BLOCK: "InvalidBlock",       # of an array or map: its items do not have the announced size
    TRAILING: "TrailingBytes",   # after the record
    NO_VALUE: "NoValue",         # the cell is null
    TOO_LARGE: "TooLarge",       # its columns exceed the memory limit of one record; it may be sound
}

REASONS = tuple(_NAMES.values())
"""Stable names of the reasons why a record is bad."""

cdef enum Operation:
    OP_NULL
    OP_BOOL
    OP_INT
    OP_FLOAT
    OP_DOUBLE
    OP_TEXT
    OP_BYTES
    OP_FIXED
    OP_ENUM
    OP_DECIMAL
    OP_FIXED_DECIMAL
    OP_RECORD
    OP_ARRAY
    OP_UNION

cdef dict OPERATIONS = {
    "null": OP_NULL,
    "bool": OP_BOOL,
    "int": OP_INT,
    "float": OP_FLOAT,
    "double": OP_DOUBLE,
    "text": OP_TEXT,
    "bytes": OP_BYTES,
    "fixed": OP_FIXED,
    "enum": OP_ENUM,
    "decimal": OP_DECIMAL,
    "fixed decimal": OP_FIXED_DECIMAL,
    "record": OP_RECORD,
    "array": OP_ARRAY,
    "union": OP_UNION,
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

cdef struct Symbol:
    const uint8_t* text
    int64_t size

cdef struct Step:
    Operation operation
    int null_branch
    bint lone
    bint optional                # lone or null_branch: a branch is read first
    int64_t low
    int64_t high
    int64_t size
    int digits
    int count                    # of symbols or branches
    Symbol* symbols
    int* branches

cdef struct Walk:
    Output out
    Step* steps
    const uint8_t* start         # of the record
    const uint8_t* pos
    const uint8_t* end
    const uint8_t* edge          # of the whole column of bytes: readable
    int at                       # the step that failed


cdef struct Records:             # a column of bytes
    const uint8_t* validity
    const int32_t* offsets
    const uint8_t* data
    int64_t shift                # index of the first record in the buffers
    int64_t count
    int64_t next                 # the record to read

cdef enum:
    MOST_OUTPUT = 8 << 20        # growth of the columns after which a call ends


cdef inline Reason read_long(Walk* w, int64_t* value) noexcept nogil:
    cdef uint64_t raw = 0
    cdef const uint8_t* behind = fw_varint(w.pos, w.end, &raw)
    if behind is NULL:
        return long_fault(w)
    w.pos = behind
    value[0] = <int64_t>((raw >> 1) ^ (0 - (raw & 1)))
    return SOUND


cdef Reason long_fault(const Walk* w) noexcept nogil:
    """Tell a varint that is cut off from one of more than 64 bits."""
    cdef const uint8_t* p = w.pos
    while p < w.end and p - w.pos < 10:
        if p[0] < 0x80:
            return VARINT
        p += 1
    return TRUNCATED if p == w.end and p - w.pos < 10 else VARINT


cdef inline Reason read_size(Walk* w, int64_t* size) noexcept nogil:
    """Read a length, and compare it with the bytes that are there."""
    cdef const uint8_t* start = w.pos
    cdef Reason fault = read_long(w, size)
    if fault:
        return fault
    if size[0] < 0 or size[0] > w.end - w.pos:
        w.pos = start
        return LENGTH if size[0] < 0 else TRUNCATED
    return SOUND


cdef inline Reason read_index(Walk* w, int64_t count, Reason unknown, int64_t* index) noexcept nogil:
    """Read a number from 0 to below ``count``; ``unknown`` is the reason if it is another one."""
    cdef const uint8_t* start = w.pos
    cdef Reason fault = read_long(w, index)
    if fault:
        return fault
    if index[0] < 0 or index[0] >= count:
        w.pos = start
        return unknown
    return SOUND


cdef inline Reason short(const Walk* w) noexcept nogil:
    return TOO_LARGE if w.out.over else NO_MEMORY


cdef inline Reason walk(Walk* w, int which) noexcept nogil:
    """Read the value of a step into its column. ``at`` keeps the deepest step that failed, ``pos`` its place."""
    cdef Reason fault
    cdef int64_t branch = 0
    cdef Step* step = &w.steps[which]
    if step.optional:
        fault = read_index(w, 1 if step.lone else 2, BRANCH, &branch)
        if not fault and not step.lone and branch == step.null_branch:
            if nested_null(&w.out, which):
                fault = short(w)
            else:
                return SOUND
        if fault:
            if w.at < 0:
                w.at = which
            return fault
    fault = read_value(w, which)
    if fault and w.at < 0:
        w.at = which
    return fault


cdef Reason read_value(Walk* w, int which) noexcept nogil:
    cdef Step* step = &w.steps[which]
    cdef Nested* c = &w.out.columns[which]
    cdef const uint8_t* start = w.pos
    cdef int64_t number = 0
    cdef Reason fault
    if step.operation == OP_INT:
        fault = read_long(w, &number)
        if fault:
            return fault
        if number < step.low or number > step.high:
            w.pos = start
            return RANGE
        if nested_row(&w.out, c):
            return short(w)
        if c.width == 8:
            (<int64_t*>c.rows)[c.length] = number
        else:
            (<int32_t*>c.rows)[c.length] = <int32_t>number
    elif step.operation == OP_TEXT or step.operation == OP_BYTES:
        fault = read_size(w, &number)
        if fault:
            return fault
        if step.operation == OP_TEXT and not is_utf8(w.pos, number):
            return UTF8
        if nested_cell(&w.out, c, w.pos, number, w.edge):
            return short(w)
        w.pos += number
        return SOUND
    elif step.operation in (OP_FLOAT, OP_DOUBLE, OP_FIXED):      # the machine is little-endian, as Avro's numbers are
        if w.end - w.pos < c.width:
            return TRUNCATED
        if nested_row(&w.out, c):
            return short(w)
        memcpy(c.rows + c.length * c.width, w.pos, <size_t>c.width)
        w.pos += c.width
    elif step.operation == OP_BOOL:
        if w.pos == w.end:
            return TRUNCATED
        if w.pos[0] > 1:
            return BOOLEAN
        if nested_row(&w.out, c):
            return short(w)
        put_bit(c.rows, c.length, w.pos[0])
        w.pos += 1
    elif step.operation == OP_RECORD:
        return read_record(w, which)
    elif step.operation == OP_ENUM:
        fault = read_index(w, step.count, SYMBOL, &number)
        if fault:
            return fault
        if nested_cell(
            &w.out, c, step.symbols[number].text, step.symbols[number].size,
            step.symbols[number].text + step.symbols[number].size,
        ):
            return short(w)
        return SOUND
    elif step.operation == OP_ARRAY:
        return read_array(w, which)
    elif step.operation == OP_UNION:
        return read_union(w, which)
    elif step.operation == OP_NULL:
        if nested_row(&w.out, c):
            return short(w)
    else:
        number = step.size
        if step.operation == OP_DECIMAL:
            fault = read_size(w, &number)
            if fault:
                return fault
        elif w.end - w.pos < number:
            return TRUNCATED
        if nested_row(&w.out, c):
            return short(w)
        if fw_decimal(w.pos, number, step.digits, c.rows + c.length * 16):
            return DECIMAL
        w.pos += number
    c.length += 1
    return SOUND


cdef Reason read_record(Walk* w, int which) noexcept nogil:
    cdef Nested* c = &w.out.columns[which]
    cdef int i
    cdef Reason fault
    for i in range(c.first, c.first + c.children):
        fault = walk(w, i)
        if fault:
            return fault
    if nested_row(&w.out, c):
        return short(w)
    c.length += 1
    return SOUND


cdef Reason read_array(Walk* w, int which) noexcept nogil:
    """Read the blocks of an array or map. Each item has at least one byte, so the record's size bounds their number."""
    cdef Nested* c = &w.out.columns[which]
    cdef int64_t count = 0
    cdef int64_t size = 0
    cdef int64_t left
    cdef const uint8_t* start
    cdef const uint8_t* behind
    cdef Reason fault
    if nested_row(&w.out, c):
        return short(w)
    while True:
        start = w.pos
        behind = NULL
        fault = read_long(w, &count)
        if fault:
            return fault
        if count == 0:
            break
        if count < 0:
            fault = read_size(w, &size)
            if fault:
                return fault
            behind = w.pos + size
        if count > w.end - w.pos or count < w.pos - w.end:
            w.pos = start
            return TRUNCATED
        left = count if count > 0 else -count
        while left:
            left -= 1
            fault = walk(w, c.first)
            if fault:
                return fault
        if behind is not NULL and behind != w.pos:
            w.pos = start
            return BLOCK
    c.length += 1
    (<int32_t*>c.rows)[c.length] = <int32_t>w.out.columns[c.first].length
    return SOUND


cdef Reason read_union(Walk* w, int which) noexcept nogil:
    cdef Step* step = &w.steps[which]
    cdef Nested* c = &w.out.columns[which]
    cdef int64_t branch = 0
    cdef int i
    cdef Reason fault = read_index(w, step.count, BRANCH, &branch)
    if fault:
        return fault
    if step.branches[branch] < 0:
        return short(w) if nested_null(&w.out, which) else SOUND
    for i in range(c.children):
        if i == step.branches[branch]:
            fault = walk(w, c.first + i)
        elif nested_null(&w.out, c.first + i):
            fault = short(w)
        if fault:
            return fault
    if nested_row(&w.out, c):
        return short(w)
    c.length += 1
    return SOUND


cdef Reason run(Walk* w, Records* records, int64_t most) noexcept nogil:
    """Decode records until one is bad, which is removed from the columns, or the columns have grown by ``most``."""
    cdef const int32_t* offsets = records.offsets + records.shift
    cdef int64_t row, kept
    cdef Reason fault
    w.edge = records.data + offsets[records.count]
    while True:
        row = records.next
        kept = w.out.columns[0].length
        w.start = w.pos = records.data + offsets[row]
        w.end = records.data + offsets[row + 1]
        w.at = -1
        w.out.grown = 0
        w.out.over = False
        row += records.shift
        if records.validity is not NULL and not records.validity[row >> 3] >> (row & 7) & 1:
            return NO_VALUE
        fault = read_record(w, 0)
        if not fault and w.pos != w.end:
            fault = TRAILING
        if fault:
            nested_cut(&w.out, 0, kept)
            return fault
        records.next += 1
        if records.next == records.count or w.out.regrown >= most:
            return SOUND


@cython.final
cdef class Decoded:
    """Decoded records as a struct array by the Arrow C data interface, one row for each sound record.

    ``rows`` is their number, ``bad`` lists the others as BadRecord, in order. ``upto`` is the index of the first record
    that was not looked at. ``nbytes`` is the pooled memory of the columns.
    """
    cdef object _schema
    cdef object _array
    cdef readonly list bad
    cdef readonly int64_t rows
    cdef readonly int64_t upto
    cdef readonly int64_t nbytes

    def __arrow_c_array__(self, requested_schema=None):
        """Return the pair of capsules of the Arrow PyCapsule interface, once; ``requested_schema`` is ignored.

        Raises ValueError at the second call: the first consumer owns the memory.
        """
        if self._array is None:
            raise ValueError("the records were exported before")
        array, self._array = self._array, None
        return self._schema, array


@cython.final
cdef class AvroDecoder:
    """Decodes columns of Avro records by a program of ``compile_avro``, into memory of ``pool``.

    One record may let the columns grow by a fourth of the pool's limit. A call ends early once they have grown by a
    16th, or by 8 MiB. Not for two threads at once.
    """
    cdef Walk walk
    cdef Pool pool
    cdef tuple program
    cdef list texts              # names and symbols that the steps point to

    def __cinit__(self, program, Pool pool not None):
        self.pool = pool
        self.program = tuple(program)
        self.texts = []
        self.walk.out.columns = <Nested*>calloc(len(self.program), sizeof(Nested))
        self.walk.steps = <Step*>calloc(len(self.program), sizeof(Step))
        if self.walk.out.columns is NULL or self.walk.steps is NULL:
            raise MemoryError()
        self.walk.out.pool = pool.pool
        self.walk.out.count = len(self.program)
        for number, step in enumerate(self.program):
            self.set_column(&self.walk.out.columns[number], step)
            self.set_step(&self.walk.steps[number], step)

    def __dealloc__(self):
        cdef int i
        nested_drop(&self.walk.out)
        if self.walk.steps is not NULL:
            for i in range(self.walk.out.count):
                free(self.walk.steps[i].symbols)
                free(self.walk.steps[i].branches)
        free(self.walk.steps)
        free(self.walk.out.columns)

    cdef int set_column(self, Nested* c, step) except -1:
        cdef bytes name = step.name.encode()
        cdef bytes arrow = step.arrow.encode()
        arrow = _ARROW_TYPES.setdefault(arrow, arrow)
        self.texts.append(name)
        shape, width = SHAPES[step.shape]
        c.shape = <Shape><int>shape
        c.width = step.size if c.shape == SHAPE_FIXED else width
        c.nullable = step.nullable
        c.name = name
        c.arrow = arrow
        c.first = step.first
        c.children = step.children
        return 0

    cdef int set_step(self, Step* s, step) except -1:
        cdef bytes text
        cdef int i
        s.operation = <Operation><int>OPERATIONS[step.operation]
        s.null_branch = step.null_branch
        s.lone = step.lone
        s.optional = step.lone or step.null_branch >= 0
        s.low = step.low
        s.high = step.high
        s.size = step.size
        s.digits = step.digits
        s.count = len(step.symbols) or len(step.branches)
        s.symbols = <Symbol*>calloc(len(step.symbols) + 1, sizeof(Symbol))
        s.branches = <int*>calloc(len(step.branches) + 1, sizeof(int))
        if s.symbols is NULL or s.branches is NULL:
            raise MemoryError()
        for i, text in enumerate(step.symbols):
            self.texts.append(text)
            s.symbols[i].text = <const uint8_t*><const char*>text
            s.symbols[i].size = len(text)
        for i, place in enumerate(step.branches):
            s.branches[i] = place
        return 0

    def __arrow_c_schema__(self):
        """Return an ``arrow_schema`` capsule of the columns."""
        return schema_capsule(nested_schema(&self.walk.out, 0))

    def decode(self, values, int64_t first=0):
        """Decode the records of a binary Arrow array (of the PyCapsule interface) from index ``first`` on.

        At least one record is looked at, if there is one. Raises ValueError for an array of another type, or an index
        beyond its end; MemoryError.
        """
        cdef Walk* w = &self.walk
        schema_of, array_of = values.__arrow_c_array__()
        cdef ArrowSchema* schema = <ArrowSchema*>PyCapsule_GetPointer(schema_of, "arrow_schema")
        cdef ArrowArray* array = <ArrowArray*>PyCapsule_GetPointer(array_of, "arrow_array")
        cdef Records records
        cdef Reason fault
        cdef Decoded decoded = Decoded.__new__(Decoded)
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
        w.out.most = fw_pool_limit(self.pool.pool) // COLUMNS_SHARE
        decoded.bad = []
        if nested_open(&w.out):
            raise MemoryError()
        try:
            while records.next < records.count:
                with nogil:
                    fault = run(w, &records, min(fw_pool_limit(w.out.pool) // OUTPUT_SHARE, <int64_t>MOST_OUTPUT))
                if fault == SOUND:
                    break
                if fault == NO_MEMORY:
                    raise MemoryError()
                path = self.program[w.at].path if w.at >= 0 else ""
                decoded.bad.append(BadRecord(records.next, _NAMES[fault], path, w.pos - w.start))
                records.next += 1
            decoded.rows = w.out.columns[0].length
            decoded.upto = records.next
            decoded.nbytes = w.out.bytes
            decoded._array = array_capsule(nested_array(&w.out, 0))
            decoded._schema = self.__arrow_c_schema__()
        finally:
            nested_drop(&w.out)
        return decoded
