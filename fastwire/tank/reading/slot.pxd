cimport cython
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

from fastwire.columns.slots cimport PartitionSlots, SlotHead


cdef struct Slot:
    SlotHead head
    int64_t sequence             # the next one to read
    bint compare                 # the message before it is requested, too: it must be the one with ``witness``
    bint witnessed               # ``witness`` is known
    int64_t witness
    # of the last answer:
    int64_t began                # ``sequence`` before it
    int32_t status
    uint64_t high_watermark
    uint64_t first_available
    uint32_t host                # of the leader, in network order
    int32_t port                 # of the leader; -1 = none was named
    int64_t received             # bytes of its chunk
    int64_t needed               # bytes of the bundle that was cut off, with its length; 0 = none was


cdef class SlotTable(PartitionSlots):
    @cython.final
    cdef inline Slot* get(self, int64_t index) except NULL:
        """Return the slot of a log. Raises KeyError."""
        return <Slot*>self.head(index)
