from libc.stdint cimport int64_t, uint8_t

from fastwire.wire.pool cimport Pool


cdef class ReceiveBuffer:
    cdef Pool _pool
    cdef uint8_t* data           # NULL while it rests
    cdef int _class
    cdef int64_t capacity
    cdef int64_t usual           # the capacity to come back to
    cdef int64_t start           # first byte that is not parsed yet
    cdef int64_t end             # one past the last byte received
    cdef int64_t largest         # the most that has been in here, and at least ``usual``
    cdef int64_t growths         # how often a frame needed a larger block
    cdef int exports             # views that are out
    cdef int64_t wanted          # bytes a cut-off frame needs in all; 0 = unknown
    cdef void give(self) noexcept
    cdef int fit(self) except -1
    cdef int move(self, int64_t capacity) except -1
