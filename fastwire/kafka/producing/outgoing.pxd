"""Rows as records of Kafka. See ``outgoing.pyx``."""

from libc.stdint cimport int64_t

from fastwire.columns.block cimport Block
from fastwire.columns.routes cimport Routes


cdef class RecordRoutes(Routes):
    pass


cdef class RecordBlock(Block):
    cdef readonly int64_t base_timestamp
    cdef readonly int64_t max_timestamp
    cdef int64_t begin(self, int64_t time) noexcept
