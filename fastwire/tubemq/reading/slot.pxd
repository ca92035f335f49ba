cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from fastwire.columns.slots cimport PartitionSlots, SlotHead


cdef struct Slot:
    SlotHead head
    int32_t broker
    int64_t base                 # the position: where a GET began,
    int64_t taken                # and the messages taken since
    bint fresh                   # no GET since ``attach`` that may have moved the broker's position
    bint exact                   # the next GET begins at ``least``, unless an operator moves the broker's position
    int64_t last                 # where the last GET began
    int64_t least                # the next GET does not begin before
    int64_t widest               # bytes of the index that a GET was seen to pass over, at least; -1: none was seen
    int64_t doubt_base           # the position behind which a jump was doubted last; -1: none
    int64_t doubt_taken
    int64_t doubted              # its distance in bytes of the index; 0: no jump
    int64_t settled              # the distance at which the answer to the next COMMIT is in no doubt
    int64_t last_skip            # messages that were left out of it from its start
    int64_t owed                 # messages still to be left out after it
    int64_t last_id              # messageId of the last message taken,
    bint compare                 # which the last message that is left out must have
    const uint8_t* filters       # sizes and values of the types to keep; NULL: all
    int64_t filter_bytes


cdef class SlotTable(PartitionSlots):
    cdef dict filters            # the bytes that the slots point into

    @cython.final
    cdef inline Slot* get(self, int64_t index) except NULL:
        """Return the slot of a log. Raises KeyError."""
        return <Slot*>self.head(index)

cdef bint slot_doubts(Slot* s) noexcept nogil
cdef bint slot_reaches(Slot* s, int64_t offset) noexcept nogil
cdef void slot_settles(Slot* s) noexcept nogil
