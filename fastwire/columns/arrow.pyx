"""Export of columns by the Arrow C data interface, without a copy and without an Arrow library.

Every exported array holds one reference on the chunk's memory. Its release is plain C: it runs on the consumer's
thread, without the interpreter lock.
"""

from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport strdup

from fastwire.columns.builder cimport (
    BLOCK_TOPICS,
    COL_HEADERS,
    MOST_COLUMNS,
    STORE_BYTES,
    STORE_HEADERS,
    STORE_INT32,
    STORE_INT64,
    STORE_RARE_TIME,
    STORE_STRINGS,
    STORE_TIME,
    STORE_TOPIC,
    VAR_HEADER_KEY,
    VAR_HEADER_VALUE,
    Cells,
    Columns,
    Dictionary,
    Storage,
    has,
)
from fastwire.wire.pool cimport fw_memory, fw_memory_ref, fw_memory_unref

# The buffer of an empty column: an offset 0, and no data.
cdef int64_t[8] _ZEROS
_ZEROS[:] = [0, 0, 0, 0, 0, 0, 0, 0]


cdef void release_schema(ArrowSchema* s) noexcept nogil:
    cdef int64_t i
    for i in range(s.n_children):
        if s.children[i] is not NULL:
            if s.children[i].release is not NULL:
                s.children[i].release(s.children[i])
            free(s.children[i])
    free(s.children)
    if s.dictionary is not NULL:
        if s.dictionary.release is not NULL:
            s.dictionary.release(s.dictionary)
        free(s.dictionary)
    free(s.private_data)         # the name
    s.release = NULL


cdef void release_array(ArrowArray* a) noexcept nogil:
    # A moved child has release NULL, and its memory reference belongs to the new owner.
    cdef int64_t i
    for i in range(a.n_children):
        if a.children[i] is not NULL:
            if a.children[i].release is not NULL:
                a.children[i].release(a.children[i])
            free(a.children[i])
    free(a.children)
    if a.dictionary is not NULL:
        if a.dictionary.release is not NULL:
            a.dictionary.release(a.dictionary)
        free(a.dictionary)
    free(a.buffers)
    if a.private_data is not NULL:
        fw_memory_unref(<fw_memory*>a.private_data)
    a.release = NULL


cdef ArrowSchema* new_schema(const char* format, const char* name, int64_t flags, int64_t children) except NULL:
    """Return a new schema. ``format`` lives as long as the process; the name is copied, because a schema may outlive
    the row.
    """
    cdef ArrowSchema* s = <ArrowSchema*>calloc(1, sizeof(ArrowSchema))
    cdef bint short = s is NULL
    if not short:
        s.release = release_schema
        s.format = format
        s.flags = flags
        s.private_data = strdup(name)
        s.name = <const char*>s.private_data
        short = s.private_data is NULL
        if children:
            s.children = <ArrowSchema**>calloc(<size_t>children, sizeof(ArrowSchema*))
            s.n_children = children if s.children is not NULL else 0
            short = short or s.children is NULL
    if short:
        drop_schema(s)
        raise MemoryError()
    return s


cdef void drop_schema(ArrowSchema* s) noexcept:
    if s is not NULL:
        if s.release is not NULL:
            s.release(s)
        free(s)


cdef void drop_array(ArrowArray* a) noexcept:
    if a is not NULL:
        if a.release is not NULL:
            a.release(a)
        free(a)


cdef ArrowArray* new_array(fw_memory* memory, int64_t length, int64_t buffers, int64_t children) except NULL:
    cdef ArrowArray* a = <ArrowArray*>calloc(1, sizeof(ArrowArray))
    if a is NULL:
        raise MemoryError()
    a.release = release_array
    a.length = length
    a.n_buffers = buffers
    a.buffers = <const void**>calloc(<size_t>buffers, sizeof(void*))
    if children:
        a.children = <ArrowArray**>calloc(<size_t>children, sizeof(ArrowArray*))
    a.n_children = children if a.children is not NULL else 0
    if a.buffers is NULL or a.n_children != children:
        drop_array(a)
        raise MemoryError()
    if memory is not NULL:
        fw_memory_ref(memory)
        a.private_data = memory
    return a


cdef ArrowArray* fixed_array(Columns* c, const void* data) except NULL:
    cdef ArrowArray* a = new_array(c.memory, c.rows, 2, 0)
    a.buffers[1] = data if data is not NULL else <const void*>_ZEROS
    return a


cdef ArrowArray* cells_array(Columns* c, int which, int64_t rows) except NULL:
    cdef Cells* v = &c.cells[which]
    cdef ArrowArray* a = new_array(c.memory, rows, 3, 0)
    a.null_count = rows - v.present
    a.buffers[0] = v.validity if a.null_count else NULL
    a.buffers[1] = <const void*>v.offsets if v.offsets is not NULL else <const void*>_ZEROS
    a.buffers[2] = <const void*>v.data if v.data is not NULL else <const void*>_ZEROS
    return a


cdef ArrowArray* strings_array(
    Columns* c, int64_t count, const int32_t* offsets, const uint8_t* data
) except NULL:
    cdef ArrowArray* a = new_array(c.memory, count, 3, 0)
    a.buffers[1] = <const void*>offsets if offsets is not NULL else <const void*>_ZEROS
    a.buffers[2] = <const void*>data if data is not NULL else <const void*>_ZEROS
    return a


cdef ArrowArray* headers_array(Columns* c) except NULL:
    cdef ArrowArray* a = new_array(c.memory, c.rows, 2, 1)
    cdef ArrowArray* pair
    a.null_count = c.rows - c.header_present
    a.buffers[0] = c.validity[COL_HEADERS] if a.null_count else NULL
    a.buffers[1] = c.fixed[COL_HEADERS] if c.memory is not NULL else <const void*>_ZEROS
    try:
        pair = new_array(NULL, c.headers, 1, 2)
        a.children[0] = pair
        pair.children[0] = cells_array(c, VAR_HEADER_KEY, c.headers)
        pair.children[1] = cells_array(c, VAR_HEADER_VALUE, c.headers)
    except MemoryError:
        drop_array(a)
        raise
    return a


cdef ArrowSchema* headers_schema(const char* name) except NULL:
    cdef ArrowSchema* s = new_schema("+l", name, NULLABLE, 1)
    try:
        s.children[0] = new_schema("+s", "item", 0, 2)
        s.children[0].children[0] = new_schema("u", "key", 0, 0)
        s.children[0].children[1] = new_schema("z", "value", NULLABLE, 0)
    except MemoryError:
        drop_schema(s)
        raise
    return s


cdef ArrowSchema* dictionary_schema(const char* name) except NULL:
    cdef ArrowSchema* s = new_schema("i", name, 0, 0)
    try:
        s.dictionary = new_schema("u", "", 0, 0)
    except MemoryError:
        drop_schema(s)
        raise
    return s


cdef void free_schema_capsule(object capsule) noexcept:
    drop_schema(<ArrowSchema*>PyCapsule_GetPointer(capsule, "arrow_schema"))


cdef void free_array_capsule(object capsule) noexcept:
    drop_array(<ArrowArray*>PyCapsule_GetPointer(capsule, "arrow_array"))


cdef object schema_capsule(ArrowSchema* s):
    """Return an ``arrow_schema`` capsule that owns ``s``."""
    return PyCapsule_New(s, "arrow_schema", free_schema_capsule)


cdef object array_capsule(ArrowArray* a):
    """Return an ``arrow_array`` capsule that owns ``a``."""
    return PyCapsule_New(a, "arrow_array", free_array_capsule)


cdef ArrowSchema* column_schema(Storage storage, const char* name) except NULL:
    if storage == STORE_INT32:
        return new_schema("i", name, 0, 0)
    if storage == STORE_INT64:
        return new_schema("l", name, 0, 0)
    if storage in (STORE_TIME, STORE_RARE_TIME):
        return new_schema("tsu:UTC", name, NULLABLE, 0)
    if storage == STORE_BYTES:
        return new_schema("z", name, NULLABLE, 0)
    return headers_schema(name) if storage == STORE_HEADERS else dictionary_schema(name)


cdef ArrowArray* column_array(Columns* c, int column, int64_t topics) except NULL:
    cdef Storage storage = c.layout.storage[column]
    cdef int32_t* topic_offsets
    cdef Dictionary* strings
    cdef ArrowArray* a
    if storage == STORE_BYTES:
        return cells_array(c, c.layout.place[column], c.rows)
    if storage == STORE_HEADERS:
        return headers_array(c)
    a = fixed_array(c, c.fixed[column] if c.memory is not NULL else NULL)
    try:
        if storage in (STORE_TIME, STORE_RARE_TIME):
            a.null_count = c.rows - c.present[column]
            a.buffers[0] = c.validity[column] if a.null_count else NULL
        elif storage == STORE_STRINGS:
            strings = &c.strings[c.layout.place[column]]
            a.dictionary = strings_array(c, strings.count, strings.offsets, strings.data)
        elif storage == STORE_TOPIC:
            if c.memory is NULL:     # without rows nothing refers to a topic
                a.dictionary = strings_array(c, 0, NULL, NULL)
            else:
                topic_offsets = <int32_t*>c.memory.block[BLOCK_TOPICS]
                a.dictionary = strings_array(c, topics, topic_offsets, <uint8_t*>(topic_offsets + topics + 1))
    except MemoryError:
        drop_array(a)
        raise
    return a


cdef int built(const Columns* c, int* numbers) noexcept:
    """Put the numbers of the columns that are built into ``numbers``, in the order of the row; return how many."""
    cdef int i, count = 0
    if c.layout is NULL:         # a marker
        return 0
    for i in range(c.layout.count):
        if has(c.mask, c.layout.number[i]):
            numbers[count] = c.layout.number[i]
            count += 1
    return count


cdef ArrowSchema* rows_schema(const Columns* c) except NULL:
    cdef int[MOST_COLUMNS] numbers
    cdef int count = built(c, numbers)
    cdef ArrowSchema* s = new_schema("+s", "", 0, count)
    cdef int i
    try:
        for i in range(count):
            s.children[i] = column_schema(c.layout.storage[numbers[i]], c.layout.name[numbers[i]])
    except MemoryError:
        drop_schema(s)
        raise
    return s


cdef ArrowArray* rows_array(Columns* c, int64_t topics) except NULL:
    cdef int[MOST_COLUMNS] numbers
    cdef int count = built(c, numbers)
    cdef ArrowArray* a = new_array(NULL, c.rows, 1, count)
    cdef int i
    try:
        for i in range(count):
            a.children[i] = column_array(c, numbers[i], topics)
    except MemoryError:
        drop_array(a)
        raise
    return a


cdef object export_schema(const Columns* c):
    """Return an ``arrow_schema`` capsule of the rows."""
    return schema_capsule(rows_schema(c))


cdef object export_array(Columns* c, int64_t topics):
    """Return an ``arrow_array`` capsule of the rows of a finished chunk with ``topics`` entries in its topic
    dictionary.
    """
    return array_capsule(rows_array(c, topics))
