cimport cython
from libc.stdint cimport int16_t, int32_t, int64_t, uint64_t

from fastwire.columns.slots cimport PartitionSlots, SlotHead


cdef struct Slot:
    SlotHead head
    int64_t offset               # next offset to read
    int64_t ask                  # offset of the next request, by a Doubt; -1 = at ``offset``
    int64_t room                 # bytes that the next response needs to say more than the last one; 0 = as usual
    bint doubted                 # a Doubt is kept
    bint aligned                 # a batch ended at ``offset``, so none may begin before it
    int64_t confirmed            # a batch of the next response begins here for certain; -1 = not known
    bint compare                 # the record before ``offset`` is requested, too: it must be the one with ``witness``
    bint witnessed               # ``witness`` is known
    int64_t witness
    int32_t epoch                # leader epoch of what was read last, -1 = not known
    int64_t high_watermark
    int64_t stable_offset
    int64_t log_start
    int16_t error                # of the last answer
    int32_t leader               # leader named by the last response, -1 = none
    int32_t leader_epoch
    int32_t preferred_replica
    int64_t diverging_offset     # where the leader's log differs, -1 = nowhere
    int64_t received             # bytes of records in the last answer


cdef class SlotTable(PartitionSlots):
    cdef dict doubts             # Doubt by slot
    cdef dict dead_letters           # the batches of the last dead letters, by slot: hash -> offset in the head
    cdef readonly int64_t probing    # slots that have an ``ask``
    cdef void set_ask(self, Slot* s, int64_t offset) noexcept

    @cython.final
    cdef inline Slot* get(self, int64_t index) except NULL:
        """Return the slot of a log. Raises KeyError."""
        return <Slot*>self.head(index)
