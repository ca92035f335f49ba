"""Rows as messages of Pulsar. See ``outgoing.pyx``."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from fastwire.columns.block cimport Block
from fastwire.columns.routes cimport Routes


cdef class MessageRoutes(Routes):
    cdef bint murmur3
    cdef int32_t hash_of(self, const uint8_t* text, int64_t size) noexcept nogil


cdef class MessageBlock(Block):
    cdef int64_t first_sequence
