from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

from fastwire.columns.logs cimport LogTable


cdef struct Slot:
    bint known
    int32_t log
    int32_t topic
    int32_t partition
    int32_t session              # answers to requests of older sessions are dropped; 0 = not read
    int64_t sequence             # the next one to read
    # of the last answer:
    int64_t began                # ``sequence`` before it
    int32_t status
    uint64_t high_watermark
    uint64_t first_available
    uint32_t host                # of the leader, in network order
    int32_t port                 # of the leader; -1 = none was named
    int64_t received             # bytes of its chunk
    int64_t needed               # bytes of the bundle that was cut off, with its length; 0 = none was
    int64_t largest              # bytes of the largest recent bundle
    uint64_t chunk               # the chunk that holds this slot's open span
    int64_t span


cdef class SlotTable(LogTable):
    cdef Slot* slots
    cdef int64_t capacity
    cdef Slot* get(self, int64_t index) except NULL
