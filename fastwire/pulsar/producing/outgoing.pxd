"""Rows as messages of Pulsar. See ``outgoing.pyx``."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from fastwire.columns.block cimport Block
from fastwire.columns.routes cimport Routes


cdef class MessageRoutes(Routes):
    cdef bint murmur3
    cdef int check(self, int64_t first, int64_t stop) except -1
    cdef void count_keys(
        self, const int32_t* order, int64_t count, int32_t* table, int64_t room, int32_t* leads, int32_t* members,
        int64_t* starts,
    ) noexcept nogil
    cdef const uint8_t* sticky(self, int64_t row, int64_t* size) noexcept nogil
    cdef bint is_same(self, int64_t one, int64_t other) noexcept nogil
    cdef int kind(self, int64_t row) noexcept nogil
    cdef int32_t hash_of(self, const uint8_t* text, int64_t size) noexcept nogil


cdef class MessageBlock(Block):
    cdef int64_t first_sequence
