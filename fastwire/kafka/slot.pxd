from libc.stdint cimport int16_t, int32_t, int64_t, uint64_t

from fastwire.columns.logs cimport LogTable


cdef struct Slot:                # what the scanner knows of one partition
    bint known
    int32_t log
    int32_t topic
    int32_t partition
    int32_t session              # answers to requests of an older one are dropped; 0 = not read
    int64_t offset               # the next one to be read
    int32_t epoch                # leader epoch of what was read last, -1 = not known
    int64_t high_watermark
    int64_t stable_offset
    int64_t log_start
    int16_t error                # of the last answer
    int32_t leader               # whom the last answer names instead, -1 = nobody
    int32_t leader_epoch
    int32_t preferred_replica
    int64_t diverging_offset     # where our log and the leader's part, -1 = nowhere
    int64_t largest              # bytes of the largest recent batch
    int64_t received             # bytes of records in the last answer
    uint64_t chunk               # the chunk that holds this slot's open span
    int64_t span


cdef class SlotTable(LogTable):
    cdef Slot* slots
    cdef int64_t capacity
    cdef Slot* get(self, int64_t index) except NULL
