cimport cython
from libc.stdint cimport int32_t, int64_t, uint64_t

from fastwire.columns.logs cimport LogTable


cdef struct SlotHead:            # the part of a partition's slot that all systems have
    bint known
    int32_t log
    int32_t topic
    int32_t partition
    int64_t until                # end of a bounded run: what begins here or later is not taken
    int32_t session              # responses to requests of older sessions are dropped; 0 = not read
    int64_t largest              # bytes of the largest recent batch
    uint64_t chunk               # the chunk that holds this slot's open span
    int64_t span


cdef class PartitionSlots(LogTable):
    cdef char* slots             # structs of ``width`` bytes that begin with a SlotHead
    cdef int64_t width
    cdef int64_t capacity

    @cython.final
    cdef SlotHead* add_slot(self, log, int partition) except NULL

    @cython.final
    cdef SlotHead* begin_session(self, int64_t index, int32_t session) except NULL

    @cython.final
    cdef SlotHead* head(self, int64_t index) except NULL
