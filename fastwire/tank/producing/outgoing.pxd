"""Rows as messages of TANK. See ``outgoing.pyx``."""

from libc.stdint cimport int64_t, uint64_t

from fastwire.columns.block cimport Block
from fastwire.columns.routes cimport Routes


cdef class MessageRoutes(Routes):
    pass


cdef class MessageBlock(Block):
    cdef uint64_t time           # of the last message
