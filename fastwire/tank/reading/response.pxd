from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from fastwire.tank.reading.slot cimport SlotTable
from fastwire.wire.reader cimport Reader


cdef struct Part:                # one partition with a chunk
    int64_t slot                 # -1 = was not requested
    int32_t session              # the session of the request
    int64_t base                 # the sequence of the first bundle, unless it is sparse; -1 = was not given
    int64_t high_watermark
    int64_t left                 # bytes of the chunk that are not read yet


cdef class ResponseWalk:
    cdef SlotTable slots
    cdef Part* parts
    cdef int64_t capacity
    cdef int64_t count
    cdef int64_t at              # the part that is being read; ``count`` = none
    cdef uint32_t request_id
    cdef int64_t received
    cdef int64_t unknown
    cdef list answered           # slots
    cdef int read(self, planned, const uint8_t* frame, int64_t header, int64_t payload) except -1
    cdef int read_partition(self, Reader* r, int32_t partition, dict partitions) except -1
    cdef Part* part(self) noexcept
    cdef object done(self)
