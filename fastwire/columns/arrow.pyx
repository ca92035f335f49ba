"""The Arrow C data interface: columns handed out without a copy and without any Arrow library.

Every exported array holds one reference on the chunk's memory. Releases are plain C: they run on whatever thread the
consumer lets go, without the interpreter lock.
"""

from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free

from fastwire.columns.builder cimport (
    BLOCK_TOPICS,
    HAS_BATCH_INDEX,
    HAS_BROKER,
    HAS_EVENT_TIME,
    HAS_HEADERS,
    HAS_KEY,
    HAS_LEDGER,
    HAS_OFFSET,
    HAS_ORDERING_KEY,
    HAS_PARTITION,
    HAS_PRODUCER,
    HAS_REDELIVERY_COUNT,
    HAS_SCHEMA_VERSION,
    HAS_SEQUENCE_ID,
    HAS_TIMESTAMP,
    HAS_TIMESTAMP_TYPE,
    HAS_TOPIC,
    HAS_VALUE,
    VAR_HEADER_KEY,
    VAR_HEADER_VALUE,
    VAR_KEY,
    VAR_ORDERING_KEY,
    VAR_SCHEMA_VERSION,
    VAR_VALUE,
    Cells,
    Columns,
)
from fastwire.wire.pool cimport fw_memory, fw_memory_ref, fw_memory_unref

cdef struct ArrowSchema:
    const char* format
    const char* name
    const char* metadata
    int64_t flags
    int64_t n_children
    ArrowSchema** children
    ArrowSchema* dictionary
    void (*release)(ArrowSchema*) noexcept nogil
    void* private_data

cdef struct ArrowArray:
    int64_t length
    int64_t null_count
    int64_t offset
    int64_t n_buffers
    int64_t n_children
    const void** buffers
    ArrowArray** children
    ArrowArray* dictionary
    void (*release)(ArrowArray*) noexcept nogil
    void* private_data

cdef enum:
    NULLABLE = 2
    MOST_COLUMNS = 20

# What an empty column points at: offsets [0] and no data.
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
    s.release = NULL


cdef void release_array(ArrowArray* a) noexcept nogil:
    # Children may have been moved out: then their release is NULL and their memory reference is the new owner's.
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
    cdef ArrowSchema* s = <ArrowSchema*>calloc(1, sizeof(ArrowSchema))
    if s is NULL:
        raise MemoryError()
    s.format = format
    s.name = name
    s.flags = flags
    s.release = release_schema
    if children:
        s.children = <ArrowSchema**>calloc(<size_t>children, sizeof(ArrowSchema*))
        if s.children is NULL:
            free(s)
            raise MemoryError()
        s.n_children = children
    return s


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
        a.release(a)
        free(a)
        raise MemoryError()
    if memory is not NULL:
        fw_memory_ref(memory)
        a.private_data = memory
    return a


cdef ArrowArray* fixed_array(Columns* c, const void* data) except NULL:
    cdef ArrowArray* a = new_array(c.memory, c.rows, 2, 0)
    a.buffers[1] = data
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
    a.buffers[0] = c.header_validity if a.null_count else NULL
    a.buffers[1] = c.header_offsets
    try:
        pair = new_array(NULL, c.headers, 1, 2)
        a.children[0] = pair
        pair.children[0] = cells_array(c, VAR_HEADER_KEY, c.headers)
        pair.children[1] = cells_array(c, VAR_HEADER_VALUE, c.headers)
    except MemoryError:
        a.release(a)
        free(a)
        raise
    return a


cdef ArrowSchema* headers_schema() except NULL:
    cdef ArrowSchema* s = new_schema("+l", "headers", NULLABLE, 1)
    try:
        s.children[0] = new_schema("+s", "item", 0, 2)
        s.children[0].children[0] = new_schema("u", "key", 0, 0)
        s.children[0].children[1] = new_schema("z", "value", NULLABLE, 0)
    except MemoryError:
        s.release(s)
        free(s)
        raise
    return s


cdef ArrowSchema* dictionary_schema(const char* name) except NULL:
    cdef ArrowSchema* s = new_schema("i", name, 0, 0)
    try:
        s.dictionary = new_schema("u", "", 0, 0)
    except MemoryError:
        s.release(s)
        free(s)
        raise
    return s


cdef void free_schema_capsule(object capsule) noexcept:
    cdef ArrowSchema* s = <ArrowSchema*>PyCapsule_GetPointer(capsule, "arrow_schema")
    if s.release is not NULL:
        s.release(s)
    free(s)


cdef void free_array_capsule(object capsule) noexcept:
    cdef ArrowArray* a = <ArrowArray*>PyCapsule_GetPointer(capsule, "arrow_array")
    if a.release is not NULL:
        a.release(a)
    free(a)


cdef int bit_count(unsigned int mask):
    cdef int n = 0
    while mask:
        n += mask & 1
        mask >>= 1
    return n


cdef ArrowSchema* rows_schema(unsigned int mask) except NULL:
    cdef ArrowSchema* s = new_schema("+s", "", 0, bit_count(mask))
    cdef int i = 0
    try:
        if mask & HAS_KEY:
            s.children[i] = new_schema("z", "key", NULLABLE, 0)
            i += 1
        if mask & HAS_VALUE:
            s.children[i] = new_schema("z", "value", NULLABLE, 0)
            i += 1
        if mask & HAS_TOPIC:
            s.children[i] = dictionary_schema("topic")
            i += 1
        if mask & HAS_PARTITION:
            s.children[i] = new_schema("i", "partition", 0, 0)
            i += 1
        if mask & HAS_OFFSET:
            s.children[i] = new_schema("l", "offset", 0, 0)
            i += 1
        if mask & HAS_TIMESTAMP:
            s.children[i] = new_schema("tsu:UTC", "timestamp", 0, 0)
            i += 1
        if mask & HAS_TIMESTAMP_TYPE:
            s.children[i] = new_schema("i", "timestampType", 0, 0)
            i += 1
        if mask & HAS_HEADERS:
            s.children[i] = headers_schema()
            i += 1
        if mask & HAS_LEDGER:
            s.children[i] = new_schema("l", "ledger", 0, 0)
            i += 1
        if mask & HAS_BATCH_INDEX:
            s.children[i] = new_schema("i", "batchIndex", 0, 0)
            i += 1
        if mask & HAS_EVENT_TIME:
            s.children[i] = new_schema("tsu:UTC", "eventTime", NULLABLE, 0)
            i += 1
        if mask & HAS_PRODUCER:
            s.children[i] = dictionary_schema("producer")
            i += 1
        if mask & HAS_SEQUENCE_ID:
            s.children[i] = new_schema("l", "sequenceId", 0, 0)
            i += 1
        if mask & HAS_ORDERING_KEY:
            s.children[i] = new_schema("z", "orderingKey", NULLABLE, 0)
            i += 1
        if mask & HAS_SCHEMA_VERSION:
            s.children[i] = new_schema("z", "schemaVersion", NULLABLE, 0)
            i += 1
        if mask & HAS_REDELIVERY_COUNT:
            s.children[i] = new_schema("i", "redeliveryCount", 0, 0)
            i += 1
        if mask & HAS_BROKER:
            s.children[i] = new_schema("i", "broker", 0, 0)
            i += 1
    except MemoryError:
        s.release(s)
        free(s)
        raise
    return s


cdef ArrowArray* rows_array(Columns* c, int64_t topics) except NULL:
    cdef unsigned int mask = c.mask
    cdef ArrowArray* a = new_array(NULL, c.rows, 1, bit_count(mask))
    cdef int32_t* topic_offsets = <int32_t*>c.memory.block[BLOCK_TOPICS]
    cdef int i = 0
    try:
        if mask & HAS_KEY:
            a.children[i] = cells_array(c, VAR_KEY, c.rows)
            i += 1
        if mask & HAS_VALUE:
            a.children[i] = cells_array(c, VAR_VALUE, c.rows)
            i += 1
        if mask & HAS_TOPIC:
            a.children[i] = fixed_array(c, c.topic)
            a.children[i].dictionary = strings_array(
                c, topics, topic_offsets, <uint8_t*>(topic_offsets + topics + 1)
            )
            i += 1
        if mask & HAS_PARTITION:
            a.children[i] = fixed_array(c, c.partition)
            i += 1
        if mask & HAS_OFFSET:
            a.children[i] = fixed_array(c, c.offset)
            i += 1
        if mask & HAS_TIMESTAMP:
            a.children[i] = fixed_array(c, c.timestamp)
            i += 1
        if mask & HAS_TIMESTAMP_TYPE:
            a.children[i] = fixed_array(c, c.timestamp_type)
            i += 1
        if mask & HAS_HEADERS:
            a.children[i] = headers_array(c)
            i += 1
        if mask & HAS_LEDGER:
            a.children[i] = fixed_array(c, c.ledger)
            i += 1
        if mask & HAS_BATCH_INDEX:
            a.children[i] = fixed_array(c, c.batch_index)
            i += 1
        if mask & HAS_EVENT_TIME:
            a.children[i] = fixed_array(c, c.event_time)
            a.children[i].null_count = c.rows - c.event_time_present
            a.children[i].buffers[0] = c.event_time_validity if c.rows != c.event_time_present else NULL
            i += 1
        if mask & HAS_PRODUCER:
            a.children[i] = fixed_array(c, c.producer)
            a.children[i].dictionary = strings_array(c, c.producers.count, c.producers.offsets, c.producers.data)
            i += 1
        if mask & HAS_SEQUENCE_ID:
            a.children[i] = fixed_array(c, c.sequence_id)
            i += 1
        if mask & HAS_ORDERING_KEY:
            a.children[i] = cells_array(c, VAR_ORDERING_KEY, c.rows)
            i += 1
        if mask & HAS_SCHEMA_VERSION:
            a.children[i] = cells_array(c, VAR_SCHEMA_VERSION, c.rows)
            i += 1
        if mask & HAS_REDELIVERY_COUNT:
            a.children[i] = fixed_array(c, c.redelivery_count)
            i += 1
        if mask & HAS_BROKER:
            a.children[i] = fixed_array(c, c.broker)
            i += 1
    except MemoryError:
        a.release(a)
        free(a)
        raise
    return a


cdef object export_schema(unsigned int mask):
    """An ``arrow_schema`` capsule of the rows."""
    return PyCapsule_New(rows_schema(mask), "arrow_schema", free_schema_capsule)


cdef object export_array(Columns* c, int64_t topics):
    """An ``arrow_array`` capsule of the rows of a finished chunk whose topic dictionary has ``topics`` entries."""
    return PyCapsule_New(rows_array(c, topics), "arrow_array", free_array_capsule)
