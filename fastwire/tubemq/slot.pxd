from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from fastwire.columns.logs cimport LogTable


cdef struct Slot:
    bint known
    int32_t log
    int32_t topic
    int32_t partition
    int32_t broker
    int32_t session              # responses to older sessions are dropped; 0 = not read
    int64_t base                 # the position: where a GET began,
    int64_t taken                # and the messages taken since
    bint fresh                   # no GET since ``attach``
    int64_t last                 # where the last GET began
    int64_t last_skip            # messages that were left out of it from its start
    int64_t owed                 # messages still to be left out after it
    const uint8_t* filters       # sizes and values of the types to keep; NULL: all
    int64_t filter_bytes
    int64_t largest              # bytes of the largest recent message
    uint64_t chunk               # the chunk that holds this slot's open span
    int64_t span


cdef class SlotTable(LogTable):
    cdef Slot* slots
    cdef int64_t capacity
    cdef dict filters            # the bytes that the slots point into
    cdef Slot* get(self, int64_t index) except NULL
