from libc.stdint cimport int64_t

from fastwire.columns.builder cimport Columns
from fastwire.wire.pool cimport fw_memory

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

# A format is constant, or lives as long as the process. A new array takes one reference on ``memory``, if there is one.
cdef ArrowSchema* new_schema(const char* format, const char* name, int64_t flags, int64_t children) except NULL
cdef ArrowArray* new_array(fw_memory* memory, int64_t length, int64_t buffers, int64_t children) except NULL
cdef void drop_schema(ArrowSchema* s) noexcept
cdef void drop_array(ArrowArray* a) noexcept

cdef object schema_capsule(ArrowSchema* s)
cdef object array_capsule(ArrowArray* a)
cdef object export_schema(const Columns* c)
cdef object export_array(Columns* c, int64_t topics)
