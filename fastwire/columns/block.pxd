"""The encoded records of a batch that is written. See ``block.pyx``."""

from libc.stdint cimport int64_t, uint8_t

from fastwire.columns.routes cimport Routes


cdef class Block:
    cdef uint8_t* data
    cdef int64_t size
    cdef int64_t room
    cdef int64_t* ends           # of each record in ``data``
    cdef int64_t ends_room
    cdef int64_t* origins        # of each record, as its ``Rows`` number it; -1: not numbered
    cdef int64_t origins_room
    cdef int64_t count
    cdef readonly int64_t weight
    cdef uint8_t* reserve(self, int64_t size) except NULL
    cdef int put(self, Routes routes, int64_t row) except -1
    cdef int note_origin(self, int64_t origin) except -1
    cdef int end_record(self, uint8_t* end) except -1
    cdef Block empty(self)
    cdef int copy(self, Block source, int64_t record) except -1
