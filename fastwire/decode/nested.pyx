"""The slow parts of nested columns: growth, nulls, removal of a partly written record, and export."""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy, memset

from fastwire.columns.arrow cimport ArrowArray, ArrowSchema, NULLABLE, drop_array, drop_schema, new_array, new_schema
from fastwire.wire.pool cimport fw_give, fw_memory_new, fw_memory_unref, fw_take

cdef enum:
    FIRST_ROWS = 1024
    FIRST_BYTES = 16_384         # of rows: fixed values may be large

cdef extern from *:
    int __builtin_popcount(unsigned int) nogil

cdef int64_t[2] _ZEROS           # the buffer of an empty column
_ZEROS[:] = [0, 0]


cdef void* part_grown(Output* o, Nested* c, int part, int64_t size, int64_t used) noexcept nogil:
    """Replace a block by one of at least ``size`` bytes with the first ``used`` bytes of the old one."""
    cdef void* old = c.memory.block[part] if c.memory.count > part else NULL
    cdef int64_t before = <int64_t>1 << c.memory.klass[part] if old is not NULL else 0
    cdef int klass = 0
    cdef void* at
    if size - before > o.most - o.grown and old is not NULL:
        o.over = True
        return NULL
    at = fw_take(o.pool, <size_t>size, &klass)
    if at is NULL:
        return NULL
    if old is not NULL:
        memcpy(at, old, <size_t>used)
        fw_give(o.pool, old, c.memory.klass[part])
    c.memory.block[part] = at
    c.memory.klass[part] = klass
    if c.memory.count <= part:
        c.memory.count = part + 1
    o.bytes += (<int64_t>1 << klass) - before
    if old is not NULL:          # first blocks depend on the schema, not on the record
        o.grown += (<int64_t>1 << klass) - before
        o.regrown += (<int64_t>1 << klass) - before
    return at


cdef inline bint has_offsets(const Nested* c) noexcept nogil:
    return c.shape in (SHAPE_TEXT, SHAPE_BYTES, SHAPE_LIST)


cdef inline int64_t bits(int64_t rows) noexcept nogil:
    return (rows + 7) >> 3


cdef inline int64_t rows_size(const Nested* c, int64_t rows) noexcept nogil:
    """Return the bytes of PART_ROWS for so many rows."""
    if c.shape == SHAPE_BOOL:
        return bits(rows)
    return (rows + has_offsets(c)) * c.width


cdef int nested_open(Output* o) noexcept nogil:
    """Start new columns. The caller has set the pool, the limit, and the constant fields of each column."""
    cdef int i
    cdef Nested* c
    o.bytes = o.grown = o.regrown = 0
    o.over = False
    for i in range(o.count):
        c = &o.columns[i]
        c.length = c.capacity = c.size = c.room = 0
        c.validity = c.rows = c.data = NULL
        c.memory = fw_memory_new(o.pool)
        if c.memory is NULL:
            nested_drop(o)
            return -1
    return 0


cdef int nested_grow(Output* o, Nested* c) noexcept nogil:
    """Make room for more rows."""
    cdef int64_t capacity = c.capacity * 2
    cdef void* at
    if capacity == 0:
        capacity = max(1, min(<int64_t>FIRST_ROWS, FIRST_BYTES // max(<int64_t>1, c.width)))
    if capacity > 0x40000000:    # offsets have 32 bits
        o.over = True
        return -1
    if c.nullable and c.shape != SHAPE_NULL:
        at = part_grown(o, c, PART_VALIDITY, bits(capacity), bits(c.length))
        if at is NULL:
            return -1
        c.validity = <uint8_t*>at
    if c.width or c.shape == SHAPE_BOOL:
        at = part_grown(o, c, PART_ROWS, rows_size(c, capacity), rows_size(c, c.length))
        if at is NULL:
            return -1
        c.rows = <uint8_t*>at
        if has_offsets(c) and c.length == 0:
            (<int32_t*>c.rows)[0] = 0
    c.capacity = capacity
    return 0


cdef int nested_data(Output* o, Nested* c, int64_t extra) noexcept nogil:
    """Make room for ``extra`` more bytes of text or bytes."""
    cdef int64_t size = c.room * 2
    cdef void* at
    if extra > 0x40000000 - c.size:
        o.over = True
        return -1
    if size < c.size + extra:
        size = c.size + extra
    at = part_grown(o, c, PART_DATA, size, c.size)
    if at is NULL:
        return -1
    c.data = <uint8_t*>at
    c.room = <int64_t>1 << c.memory.klass[PART_DATA]
    return 0


cdef int nested_null(Output* o, int which) noexcept nogil:
    """Append a null, or a filler to a column that has no nulls, because a struct above it is null."""
    cdef Nested* c = &o.columns[which]
    cdef int i
    if c.shape == SHAPE_STRUCT:
        for i in range(c.first, c.first + c.children):
            if nested_null(o, i):
                return -1
    if nested_row(o, c):
        return -1
    if c.validity is not NULL:
        put_bit(c.validity, c.length, False)
    if c.shape == SHAPE_BOOL:
        put_bit(c.rows, c.length, False)
    elif has_offsets(c):
        (<int32_t*>c.rows)[c.length + 1] = (<int32_t*>c.rows)[c.length]
    elif c.width:
        memset(c.rows + c.length * c.width, 0, <size_t>c.width)
    c.length += 1
    return 0


cdef void nested_cut(Output* o, int which, int64_t length) noexcept nogil:
    """Remove all rows from ``length`` on, with what they hold."""
    cdef Nested* c = &o.columns[which]
    cdef int i
    cdef int64_t kept = length
    if c.shape == SHAPE_LIST:
        kept = (<int32_t*>c.rows)[length] if c.rows is not NULL else 0
    elif has_offsets(c):
        c.size = (<int32_t*>c.rows)[length] if c.rows is not NULL else 0
    for i in range(c.first, c.first + c.children):
        nested_cut(o, i, kept)
    c.length = length


cdef void nested_drop(Output* o) noexcept nogil:
    """Release the columns; exported arrays keep their memory. Repeated calls are allowed."""
    cdef int i
    for i in range(o.count):
        if o.columns[i].memory is not NULL:
            fw_memory_unref(o.columns[i].memory)
            o.columns[i].memory = NULL


cdef int64_t nulls(const Nested* c) noexcept nogil:
    cdef int64_t i, present = 0
    if c.shape == SHAPE_NULL:
        return c.length
    if c.validity is NULL:
        return 0
    for i in range(c.length >> 3):
        present += __builtin_popcount(c.validity[i])
    if c.length & 7:
        present += __builtin_popcount(c.validity[c.length >> 3] & ((1 << (c.length & 7)) - 1))
    return c.length - present


cdef ArrowSchema* nested_schema(const Output* o, int which) except NULL:
    """Return the Arrow schema of a column and what is below it."""
    cdef const Nested* c = &o.columns[which]
    cdef ArrowSchema* s = new_schema(c.arrow, c.name, NULLABLE if c.nullable else 0, c.children)
    cdef int i
    try:
        for i in range(c.children):
            s.children[i] = nested_schema(o, c.first + i)
    except MemoryError:
        drop_schema(s)
        raise
    return s


cdef ArrowArray* nested_array(Output* o, int which) except NULL:
    """Return the Arrow array of a column and what is below it, over the same memory."""
    cdef Nested* c = &o.columns[which]
    cdef int buffers = 0 if c.shape == SHAPE_NULL else 1 if c.shape == SHAPE_STRUCT else 2
    cdef ArrowArray* a
    cdef int i
    if c.shape in (SHAPE_TEXT, SHAPE_BYTES):
        buffers = 3
    a = new_array(c.memory, c.length, buffers, c.children)
    a.null_count = nulls(c)
    if buffers > 0 and a.null_count:
        a.buffers[0] = c.validity
    if buffers > 1:
        a.buffers[1] = c.rows if c.rows is not NULL else <const void*>_ZEROS
    if buffers > 2:
        a.buffers[2] = c.data if c.data is not NULL else <const void*>_ZEROS
    try:
        for i in range(c.children):
            a.children[i] = nested_array(o, c.first + i)
    except MemoryError:
        drop_array(a)
        raise
    return a
