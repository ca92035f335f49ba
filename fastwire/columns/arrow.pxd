from libc.stdint cimport int64_t

from fastwire.columns.builder cimport Columns

cdef object export_schema(const Columns* c)
cdef object export_array(Columns* c, int64_t topics)
