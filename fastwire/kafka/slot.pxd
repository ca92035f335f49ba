from libc.stdint cimport int16_t, int32_t, int64_t, uint64_t

from fastwire.columns.logs cimport LogTable


cdef struct Slot:
    bint known
    int32_t log
    int32_t topic
    int32_t partition
    int32_t session              # responses to older sessions are dropped; 0 = not read
    int64_t offset               # next offset to read
    int64_t ask                  # offset of the next request in the search for the end of damage; -1 = at ``offset``
    bint bisecting               # a Doubt chooses ``ask``; otherwise ``jump`` does
    bint doubted                 # a Doubt is kept
    bint aligned                 # a batch ended at ``offset``, so none may begin before it
    int64_t jump                 # a first offset that leaves a hole after ``offset``; to be confirmed, or confirmed
    int64_t lie                  # a first offset that was not confirmed
    int32_t epoch                # leader epoch of what was read last, -1 = not known
    int64_t high_watermark
    int64_t stable_offset
    int64_t log_start
    int16_t error                # of the last answer
    int32_t leader               # leader named by the last response, -1 = none
    int32_t leader_epoch
    int32_t preferred_replica
    int64_t diverging_offset     # where the leader's log differs, -1 = nowhere
    int64_t largest              # bytes of the largest recent batch
    int64_t received             # bytes of records in the last answer
    uint64_t chunk               # the chunk that holds this slot's open span
    int64_t span


cdef class SlotTable(LogTable):
    cdef Slot* slots
    cdef int64_t capacity
    cdef dict doubts             # Doubt by slot
    cdef readonly int64_t probing    # slots that have an ``ask``
    cdef void set_ask(self, Slot* s, int64_t offset) noexcept
    cdef Slot* get(self, int64_t index) except NULL
