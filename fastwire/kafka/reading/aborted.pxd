from libc.stdint cimport int64_t, uint8_t

from fastwire.wire.pool cimport Pool


cdef struct Transaction:
    int64_t first                # its first offset
    int64_t producer


cdef class AbortedTransactions:
    cdef Pool _pool
    cdef int _class
    cdef int64_t _room
    cdef int64_t _count
    cdef int64_t _next           # the first one that begins at or behind ``next_offset`` of the last ``reach``
    cdef Transaction* _listed    # the block, by first offset; NULL where none is held
    cdef int64_t* _producers     # in the block: the producer of each transaction, in order
    cdef uint8_t* _open          # in the block: whether that producer is within an aborted transaction
    cdef int64_t most(self) noexcept
    cdef int begin(self, int64_t count) except -1
    cdef void add(self, int64_t producer, int64_t first) noexcept
    cdef void sort(self) noexcept
    cdef void clear(self) noexcept
    cdef void reach(self, int64_t next_offset) noexcept
    cdef void end(self, int64_t producer) noexcept
    cdef bint is_open(self, int64_t producer) noexcept
    cdef int64_t place(self, int64_t producer) noexcept
